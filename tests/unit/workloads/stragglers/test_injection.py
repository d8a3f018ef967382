from __future__ import annotations

import json
import math
import random
import statistics
from itertools import islice
from pathlib import Path

import pytest
from checkout import ROOT
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import ConfigError
from workloads.program import Collective, Compute, Group, Operation, Program
from workloads.stragglers.injection import (
    INJECTIONS,
    Fixed,
    Injection,
    LogNormal,
    Replay,
    inject,
    other_rank,
    parse_injection,
)

EXAMPLES = [example for word, example in INJECTIONS.items() if word != "replay"]


def barrier_and_all_reduce(n: int, compute_s: float | None = 0.1) -> Program:
    """A barrier on the front-end, a compute (None: none), an all-reduce and another compute, on every rank."""
    everyone = tuple(range(n))
    groups = {"fe": Group("fe", "world", everyone, "front-end"), "dp": Group("dp", "dp", everyone)}
    steps: list[Operation] = [Collective(0, "barrier", "all_reduce", "fe", 4)]
    if compute_s is not None:
        steps.append(Compute(1, "forward", compute_s, (0,)))
    steps.append(Collective(len(steps), "gradients", "all_reduce", "dp", 4000, (len(steps) - 1,)))
    steps.append(Compute(len(steps), "update", 0.05, (len(steps) - 1,)))
    return Program("test", (tuple(steps),) * n, groups)


@pytest.mark.parametrize(
    ("text", "injection"),
    [
        ("fixed:300ms", Injection(gaps=Fixed(0.3))),
        ("persistent:0.3@0.9", Injection(gaps=Fixed(0.3), persistence=0.9)),
        ("persistent:0.3s@0.9/none", Injection(gaps=Fixed(0.3), persistence=0.9, otherwise="none")),
        ("lognormal:0.007,0.5", Injection(gaps=LogNormal(0.007, 0.5))),
        ("lognormal: 7ms, 0.5, 22ms@0.8", Injection(gaps=LogNormal(0.007, 0.5, 0.022), persistence=0.8)),
        ("two:0.3,0.2", Injection(gaps=Fixed(0.3), second=Fixed(0.2))),
        ("wrong", Injection(wrong=True)),
        ("wrong:0.3", Injection(wrong=True, gaps=Fixed(0.3))),
        ("wrong + fixed:1e-1", Injection(wrong=True, gaps=Fixed(0.1))),
        ("slow-compute:1.5+slow-link:0.5", Injection(compute_factor=1.5, link_share=0.5)),
        ("background:0.4", Injection(background_share=0.4)),
        ("none", Injection()),
    ],
)
def test_what_a_person_types(text: str, injection: Injection) -> None:
    parsed = parse_injection(text)
    assert parsed == Injection(**{**vars(injection), "text": text.strip()})


@given(
    text=st.sampled_from(EXAMPLES),
    n=st.integers(2, 12),
    rank=st.integers(0, 11),
    steps=st.integers(0, 30),
    more=st.integers(0, 10),
    seed=st.integers(0, 1000),
)
def test_delays_are_the_same_again_and_more_steps_continue_them(
    text: str, n: int, rank: int, steps: int, more: int, seed: int
) -> None:
    rank %= n
    injection = parse_injection(text)
    delays = injection.delays(n, steps, rank, seed)
    assert len(delays) == n and all(len(gaps) == steps and min(gaps, default=0) >= 0 for gaps in delays)
    longer = injection.delays(n, steps + more, rank, seed)
    assert tuple(gaps[:steps] for gaps in longer) == delays == parse_injection(text).delays(n, steps, rank, seed)


@given(p=st.floats(0.77, 0.98), seed=st.integers(0, 100), n=st.integers(2, 8))
def test_the_persistent_rank_is_late_as_often_as_asked(p: float, seed: int, n: int) -> None:
    steps = 2000
    delays = parse_injection(f"persistent:0.3@{p}").delays(n, steps, 1, seed)
    late = [[gap > 0 for gap in gaps] for gaps in delays]
    assert all(sum(step) == 1 for step in zip(*late, strict=True))
    assert sum(late[1]) / steps == pytest.approx(p, abs=5 * math.sqrt(0.25 / steps))
    others = [sum(rank) / steps for place, rank in enumerate(late) if place != 1]
    assert others == pytest.approx([(1 - p) / (n - 1)] * (n - 1), abs=5 * math.sqrt(0.25 / steps))


