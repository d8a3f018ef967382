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

from commands.page.overview import Overview, joined
from experiments.rails.experiment import Rails
from experiments.rails.row import RailRow
from measure.metrics.checks import Check, Verdict
from measure.metrics.load import ADVICE
from measure.results.combine import combined
from measure.results.folder import is_locked
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
    *("looks", "progress"),
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

    def make(
        rows: Sequence[ResultRow], name: str = "out", *, live: bool = False, repeats: int = 1, **more: Any
    ) -> Path:
        manifest = build_manifest(
            experiment={"experiment": "rails", "repeats": repeats},
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
    live = is_locked(folder) and "ended" not in json.loads((folder / "manifest.json").read_text())
    found = Overview(Results.open(folder), live=live).payload(points, **more)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found.keys() == KEYS
    return found


def test_it_says_what_the_run_is(made: Made) -> None:
    found = shown(made([row()]), unreadable=3)
    assert (found["name"], found["experiment"], found["command"]) == ("out", "rails", "railyard run rails")
    assert (found["state"], found["ended"], found["seed"], found["format"]) == ("complete", "complete", 7, 1)
    assert (found["unreadable"], found["machine"]) == (3, {"cpu": "EPYC"})
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


def repeated() -> RailRow:
    """The row of three repeats, of which the second and third are not faithful."""
    found = [row(step_s=10.0 + number, ok=number == 0, point=number) for number in range(3)]
    model = Check("model", 0.2, 0.1, "", False, "the step is +20% off the model")
    differ = Check("step spread", 0.3, 0.05, "", False, "the steps differ by 30%")
    found[1].judge(Verdict(False, (differ, found[1].checks[1])))
    found[2].judge(Verdict(False, (model, replace(differ, value=0.4, says="the steps differ by 40%"))))
    return combined(found)


def test_each_repeat_has_a_verdict_of_its_own(made: Made) -> None:
    attempts = [attempt(0, number, 1, [number]) for number in range(3)]
    attempts[1] |= {"faithful": False, "verdict": "NOT FAITHFUL: the steps differ by 30%"}
    attempts[2] |= {"faithful": False, "verdict": "NOT FAITHFUL: the step is +20% off the model"}
    whole = repeated()
    found = shown(made([whole], attempts=attempts, repeats=3), [point(number) for number in range(3)])
    first, second, third = found["verdicts"]
    seen = [(each["repeat"], each["repeats"], each["points"], each["faithful"]) for each in found["verdicts"]]
    assert seen == [(1, 3, [0], True), (2, 3, [1], False), (3, 3, [2], False)]
    times = [(each["measured_s"], each["predicted_s"], each["what"]) for each in found["verdicts"]]
    assert times == [(whole.samples["step_time_s"][number], 9.0, "step time") for number in range(3)]
    assert (first["verdict"], first["checks"]) == ("faithful", [])
    assert first["checks_of"] == "The checks in full are kept for repeat 2 only."
    assert second["verdict"] == "NOT FAITHFUL: the steps differ by 30%"
    assert ([check["name"] for check in second["checks"]], second["checks_of"]) == (["step spread", "drops"], None)
    assert "off the model" in third["verdict"] and third["checks_of"].startswith(first["checks_of"].rstrip("."))
    assert [check["name"] for check in third["checks"]] == ["step spread", "model"]


def test_a_repeat_that_does_not_count_has_its_failed_checks_and_the_others_have_one_in_full(made: Made) -> None:
    found = [row(point=1, ok=False), row(step_s=11.0, point=2), row(step_s=12.0, point=3)]
    attempts = [
        *(attempt(0, 0, number, [number - 1], disturbed=True) for number in (1, 2)),
        *(attempt(0, number - 1, 1, [number]) for number in (2, 3)),
    ]
    second, third, again, last = shown(made([combined(found)], attempts=attempts, repeats=3))["verdicts"]
    seen = [(each["repeat"], each["faithful"], len(each["checks"]), each["checks_of"]) for each in (second, third)]
    assert seen == [(2, True, 2, None), (3, True, 0, "The checks in full are kept for repeat 2 only.")]
    assert (again["points"], again["repeat"], again["repeats"], again["checks"]) == ([0], 1, 3, [])
    assert again["checks_of"] == "No checks in full are kept of a measurement that does not count."
    assert (last["points"], last["repeat"], [check["ok"] for check in last["checks"]]) == ([1], 1, [False])
    assert last["checks_of"] == "Only the checks that failed are kept of a measurement that does not count."


@pytest.mark.parametrize(("repeats", "numbers"), [(1, (None, None)), (3, (1, 3))])
def test_one_measurement_and_the_first_of_several_under_way_have_all_checks(
    made: Made, repeats: int, numbers: tuple[int | None, int | None]
) -> None:
    first = row(point=0) if repeats == 1 else combined([row(point=0)])
    folder = made([first], attempts=[attempt(0, 0, 1, [0])], repeats=repeats, live=repeats > 1)
    (only,) = shown(folder)["verdicts"]
    assert ((only["repeat"], only["repeats"]), only["checks_of"], len(only["checks"])) == (numbers, None, 2)
    assert only["measured_s"] == 10.0


def test_the_stamp_says_of_which_repeat_a_reason_is(made: Made) -> None:
    (stamp,) = shown(made([repeated()], repeats=3, planned=3))["stamps"]
    assert stamp["says"] == (
        "1 of 1 points; do not trust their numbers. on-demand 0 ms, repeat 3: the steps differ by 40%. "
        "on-demand 0 ms, repeat 3: the step is +20% off the model."
    )


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


def test_a_stamp_ends_its_sentences_once(made: Made) -> None:
    busy = row(ok=False)
    busy.judge(Verdict(False, (Check("other processes", 1.0, 0.2, "", False, "others kept 1 processor busy"),)))
    (stamp,) = shown(made([busy]))["stamps"]
    assert stamp["says"].endswith("others kept 1 processor busy. " + ADVICE)


def test_a_run_that_somebody_acted_on_is_stamped(made: Made) -> None:
    acts = [{"point": 0, "title": "on-demand", "acts": 1, "first": "somebody rewired rail0 over REST: 1-4"}]
    found = shown(made([row()], acts=acts, ended=COMPLETE))
    (stamp,) = found["stamps"]
    assert stamp["kind"] == "ACTED ON" and found["notes"] == []
    assert stamp["says"].startswith("1 act over REST in 1 measurement (on-demand), somebody rewired rail0")


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


def test_a_killed_run_is_partial(made: Made) -> None:
    folder = made([row()], planned=3, ended=None)
    found = shown(folder, [point(0), point(1, state="stopped")])
    assert (found["state"], found["progress"]["running"]) == ("killed", None)
    assert "was killed" in found["stamps"][0]["says"]


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


def test_rows_that_no_run_writes_are_refused_as_by_the_report(made: Made) -> None:
    folder = made([row(point=0)])
    (folder / "summary.json").write_text(json.dumps([{**row(point=0).to_json(), "mode": 5}]))
    with pytest.raises(ConfigError, match="row 0: mode: must be text, not 5"):
        shown(folder)


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
