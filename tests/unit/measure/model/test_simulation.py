"""The simulation of small programs, every time of which is worked out by hand.

Ports have 80 Mb/s, so 10 MB/s on the wire: a payload of ``k`` full packets of 8948 bytes takes ``k`` times 901.4 us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from fabric_plans import rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.engine.jobs import Job
from controllers.policies.catalog import load_policy
from controllers.policies.policy import Policy, Wiring
from measure.metrics.stall import stall_law
from measure.model.prediction import Prediction, Simulation, predict
from measure.model.simulated_control import Costs
from measure.model.wires import wire_bytes
from measure.published import published
from railyard.errors import ConfigError, ControlError
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.catalog import Workload, load_workload, make_workload
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.training.recipe import make_recipe

PACKET = 8948
"""Payload of a full packet."""
PACKET_S = 9014 / 1e7
"""How long a full packet takes."""
PAIR = Group("pair", "pp", (0, 1))
RING = Group("ring", "dp", (0, 1))
DELAY_S = 0.25


def program(ranks: Sequence[Sequence[Operation]], *groups: Group, eager: bool = False) -> Program:
    return Program("by hand", tuple(tuple(ops) for ops in ranks), {g.name: g for g in groups}, eager=eager)


def simulation(
    made: Program,
    policy: Policy | None = None,
    where: FabricPlan | None = None,
    *,
    delay_s: float = 0.0,
    steps: int = 1,
    costs: Costs | None = None,
    scale: Scale | None = None,
    provisioned: bool = False,
) -> Simulation:
    where = where or plan(RailTopo(servers=made.ranks, gpus=1, rate_mbps=80, fabric="electrical"))
    job = Job("by hand", tuple(made.groups.values()), "any", delay_s)
    return Simulation(made, where, policy, job, scale or Scale(1.0), steps, costs or Costs(), provisioned=provisioned)


def times(events: Sequence[Event], kind: str, **fields: Any) -> list[tuple[float, float]]:
    """Begin and end of the events of a kind that have these fields, in order."""
    return [
        (event.t, event.t + event.seconds)
        for event in events
        if event.kind == kind and all(event.get(key) == value for key, value in fields.items())
    ]


def close(*spans: tuple[float, float]) -> Any:
    """These spans, but for rounding."""
    return [pytest.approx(span, abs=1e-9) for span in spans]


# ---- compute ---------------------------------------------------------------------------------------------------------


def test_computes_of_a_rank_follow_each_other_and_ranks_do_not_wait_for_each_other() -> None:
    made = program([(Compute(0, "a", 0.5), Compute(1, "b", 0.25)), (Compute(0, "c", 0.125),)])
    events = simulation(made).run()
    assert times(events, "compute", rank=0) == [(0.0, 0.5), (0.5, 0.75)]
    assert times(events, "compute", rank=1) == [(0.0, 0.125)]
    assert times(events, "step", rank=0) == [(0.0, 0.75)] and times(events, "step", rank=1) == [(0.0, 0.125)]


def test_steps_follow_each_other_without_a_gap() -> None:
    events = simulation(program([(Compute(0, "a", 0.5),)] * 2), steps=3).run()
    assert times(events, "step", rank=1) == [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)]
    assert [event["step"] for event in events if event.kind == "step" and event["rank"] == 1] == [0, 1, 2]


def test_the_scale_stretches_computes() -> None:
    events = simulation(program([(Compute(0, "a", 0.5),)] * 2), scale=Scale(1.0, 4.0)).run()
    assert times(events, "compute", rank=0) == [(0.0, 2.0)]


def test_a_straggler_is_late_in_its_steps_and_holds_up_those_who_need_its_data() -> None:
    slow = (Compute(0, "work", 0.5, late=(0.0, 0.25)), Send(1, "s", "pair", 1, PACKET, (0,)))
    quick = (Compute(0, "work", 0.5), Recv(1, "r", "pair", 0, PACKET, (0,)))
    events = simulation(program([slow, quick], PAIR), steps=2).run()
    first = 0.5 + PACKET_S
    assert times(events, "compute", rank=0) == close((0.0, 0.5), (first, first + 0.75))
    assert times(events, "compute", rank=1) == close((0.0, 0.5), (first, first + 0.5))
    assert times(events, "communicate", rank=1) == close((0.5, first), (first + 0.5, first + 0.75 + PACKET_S))
    assert times(events, "transfer", rank=1, step=1) == close((first + 0.75, first + 0.75 + PACKET_S))


# ---- send and receive ------------------------------------------------------------------------------------------------


def test_a_send_takes_the_time_of_its_packets_and_both_ends_are_done_when_the_last_is_there() -> None:
    events = simulation(
        program([(Send(0, "s", "pair", 1, 10 * PACKET),), (Recv(0, "r", "pair", 0, 10 * PACKET),)], PAIR)
    ).run()
    for rank in (0, 1):
        assert times(events, "communicate", rank=rank) == close((0.0, 10 * PACKET_S))
    (transfer,) = (event for event in events if event.kind == "transfer")
    assert (transfer["rank"], transfer["peer"], transfer["bytes"]) == (1, 0, 10 * PACKET)
    sent = {event["rank"]: event["sent_bytes"] for event in events if event.kind == "communicate"}
    assert sent == {0: 10 * PACKET, 1: 0}


def test_a_message_costs_its_latency_once() -> None:
    made = program([(Send(0, "s", "pair", 1, PACKET),), (Recv(0, "r", "pair", 0, PACKET),)], PAIR)
    events = simulation(made, costs=Costs(alpha_s=0.003)).run()
    assert times(events, "communicate", rank=1) == close((0.0, PACKET_S + 0.003))


def test_an_eager_send_does_not_wait_and_what_came_early_is_there_when_the_receive_begins() -> None:
    sender = (Send(0, "s", "pair", 1, PACKET), Compute(1, "work", 0.25, (0,)))
    late = (Compute(0, "work", 0.5), Recv(1, "r", "pair", 0, PACKET, (0,)))
    events = simulation(program([sender, late], PAIR, eager=True)).run()
    assert times(events, "compute", rank=0) == close((0.0, 0.25)), "it goes on before its bytes are there"
    assert times(events, "communicate", rank=0) == close((0.0, PACKET_S))
    assert times(events, "transfer") == close((0.0, PACKET_S))
    assert times(events, "communicate", rank=1) == close((0.5, 0.5))
    assert times(events, "step", rank=1) == close((0.0, 0.5))


def test_sends_of_one_pair_follow_each_other_on_the_wire() -> None:
    sends = (Send(0, "s", "pair", 1, PACKET), Send(1, "t", "pair", 1, 2 * PACKET))
    receives = (Recv(0, "r", "pair", 0, PACKET), Recv(1, "u", "pair", 0, 2 * PACKET))
    events = simulation(program([sends, receives], PAIR)).run()
    assert times(events, "transfer") == close((0.0, PACKET_S), (PACKET_S, 3 * PACKET_S))


def test_a_window_between_two_phases_is_seen_by_both_ranks() -> None:
    """An all-reduce, 0.5 s of compute, a send: each rank has two phases, half a second apart."""
    size = 4 * PACKET
    first = (Collective(0, "sum", "all_reduce", "ring", size), Compute(1, "work", 0.5, (0,)))
    ranks: list[tuple[Operation, ...]] = [
        (*first, Send(2, "s", "pair", 1, PACKET, (1,))),
        (*first, Recv(2, "r", "pair", 0, PACKET, (1,))),
    ]
    events = simulation(program(ranks, RING, PAIR)).run()
    for rank in (0, 1):
        assert times(events, "phase", rank=rank) == close((0.0, 2 * PACKET_S), (2 * PACKET_S + 0.5, 3 * PACKET_S + 0.5))
        assert [e["dimension"] for e in events if e.kind == "phase" and e["rank"] == rank] == ["dp", "pp"]


# ---- all-reduce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4])
def test_a_ring_all_reduce_takes_twice_n_minus_1_rounds_of_a_chunk(n: int) -> None:
    """One ring over n chunks, each of five packets: every rank sends one chunk in each round."""
    ring = Group("ring", "dp", tuple(range(n)))
    op = Collective(0, "sum", "all_reduce", "ring", n * 5 * PACKET, algorithm="ring")
    events = simulation(program([(op,)] * n, ring)).run()
    chunk_s, rounds = 5 * PACKET_S, 2 * (n - 1)
    for rank in range(n):
        assert times(events, "communicate", rank=rank) == close((0.0, rounds * chunk_s))
        received = [event for event in events if event.kind == "transfer" and event["rank"] == rank]
        assert times(received, "transfer") == close(*((k * chunk_s, (k + 1) * chunk_s) for k in range(rounds)))
        assert [event["round"] for event in received] == list(range(rounds))
        assert [event["reduce"] for event in received] == [True] * (n - 1) + [False] * (n - 1)
        assert {event["peer"] for event in received} == {(rank - 1) % n}


def test_one_late_rank_holds_up_the_ring_by_its_lateness_and_no_more() -> None:
    n, late = 4, 0.5
    ring = Group("ring", "dp", tuple(range(n)))
    op = Collective(1, "sum", "all_reduce", "ring", n * 5 * PACKET, (0,), algorithm="ring")
    ranks = [(Compute(0, "work", late if rank == 2 else 0.0), op) for rank in range(n)]
    events = simulation(program(ranks, ring)).run()
    assert max(end for _, end in times(events, "communicate")) == pytest.approx(late + 6 * 5 * PACKET_S)
    assert min(t for t, _ in times(events, "transfer", rank=2)) == late, "nothing is sent to it before"
    assert min(t for t, _ in times(events, "transfer", rank=3)) == late, "it sends nothing before"
    assert min(t for t, _ in times(events, "transfer", rank=1)) == 0.0, "others begin without it"


# ---- circuits --------------------------------------------------------------------------------------------------------

# Ports of rail0: rank 0 has 1 and 2, rank 1 has 3 and 4. Both circuits use port 3.
CIRCUITS = {"pair": Matching([(2, 3)]), "ring": Matching([(1, 3)])}


class Given(Policy):
    """The circuits of each group are given; no two are up at once."""

    def __init__(self, where: FabricPlan, circuits: Mapping[str, Matching] | None = None) -> None:
        super().__init__(where)
        self.circuits = circuits or CIRCUITS

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        return {"rail0": self.circuits[group.name]}


def two_pairs(window_s: float = 0.0) -> Program:
    """A send from rank 0 to rank 1 over each of two circuits, with a compute between them."""
    other = Group("ring", "dp", (0, 1))
    ranks: list[tuple[Operation, ...]] = [
        (Send(0, "s", "pair", 1, PACKET), Compute(1, "work", window_s, (0,)), Send(2, "t", "ring", 1, PACKET, (1,))),
        (Recv(0, "r", "pair", 0, PACKET), Compute(1, "work", window_s, (0,)), Recv(2, "u", "ring", 0, PACKET, (1,))),
    ]
    return program(ranks, PAIR, other)


def optical() -> FabricPlan:
    return plan(RailTopo(servers=2, gpus=1, rate_mbps=80, fabric="ocs"))


def test_each_change_of_circuits_costs_the_reconfiguration_delay() -> None:
    where = optical()
    events = simulation(two_pairs(), Given(where), where, delay_s=DELAY_S).run()
    first = DELAY_S + PACKET_S
    assert times(events, "reconfigure", group="pair") == close((0.0, DELAY_S))
    assert times(events, "reconfigure", group="ring") == close((first, first + DELAY_S))
    for rank in (0, 1):
        assert times(events, "wait", rank=rank) == close((0.0, DELAY_S), (first, first + DELAY_S))
    assert times(events, "transfer") == close((DELAY_S, first), (first + DELAY_S, first + DELAY_S + PACKET_S))
    assert times(events, "step", rank=1) == close((0.0, 2 * (DELAY_S + PACKET_S)))


def test_a_circuit_that_is_up_from_the_last_step_costs_nothing() -> None:
    where = optical()
    made = program([(Send(0, "s", "pair", 1, PACKET),), (Recv(0, "r", "pair", 0, PACKET),)], PAIR)
    events = simulation(made, Given(where), where, delay_s=DELAY_S, steps=2).run()
    first = DELAY_S + PACKET_S
    assert times(events, "step", rank=0) == close((0.0, first), (first, first + PACKET_S))


@pytest.mark.parametrize(("window_s", "exposed_s"), [(0.1, 0.15), (0.25, 0.0), (0.5, 0.0)])
def test_circuits_that_are_requested_ahead_are_tuned_in_the_window(window_s: float, exposed_s: float) -> None:
    where = optical()
    events = simulation(two_pairs(window_s), Given(where), where, delay_s=DELAY_S, provisioned=True).run()
    first = DELAY_S + PACKET_S
    assert times(events, "reconfigure", group="ring") == close((first, first + DELAY_S))
    assert times(events, "step", rank=0) == close((0.0, first + window_s + exposed_s + PACKET_S))


def test_the_costs_of_the_control_plane_are_added_once_each() -> None:
    """Half of ``control_s`` there and half of it back, and ``settle_s`` after the circuit is up."""
    where = optical()
    made = program([(Send(0, "s", "pair", 1, PACKET),), (Recv(0, "r", "pair", 0, PACKET),)], PAIR)
    costs = Costs(control_s=0.02, settle_s=0.003)
    events = simulation(made, Given(where), where, delay_s=DELAY_S, costs=costs).run()
    assert times(events, "reconfigure", group="pair") == close((0.01, 0.01 + DELAY_S))
    assert times(events, "wait", rank=1) == close((0.0, 0.02 + 0.003 + DELAY_S))


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_two_ranks_that_both_receive_first_stand_still_and_the_first_of_them_is_named() -> None:
    both = [
        (
            Compute(0, "work", 0.5),
            Recv(1, "r", "pair", 1 - rank, PACKET, (0,)),
            Send(2, "s", "pair", 1 - rank, PACKET, (1,)),
        )
        for rank in (0, 1)
    ]
    with pytest.raises(ControlError) as caught:
        simulation(program(both, PAIR), scale=Scale(1.0, 4.0)).run()
    assert "0.500 s" in str(caught.value) and "rank 0 waits for r in group pair" in str(caught.value)


def test_a_rank_whose_peer_never_requests_its_circuits_stands_still() -> None:
    where = optical()
    made = program([(Send(0, "s", "pair", 1, PACKET),), ()], PAIR)
    with pytest.raises(ControlError, match="rank 0 waits for the circuits of group pair"):
        simulation(made, Given(where), where, delay_s=DELAY_S).run()


def test_a_refused_request_names_the_rank_the_group_and_the_reason() -> None:
    class Broken(Given):
        def wanted(self, group: Group, standing: Wiring) -> Wiring:
            raise ValueError("no idea")

    where = optical()
    with pytest.raises(ControlError) as caught:
        simulation(two_pairs(), Broken(where), where).run()
    reason = "the policy failed with ValueError: no idea"
    assert str(caught.value) == f"rank 0 was refused request 0 of group pair: {reason}"


def test_a_group_that_is_given_no_circuit_between_two_members_is_named() -> None:
    """The only circuit joins ranks 0 and 2, and rank 0 sends to rank 1."""
    where, trio = rail_plan(3), Group("trio", "dp", (0, 1, 2))
    ranks: list[tuple[Operation, ...]] = [
        (Send(0, "s", "trio", 1, PACKET),),
        (Recv(0, "r", "trio", 0, PACKET),),
        (Compute(0, "w", 0.0), Collective(1, "never", "all_reduce", "trio", 4, (0,))),
    ]
    with pytest.raises(ControlError, match="group trio has no circuit between rank 0 and rank 1"):
        simulation(program(ranks, trio), Given(where, {"trio": Matching([(1, 5)])}), where).run()


FABRIC = {"on-demand": "ocs", "provisioned": "ocs", "one-shot": "one-shot"}
POLICY = {"on-demand": "opus", "provisioned": "opus", "one-shot": "one-shot", "electrical": "electrical"}
SCALE = Scale(1 / 100)


def fabric(workload: Workload, mode: str, scale: Scale) -> FabricPlan:
    rate = scale.emulated_mbps(workload.port_gbps)
    return plan(
        RailTopo(
            servers=workload.servers,
            gpus=workload.gpus_per_server,
            rate_mbps=rate,
            fabric=FABRIC.get(mode, "electrical"),
            front_end=workload.uses_front_end,
        )
    )


def run(workload: Workload, mode: str, delay_s: float = 0.0, scale: Scale = SCALE, **options: Any) -> Prediction:
    where = fabric(workload, mode, scale)
    policy = load_policy(POLICY[mode], where) if mode in POLICY else None
    return predict(workload.program, where, policy, mode, delay_s, scale=scale, **options)


@cache
def step(name: str, mode: str, delay_s: float = 0.0) -> Prediction:
    return run(load_workload(name), mode, delay_s)


def slope(name: str, mode: str, delay_s: float) -> float:
    return (step(name, mode, delay_s).step_time_s - step(name, "electrical").step_time_s) / delay_s


def test_native_steps_are_those_that_the_compute_time_was_fitted_to() -> None:
    for name, key in (("llama3-8b-16", "opus-llama-native"), ("pp-only", "opus-deepseek-native")):
        assert step(name, "native").step_time_s == pytest.approx(published(key).value, abs=0.01)


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.1, 0.2, 0.5])
def test_smoke_on_demand_costs_two_delays(delay_s: float) -> None:
    # Artifact simulator: 62.2416 s electrical; 62.2436, 62.2616 and 62.3416 at 1, 10 and 50 ms.
    assert slope("smoke", "on-demand", delay_s) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.25, 1.0])
def test_llama_on_demand_costs_six_delays_less_one_that_meets_a_pass_without_gathers(delay_s: float) -> None:
    """The host of the last stage posts the gather of B1 before F1, whose parameters are still there."""
    program = load_workload("llama3-8b-16").program
    window_s = sum(op.seconds for op in program.operations[8] if isinstance(op, Compute) and op.name[:2] == "F1")
    hidden = min(1.0, window_s / delay_s)
    assert slope("llama3-8b-16", "on-demand", delay_s) == pytest.approx(6.0 - hidden, abs=0.03)


def test_llama_exposes_each_of_its_six_changes() -> None:
    made = step("llama3-8b-16", "on-demand", 0.05)
    assert made.circuit_wait_s == pytest.approx(0.3)
    assert made.reconfigurations_per_step == 6


@pytest.mark.parametrize("mode", ["on-demand", "provisioned"])
def test_without_data_parallelism_nothing_is_rewired(mode: str) -> None:
    made = step("pp-only", mode, 1.0)
    assert made.step_time_s == step("pp-only", "electrical").step_time_s
    assert made.reconfigurations_per_step == 0
    assert made.circuit_wait_s == 0


@pytest.mark.parametrize("name", ["smoke", "llama3-8b-16"])
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.25, 1.0])
def test_asking_ahead_never_costs_more_than_asking_on_demand(name: str, delay_s: float) -> None:
    ahead, demand = step(name, "provisioned", delay_s), step(name, "on-demand", delay_s)
    assert ahead.step_time_s <= demand.step_time_s + 1e-9
    assert ahead.step_time_s >= step(name, "electrical").step_time_s - 1e-9


def test_what_is_provisioned_hides_in_the_window() -> None:
    """Smoke: the gradients' circuits are asked for one backward pass ahead, so only the pipeline's delay shows."""
    assert slope("smoke", "provisioned", 0.1) == pytest.approx(1.0, rel=1e-6)


def test_electrical_without_costs_is_native_and_so_are_circuits_without_a_delay() -> None:
    for name in ("smoke", "llama3-8b-16", "pp-only"):
        assert step(name, "electrical").step_time_s == pytest.approx(step(name, "native").step_time_s, rel=1e-9)
    assert step("llama3-8b-16", "on-demand").step_time_s == pytest.approx(step("llama3-8b-16", "native").step_time_s)


def test_results_do_not_depend_on_the_scale() -> None:
    workload = load_workload("smoke")
    for scale in (Scale(1 / 250), Scale(1 / 50), Scale(1 / 250, 2.0)):
        made = run(workload, "on-demand", 0.1, scale)
        assert made.step_time_s == pytest.approx(step("smoke", "on-demand", 0.1).step_time_s, rel=2e-3)


def test_a_pipeline_of_four_stages_with_fsdp_does_not_lock_up() -> None:
    recipe = make_recipe(
        {
            "name": "deep",
            "model": {"layers": 8, "hidden": 1024, "sequence": 1024, "heads": 8},
            "parallelism": {"pp": 4, "dp": 2},
            "batch": {"local_batch": 5, "microbatch": 1},
            "compute": {"forward_ms": 10},
            "fabric": {"servers": 8, "gpus_per_server": 1},
        }
    )
    workload = make_workload(recipe)
    native = run(workload, "native").step_time_s
    assert native < run(workload, "provisioned", 0.01).step_time_s <= run(workload, "on-demand", 0.01).step_time_s


# ---- closed formulas ------------------------------------------------------------------------------------------------


def alone(kind: str, n: int, size: int, costs: Costs | None = None) -> float:
    """Time of one collective of ``size`` bytes on a ring of ``n`` GPUs with two ports of 80 Mb/s, scale 1."""
    groups = {"dp": Group("dp", "dp", tuple(range(n)))}
    op = Collective(0, "c", kind, "dp", size)  # type: ignore[arg-type]
    where = plan(RailTopo(servers=n, gpus=1, rate_mbps=80, fabric="electrical"))
    return predict(Program("one", ((op,),) * n, groups), where, None, "native", steps=1, costs=costs).step_time_s


@given(n=st.integers(2, 16), kind=st.sampled_from(["all_gather", "reduce_scatter", "all_reduce"]))
def test_ring_collectives_take_the_alpha_beta_time(n: int, kind: str) -> None:
    size, alpha = 2 * n * 8948 * 10, 0.001
    rounds = (n - 1) * (2 if kind == "all_reduce" else 1)
    chunk_s = wire_bytes(size // (2 * n), 9000) / 1e7
    assert alone(kind, n, size) == pytest.approx(rounds * chunk_s)
    assert alone(kind, n, size, Costs(alpha_s=alpha)) == pytest.approx(rounds * (chunk_s + alpha))


def pair_program() -> Program:
    groups = {"pp": Group("pp", "pp", (0, 1))}
    size = 8948 * 100
    ranks = (
        (Send(0, "s", "pp", 1, size), Recv(1, "r", "pp", 1, size)),
        (Send(0, "s", "pp", 0, size), Recv(1, "r", "pp", 0, size)),
    )
    return Program("pair", ranks, groups)


def test_a_pair_is_full_duplex() -> None:
    where = plan(RailTopo(servers=2, gpus=1, rate_mbps=80, fabric="electrical"))
    made = predict(pair_program(), where, None, "native", steps=1)
    assert made.step_time_s == pytest.approx(901_400 / 1e7)


def test_stall_law() -> None:
    assert stall_law([0.0, 0.1, 0.3], 0.2) == pytest.approx(0.3)
    assert stall_law([], 1.0) == 0


# ---- trouble --------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused() -> None:
    where = plan(RailTopo(servers=4, gpus=1, rate_mbps=80, fabric="electrical"))
    with pytest.raises(ConfigError, match="2 ranks and the fabric 4"):
        predict(pair_program(), where, None, "native")
    with pytest.raises(ConfigError, match="mode native has no policy"):
        predict(pair_program(), plan(RailTopo(servers=2, gpus=1)), None, "on-demand")