def test_otherwise_nobody_and_another_seed_is_another_story() -> None:
    injection = parse_injection("persistent:0.3@0.5/none")
    delays = injection.delays(4, 100, 2, 1)
    assert {rank for rank, gaps in enumerate(delays) if any(gaps)} == {2}
    assert 20 < sum(gap > 0 for gap in delays[2]) < 80
    assert delays != injection.delays(4, 100, 2, 2)


def test_whose_gaps_they_are_does_not_change_how_long_they_are() -> None:
    always = parse_injection("lognormal:7ms,0.78").delays(8, 50, 3, 5)[3]
    mixed = parse_injection("lognormal:7ms,0.78@0.8").delays(8, 50, 3, 5)
    assert tuple(map(sum, zip(*mixed, strict=True))) == always and mixed[3] != always


def test_wrong_and_two_befall_the_rank_half_way_round() -> None:
    assert parse_injection("wrong:0.3").delays(8, 1, 6, 0)[2] == (0.3,)
    assert [gaps[0] for gaps in parse_injection("two:0.3,0.2").delays(5, 1, 4, 0)] == [0, 0.2, 0, 0, 0.3]
    assert parse_injection("wrong+slow-link:0.5").slow_links(8, 6) == {2: 0.5}
    assert parse_injection("slow-link:0.5").slow_links(8, 6) == {6: 0.5}
    assert parse_injection("fixed:1").slow_links(8, 6) == {}


@given(n=st.integers(2, 100), rank=st.integers(0, 99))
def test_the_other_rank_is_another(n: int, rank: int) -> None:
    assert other_rank(n, rank % n) != rank % n and 0 <= other_rank(n, rank % n) < n


def test_the_late_compute_is_the_one_that_the_collective_waits_for() -> None:
    program = barrier_and_all_reduce(4)
    injection = parse_injection("persistent:0.3@0.5")
    late = inject(program, injection, 2, 20, 7)
    delays = injection.delays(4, 20, 2, 7)
    for rank in range(4):
        barrier, forward, gradients, update = late.operations[rank]
        assert isinstance(forward, Compute)
        assert [forward.seconds_in(step) for step in range(20)] == pytest.approx([0.1 + gap for gap in delays[rank]])
        assert (barrier, gradients, update) == (program.operations[rank][0], *program.operations[rank][2:])


def test_a_rank_without_compute_gets_one_in_the_right_place() -> None:
    program = barrier_and_all_reduce(3, compute_s=None)
    late = inject(program, parse_injection("fixed:0.3"), 1, 2, 0)
    assert late.operations[0] == program.operations[0] and late.operations[2] == program.operations[2]
    barrier, pause, gradients, update = late.operations[1]
    assert barrier == program.operations[1][0]
    assert pause == Compute(1, "straggler", 0.0, (0,), (0.3, 0.3))
    assert gradients == Collective(2, "gradients", "all_reduce", "dp", 4000, (1,))
    assert update == Compute(3, "update", 0.05, (2,)), "what waited for the communication still does"


def test_a_compute_before_the_barrier_is_not_taken() -> None:
    """The barrier would swallow the delay."""
    groups = barrier_and_all_reduce(2).groups
    operations = (
        Compute(0, "before", 0.1),
        Collective(1, "barrier", "all_reduce", "fe", 4, (0,)),
        Collective(2, "gradients", "all_reduce", "dp", 4000, (1,)),
    )
    late = inject(Program("test", (operations,) * 2, groups), parse_injection("fixed:0.3"), 0, 1, 0)
    assert [op.name for op in late.operations[0]] == ["before", "barrier", "straggler", "gradients"]
    assert late.operations[0][0] == operations[0]


