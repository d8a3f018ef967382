from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.collectives.collective.figures import time_against_size
from measure.figures import plot
from measure.figures.curves import curves, near_and_far, series_of
from measure.figures.looks import Look
from measure.figures.style import MEASURED, entry, legend, new_figure, panel_inches, png, style_axes
from measure.metrics.estimate import Estimate

LOOKS = {"known": Look("Known", "#0072B2", "o")}


def test_series_without_a_look_get_one_that_no_other_has() -> None:
    rows = [{"name": name} for name in ("c", "a", "known", "b", "a")]
    series = series_of(rows, lambda row: row["name"], LOOKS)
    assert list(series) == ["known", "c", "a", "b"], "those with a look first, the others as they come"
    assert [look.name for look, _ in series.values()] == ["Known", "c", "a", "b"]
    assert len({look.colour for look, _ in series.values()}) == 4
    assert len(series["a"][1]) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e6, allow_subnormal=False), st.booleans()), min_size=1))
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


def bars(axes: Any) -> list[list[float]]:
    """The intervals that are drawn, each from its lower to its upper end."""
    found = [line.get_ydata() for line in axes.get_lines() if line.get_marker() == "_" and len(line.get_xdata()) == 2]
    return [[float(y) for y in each] for each in found]


def test_repeats_have_an_interval_and_a_single_measurement_has_none() -> None:
    rows: list[dict[str, Any]] = [{"x": 1.0, "y": 2.0, "samples": {"y": [1.0, 2.0, 3.0]}}, {"x": 2.0, "y": 5.0}]
    found = curves(series_of(rows, lambda row: "one"), "x", "y")["one"]
    assert found.measured == [(1.0, 2.0), (2.0, 5.0)] and [each.n for each in found.estimates.values()] == [3, 1]
    figure = new_figure()
    axes = figure.add_subplot()
    plot.draw(axes, {"one": found})
    half = 4.303 / 3**0.5
    assert bars(axes) == [pytest.approx([2 - half, 2 + half])]
    plot.key(figure, [found])
    assert figure.legends[0].get_title().get_text() == "markers: measured (n = 1 to 3, whiskers: 95 % interval)"


def test_rows_of_different_points_at_one_place_are_no_repeats() -> None:
    rows = [{"x": 1.0, "y": y, "samples": {"y": [y - 0.1, y, y + 0.1]}} for y in (2.0, 8.0)]
    found = curves(series_of(rows, lambda row: "one"), "x", "y")["one"]
    assert found.estimates == {1.0: Estimate(5.0, None, None, 3)}


def test_names_that_are_long_stand_below_the_others_and_nothing_is_wider_than_the_figure() -> None:
    figure = new_figure()
    long = "published of somebody, measured with much care on a hundred devices of a kind that few have seen"
    legend(figure, [entry("a"), entry(long), *(entry(f"policy {k}") for k in range(9))], caption="markers: measured")
    texts = [[text.get_text() for text in each.get_texts()] for each in figure.legends]
    assert texts[0] == ["a", *(f"policy {k}" for k in range(9))] and texts[1][0].replace("\n", " ") == long
    assert all(each.get_window_extent().width <= figure.bbox.width for each in figure.legends)


@given(st.sets(st.integers(1, 10**9), min_size=1, max_size=60))
def test_ticks_stand_at_places_and_do_not_crowd(places: set[int]) -> None:
    axes = new_figure().add_subplot()
    plot.name_ticks(axes.xaxis, [None, *places], str)
    named = [label.get_text() for label in axes.get_xticklabels()]
    assert set(map(int, named)) <= places and named[0] == str(min(places))
    assert sum(len(name) + 2 for name in named) <= 16 * panel_inches(axes) + 12


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_a_cumulative_distribution_rises_from_0_to_1(values: list[float]) -> None:
    axes = new_figure().add_subplot()
    plot.cumulative(axes, values, 200.0)
    x, y = (np.asarray(data) for data in axes.get_lines()[0].get_data())
    assert (y[0], y[-1], x[-1]) == (0.0, 1.0, 200.0)
    assert (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()


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
    assert axes.get_title(loc="left") == "all-reduce over 8 ranks, 400 Gb/s ports"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1 MiB", "4 MiB"]
    last = {round(float(np.asarray(line.get_ydata())[-1]), 6) for line in axes.get_lines()}
    assert {round(each * (1 << 22) * 1e-6, 6) for each in (1, 2, 3)} <= last, "in ms: bound, model, measured"
    said = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert said == ["Ring, ocs 20 ms", "tree, ocs 20 ms", "not faithful", "lower bound: wire time, no latency"]
    assert figure.legends[0].get_title().get_text() == "markers: measured (n = 1); lines: model"
    assert time_against_size(rows[:1]) is None


@pytest.mark.parametrize(("grid", "lines"), [(None, (False, False)), ("x", (True, False)), ("both", (True, True))])
def test_grid_lines_are_those_asked_for(grid: Any, lines: tuple[bool, bool]) -> None:
    axes = new_figure().add_subplot()
    style_axes(axes, "title", "x", "y", grid=grid)
    drawn = tuple(axis.get_gridlines()[0].get_visible() for axis in (axes.xaxis, axes.yaxis))
    assert drawn == lines


def outside(figure: Any) -> list[tuple[float, float]]:
    """Ends of drawn measurements and intervals that are outside their axes, as shares of the axes."""
    found = []
    for axes in figure.axes:
        for line in axes.get_lines():
            if line.get_gid() == MEASURED:
                places = axes.transAxes.inverted().transform(axes.transData.transform(line.get_xydata()))
                found += [(x, y) for x, y in places.tolist() if not (-1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9)]
    return found


@pytest.mark.parametrize("limits", [None, (0.0, 1.1), (1.1, 0.0)])
@pytest.mark.parametrize("across", [False, True])
def test_measurements_far_from_the_model_are_inside_the_axes_with_their_intervals(limits: Any, across: bool) -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1])
    value = Estimate(5.0, -2.0, 12.0, 3)
    plot.mark(axes, 0.5, value, Look("", "#0072B2", "o"), faithful=False, across=across, aside=2.0)
    if limits is None:
        ends = axes.get_xlim() if across else axes.get_ylim()
        assert ends[0] < -2 and ends[1] > 12, "the automatic limits know the measurement"
    else:
        (axes.set_xlim if across else axes.set_ylim)(*limits)
    png(figure, None, faithful=True)
    assert outside(figure) == []
    assert limits is None or axes.yaxis_inverted() == (limits[0] > limits[1] and not across)
    across_ends, up_ends = axes.get_xlim(), axes.get_ylim()
    assert all(max(map(abs, ends)) < (14 if ends is (across_ends if across else up_ends) else 1.2)
               for ends in (across_ends, up_ends)), "no wider than the measurement asks for"  # fmt: skip


