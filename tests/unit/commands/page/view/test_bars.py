"""Bars of a lane, thinned and in windows, and the looks of their kinds: as in the figures, and told apart."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from commands.page.view.bars import (
    BAR,
    KIND,
    LEAST_CONTRAST,
    LOOKS,
    SEVERAL,
    Bars,
    Table,
    contrast,
    looks,
    thinned,
)
from measure.figures.looks import ACTIVITIES, DARK, DIMENSIONS, WHITE
from measure.sentences import MARK_KINDS

TIMES = st.floats(0, 100, allow_nan=False)
LENGTHS = st.one_of(st.floats(0, 0.2), st.floats(0, 20), st.just(0.0))
BARS = st.lists(st.tuples(TIMES, LENGTHS, st.sampled_from([KIND["compute"], KIND["dp"], KIND["dark"]])), max_size=60)


def bars_of(rows: list[tuple[float, float, int]]) -> Bars:
    bars = Bars()
    for number, (start, length, kind) in enumerate(rows):
        bars.add(start, start + length, kind, number + 1, 10.0)
    return bars


def covered(rows: Table, moments: np.ndarray) -> np.ndarray:
    return np.array([bool(((rows["s"] <= t) & (t < rows["e"])).any()) for t in moments])


@given(BARS, TIMES, LENGTHS)
def test_a_window_has_the_bars_that_overlap_it(
    rows: list[tuple[float, float, int]], start: float, length: float
) -> None:
    end = start + length + 1e-3
    found = bars_of(rows).within(start, end)
    wanted = {n + 1 for n, (t, seconds, _) in enumerate(rows) if t < end and (t + seconds > start or t >= start)}
    assert sorted(found["l"]) == sorted(wanted)
    assert (np.diff(found["s"]) >= 0).all()


@given(BARS, TIMES)
def test_what_covers_a_moment(rows: list[tuple[float, float, int]], t: float) -> None:
    found = bars_of(rows).at(t)
    assert sorted(found["l"]) == [n + 1 for n, (start, length, _) in enumerate(rows) if start <= t < start + length]


@given(BARS, st.floats(0.01, 5))
def test_thinning_neither_loses_nor_adds_more_than_a_pixel(rows: list[tuple[float, float, int]], width: float) -> None:
    whole = bars_of(rows).table()
    thin = thinned(whole, width)
    moments = np.linspace(0, 121, 1500)
    before, after = covered(whole, moments), covered(thin, moments)
    assert not (before & ~after).any()
    near = np.array([((whole["s"] < t + width) & (t - width < whole["e"])).any() for t in moments])
    assert not (after & ~near).any()
    assert thin["b"].sum() == pytest.approx(whole["b"].sum())


@given(BARS, st.floats(0.01, 5))
def test_bars_of_a_pixel_and_more_stay_as_they_are(rows: list[tuple[float, float, int]], width: float) -> None:
    whole = bars_of(rows).table()
    long = whole[whole["e"] - whole["s"] >= width]
    assert set(long["l"]) <= set(thinned(whole, width)["l"])
    short = thinned(whole, width)
    short = short[short["e"] - short["s"] < width]
    cells = np.floor(short["s"] / width)
    assert len(set(cells)) == len(cells), "at most one short bar begins in a pixel"


@given(st.lists(st.tuples(st.floats(0, 0.9), st.sampled_from([0, 1, 2])), min_size=2, max_size=20))
def test_a_joined_bar_has_the_kind_with_the_most_time(rows: list[tuple[float, int]]) -> None:
    bars = Bars()
    for start, kind in rows:
        bars.add(start, start + 0.05 * (kind + 1), kind, 7)
    (joined,) = thinned(bars.table(), 1.0)
    time = [sum(0.05 * (k + 1) for _, k in rows if k == kind) for kind in range(3)]
    assert time[joined["k"]] == pytest.approx(max(time)) and joined["l"] == SEVERAL


def test_the_same_bars_are_joined_wherever_the_window_begins() -> None:
    bars = bars_of([(t / 10, 0.05, 0) for t in range(1000)])
    one, other = thinned(bars.within(10, 60), 1.0), thinned(bars.within(10.5, 60.5), 1.0)
    assert set(one["s"][1:-1]) <= set(other["s"]) | {10.0}


def test_many_bars_that_come_in_any_order() -> None:
    order = np.random.default_rng(1).permutation(5000)
    bars = Bars()
    for start in order[:4000]:
        bars.add(float(start), float(start) + 1, 0, int(start))
        if start % 500 == 0:
            bars.within(0, 1)
    rows = np.zeros(1000, BAR)
    rows["s"], rows["l"] = order[4000:], order[4000:]
    rows["e"] = rows["s"] + 1
    bars.extend(rows)
    assert (bars.table()["l"] == np.arange(5000)).all() and len(bars) == 5000
    assert bars.nbytes < 5000 * 60


@given(st.integers(0, 1 << 30), TIMES, TIMES)
def test_a_window_of_many_bars_is_the_same_with_what_was_kept(seed: int, one: float, other: float) -> None:
    start, end, random = min(one, other), max(one, other) + 5, np.random.default_rng(seed)
    drawn = zip(random.uniform(0, 100, 600), random.exponential(0.3, 600), random.integers(0, 3, 600), strict=True)
    bars, width = bars_of([(float(t), float(length), int(kind)) for t, length, kind in drawn]), 0.5
    assert len(bars.thinned(-1.0, 200.0, width)) < 600
    kept, fresh = bars.thinned(start, end, width), thinned(bars.within(start, end), width)
    inner = np.linspace(start + 2 * width, end - 2 * width, 100)
    assert (covered(kept, inner) == covered(fresh, inner)).all()
    bars.add(150.0, 160.0, 0, 999)
    assert 999 in bars.thinned(100.0, 200.0, width)["l"]


def test_every_kind_of_the_page_has_a_look() -> None:
    found = looks()
    assert json.loads(json.dumps(found)) == found
    named = {"compute", "other", "ask", "dark", "wait", "start", "failed", "checkpoint", "stage"}
    assert named | set(DIMENSIONS) | {"get", "train", "push", "trunk"} == set(LOOKS)
    assert set(LOOKS) | set(MARK_KINDS) == set(found)
    assert all(look["name"] and look["colour"].startswith("#") for look in found.values())


def test_things_look_as_in_the_figures() -> None:
    found = looks()
    for kind in ("dp", "edp", "pp", "ep", "tp", "cp", "world"):
        assert (found[kind]["name"], found[kind]["colour"]) == (DIMENSIONS[kind].name, DIMENSIONS[kind].colour)
    assert (found["ask"]["name"], found["ask"]["colour"]) == ("waits for the controller", ACTIVITIES["wait"].colour)
    assert found["wait"]["name"] == "waits for other members"


def test_bars_of_one_run_are_told_apart() -> None:
    edge = {"get", "train", "push", "trunk"}
    for kinds in (set(LOOKS) - edge, edge):
        for one, other in combinations(sorted(kinds), 2):
            a, b = LOOKS[one], LOOKS[other]
            assert (a.colour, a.hatch) != (b.colour, b.hatch), (one, other)
            if not a.hatch and not b.hatch:
                assert apart(a.colour, b.colour) > 0.04, (one, other)


def apart(one: str, other: str) -> float:
    """The largest difference of a part of two colours, from 0 to 1."""
    return max(abs(x - y) for x, y in zip(to_rgb(one), to_rgb(other), strict=True))


QUIET = {"compute", "train", "start", "other", "launch"}
"""Greys that stand behind the other kinds on purpose."""
PALE = {"pp", "tp", "world", "port", "refused", "left", "get"}
"""Orange, sky blue and yellow of Okabe and Ito, which are pale on white, as in the figures."""


def test_kinds_stand_out_from_a_light_and_from_a_dark_ground() -> None:
    for kind, look in looks().items():
        light, dark = contrast(look["colour"], WHITE), contrast(look["colour_dark"], DARK)
        assert (light >= LEAST_CONTRAST) == (kind not in QUIET | PALE), (kind, light)
        assert (dark >= LEAST_CONTRAST) == (kind not in QUIET), (kind, dark)
        assert dark > 1.2


def test_lines_of_every_kind_stand_out_from_both_grounds() -> None:
    for kind, look in looks().items():
        assert contrast(look["line"], WHITE) >= LEAST_CONTRAST, kind
        assert contrast(look["line_dark"], DARK) >= LEAST_CONTRAST, kind
        if kind not in QUIET | PALE:
            assert (look["line"], look["line_dark"]) == (look["colour"], look["colour_dark"])
