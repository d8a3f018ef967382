"""The model of a collective whose circuits follow its schedule, and of turns at one port."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from controllers.policies.catalog import load_policy
from measure.model.prediction import Costs, Prediction, predict
from measure.model.wires import wire_bytes
from topos.describe import plan
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.check import check
from workloads.collectives.catalog import schedule
from workloads.collectives.circuits import circuit_uses, follow_circuits
from workloads.program import Collective, Compute, Group, Operation, Program

CHUNK = 8948 * 20
"""Whole packets, so that no time is lost in their headers."""
RATE = 1e7
"""Bytes per second of a port."""
STEPS = 3


def fabric(n: int, kind: str) -> FabricPlan:
    return plan(RailTopo(servers=n, gpus=1, ports=2 if kind == "ocs" else 1, rate_mbps=80, fabric=kind))


def one(n: int, algorithm: str, late: float = 0.0, straggler: int = -1) -> Program:
    """An all-reduce of chunks of ``CHUNK``, to which the straggler comes ``late``."""
    size = CHUNK * schedule("all_reduce", n, algorithm).chunks
    ranks: list[tuple[Operation, ...]] = []
    for rank in range(n):
        wait = Compute(0, "late", late if rank == straggler % n else 0.0)
        ranks.append((wait, Collective(1, "sum", "all_reduce", "all", size, (0,), algorithm)))
    return Program("one", tuple(ranks), {"all": Group("all", "dp", tuple(range(n)))})


def on_circuits(program: Program, delay_s: float, costs: Costs | None = None) -> Prediction:
    where = fabric(program.ranks, "ocs")
    followed = follow_circuits(program)
    check(followed)
    policy = load_policy("follow", where)
    return predict(followed, where, policy, "on-demand", delay_s, steps=STEPS, costs=costs)


def on_packets(program: Program, costs: Costs | None = None) -> Prediction:
    return predict(program, fabric(program.ranks, "electrical"), None, "native", steps=STEPS, costs=costs)


def chunk_s() -> float:
    return wire_bytes(CHUNK, 9000) / RATE


def changes(program: Program) -> list[int]:
    """For each step the circuits that change, by replaying the uses of the schedule port by port."""
    plan_ = schedule("all_reduce", program.ranks, program.operations[0][1].algorithm)  # type: ignore[union-attr]
    joined: dict[tuple[int, int], tuple[int, int]] = {}
    uses = circuit_uses(plan_)
    for use in uses:  # what stands at the start: the first circuit that wants a port
        a, b = use.ends
        if a not in joined and b not in joined:
            joined[a], joined[b] = b, a
    counts = []
    for _ in range(STEPS):
        changed = 0
        for use in uses:
            a, b = use.ends
            if joined.get(a) != b:
                changed += 1
                for end in (a, b):
                    old = joined.pop(end, None)
                    if old is not None:
                        joined.pop(old, None)
                joined[a], joined[b] = b, a
        counts.append(changed)
    return counts


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring"])
def test_a_ring_is_never_reconfigured_and_costs_what_it_costs_on_packets(algorithm: str) -> None:
    program = one(8, algorithm)
    made = on_circuits(program, 0.05)
    rounds = schedule("all_reduce", 8, algorithm).rounds
    assert made.step_times_s == pytest.approx([rounds * chunk_s()] * STEPS)
    assert [e for e in made.events if e.kind == "reconfigure" and e["group"].startswith("all/")] == []


@pytest.mark.parametrize("n", [4, 8])
def test_stragglar_takes_a_matching_per_round_of_phase_2(n: int) -> None:
    program, delay = one(n, "stragglar"), 0.02
    made = on_circuits(program, delay)
    found = Counter(e["group"] for e in made.events if e.kind == "reconfigure" and e["group"].startswith("all/"))
    assert sum(found.values()) == sum(changes(program))
    plan_ = schedule("all_reduce", n, "stragglar")
    matchings = plan_.rounds - plan_.first_phase
    assert matchings == n + n.bit_length() - 1 - 2
    lit = dict.fromkeys(range(n), 0)
    for e in made.events:
        if e.kind == "ack" and e["group"].startswith("all/"):
            for rank in e["ranks"]:
                lit[rank] += 1
    assert lit[n - 1] == STEPS * matchings, "the straggler has another peer in each of them"
    first, *later = made.step_times_s
    whole = plan_.rounds * chunk_s()
    # The first step finds the ring of phase 1 lit; a later one has to lay it again.
    assert first == pytest.approx(whole + matchings * delay, abs=1e-6)
    assert later == pytest.approx([whole + (matchings + 1) * delay] * (STEPS - 1), abs=1e-6)


def test_without_a_delay_circuits_cost_nothing() -> None:
    for algorithm in ("stragglar", "recursive-halving-doubling", "tree"):
        program = one(8, algorithm)
        assert on_circuits(program, 0.0).step_times_s == pytest.approx(on_packets(program).step_times_s)


@pytest.mark.parametrize(("n", "gain"), [(4, 1.125), (8, 1.361), (16, 1.563)])
def test_after_arrival_stragglar_beats_the_ring_by_the_published_ratio(n: int, gain: float) -> None:
    """Source: StragglAR, arXiv 2505.23523 (coefficients of s b): 2 (n - 1) / n against (n + log2 n - 2) / (n - 1)."""
    late = 10.0
    times = {}
    for algorithm in ("ring", "stragglar"):
        made = on_packets(one(n, algorithm, late))
        chunks = schedule("all_reduce", n, algorithm).chunks
        times[algorithm] = (made.step_times_s[-1] - late) / chunks
    assert times["ring"] / times["stragglar"] == pytest.approx(gain, abs=0.001)


def test_the_straggler_waits_for_its_circuits_and_says_so() -> None:
    made = on_circuits(one(8, "stragglar", 1.0), 0.0)
    waits = [e for e in made.events if e.kind == "wait" and e["step"] == 0]
    (swap,) = [e for e in waits if e["rank"] == 0 and e["group"] == "all/0.0-7.0"]
    first_phase = schedule("all_reduce", 8, "stragglar").first_phase
    assert swap.seconds == pytest.approx(1.0 - first_phase * chunk_s())
    assert {e["rank"] for e in waits} == set(range(8))
    assert all(set(e.fields) == {"rank", "step", "op", "group", "index", "phase"} for e in waits)


def test_transfers_are_on_the_timeline() -> None:
    program = one(4, "ring")
    made = on_packets(program)
    plan_ = schedule("all_reduce", 4, "ring")
    found = Counter((e["step"], e["transfer"], e["peer"], e["rank"]) for e in made.events if e.kind == "transfer")
    assert found == Counter((s, k, t.src, t.dst) for s in range(STEPS) for k, t in enumerate(plan_.transfers))
    for e in made.events:
        if e.kind == "transfer":
            assert e.seconds == pytest.approx(chunk_s()) and e["bytes"] == CHUNK
            assert e["reduce"] == (plan_.transfers[e["transfer"]].op == "reduce")
        if e.kind == "communicate":
            assert e["payload_bytes"] == 6 * CHUNK


def test_lock_step_does_not_change_the_time_of_even_rounds() -> None:
    program = one(4, "stragglar")
    stepped = replace(program, schedules={"stragglar": replace(schedule("all_reduce", 4, "stragglar"), lockstep=True)})
    assert on_packets(stepped).step_times_s == pytest.approx(on_packets(program).step_times_s)
