from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.page.view.bars import BAR, KIND, SEVERAL, Bars, Table, thinned

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
