"""Rows, tables and figures of the failover and server-fabric experiments, from events whose every time is known."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from failover_events import DETECT, FAULT, RESUMED, SLOW_STEP, STEP, struck
from figure_words import words
from reports import printed
from rich.console import Console

from controllers.engine.jobs import Detection
from experiments.racks.failover.experiment import Failover, FailoverSettings
from experiments.racks.failover.report import REPORT
from experiments.racks.figures import recovery_breakdown, recovery_timeline, step_times, throughput_over_time
from experiments.racks.forecast import detection_bounds, predicted_parts
from experiments.racks.recovery import neighbour_row, recoveries
from experiments.racks.row import FailoverRow, State, add_ratios, judge_together
from experiments.racks.server_fabric import report as server_fabric
from experiments.racks.server_fabric.experiment import ServerFabric
from experiments.racks.server_fabric.figures import shapes
from experiments.racks.server_fabric.row import MEASURES, SHAPES, ServerFabricRow, gain
from experiments.racks.throughput import fabric_run
from experiments.redraw import redraw
from experiments.report import ALL_COLUMNS_WIDTH, WIDTH, as_rich
from experiments.settings import validated
from measure.figures.style import png
from measure.metrics.checks import Check, Verdict
from measure.model.simulated_control import Costs
from measure.results.manifest import build_manifest
from measure.results.results import Results
from measure.results.row import Row, columns
from measure.results.summary import Summary
from railyard.scale import Scale
from railyard.timeline import Event

SCALE = Scale(1 / 200)
GOOD = Verdict(True, (Check("link rate", 0.98, 0.9, "", True, "fine"),))
BAD = Verdict(False, (Check("cores", 0.5, 0.25, "", False, "all cores were busy 50% of the time"),))
TIMES = ["detect_s", "decide_s", "rewire_s", "checkpoint_s", "restart_s", "first_step_s", "outage_s"]
STEPS = ["step_time_before_s", "step_time_after_s", "lost_steps", "checksum_ok", "faithful"]
ISSUE_COLUMNS = ["experiment", "system", "fabric", "tenant", "event", *TIMES, *STEPS]


def predict(row: FailoverRow, after: float) -> None:
    stages = {"checkpoint": 1.2, "library": 3.4, "data": 10.0}
    known = {"rewire_s": 0.05, "launch_s": 0.2, "first_step_s": after}
    row.predict(detection_bounds(Detection(0.25, 3), SCALE, Costs()), predicted_parts(stages, SCALE, Costs(), **known))
    row.predicted_step_time_before_s, row.predicted_step_time_after_s = STEP, after


def on(row: FailoverRow, fabric: str) -> FailoverRow:
    """The row, on this fabric of a rack with 16 chips."""
    setting = validated(FailoverSettings, {}).setting("photonic")
    row.on(replace(setting, name=fabric, system=f"the {fabric}", scale=SCALE), 3)
    return row


def made_rows(fabric: str, after: float, verdict: Verdict = GOOD, **options: Any) -> list[FailoverRow]:
    events = struck(after=after, **options).timeline()
    (fault,) = recoveries(events, SCALE, "A")
    predict(fault, after)
    fault.checksum_ok = True
    judge_together(fault, [GOOD, verdict])
    neighbour = neighbour_row(events, SCALE, fault, "B")
    neighbour.predicted_step_time_after_s = 1.4
    neighbour.judge(GOOD)
    return [on(fault, fabric), on(neighbour, fabric)]


def json_rows(made: list[FailoverRow]) -> list[Row]:
    add_ratios(made)
    return [row.to_json() for row in made]


def rows_of(fabric: str, after: float, verdict: Verdict = GOOD, **options: Any) -> list[Row]:
    return json_rows(made_rows(fabric, after, verdict, **options))


def all_rows(**options: Any) -> list[Row]:
    made = [*made_rows("photonic", STEP), *made_rows("e1", SLOW_STEP, **options), *made_rows("migrate", STEP)]
    return json_rows(made)


def predicted_rows() -> list[Row]:
    made = []
    for fabric, after in (("photonic", STEP), ("e2", SLOW_STEP)):
        row = FailoverRow(tenant="A", event="predicted")
        predict(row, after)
        made.append(on(row, fabric))
    return json_rows(made)


def check_fits(report: Any, rows: list[Row], *, wide: bool = False) -> None:
    """Every table fits in a terminal of 80 columns."""
    for table in report.tables(rows):
        out = io.StringIO()
        Console(file=out, width=1000).print(as_rich(table, ALL_COLUMNS_WIDTH if wide else WIDTH))
        assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= WIDTH, out.getvalue()


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_rows_have_the_columns_of_the_experiment() -> None:
    fault, neighbour = rows_of("photonic", STEP)
    assert set(ISSUE_COLUMNS) <= set(columns(FailoverRow))
    assert fault["event"] == "kill 1" and fault["seed"] == 3 and fault["replaced_by"] == 12
    assert fault["detect_s"] == pytest.approx(DETECT) and fault["lost_steps"] == 1 and fault["faithful"]
    assert neighbour["tenant"] == "B" and neighbour["event"] == "neighbour" and neighbour["outage_s"] is None
    assert neighbour["change"] == pytest.approx(0.5)
    assert (fault["reserve_chips"], fault["chips"]) == (4, 20)


def test_one_bad_point_makes_the_row_bad_and_none_at_all_too() -> None:
    fault, _ = rows_of("photonic", STEP, BAD)
    assert not fault["faithful"] and "all cores" in fault["verdict"]
    assert [c["ok"] for c in fault["checks"]] == [True, False]
    (empty,) = recoveries(struck().timeline(), SCALE, "A")
    judge_together(empty, [])
    assert not empty.faithful and "no point was judged" in empty.verdict and empty.predicted_outage_s is None


def test_ratios_are_to_the_photonic_rack() -> None:
    rows = all_rows()
    assert [row["after_to_photonic"] for row in rows] == pytest.approx([1.0, 1.0, SLOW_STEP / STEP, 1.0, 1.0, 1.0])
    assert rows_of("e1", SLOW_STEP)[0]["after_to_photonic"] is None


def test_published_values_stand_where_they_apply() -> None:
    photonic, _, e1, _, migrate, _ = all_rows()
    assert photonic["paper_circuits_s"] == 1.2 and e1["paper_circuits_s"] is None
    assert (e1["derived_after_to_photonic_low"], e1["derived_after_to_photonic_high"]) == (1.6, 2.0)
    assert photonic["derived_after_to_photonic_low"] is None and migrate["derived_after_to_photonic_low"] is None
    assert photonic["paper_outage_s"] is None, "the tokenising was not given, so 25.6 s are not to be compared"


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_the_tables_say_it_all() -> None:
    text = printed(Failover, all_rows())
    assert "detect 91%, decide 2%" in text
    assert "MORPHLUX: circuits up after 1.2 s (paper, measured)" in text.replace("\n", " ")
    assert "2.00" in text
    assert "step time of tenant B changed by +50.0%" in text and "Faithful" in text
    wide = printed(Failover, all_rows(), ALL_COLUMNS_WIDTH)
    assert "launch," in wide  # until agents are forked; the field launch_s ends before
    assert "1.6 to 2" in wide and "4 of 20" in wide and "the photonic" in wide


def test_the_table_of_what_went_wrong() -> None:
    text = printed(Failover, [*rows_of("photonic", STEP, BAD), *rows_of("e1", STEP, replaced=False)])
    assert "e1: tenant A is stranded: no spare is left" in text
    assert "NOT FAITHFUL" in text and "all cores were busy" in text


@pytest.mark.parametrize("state", get_args(State))
def test_every_table_fits_in_80_columns(state: str) -> None:
    slow = dict.fromkeys(("detect_s", "circuits_s", "outage_s", "predicted_outage_s"), 123.456)
    steps = {f"{model}step_time_{when}_s": 12.345 for model in ("", "predicted_") for when in ("before", "after")}
    parts = ("detect", "decide", "rewire", "launch", "checkpoint", "library", "data", "load", "start", "first step")
    whole = {"breakdown": [[name, 12.345] for name in parts], "predicted_breakdown": [[name, 12.3] for name in parts]}
    ratios = {"after_to_photonic": 12.34, "predicted_after_to_photonic": 12.34, "misdelivered": 12345, "lost_steps": 12}
    rows = [{**row, **slow, **steps, **whole, **ratios, "state": state} for row in all_rows()]
    check_fits(REPORT, [{**row, "faithful": False, "event": "kill 31"} for row in rows])
    check_fits(REPORT, [{**row, "predicted_step_time_after_s": 12.345} for row in predicted_rows()], wide=True)
    check_fits(server_fabric.REPORT, [*rows, *shape_rows(BAD)])
    check_fits(server_fabric.REPORT, [{**row, "value": None, "faithful": None} for row in shape_rows()], wide=True)


def shape_rows(faithful: Verdict = GOOD) -> list[Row]:
    values = {"iperf3": (9.8, 19.6), "all-reduce": (9.0, 16.2), "epoch": (144.0, 90.0)}
    made: list[Row] = []
    for m in MEASURES:
        for s in SHAPES:
            for fabric, value in zip(("electrical", "photonic"), values[m], strict=True):
                row = ServerFabricRow(measure=m, shape=s, fabric=fabric, value=value, predicted=value)
                row.judge(faithful)
                made.append(row.to_json())
    return made


def test_shapes_as_a_table_with_the_papers_ratio() -> None:
    rows = shape_rows()
    assert gain(rows, "iperf3", "2x1x1") == pytest.approx(2.0)
    assert gain(rows, "epoch", "fragmented") == pytest.approx(1.6), "less time is more"
    assert gain(rows[:1], "iperf3", "2x1x1") is None
    text = printed(ServerFabric, rows)
    assert "1.79" in text and "1.57" in text and "1.60" in text and "fragmented" in text and "measured" in text


# ---- figures --------------------------------------------------------------------------------------------------------


def test_throughput_has_a_panel_for_each_fabric() -> None:
    runs = [
        fabric_run(struck(after=t).timeline(), name, "x", SCALE) for name, t in (("photonic", STEP), ("e1", SLOW_STEP))
    ]
    found = [run for run in runs if run is not None]
    figure = throughput_over_time(found)
    assert figure is not None and len(figure.axes) == 2
    assert "photonic (x)" in "\n".join(words(figure)) and "second tenant" in "\n".join(words(figure))
    assert found[0].marks["first step"] == pytest.approx(RESUMED + STEP - FAULT)
    assert throughput_over_time([]) is None
    stranded = fabric_run(struck(replaced=False).timeline(), "e2", "x", SCALE)
    assert stranded is not None
    drawn = throughput_over_time([stranded])
    assert drawn is not None and "stranded" in "\n".join(words(drawn))
    assert png(drawn, SCALE, faithful=False)


def test_the_breakdown_puts_measured_above_predicted() -> None:
    figure = recovery_breakdown(all_rows())
    assert figure is not None
    said = "\n".join(words(figure))
    assert "7.91 s" in said and "s model" in said and "MORPHLUX (paper, measured)" in said and "library" in said
    bars = [patch for patch in figure.axes[0].patches if patch.get_width() == pytest.approx(DETECT)]  # type: ignore[attr-defined]
    assert len(bars) == 3
    assert recovery_breakdown([]) is None


def test_step_times_have_the_band_that_we_derived() -> None:
    figure = step_times(all_rows())
    assert figure is not None
    assert "derived by us: 1.6 to 2 x photonic" in "\n".join(words(figure)) and "4.00" in "\n".join(words(figure))
    assert len(figure.axes[0].collections) == 1, "one electrical fabric that the range is of"
    alone = step_times(rows_of("e1", SLOW_STEP))
    assert alone is not None and "derived" not in "\n".join(words(alone))
    assert step_times([]) is None


def test_shapes_and_the_staircase() -> None:
    figure = shapes(shape_rows(BAD))
    assert figure is not None and len(figure.axes) == 3
    assert "2.00x\nMORPHLUX 2.00x\n(measured)" in "\n".join(words(figure)) and "1.60x\nMORPHLUX 1.72x" in "\n".join(
        words(figure)
    )
    assert shapes([]) is None
    stairs = recovery_timeline(rows_of("photonic", STEP)[0])
    assert stairs is not None
    assert "paper, measured: 4.5 s, collective library synchronised" in "\n".join(words(stairs))
    assert "paper, measured: 14.5 s, data tokenised" in "\n".join(words(stairs)), "also where we have no such part"
    assert "given" in "\n".join(words(stairs))
    nothing: Mapping[str, Any] = {"breakdown": []}
    assert recovery_timeline(nothing) is None


def test_a_folder_is_drawn_again_from_itself(tmp_path: Path) -> None:
    settings = {"experiment": "server-fabric"}
    manifest = build_manifest(experiment=settings, seed=0, scale=Scale(1 / 200), plans=[], groups={})
    results = Results.create(tmp_path / "out", manifest)
    for number, (fabric, after) in enumerate((("photonic", STEP), ("e1", SLOW_STEP))):
        moved = 1000.0 * number
        events = [
            Event(e.t + moved, e.source, e.kind, e.end and e.end + moved, e.fields)
            for e in struck(after=after).timeline()
        ]
        point = Event(moved, "run", "point", moved + 999, {"point": number, "mode": fabric, "fabric": "rack"})
        results.write_point(number, [point, *events])
    results.write_rows(Summary([*all_rows(), *shape_rows()]), [])
    written = {path.name for path in redraw(tmp_path / "out")}
    assert written == {"trace.json", "throughput.png", "recovery.png", "step-times.png", "recovery-timeline.png",
                       "server-fabric.png"}  # fmt: skip
    assert all((tmp_path / "out" / "figures" / name).stat().st_size > 1000 for name in written - {"trace.json"})
    empty = Results.create(tmp_path / "empty", manifest)
    assert [path.name for path in redraw(empty.folder)] == ["trace.json"]
