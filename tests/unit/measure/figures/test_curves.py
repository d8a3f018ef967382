from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.collective.figures import time_against_size
from measure.figures import panels
from measure.figures.curves import Look, curves, series_of
from measure.figures.style import BLUE, new_figure, style_axes

LOOKS = {"known": Look("Known", BLUE, "o")}


def test_series_without_a_look_get_one_that_no_other_has() -> None:
    rows = [{"name": name} for name in ("c", "a", "known", "b", "a")]
    series = series_of(rows, lambda row: row["name"], LOOKS)
    assert list(series) == ["known", "c", "a", "b"], "those with a look first, the others as they come"
    assert [look.name for look, _ in series.values()] == ["Known", "c", "a", "b"]
    assert len({look.colour for look, _ in series.values()}) == 4
    assert len(series["a"][1]) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e6), st.booleans()), min_size=1))
def test_a_curve_is_the_median_at_each_place(values: list[tuple[int, float, bool]]) -> None:
    rows = [{"x": x, "y": y, "model": None, "faithful": faithful} for x, y, faithful in values]
    found = curves(series_of(rows, lambda row: "one"), "x", "y", "model", 2.0)["one"]
    places = sorted({x for x, _, _ in values})
    assert found.measured == [(at, median(2.0 * y for x, y, _ in values if x == at)) for at in places]
    assert {x for x, _ in found.unfaithful} == {x for x, _, faithful in values if not faithful}
    assert found.model == [] and found.level([0.0, 1.0]) is found


def test_a_model_of_one_point_is_a_level() -> None:
    rows = [{"x": 5.0, "y": 1.0, "model": 2.0}]
    found = curves(series_of(rows, lambda row: "one"), "x", "y", "model")["one"]
    assert found.level([3.0, 9.0, 1.0]).model == [(1.0, 2.0), (9.0, 2.0)]


@given(st.sets(st.integers(1, 10**9), min_size=1, max_size=60))
def test_ticks_stand_at_places_and_do_not_crowd(places: set[int]) -> None:
    axes = new_figure().add_subplot()
    panels.name_ticks(axes.xaxis, [None, *places], str)
    named = [label.get_text() for label in axes.get_xticklabels()]
    assert set(map(int, named)) <= places and named[0] == str(min(places))
    assert sum(len(name) + 2 for name in named) <= 56 + 12


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_a_cumulative_distribution_rises_from_0_to_1(values: list[float]) -> None:
    axes = new_figure().add_subplot()
    panels.cumulative(axes, values, 200.0)
    x, y = (np.asarray(data) for data in axes.get_lines()[0].get_data())
    assert (y[0], y[-1], x[-1]) == (0.0, 1.0, 200.0)
    assert (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()


def test_without_groups_there_is_no_figure() -> None:
    assert panels.figure_of([], lambda axes, rows: []) is None


def collective_row(algorithm: str, size: int, **more: Any) -> dict[str, Any]:
    about = {"experiment": "collective", "collective": "all_reduce", "fabric": "ocs", "n": 8, "port_gbps": 400.0}
    times = {"time_s": 3e-9 * size, "after_arrival_s": 3e-9 * size, "predicted_after_arrival_s": 2e-9 * size}
    place = {"algorithm": algorithm, "bytes": size, "bound_s": 1e-9 * size, "reconfiguration_delay_ms": 20.0}
    return {**about, **times, **place, "faithful": True, **more}


def test_collectives_are_drawn_with_model_and_bound() -> None:
    sizes = (1 << 20, 1 << 22)
    rows = [collective_row(name, size, faithful=name != "tree") for name in ("ring", "tree") for size in sizes]
    figure = time_against_size(rows)
    assert figure is not None
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["ring, ocs 20 ms", "tree, ocs 20 ms"]
    assert axes.get_title(loc="left") == "all-reduce over 8 ranks, 400 Gb/s ports"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1 MiB", "4 MiB"]
    last = {round(float(np.asarray(line.get_ydata())[-1]), 6) for line in axes.get_lines()}
    assert {round(each * (1 << 22) * 1e-6, 6) for each in (1, 2, 3)} <= last, "in ms: bound, model, measured"
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["measured", "model", "lower bound: wire time, no latency", "point not faithful"]
    assert time_against_size(rows[:1]) is None


@pytest.mark.parametrize(("grid", "lines"), [(None, (False, False)), ("x", (True, False)), ("both", (True, True))])
def test_grid_lines_are_those_asked_for(grid: Any, lines: tuple[bool, bool]) -> None:
    axes = new_figure().add_subplot()
    style_axes(axes, "title", "x", "y", grid=grid)
    drawn = tuple(axis.get_gridlines()[0].get_visible() for axis in (axes.xaxis, axes.yaxis))
    assert drawn == lines