def test_delays_add_to_those_that_are_there() -> None:
    once = inject(barrier_and_all_reduce(2), parse_injection("fixed:0.3"), 0, 1, 0)
    twice = inject(once, parse_injection("fixed:0.2"), 0, 3, 0)
    compute = twice.operations[0][1]
    assert isinstance(compute, Compute) and compute.late == pytest.approx((0.5, 0.5, 0.5))


def test_slow_computing_multiplies_every_compute_of_one_rank() -> None:
    program = barrier_and_all_reduce(3)
    slow = inject(program, parse_injection("slow-compute:3"), 1, 4, 0)
    assert [op.seconds for op in slow.operations[1] if isinstance(op, Compute)] == pytest.approx([0.3, 0.15])
    assert slow.operations[0] == program.operations[0] and slow.operations[2] == program.operations[2]
    assert inject(program, parse_injection("wrong+slow-compute:3"), 1, 4, 0).operations[2] != program.operations[2]


def test_slow_computing_needs_something_to_compute() -> None:
    groups = {"dp": Group("dp", "dp", (0, 1))}
    program = Program("test", ((Collective(0, "g", "all_reduce", "dp", 8),),) * 2, groups)
    with pytest.raises(ConfigError, match="rank 0 has no compute"):
        inject(program, parse_injection("slow-compute:2"), 0, 1, 0)


@pytest.mark.parametrize("text", ["none", "slow-link:0.5", "background:0.4", "wrong", "fixed:0"])
def test_what_is_not_the_programs_leaves_it_alone(text: str) -> None:
    program = barrier_and_all_reduce(4)
    assert inject(program, parse_injection(text), 3, 5, 0) == program


def test_replay_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "gaps.txt"
    file.write_text("7\n9.5 # the mean\n\n22\n")
    injection = parse_injection(f"replay:{file},unit=ms,factor=10,persistence=0.9")
    assert injection.persistence == 0.9
    totals = [sum(step) for step in zip(*injection.delays(4, 5, 0, 0), strict=True)]
    assert totals == pytest.approx([0.07, 0.095, 0.22, 0.07, 0.095])
    assert statistics.median(totals) == pytest.approx(0.095)


EXAMPLE = ROOT / "docs" / "examples" / "straggler_gaps.json"


def drawn(gaps: Fixed | LogNormal | Replay, count: int, seed: int = 1) -> list[float]:
    return list(islice(gaps.draw(random.Random(seed)), count))


def test_the_published_gaps_follow_from_their_median_and_sigma() -> None:
    """Median 7, mean 9.5, p90 19, max 22 ms."""
    gaps = sorted(drawn(LogNormal(0.007, 0.78), 20_000))
    assert statistics.median(gaps) == pytest.approx(0.007, rel=0.05)
    assert statistics.fmean(gaps) == pytest.approx(0.0095, rel=0.05)
    assert gaps[18_000] == pytest.approx(0.019, rel=0.05)
    assert max(drawn(LogNormal(0.007, 0.78, 0.022), 2000)) == 0.022


@pytest.mark.parametrize(("key", "factor"), [("gaps_s", 1.0), ("gaps_ms", 1e-3), ("gaps_us", 1e-6)])
def test_json_says_its_unit_and_begins_again_at_its_end(tmp_path: Path, key: str, factor: float) -> None:
    file = tmp_path / "gaps.json"
    file.write_text(json.dumps({key: [3, 1.5]}))
    assert drawn(Replay.read(file), 3) == pytest.approx([3 * factor, 1.5 * factor, 3 * factor])
    assert drawn(Replay.read(file, factor=10), 1) == pytest.approx([30 * factor])


def test_our_example_was_drawn_by_our_own_generator() -> None:
    gaps_ms = json.loads(EXAMPLE.read_text())["gaps_ms"]
    own = drawn(LogNormal(0.007, 0.78, 0.022), len(gaps_ms), seed=1)
    assert gaps_ms == pytest.approx([gap * 1e3 for gap in own], abs=0.005)
    assert Replay.read(EXAMPLE).gaps_s == pytest.approx(own, abs=5e-6)
