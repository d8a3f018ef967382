"""The overview of a results folder: as in the report, whole where it can be, and with a note where it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabric_plans import rail_plan
from reports import printed

from experiments.rails.experiment import Rails
from experiments.rails.row import RailRow
from experiments.watch import overview
from experiments.watch.overview import Overview
from experiments.watch.rows import joined
from measure.metrics.checks import Check, Verdict
from measure.results.manifest import build_manifest
from measure.results.partial import COMPLETE
from measure.results.plain import plain
from measure.results.results import FIGURES, Results
from measure.results.row import ResultRow, columns
from measure.results.summary import Summary
from railyard.errors import ConfigError
from railyard.scale import Scale

HOSTILE = "<img src=x onerror=alert(1)>"
KEYS = {
    *("format", "name", "experiment", "command", "written", "ended", "state", "seed", "machine", "versions", "scale"),
    *("calibrated", "stamps", "notes", "unreadable", "tables", "verdicts", "findings", "figures", "points", "plans"),
    *("looks", "control", "progress"),
}


def row(
    mode: str = "on-demand", delay_ms: float = 0.0, step_s: float = 10.0, *, ok: bool = True, **more: Any
) -> RailRow:
    made = RailRow(
        workload="w", fabric="ocs", mode=mode, policy="opus", reconfiguration_delay_ms=delay_ms, link_recovery_ms=0.0,
        steps=2, step_time_s=step_s, predicted_step_time_s=9.0, rate_scale=0.01, time_scale=2.0, **more,
    )  # fmt: skip
    says = f"timers were {1 if ok else 3} ms late (limit 2 ms)"
    made.judge(
        Verdict(ok, (Check("timer lag", 0.001, 0.002, "s", ok, says), Check("drops", None, 0, "", True, "-", False)))
    )
    return made


def point(number: int, mode: str = "on-demand", state: str = "measured", **more: Any) -> dict[str, Any]:
    known = {"number": number, "title": mode, "mode": mode, "plan": "ocs", "duration": 5.0, "state": state}
    return {**known, "steps": None, "expected_s": None, "counts": True, **more}


Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """Makes a results folder of rows, with changes to its manifest; it is locked as long as a run goes on."""
    locked: list[Results] = []

    def make(rows: Sequence[ResultRow], name: str = "out", *, live: bool = False, **more: Any) -> Path:
        manifest = build_manifest(
            experiment={"experiment": "rails", "repeats": 1},
            seed=7,
            scale=Scale(0.01, 2.0),
            plans=[rail_plan(4)],
            groups={},
            **{"planned": len(rows), "command": "railyard run rails", "machine": {"cpu": "EPYC"}, **more},
        )
        manifest |= {"attempts": more.get("attempts", [])} | ({} if live else {"ended": more.get("ended", COMPLETE)})
        results = Results.create(tmp_path / name, manifest)
        kind = type(rows[0]) if rows else RailRow
        results.write_rows(Summary(plain(each.to_json()) for each in rows), columns(kind))
        if live:
            locked.append(results)
        else:
            results.free()
        return results.folder

    yield make
    for results in locked:
        results.free()


def shown(folder: Path, points: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """The overview, which must be JSON that a browser reads."""
    found = Overview(folder).payload(points, **more)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == KEYS
    return found


def test_it_says_what_the_run_is(made: Made) -> None:
    found = shown(made([row()]), unreadable=3, control=True)
    assert (found["name"], found["experiment"], found["command"]) == ("out", "rails", "railyard run rails")
    assert (found["state"], found["ended"], found["seed"], found["format"]) == ("complete", "complete", 7, 1)
    assert (found["unreadable"], found["control"], found["machine"]) == (3, True, {"cpu": "EPYC"})
    scale = "Scaled by: link rate 1/100, time x2; all numbers are those of the real system."
    assert found["scale"] == {"rate": 0.01, "time": 2.0, "says": scale}
    assert found["plans"]["ocs"]["kind"] == "rails" and len(found["plans"]["ocs"]["ports"]) == 8
    assert found["looks"]["dp"]["name"] == "DP"
    assert (found["stamps"], found["notes"]) == ([], [])


def test_tables_and_lines_are_those_of_the_report(made: Made) -> None:
    rows = [row(delay_ms=0.0, step_s=10.0, point=0), row(delay_ms=200.0, step_s=12.0, point=1)]
    found = shown(made(rows))
    text = printed(Rails, [plain(each.to_json()) for each in rows], width=400)
    (table,) = found["tables"]
    assert table["title"] in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert [" ".join(each["cells"]) for each in table["rows"]] == lines[3:5]
    assert [column["name"] for column in table["columns"]][:4] == ["mode", "delay ms", "step s", "model s"]
    assert [column["left"] for column in table["columns"]][:2] == [True, False]
    assert {column["wide"] for column in table["columns"]} == {True, False}
    for line in (*found["findings"], *found["calibrated"], found["scale"]["says"]):
        assert " ".join(line.split()) in " ".join(lines)
    assert found["findings"] and found["calibrated"]


def test_a_row_knows_its_points_and_verdict(made: Made) -> None:
    attempts = [
        attempt(0, 0, 1, [0], disturbed=True),
        attempt(0, 0, 2, [1]),
        attempt(0, 1, 1, [2]),
        attempt(1, 0, 1, [3]),
    ]
    rows = [row(point=2, repeats=2), row(delay_ms=200.0, point=3)]
    points = [point(number) for number in range(4)]
    found = shown(made(rows, attempts=attempts), points)
    assert [each["points"] for each in found["tables"][0]["rows"]] == [[2, 1], [3]]
    assert [each["title"] for each in found["points"]] == ["on-demand", *["on-demand 0 ms"] * 2, "on-demand 200 ms"]
    assert [each["counts"] for each in found["points"]] == [False, True, True, True]
    first, second, left_out = found["verdicts"]
    assert (first["title"], first["faithful"], first["points"]) == ("on-demand 0 ms", True, [2, 1])
    assert (first["what"], first["measured_s"], first["predicted_s"]) == ("step time", 10.0, 9.0)
    assert first["checks"][0] == {
        "name": "timer lag",
        "says": "timers were 1 ms late (limit 2 ms)",
        "ok": True,
        "judged": True,
    }
    assert [check["judged"] for check in second["checks"]] == [True, False]
    assert (left_out["points"], left_out["faithful"], left_out["checks"]) == ([0], False, [])
    assert left_out["title"] == "piece 0, attempt 1, which does not count"


def test_a_point_of_several_rows_is_named_by_what_they_share() -> None:
    assert joined(["photonic, tenant A, kill 1", "photonic, tenant B, neighbour"]) == (
        "photonic: tenant A, kill 1; tenant B, neighbour"
    )
    assert joined(["iperf3, 2x1x1, electrical", "epoch, 2x1x1, electrical"]) == "2x1x1, electrical: iperf3; epoch"
    assert joined(["a", "b"]) == "a; b"
    assert joined(["a, b", "a"]) == "a, b; a"
    assert (joined(["a, b"]), joined([])) == ("a, b", "")


def attempt(place: int, repeat: int, number: int, points: list[int], *, disturbed: bool = False) -> dict[str, Any]:
    known = {"piece": f"piece {place}", "place": place, "repeat": repeat, "attempt": number, "points": points}
    return {**known, "faithful": not disturbed, "disturbed": disturbed, "verdict": "faithful"}


def test_what_is_not_faithful_or_partial_is_stamped(made: Made) -> None:
    found = shown(made([row(), row(delay_ms=200.0, ok=False)], planned=6, ended="stopped: by a signal"))
    not_faithful, partial = found["stamps"]
    assert not_faithful["kind"] == "NOT FAITHFUL"
    assert not_faithful["says"] == (
        "1 of 2 points; do not trust their numbers. on-demand 200 ms: timers were 3 ms late (limit 2 ms)."
    )
    assert (partial["kind"], partial["says"]) == ("PARTIAL", "2 of 6 points: stopped: by a signal")
    assert found["state"] == "stopped"
    assert [each["faithful"] for each in found["tables"][0]["rows"]] == [True, False]


def test_a_prediction_is_stamped_and_finds_nothing(made: Made) -> None:
    predicted = row()
    predicted.faithful, predicted.checks, predicted.step_time_s = None, [], None
    found = shown(made([predicted], predicted=True))
    assert [stamp["kind"] for stamp in found["stamps"]] == ["MODEL ONLY"]
    assert (found["state"], found["findings"], found["verdicts"]) == ("predicted", [], [])
    assert found["tables"][0]["rows"][0]["faithful"] is None


def test_a_run_under_way_says_how_far_it_is(made: Made) -> None:
    folder = made([row(point=0)], live=True, planned=3)
    found = shown(folder, [point(0), point(1, "provisioned", "running", duration=None, steps=4, expected_s=20.0)])
    assert (found["state"], found["ended"]) == ("live", None)
    assert found["progress"] == {"planned": 3, "measured": 1, "running": 1}
    running = found["points"][1]
    assert (running["title"], running["state"], running["counts"]) == ("provisioned", "running", False)
    assert found["stamps"][0]["says"] == "1 of 3 points: the run is still under way"


def test_a_run_that_ends_is_complete_although_it_still_has_its_lock(made: Made) -> None:
    folder = made([row()], live=True)
    change(folder, ended=COMPLETE)
    found = shown(folder)
    assert (found["state"], found["stamps"]) == ("complete", [])


def test_a_killed_run_is_partial(made: Made) -> None:
    folder = made([row()], planned=3, ended=None)
    found = shown(folder, [point(0), point(1, state="stopped")])
    assert (found["state"], found["progress"]["running"]) == ("killed", None)
    assert "was killed" in found["stamps"][0]["says"]


def test_new_rows_are_seen_and_nothing_is_made_twice(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made([row()])
    made_often: list[bool] = []

    class Counted(overview._Made):
        def __init__(self, results: Results, kind: Any, *, live: bool) -> None:
            made_often.append(live)
            super().__init__(results, kind, live=live)

    monkeypatch.setattr(overview, "_Made", Counted)
    view = Overview(folder)
    assert len(view.payload([])["tables"][0]["rows"]) == 1
    view.payload([point(0)])
    assert len(made_often) == 1
    Results(folder).write_rows(Summary(plain(row(delay_ms=ms).to_json()) for ms in (0.0, 9.0)), columns(RailRow))
    assert len(view.payload([])["tables"][0]["rows"]) == 2
    assert len(made_often) == 2


@pytest.mark.parametrize(
    ("name", "note"), [("of_another:Package", "whose code is not part of Railyard"), ("no-such", "no-such")]
)
def test_an_experiment_whose_code_is_not_here_has_no_tables(made: Made, name: str, note: str) -> None:
    folder = made([row(ok=False)])
    change(folder, experiment={"experiment": name})
    found = shown(folder, [point(0)])
    assert note in " ".join(found["notes"])
    assert (found["tables"], found["findings"], len(found["plans"])) == ([], [], 1)
    assert [stamp["kind"] for stamp in found["stamps"]] == ["NOT FAITHFUL"]
    assert found["points"][0]["title"] == "on-demand"


def change(folder: Path, **values: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **values}))


def test_rows_of_another_version_are_completed_with_a_note(made: Made) -> None:
    folder = made([row()])
    rows = json.loads((folder / "summary.json").read_text())
    del rows[0]["exposed_stall_s"]
    (folder / "summary.json").write_text(json.dumps(rows))
    found = shown(folder)
    assert len(found["tables"][0]["rows"]) == 1
    assert "without these fields, which are empty here: exposed_stall_s" in found["notes"][0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summary.json", "[{}]"),
        ("summary.json", '[{"faithful": true, "checks": 5, "step_time_s": "x", "mode": [], "point": {}}]'),
        ("summary.json", "{"),
        ("summary.json", '[{"experiment": "rails", "samples": 5}]'),
        ("manifest.json", '{"railyard_results": 1}'),
        ("manifest.json", '{"railyard_results": 1, "experiment": "x", "plans": [1], "scale": 5, "attempts": 7}'),
        (
            "manifest.json",
            '{"railyard_results": 1, "experiment": {"experiment": "rails"}, "plans": {"a": {"fabric": 1}},'
            ' "scale": {"rate": 0, "time": NaN}, "attempts": [{}], "machine": {"cpu": [NaN]}, "seed": Infinity,'
            ' "planned": "n", "ended": 5}',
        ),
    ],
)
def test_a_folder_that_was_changed_is_shown_as_far_as_possible(made: Made, name: str, text: str) -> None:
    folder = made([row(ok=False, point=0)])
    (folder / name).write_text(text)
    found = shown(folder, [point(0)])
    assert found["notes"] or name == "summary.json"
    assert len(found["points"]) == 1


def test_an_error_of_the_code_of_an_experiment_is_a_note(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise NotImplementedError("no tables yet")

    report = replace(Rails.report(), tables=lambda rows: broken())
    monkeypatch.setattr(Rails, "report", classmethod(lambda cls: report))
    found = shown(made([row(point=0)]), [point(0)])
    assert found["notes"] == ["A part of the overview cannot be made (NotImplementedError: no tables yet)."]
    assert (found["tables"], len(found["verdicts"])) == ([], 1)


def test_hostile_names_stay_plain_text(made: Made) -> None:
    folder = made([row(mode=HOSTILE, point=0)], HOSTILE.replace("/", ""))
    change(folder, command=HOSTILE, written=HOSTILE, machine={HOSTILE: HOSTILE})
    found = shown(folder, [point(0, HOSTILE)])
    assert found["command"] == found["written"] == HOSTILE
    assert found["machine"] == {HOSTILE: HOSTILE}
    assert found["tables"][0]["rows"][0]["cells"][0] == HOSTILE
    assert found["points"][0]["mode"] == HOSTILE


def test_figures_are_files_of_the_folder(made: Made, tmp_path: Path) -> None:
    folder = made([row()])
    figures = folder / FIGURES
    figures.mkdir()
    for name in ("b.png", "a.png", "notes.txt"):
        (figures / name).write_bytes(b"x")
    (figures / "link.png").symlink_to(tmp_path / "elsewhere.png")
    (figures / "folder.png").mkdir()
    assert shown(folder)["figures"] == [{"name": "a", "file": "a.png"}, {"name": "b", "file": "b.png"}]


def test_very_many_rows_and_points_are_cut_with_a_note(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.watch.rows.MOST_ROWS", 2)
    monkeypatch.setattr(overview, "MOST_ROWS", 2)
    monkeypatch.setattr(overview, "MOST_POINTS", 3)
    found = shown(made([row(delay_ms=ms) for ms in range(4)]), [point(number) for number in range(5)])
    assert (len(found["tables"][0]["rows"]), len(found["points"])) == (2, 3)
    assert found["notes"] == [
        "Tables have their first 2 rows; summary.csv has all.",
        "The list has the first 3 of 5 points.",
    ]


def test_another_folder_is_refused(tmp_path: Path, made: Made) -> None:
    with pytest.raises(ConfigError, match="is not a Railyard results folder"):
        Overview(tmp_path)
    folder = made([row()])
    change(folder, railyard_results=99)
    with pytest.raises(ConfigError, match="use the version that wrote it"):
        Overview(folder)
