"""Every schedule is proved for every size; the prover itself must catch broken ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.catalog import ALGORITHMS, algorithm_for, schedule
from workloads.collectives.ring import ring
from workloads.collectives.tree import tree
from workloads.collectives.verify import verify
from workloads.schedule import CollectiveKind, Schedule, Transfer

every = [(kind, name) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]
some_schedule = st.builds(
    lambda n, which: schedule(which[0], n, which[1]), n=st.integers(2, 12), which=st.sampled_from(every)
)


@pytest.mark.parametrize(("kind", "algorithm"), every)
def test_proved_for_all_sizes(kind: CollectiveKind, algorithm: str) -> None:
    for n in range(2, 65):
        if ALGORITHMS[algorithm].sizes(n):
            verify(schedule(kind, n, algorithm))


@pytest.mark.parametrize(("kind", "algorithm"), every)
def test_one_position_has_nothing_to_do(kind: CollectiveKind, algorithm: str) -> None:
    assert schedule(kind, 1, algorithm).transfers == ()


@given(n=st.integers(2, 64))
def test_ring_sends_the_least_possible_and_evenly(n: int) -> None:
    for kind, factor in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        made = ring(kind, n, bidirectional=True)  # type: ignore[arg-type]
        assert made.chunks == 2 * n
        sent = Counter((t.src, t.lane) for t in made.transfers)
        assert set(sent.values()) == {factor * (n - 1)}
        assert len(sent) == 2 * n
        assert made.rounds == factor * (n - 1)


@given(n=st.integers(2, 64))
def test_ring_goes_clockwise_on_lane_0_and_back_on_lane_1(n: int) -> None:
    for t in ring("all_reduce", n, bidirectional=True).transfers:
        assert t.dst == (t.src + (1 if t.lane == 0 else -1)) % n
        assert (t.chunk < n) == (t.lane == 0)


@given(n=st.integers(2, 64))
def test_tree_takes_twice_the_logarithm(n: int) -> None:
    assert tree("all_reduce", n).rounds == 2 * (n - 1).bit_length()
    assert len(tree("all_reduce", n).transfers) == 2 * (n - 1)


@given(some_schedule, st.integers(0, 50))
@settings(max_examples=40)
def test_numbers_add_up(made: Schedule, elements: int) -> None:
    """Not the prover's bit masks but real sums, by playing the rounds."""
    start = [numpy.arange(elements) * (p + 1) for p in range(made.n)]
    held = [b.copy() for b in start]
    bounds = made.chunk_bounds(elements)
    if made.kind == "all_gather":
        for p in range(made.n):
            for c, (a, b) in enumerate(bounds):
                if made.owner[c] != p:
                    held[p][a:b] = -1
    for round_ in range(made.rounds):
        now = [t for t in made.transfers if t.round == round_]
        carried = [held[t.src][slice(*bounds[t.chunk])].copy() for t in now]
        for t, data in zip(now, carried, strict=True):
            part = held[t.dst][slice(*bounds[t.chunk])]
            part[:] = data if t.op == "copy" else part + data
    total = numpy.sum(start, axis=0)
    for p in range(made.n):
        for c, (a, b) in enumerate(bounds):
            if made.kind == "reduce_scatter" and made.owner[c] != p:
                continue
            wanted = total if made.kind in ("all_reduce", "reduce_scatter") else start[made.owner[c]]
            assert (held[p][a:b] == wanted[a:b]).all()


@given(some_schedule, st.data())
def test_a_lost_transfer_is_caught(made: Schedule, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(made.transfers) - 1))
    with pytest.raises(VerifyError, match=r"position \d+, chunk \d+"):
        verify(replace(made, transfers=made.transfers[:lost] + made.transfers[lost + 1 :]))


@given(some_schedule, st.data())
def test_a_reduction_done_twice_is_caught(made: Schedule, data: st.DataObject) -> None:
    reductions = [t for t in made.transfers if t.op == "reduce"]
    if reductions:
        again = data.draw(st.sampled_from(reductions))
        with pytest.raises(VerifyError, match=r"added twice|does not hold"):
            verify(replace(made, transfers=(*made.transfers, replace(again, round=made.rounds))))


def test_the_prover_names_position_and_chunk() -> None:
    pair = Schedule("by-hand", "all_reduce", 2, 1, (0,), (Transfer(0, 0, 1, 0, "reduce"),))
    with pytest.raises(VerifyError, match="position 0, chunk 0: ends without the contribution of position 1"):
        verify(pair)
    clash = replace(pair, transfers=(Transfer(0, 0, 1, 0, "copy"), Transfer(0, 0, 1, 0, "reduce")))
    with pytest.raises(VerifyError, match="two transfers write the same chunk"):
        verify(clash)
    with pytest.raises(VerifyError, match="join positions below 2"):
        verify(replace(pair, transfers=(Transfer(0, 0, 2, 0, "reduce"),)))
    with pytest.raises(VerifyError, match="does not hold"):
        verify(Schedule("by-hand", "all_gather", 2, 2, (0, 1), (Transfer(0, 0, 1, 1, "copy"),)))


def test_unknown_algorithm_and_kind_name_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"unknown algorithm 'star'; known: ring"):
        schedule("all_reduce", 4, "star")
    with pytest.raises(ConfigError, match="these can: ring, bidirectional-ring"):
        schedule("all_gather", 4, "tree")
    with pytest.raises(ConfigError, match="at least 1 member"):
        schedule("all_reduce", 0)


def test_scalars_on_the_front_end_use_a_tree_and_rails_a_ring() -> None:
    assert algorithm_for("all_reduce", "front-end") == "tree"
    assert algorithm_for("all_reduce", "scale-out") == "bidirectional-ring"
    assert algorithm_for("all_gather", "scale-up") == "bidirectional-ring"
