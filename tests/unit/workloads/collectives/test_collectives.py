"""Every schedule is proved for every size; what broke a schedule must break its proof."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.algorithms import ring, tree
from workloads.collectives.catalog import ALGORITHMS, algorithm_for, schedule
from workloads.collectives.verify import verify
from workloads.schedule import CollectiveKind, Schedule, Transfer

every = [(kind, name) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]
SUMS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
summing = ("all_reduce", "reduce_scatter", "reduce")


def sizes(kind: CollectiveKind, algorithm: str) -> list[int]:
    """2 to 64; fewer where a schedule has n^3 transfers, or is searched for (``test_stragglar``)."""
    if algorithm == "valiant":
        return [*range(2, 22), 32]
    if algorithm == "stragglar-eager":
        return [*range(ALGORITHMS[algorithm].least, 22), 32, 47, 64]
    if algorithm in ("stragglar", "line") or (kind == "all_to_all" and "ring" in algorithm):
        return [*range(2, 22), 32, 47, 64]
    return list(range(2, 65))


some_schedule = st.builds(
    lambda n, which: schedule(which[0], max(n, ALGORITHMS[which[1]].least), which[1]),
    n=st.integers(2, 12),
    which=st.sampled_from(every),
)


@pytest.mark.parametrize(("kind", "algorithm"), every)
def test_proved_for_all_sizes(kind: CollectiveKind, algorithm: str) -> None:
    thorough = "RAILYARD_THOROUGH" in os.environ
    for n in sizes(kind, algorithm):
        if not (thorough or n < 18 or n in (31, 32, 33, 47, 64)):
            continue
        made = schedule(kind, n, algorithm)
        assert (made.kind, made.n, made.algorithm) == (kind, n, algorithm)


@pytest.mark.parametrize(("kind", "algorithm"), every)
def test_one_position_has_nothing_to_do(kind: CollectiveKind, algorithm: str) -> None:
    if ALGORITHMS[algorithm].least == 1:
        assert schedule(kind, 1, algorithm).transfers == ()
    else:
        with pytest.raises(ConfigError, match=f"needs at least {ALGORITHMS[algorithm].least} members, not 1"):
            schedule(kind, 1, algorithm)


@pytest.mark.parametrize(
    ("gpus", "n"), [(g, g * servers) for g in range(1, 9) for servers in (1, 2, 3, 4, 7, 8) if g * servers > 1]
)
def test_hierarchical_keeps_the_rails_apart(gpus: int, n: int) -> None:
    made = schedule("all_reduce", n, "hierarchical", gpus_per_server=gpus)
    for t in made.transfers:
        if t.scale_up:
            assert t.src // gpus == t.dst // gpus
        else:
            assert t.src % gpus == t.dst % gpus and t.src // gpus != t.dst // gpus
    sent = Counter(t.src for t in made.transfers if not t.scale_up)
    servers = n // gpus
    assert set(sent.values()) <= {2 * (servers - 1)}
    assert made.rounds == 2 * (gpus - 1) + 2 * (servers - 1)


@given(
    n=st.integers(1, 24), lanes=st.integers(1, 7), kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"])
)
def test_rings_of_many_lanes_are_proved_and_share_the_load(n: int, lanes: int, kind: CollectiveKind) -> None:
    made = ring(kind, n, lanes=lanes)
    verify(made)
    used = lanes if n > 1 else 1
    assert made.algorithm == {1: "ring", 2: "bidirectional-ring"}.get(lanes, f"ring-{lanes}")
    assert made.chunks == n * used and made.one_port == (lanes == 1)
    rounds = (n - 1) * (2 if kind == "all_reduce" else 1)
    assert Counter((t.src, t.lane) for t in made.transfers) == {
        (p, lane): rounds for p in range(n) for lane in range(used) if rounds
    }
    for t in made.transfers:
        assert t.dst == (t.src + (-1 if t.lane % 2 else 1)) % n
        assert t.chunk // n == t.lane


@given(n=st.integers(2, 20), kind=st.sampled_from(["all_to_all", "all_reduce"]))
def test_two_rings_use_only_circuits_between_neighbours(n: int, kind: CollectiveKind) -> None:
    for t in schedule(kind, n, "bidirectional-ring").transfers:
        assert t.dst == (t.src + (1 if t.lane == 0 else -1)) % n


@given(n=st.integers(2, 64))
def test_tree_takes_twice_the_logarithm(n: int) -> None:
    assert tree("all_reduce", n).rounds == 2 * (n - 1).bit_length()
    assert len(tree("all_reduce", n).transfers) == 2 * (n - 1)


@given(n=st.integers(2, 64))
def test_rounds_and_chunks_sent(n: int) -> None:
    levels, folded = n.bit_length() - 1, 2 * (n & (n - 1) != 0)
    halving = schedule("all_reduce", n, "recursive-halving-doubling")
    assert halving.rounds == 2 * levels + folded
    assert schedule("all_reduce", n, "recursive-doubling").rounds == levels + folded
    if not folded:
        assert set(Counter(t.src for t in halving.transfers).values()) == {2 * (n - 1)}
    assert schedule("all_to_all", n, "pairwise").rounds == n - 1
    assert schedule("all_reduce", n, "direct").rounds == 1
    allpairs = schedule("all_reduce", n, "allpairs")
    assert allpairs.rounds == 2 and set(Counter(t.src for t in allpairs.transfers).values()) == {2 * (n - 1)}
    assert schedule("broadcast", n, "ring").rounds == 5 * n - 2


@given(n=st.integers(4, 64))
@settings(deadline=None)
def test_both_trees_share_the_work(n: int) -> None:
    """No position sends more than twice the buffer. Twice ``chunks`` rounds would be the least; half as many more are
    for the depth of the trees and for ports that wait, so it stays near 3 whatever n is.
    """
    made = schedule("all_reduce", n, "double-binary-tree")
    assert max(Counter(t.src for t in made.transfers).values()) <= 2 * made.chunks
    assert 2 * made.chunks < made.rounds <= 3.25 * made.chunks
    interior: dict[bool, set[int]] = defaultdict(set)
    for t in made.transfers:
        if t.op == "reduce":
            interior[t.chunk < made.chunks // 2].add(t.dst)
    assert len(interior[True] & interior[False]) <= 2


def played(made: Schedule, elements: int) -> tuple[list[numpy.ndarray], list[numpy.ndarray]]:
    """Buffers at the start and at the end of ``made``: not the prover's sets but real numbers."""
    bounds = made.chunk_bounds(elements)
    start = [numpy.arange(bounds[-1][1]) * (p + 1) + 1 for p in range(made.n)]
    held = [b.copy() for b in start]
    for c, (a, b) in enumerate(bounds):
        for p in range(made.n):
            holder = made.root if made.kind in ("broadcast", "scatter") else made.owner[c]
            if made.kind not in summing and holder != p:
                held[p][a:b] = -1
    for round_ in range(made.rounds):
        now = [t for t in made.transfers if t.round == round_]
        carried = [held[t.src][slice(*bounds[t.chunk])].copy() for t in now]
        for t, data in zip(now, carried, strict=True):
            part = held[t.dst][slice(*bounds[t.slot])]
            part[:] = data if t.op == "copy" else part + data
    return start, held