def sweep_rows(**scattered: Any) -> list[dict[str, Any]]:
    """Rows whose measurements are three times the model, with a wide interval."""
    return [{"x": float(x), "y": 3.0, "model": 1.0, "samples": {"y": [2.0, 3.0, 7.0]}, **scattered} for x in (1, 2, 3)]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_curves_show_every_measurement_on_both_scales(scale: str) -> None:
    figure = new_figure()
    axes = figure.add_subplot()
    drawn = curves(series_of(sweep_rows(), lambda row: "one"), "x", "y", "model")
    if scale == "log":
        plot.draw(axes, drawn)
        plot.logarithmic(axes.yaxis)
        axes.set_ylim(0.9, 1.1)
    else:
        plot.draw_near(axes, drawn, "s")
    png(figure, None, faithful=True)
    below = [(x, y) for x, y in outside(figure) if scale == "linear" or y > 0]
    assert below == [] and axes.get_ylim()[1] > max(e.high or 0.0 for e in drawn["one"].estimates.values())


@pytest.mark.parametrize(
    ("values", "near", "far"),
    [((1.0, 1.1, 2.0, 9.0), [1.0, 1.1], [9.0, 2.0]), ((1.0, 1.1, 1.3), [1.0, 1.1, 1.3], [])],
)
def test_what_is_far_above_is_named_and_not_drawn(values: Any, near: Any, far: Any) -> None:
    rows = [{"x": 0.0, "y": value} for value in values]
    assert tuple(map(list, near_and_far(curves(series_of(rows, lambda row: row["y"]), "x", "y")))) == (near, far)


KINDS: list[dict[str, Any]] = [
    {},
    {"y_scale": "near", "same": ("n",)},
    {"x_scale": "log", "y_scale": "log", "ticks": str},
    {"x_scale": "delays", "below": plot.Plot("x", "y", ("lower", ""), series="of", y_scale="ratio")},
    {"categories": (3, 1), "apart": 0.3, "written": ".2f"},
    {"categories": (), "across": True},
]


@pytest.mark.parametrize("more", KINDS, ids=lambda more: "-".join(more))
def test_every_kind_of_plot_shows_what_was_measured_its_model_and_what_was_published(more: dict[str, Any]) -> None:
    about = {"model": 1.0, "theirs": 1.2, "n": 4, "samples": {"y": [0.9, 1.0, 1.1]}}
    rows = [{**about, "x": x, "of": of, "y": 1.0, "faithful": x < 3} for x in (1, 2, 3) for of in ("ring", "tree")]
    spec = plot.Plot("x", "y", ("place", "value"), "A title", "model", series="of", published="theirs", **more)
    figure = plot.figure_of(spec, rows)
    assert figure is not None and plot.figure_of(spec, []) is None
    axes = figure.axes[0]
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == ("A title", "place", "value")
    marks = [line.get_marker() for line in axes.get_lines()]
    assert marks.count("x") == 2, "a point of each series is not faithful"
    assert marks.count("|" if "across" in more else "_") == 6, "each measurement has its interval"
    opened = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none"]
    assert sum(np.size(line.get_xdata()) for line in opened) == 6
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == (["not faithful"] if "across" in more else ["ring", "tree", "not faithful"])
    caption = figure.legends[0].get_title().get_text().replace("\n", " ")
    assert caption == "markers: measured (n = 3, whiskers: 95 % interval); lines: model"
    if "categories" in more:
        ticks = axes.get_yticklabels() if "across" in more else axes.get_xticklabels()
        assert [tick.get_text() for tick in ticks] == (["1", "2", "3"] if "across" in more else ["3", "1", "2"])
    png(figure, None, faithful=True)
    assert outside(figure) == [] or "below" in more


def test_bars_of_series_stand_beside_each_other_in_their_category() -> None:
    rows = [{"x": x, "of": of, "done": 2.0, "rest": 1.0} for x in (48, 96) for of in ("a", "b")]
    spec = plot.Plot("x", "done", ("", "y"), series="of", categories=(), bars={"done": 1.0, "rest": 0.4})
    figure = plot.figure_of(spec, rows)
    assert figure is not None
    bars_drawn: Any = figure.axes[0].patches
    assert {(round(bar.get_x() + bar.get_width() / 2, 3), bar.get_y()) for bar in bars_drawn} == {
        (place, bottom) for place in (-0.2, 0.2, 0.8, 1.2) for bottom in (0.0, 2.0)
    }
