"""Rows of all points as one table, and outliers among machines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any

import pytest

from commands.sweep.figures import MOST_LINES, sweep_figures, why_no_figure
from commands.sweep.merge import (
    Collected,
    Columns,
    MachineNumber,
    all_rows,
    combined,
    off,
    places,
    ratios,
    sentences,
    single,
)
from commands.sweep.spec import SweepPoint
from experiments.fabric_cost.experiment import FabricCostRow
from experiments.rails.row import RailRow
from measure.figures.style import png
from measure.metrics.checks import Check
from measure.results.plain import plain
from measure.results.row import Row
from measure.results.summary import Summary

STEAL = Check("steal", 0.5, 0.04, "", False, "other guests took 50 % of the processors")


def row_of(step_s: float | None, delay_ms: float, mode: str, *, faithful: bool | None = True, seed: int = 1) -> Row:
    row = RailRow(workload="smoke", fabric="ocs", mode=mode, policy="", reconfiguration_delay_ms=delay_ms,
                  link_recovery_ms=0.0)  # fmt: skip
    row.step_time_s, row.predicted_step_time_s, row.seed = step_s, 1.0 + delay_ms / 1e3, seed
    row.faithful, row.verdict = faithful, "faithful" if faithful else "NOT FAITHFUL: other guests took 50 %"
    row.checks = [] if faithful is not False else [STEAL]
    found: Row = plain({**row.to_json(), "experiment": "rails"})
    return found


def collected(repeat: int, rows: Sequence[Row], host: str = "a", **swept: Any) -> Collected:
    name = f"{repeat:012x}"
    return Collected(SweepPoint(name, "rails", swept, repeat, name, swept), rows, host, repeat + 1)


def study(steps: Sequence[float]) -> list[Collected]:
    return [
        collected(number, [row_of(step + delay / 1e3, delay, "on-demand")], "ab"[number % 2], delays_ms=[delay])
        for delay in (0.0, 50.0)
        for number, step in enumerate(steps)
    ]


def test_every_row_has_the_values_of_its_point_and_the_machine() -> None:
    names = Columns.of(("delays_ms",), (RailRow,))
    rows = list(all_rows(study((1.0, 1.1)), names))
    assert [(row["delays_ms"], row["sweep.repeat"], row["sweep.host"], row["step_time_s"]) for row in rows] == [
        (0.0, 1, "a", 1.0),
        (0.0, 2, "b", 1.1),
        (50.0, 1, "a", 1.05),
        (50.0, 2, "b", 1.15),
    ]
    table = b"".join(Summary(rows).csv(names.of_rows(combined=False))).decode().splitlines()
    assert table[0].startswith("delays_ms,sweep.point,sweep.repeat,sweep.host,sweep.attempts,experiment,seed")
    assert len(table) == 5 and table[1].startswith("0.0,") and ",a,1,rails,1," in table[1]


def test_a_key_that_rows_have_as_a_column_too_keeps_both() -> None:
    names = Columns.of(("workload", "attempts", "fabric.mtu"), (RailRow,))
    assert dict(names.swept) == {"workload": "sweep.workload", "attempts": "sweep.attempts", "fabric.mtu": "fabric.mtu"}


def test_repeats_are_medians_with_an_interval_of_their_values() -> None:
    steps = (1.0, 1.2, 1.1, 1.4, 1.3, 1.15)
    names = Columns.of(("delays_ms",), (RailRow,))
    low, high = list(combined(study(steps), names))
    assert low["step_time_s"] == pytest.approx(median(steps)) and low["samples"]["step_time_s"] == list(steps)
    assert (low["sweep.repeats"], low["sweep.host"], low["repeats"], low["faithful"]) == (6, "a, b", 6, True)
    assert high["step_time_s"] == pytest.approx(median(steps) + 0.05)
    text = b"".join(Summary([low]).csv(names.of_rows(combined=True))).decode()
    assert text.splitlines()[1].endswith("1.0,1.4")


def test_a_repeat_that_is_missing_stays_a_gap_so_that_others_are_paired() -> None:
    found = [
        each for each in study((1.0, 1.1, 1.2)) if (each.point.repeat, each.point.swept) != (1, {"delays_ms": [0.0]})
    ]
    low, high = list(combined(found, Columns.of(("delays_ms",), (RailRow,))))
    assert low["samples"]["step_time_s"] == [1.0, None, 1.2] and len(high["samples"]["step_time_s"]) == 3


def test_a_repeat_that_is_not_faithful_is_said() -> None:
    found = [
        collected(0, [row_of(1.0, 0.0, "on-demand")], delays_ms=[0.0]),
        collected(1, [row_of(9.0, 0.0, "on-demand", faithful=False)], delays_ms=[0.0]),
    ]
    (row,) = combined(found, Columns.of(("delays_ms",), (RailRow,)))
    assert row["faithful"] is False and row["verdict"].startswith("NOT FAITHFUL in 1 of 2 repeats")


def test_predictions_stay_predictions() -> None:
    found = [
        collected(
            number, [{**row_of(None, 0.0, "rotor", faithful=None, seed=number), "predicted_step_time_s": step}], x=1
        )
        for number, step in enumerate((1.0, 3.0, 2.0))
    ]
    (row,) = combined(found, Columns.of(("x",), (RailRow,)))
    assert row["faithful"] is None and row["predicted_step_time_s"] == 2.0 and row["seed"] == 0
    assert row["samples"] == {"predicted_step_time_s": [1.0, 3.0, 2.0]}


def test_computed_rows_without_a_verdict() -> None:
    names = Columns.of(("gpus",), (FabricCostRow,))
    found = [collected(0, [{"experiment": "fabric-cost", "fabric": name, "gpus": 8} for name in "ab"], gpus=[8])]
    rows = list(combined(found, names))
    assert [row["fabric"] for row in rows] == ["a", "b"] and rows[0]["sweep.gpus"] == 8
    assert places(rows, names) == ["fabric"]


@pytest.mark.parametrize(
    ("value", "word"),
    [([50.0], 50.0), ([1.0, 2.0], "1,2"), ("x", "x"), (True, True), ({"a": 1}, '{"a": 1}'), ([["x"]], "x")],
)
def test_a_swept_value_is_one_cell(value: object, word: object) -> None:
    assert single(value) == word


def test_the_figure_has_a_line_for_each_mode_its_model_and_marks_what_is_not_faithful() -> None:
    names = Columns.of(("delays_ms", "modes"), (RailRow,))
    found = [
        collected(0, [row_of(1.0 + delay / 1e3, delay, mode, faithful=delay < 100)], delays_ms=[delay], modes=[mode])
        for delay in (0.0, 50.0, 100.0)
        for mode in ("electrical", "on-demand")
    ]
    rows = list(combined(found, names))
    (drawn,) = sweep_figures(rows, names)
    assert drawn.name == "step_time_s" and drawn.figure is not None and len(drawn.rows) == 6
    (axes,) = drawn.figure.axes
    lines: list[Any] = [line.get_ydata() for line in axes.get_lines()]
    assert [list(line) for line in lines if len(line) == 3] == [[1000.0, 1050.0, 1100.0]] * 2
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert [line.get_xdata() for line in crosses] == [[100.0]] * 2
    legend = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert legend == ["electrical", "on-demand", "not faithful"]
    assert png(drawn.figure, None, faithful=False).startswith(b"\x89PNG")


def test_lines_beyond_the_looks_are_said_and_not_drawn() -> None:
    names = Columns.of(("delays_ms", "steps", "tag"), (RailRow,))
    found = [
        collected(0, [row_of(1.0, delay, "on-demand")], delays_ms=[delay], steps=steps, tag=tag)
        for delay in (0.0, 50.0)
        for steps in range(1, 4)
        for tag in "abc"
    ]
    (drawn,) = sweep_figures(list(combined(found, names)), names)
    assert drawn.note == f"The first {MOST_LINES} of 9 lines; table.csv has all."
    assert len(drawn.rows) == 2 * MOST_LINES


def test_no_swept_number_is_no_figure() -> None:
    names = Columns.of(("modes",), (RailRow,))
    found = [collected(0, [row_of(1.0, 0.0, mode)], modes=[mode]) for mode in ("electrical", "on-demand")]
    rows = list(combined(found, names))
    assert list(sweep_figures(rows, names)) == []
    assert why_no_figure(rows, names) == (
        "No figure: none of the swept keys is one number a point, and has two values or more."
    )
    numbers = Columns.of(("delays_ms",), (RailRow,))
    assert why_no_figure(list(combined(study((1.0,)), numbers)), numbers) is None


# ---- outliers --------------------------------------------------------------------------------------------------------


def numbers(factors: dict[str, float], points: int = 4, repeats: int = 2, noise: float = 0.003) -> list[MachineNumber]:
    drawn = Random(7)
    return [
        MachineNumber(f"p{point}", machine, (point + 1) * factor * (1 + drawn.gauss(0, noise)))
        for point in range(points)
        for machine, factor in factors.items()
        for _ in range(repeats)
    ]


def test_ratios_are_to_the_median_over_machines_of_the_same_point() -> None:
    found = ratios(
        [
            MachineNumber("p", "a", 1.0),
            MachineNumber("p", "a", 3.0),  # the number of a is 2
            MachineNumber("p", "b", 4.0),
            MachineNumber("p", "c", 8.0),
            MachineNumber("q", "a", 5.0),  # measured by a alone
            MachineNumber("r", "a", 0.0),
            MachineNumber("r", "b", 0.0),
        ]
    )
    assert found == {"a": [0.25, 0.75], "b": [1.0], "c": [2.0]}


@pytest.mark.parametrize(
    ("factors", "more", "sentence"),
    [
        ({"a": 1.0, "b": 1.0, "slow": 1.1}, {}, r"slow is an outlier: its step time is .* above that of the others\."),
        ({"a": 1.0, "b": 1.0, "fast": 0.8}, {}, r"fast is an outlier: its step time is .* below that of the others\."),
        ({"a": 1.0, "b": 1.003, "c": 0.998}, {}, r"No machine is an outlier: step time agrees between a, b, c\."),
        ({"a": 1.0, "b": 1.0, "c": 1.05}, {"noise": 0.06}, r"No machine is an outlier: .*"),
        ({"a": 1.0, "b": 1.2}, {}, r"a and b differ by 1.*third machine.*"),
        ({"a": 1.0, "b": 1.5, "c": 1.0}, {"points": 1}, r"Too few repeats .* a machine is an outlier: a, b, c\."),
        ({"a": 1.0}, {}, None),
    ],
)
def test_machines_that_are_off_are_named(factors: dict[str, float], more: dict[str, Any], sentence: str | None) -> None:
    said = sentences(ratios(numbers(factors, **more)), "step time")
    assert len(said) == (sentence is not None) and all(re.fullmatch(sentence or "", line) for line in said)


def test_how_far_off_a_machine_is() -> None:
    found = ratios(numbers({"a": 1.0, "b": 1.0, "slow": 1.1}))
    assert off("slow", found) == pytest.approx(0.1, abs=0.01)