def adds_up(made: Schedule, elements: int) -> bool:
    """Whether playing ``made`` leaves the numbers that its kind promises."""
    start, held = played(made, elements)
    total = numpy.sum(start, axis=0)
    for c, (a, b) in enumerate(made.chunk_bounds(elements)):
        where = {
            "reduce_scatter": [made.owner[c]],
            "scatter": [made.owner[c]],
            "reduce": [made.root],
            "gather": [made.root],
            "all_to_all": [c * made.n**2 // made.chunks % made.n],
        }.get(made.kind, list(range(made.n)))
        origin = made.root if made.kind in ("broadcast", "scatter") else made.owner[c]
        wanted = total if made.kind in summing else start[origin]
        if not all((held[p][a:b] == wanted[a:b]).all() for p in where):
            return False
    return True


@given(some_schedule, st.data())
@settings(deadline=None)
def test_no_transfer_can_be_left_out(made: Schedule, data: st.DataObject) -> None:
    """Our schedules send nothing in vain, except the copies among the others before a straggler's are copied over."""
    in_vain = made.algorithm == "straggler-direct"
    needed = [
        i for i, t in enumerate(made.transfers) if not (in_vain and t.round < made.first_phase and t.op == "copy")
    ]
    lost = data.draw(st.sampled_from(needed))
    with pytest.raises(VerifyError, match=r"position \d+, chunk \d+"):
        verify(replace(made, transfers=made.transfers[:lost] + made.transfers[lost + 1 :]))


def mutant(made: Schedule, data: st.DataObject) -> Schedule:
    """``made`` with one transfer left out, repeated in another round, or changed in one of its fields."""
    index = data.draw(st.integers(0, len(made.transfers) - 1))
    old = made.transfers[index]
    rest = made.transfers[:index] + made.transfers[index + 1 :]
    position, chunk = st.integers(0, made.n - 1), st.integers(0, made.chunks - 1)
    how = data.draw(st.sampled_from(["lost", "again", "src", "dst", "chunk", "op", "round"]))
    round_ = data.draw(st.integers(0, made.rounds))
    changes: dict[str, Callable[[], tuple[Transfer, ...]]] = {
        "lost": lambda: (),
        "again": lambda: (old, replace(old, round=round_)),
        "src": lambda: (replace(old, src=data.draw(position)),),
        "dst": lambda: (replace(old, dst=data.draw(position)),),
        "chunk": lambda: (replace(old, chunk=data.draw(chunk)),),
        "op": lambda: (replace(old, op="copy" if old.op == "reduce" else "reduce"),),
        "round": lambda: (replace(old, round=round_),),
    }
    return replace(made, transfers=(*rest, *changes[how]()), one_port=False, straggler=None, first_phase=0)


@given(some_schedule, st.data())
@settings(max_examples=300, deadline=None)
def test_numbers_that_do_not_add_up_are_caught(made: Schedule, data: st.DataObject) -> None:
    changed = mutant(made, data)
    if not adds_up(changed, 2 * changed.chunks):
        with pytest.raises(VerifyError, match=r"position \d+, chunk \d+"):
            verify(changed)


def test_the_prover_names_position_and_chunk() -> None:
    pair = Schedule("by-hand", "all_reduce", 2, 1, (0,), (Transfer(0, 0, 1, 0, "reduce"),))
    with pytest.raises(VerifyError, match="position 0, chunk 0: ends without the contribution of position 1"):
        verify(pair)
    clash = replace(pair, transfers=(Transfer(0, 0, 1, 0, "copy"), Transfer(0, 0, 1, 0, "reduce")))
    with pytest.raises(VerifyError, match="two transfers write the same chunk"):
        verify(clash)
    with pytest.raises(VerifyError, match="join positions below 2"):
        verify(replace(pair, transfers=(Transfer(0, 0, 2, 0, "reduce"),)))
    with pytest.raises(VerifyError, match="a chunk outside 0 to 0"):
        verify(replace(pair, transfers=(Transfer(0, 0, 1, 0, "reduce", to=1),)))
    with pytest.raises(VerifyError, match="does not hold"):
        verify(Schedule("by-hand", "all_gather", 2, 2, (0, 1), (Transfer(0, 0, 1, 1, "copy"),)))


def test_scratch_slots_and_local_steps() -> None:
    """A swap through a scratch slot, added up at home."""
    moves = (
        Transfer(0, 0, 1, 0, "copy", to=1),
        Transfer(0, 1, 0, 0, "copy", to=1),
        Transfer(1, 0, 0, 1, "reduce", to=0),
        Transfer(1, 1, 1, 1, "reduce", to=0),
    )
    swap = Schedule("by-hand", "all_reduce", 2, 1, (0,), moves, scratch=1, one_port=True)
    verify(swap)
    with pytest.raises(
        VerifyError, match="round 1, position 0, chunk 0: the contribution of position 0 is added twice"
    ):
        verify(replace(swap, transfers=(*moves[:2], Transfer(1, 0, 0, 0, "reduce"), moves[3])))
    with pytest.raises(VerifyError, match="position 1, chunk 0: ends without"):
        verify(replace(swap, transfers=moves[:3]))


def test_an_input_of_its_own() -> None:
    moves = (
        Transfer(0, 0, 0, 2, "copy", to=0),
        Transfer(0, 1, 1, 3, "copy", to=1),
        Transfer(0, 0, 1, 2, "copy", to=0),
        Transfer(0, 1, 0, 3, "copy", to=1),
    )
    gather = Schedule("by-hand", "all_gather", 2, 2, (0, 1), moves, scratch=2, input=2)
    verify(gather)
    with pytest.raises(VerifyError, match="position 0, chunk 1: ends with chunk 0 in its place"):
        verify(replace(gather, transfers=(*moves[:3], Transfer(0, 0, 0, 2, "copy", to=1))))
    with pytest.raises(VerifyError, match="input chunks from slot 3 on must lie within its 4 slots"):
        verify(replace(gather, input=3))


def test_chunks_must_not_mix() -> None:
    mixed = Schedule("by-hand", "all_reduce", 2, 2, (0, 1), (Transfer(0, 0, 1, 0, "reduce", to=1),))
    with pytest.raises(VerifyError, match="position 1, chunk 1: adds chunk 0 to chunk 1"):
        verify(mixed)


def test_the_claim_of_one_port() -> None:
    both = replace(schedule("all_gather", 3, "direct"), one_port=True)
    with pytest.raises(VerifyError, match="round 0, position 0, chunk 0: it sends to two peers"):
        verify(both)
    into = replace(schedule("reduce", 3, "direct"), one_port=True)
    with pytest.raises(VerifyError, match="position 0, chunk 0: it receives from two peers"):
        verify(into)
    apart = tuple(replace(t, scale_up=t.src == 1) for t in into.transfers)
    verify(replace(into, transfers=apart))


def test_the_claim_of_a_first_phase_without_the_straggler() -> None:
    made = schedule("all_reduce", 4, "stragglar")
    with pytest.raises(VerifyError, match=r"round 2, position \d, chunk 0: the straggler 3 takes part"):
        verify(replace(made, first_phase=3))
    with pytest.raises(VerifyError, match="needs a straggler"):
        verify(replace(made, straggler=None))
    with pytest.raises(VerifyError, match="straggler 4 must be a position below 4"):
        verify(replace(made, straggler=4))


def test_an_all_to_all_starts_where_its_chunk_numbers_say() -> None:
    made = schedule("all_to_all", 3, "direct")
    with pytest.raises(VerifyError, match="chunk 0 starts at position 0, not at its owner 1"):
        verify(replace(made, owner=(1, *made.owner[1:])))
    with pytest.raises(VerifyError, match="multiple of 3 x 3 chunks, not 8"):
        verify(replace(made, chunks=8, owner=made.owner[:8]))


def test_the_same_schedule_is_proved_once() -> None:
    assert schedule("all_reduce", 6, "stragglar") is schedule("all_reduce", 6, "stragglar", straggler=5)
    assert schedule("all_reduce", 6, "ring", gpus_per_server=2) is schedule("all_reduce", 6)


def test_scalars_on_the_front_end_use_a_tree_and_rails_a_ring() -> None:
    assert algorithm_for("all_reduce", "front-end") == "tree"
    assert algorithm_for("all_reduce", "scale-out") == "bidirectional-ring"
    assert algorithm_for("all_gather", "scale-up") == "bidirectional-ring"
    assert algorithm_for("all_to_all", "scale-out") == "bidirectional-ring"
    assert algorithm_for("gather", "scale-out") == "tree"
