from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from reports import printed
from watch.rail_results import rail_results

from experiments.rails.experiment import Rails
from experiments.rails.figures import pooled_windows, sweep, window_cdf
from experiments.rails.report import REPORT, measured_points
from experiments.rails.row import RailRow
from experiments.rails.settings import RailSettings
from experiments.redraw import redraw
from experiments.report import exit_status
from experiments.settings import validated
from measure.figures.step import gantt, link_throughput
from measure.figures.style import time_unit
from measure.metrics.checks import Verdict
from measure.metrics.metrics import measure_point
from measure.results.manifest import scale_of
from measure.results.plain import plain
from measure.results.results import Results
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS
from railyard.scale import Scale, scale_in_words
from railyard.verdict import OTHERS, why_not_faithful


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A results folder of five points; the on-demand ones ran on a saturated machine."""
    return rail_results(tmp_path / "out")


def test_not_faithful_stands_in_table_and_status(folder: Path) -> None:
    rows = Results.open(folder).rows()
    said = printed(Rails, rows)
    assert said.count(" NO ") == 2, "two points"
    assert said.count("NOT FAITHFUL: 2 of 5 points") == 1
    assert "all cores were busy 100%" in said and "link rate 1/4000, time x1" in said
    assert exit_status(rows) == NOT_FAITHFUL_EXIT_STATUS
    assert exit_status([r for r in rows if r["faithful"]]) == 0
    assert exit_status([]) == NOT_FAITHFUL_EXIT_STATUS


@pytest.mark.parametrize("width", [80, 400])
def test_the_table_fits(folder: Path, width: int) -> None:
    said = printed(Rails, Results.open(folder).rows(), width)
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= width
    assert ("lost" in said) == (width == 400)


def test_everything_is_drawn_again_from_the_folder_alone(folder: Path) -> None:
    written = redraw(folder)
    names = sorted(p.relative_to(folder).as_posix() for p in written)
    assert names == [
        "figures/gantt-electrical-0ms.png",
        "figures/gantt-on-demand-200ms.png",
        "figures/gantt-provisioned-200ms.png",
        "figures/links-electrical-0ms.png",
        "figures/links-on-demand-200ms.png",
        "figures/links-provisioned-200ms.png",
        "figures/overhead.png",
        "figures/step-time.png",
        "figures/windows.png",
        "trace.json",
    ]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written if p.suffix == ".png")
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_events_of_a_point_are_found_again(folder: Path) -> None:
    results = Results.open(folder)
    rows = results.rows()
    for point, events in measured_points(results.manifest(), results.events(), rows):
        again = measure_point(point, events)
        assert again.step_time_s == pytest.approx(rows[point.number]["step_time_s"])
        assert again.circuit_wait_s == pytest.approx(rows[point.number]["circuit_wait_s"])


def test_a_run_that_died_is_drawn_as_far_as_it_came(folder: Path) -> None:
    (folder / "summary.json").unlink()
    assert [p.name for p in redraw(folder) if p.name.startswith("gantt")]
    shutil.rmtree(folder / "points")
    assert [p.name for p in redraw(folder)] == ["trace.json"]


def test_a_fitted_step_is_said_to_have_other_ports_than_the_testbed() -> None:
    settings = validated(RailSettings, {"workload": "llama3-8b-16"}).model_dump(mode="json")
    point = {"mode": "electrical", "reconfiguration_delay_ms": 0.0, "step_time_s": 10.2}
    (said,) = REPORT.findings([{"workload": "llama3-8b-16", **point}], settings)
    assert "25 Gb/s a GPU; 200 Gb/s assumed for the testbed of Opus (ours, input)" in str(said)
    assert list(REPORT.findings([{"workload": "smoke", **point}], settings)) == []


def test_a_step_that_never_ended_is_drawn_as_far_as_it_came(make_point: Any, make_job: Any) -> None:
    point = make_point()
    events = [e for e in make_job(point, 1).timeline() if e.kind != "step" and e.get("op_kind") != "recv"]
    figure = gantt(point, events)
    assert figure is not None and "not finished" in figure.axes[0].get_title(loc="left")


def test_figures_without_data_are_left_out(make_point: Any) -> None:
    assert gantt(make_point(), []) is None
    assert link_throughput(make_point(), [], []) is None
    assert sweep([]) is None and window_cdf([], None) is None


def test_windows_are_pooled_by_the_phases_around_them(folder: Path) -> None:
    """Over repeats of one mode, without the points that do not count."""
    results = Results.open(folder)
    rows, events, scale = results.rows(), results.events(), scale_of(results.manifest())
    found = pooled_windows(rows, events, scale)
    assert found is not None and (found.mode, found.repeats) == ("electrical", 1)
    whole = sorted(window for seconds in found.seconds.values() for window in seconds)
    assert whole == pytest.approx(sorted(rows[0]["windows_s"])) and whole
    twice = [dataclasses.replace(e, fields={**e.fields, "point": 9}) for e in events if e.get("point") == 0]
    again = pooled_windows(rows, [*events, *twice], scale)
    assert again is not None and again.repeats == 2 and sum(map(len, again.seconds.values())) == 2 * len(whole)
    assert pooled_windows(rows, [*events, *twice], scale, {9}) == found
    figure = window_cdf(rows, found)
    assert figure is not None
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(names) == len(found.seconds) and all(" → " in name for name in names)


def test_words_for_scale_and_time() -> None:
    assert scale_in_words(Scale(1 / 4000, 2)) == "link rate 1/4000, time x2"
    assert scale_in_words(Scale(0.3)) == "link rate 1/3.333, time x1"
    assert [time_unit(s)[1] for s in (3, 0.5, 1e-5)] == ["s", "ms", "µs"]


def test_the_table_shows_intervals_of_repeats_paired_with_the_electrical_row_and_slopes() -> None:
    def row(mode: str, delay_ms: float, times: list[float]) -> dict[str, Any]:
        made = RailRow(
            workload="smoke",
            fabric="ocs",
            mode=mode,
            policy="opus",
            reconfiguration_delay_ms=delay_ms,
            link_recovery_ms=0,
            predicted_step_time_s=10.0,
            step_time_s=median(times),
            repeats=len(times),
            attempts=len(times) + (mode == "electrical"),
            samples={"step_time_s": list(times)} if len(times) > 1 else {},
        )
        made.judge(Verdict(True, ()))
        return plain(made.to_json())  # type: ignore[no-any-return]

    drift = [10.0, 11.0, 12.0]  # of the machine: all modes alike
    rows = [
        row("electrical", 0, drift),
        row("on-demand", 0, drift),
        row("on-demand", 100, [1.1 * each for each in drift]),
    ]
    said = printed(Rails, rows)
    assert max(map(len, said.splitlines())) <= 80
    lines = [line.split() for line in said.splitlines()]
    assert ["on-demand", "100", "12.100", "23", "10.000", "+21.0", "+10.0"] in [line[:7] for line in lines]
    assert "on-demand: a step grows by 11 ± 2.5 s per second of delay (0 to 100 ms)." in said
    assert "Medians of 3 repeats; ±: half of the 95 % interval." in said
    assert "Measured again, as something disturbed them: 1 measurements of 1 of 3 points" in " ".join(said.split())
    wide = printed(Rails, rows, width=400)
    found = [line.split() for line in wide.splitlines()]
    assert ["on-demand", "100", "12.100", "23", "10.000", "+21.0", "+10.0", "0.0"] in [line[:8] for line in found]
    single = printed(Rails, [row("electrical", 0, [10.0]), row("on-demand", 100, [11.0])])
    assert "±" not in single and "Medians" not in single


def test_a_figure_names_the_check_that_failed_and_how_many_points_did() -> None:
    checks = [{"name": "link rate", "ok": False, "says": "slow"}, {"name": OTHERS, "ok": False, "says": "others ran"}]
    bad = {"faithful": False, "checks": checks}
    good: dict[str, Any] = {"faithful": True, "checks": []}
    assert why_not_faithful([good, bad, bad]) == "NOT FAITHFUL (2 of 3 points): others ran."
    assert why_not_faithful([bad]) == "NOT FAITHFUL: others ran."
    assert why_not_faithful([good]) == why_not_faithful([]) == ""


def test_every_figure_of_a_folder_names_the_failed_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamped: dict[bool, list[str]] = {True: [], False: []}

    def png(figure: Any, scale: Any, *, faithful: bool, note: str, partial: Any) -> bytes:
        stamped[faithful].append(note)
        return b""

    monkeypatch.setattr("measure.figures.style.png", png)
    redraw(folder)
    assert len(stamped[False]) >= 4 and all("NOT FAITHFUL" in note and ": " in note for note in stamped[False])
    assert not any("NOT FAITHFUL" in note for note in stamped[True])
