"""One machine under agents and simulation: random programs, played in any order and over ideal links, do the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import pytest
from agents.machine_player import Player
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from controllers.policies.catalog import load_policy
from measure.model.prediction import Simulation
from measure.model.simulated_control import Costs, SimulatedControl
from railyard.protocol import Hop, SlotWindow
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.config import AgentMode
from workloads.check import check
from workloads.collectives.algorithms import straight_all_to_all
from workloads.collectives.circuits import follow_circuits
from workloads.phases import phases
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank import exchange as exchange_module
from workloads.rank.actions import Announce, Drain, OpenPath, RunCompute, SendPart
from workloads.rank.exchange import Exchange, collective_exchange
from workloads.rank.executor import ReleaseCircuits, RequestCircuits
from workloads.rank.flows import Flow
from workloads.rank.machine import RankMachine
from workloads.rank.paths import PeerKey
from workloads.rank.slot_sender import Moved
from workloads.rank.tensors import Layout

STEPS = 2
LAYOUT = Layout(8, ((0, 2),), (), ())
KINDS = (
    ("all_reduce", "ring"),
    ("all_reduce", "bidirectional-ring"),
    ("all_reduce", "recursive-doubling"),
    ("all_gather", "ring"),
    ("reduce_scatter", "ring"),
)
RINGS = KINDS[:2] + KINDS[3:]
"""Collectives that the circuits of a ring can carry."""


@st.composite
def programs(
    draw: st.DrawFn, kinds: Iterable[tuple[str, str]] = KINDS, *, pairs: bool = True, eager: bool = False
) -> Program:
    """A program over 2 or 4 ranks: computes, collectives over all, and messages of neighbours, in an order that ends.

    Each operation depends on the one before it on its rank, or on nothing (of an eager program, always on nothing).
    """
    n = draw(st.sampled_from([2, 4]))
    groups = {"all": Group("all", "dp", tuple(range(n)))}
    groups |= {f"p{a}": Group(f"p{a}", "pp", (a, a + 1), stage=a) for a in range(n - 1)}
    ranks: list[list[Operation]] = [[] for _ in range(n)]
    choices = ["compute", "collective", *(["pair", "pair"] if pairs else [])]
    for _ in range(draw(st.integers(1, 7))):
        what = draw(st.sampled_from(choices))
        chained = draw(st.booleans()) or not eager
        deps = [(len(ops) - 1,) if ops and chained else () for ops in ranks]
        if what == "compute":
            rank = draw(st.integers(0, n - 1))
            ranks[rank].append(Compute(len(ranks[rank]), "work", draw(st.sampled_from([0.0, 1e-3])), deps[rank]))
        elif what == "collective":
            kind, algorithm = draw(st.sampled_from(list(kinds)))
            size = 4 * n * draw(st.integers(1, 40))
            for ops, dep in zip(ranks, deps, strict=True):
                ops.append(Collective(len(ops), kind, kind, "all", size, dep, algorithm))  # type: ignore[arg-type]
        else:
            a = draw(st.integers(0, n - 2))
            source, target = draw(st.sampled_from([(a, a + 1), (a + 1, a)]))
            size = 4 * draw(st.integers(1, 100))
            ranks[source].append(Send(len(ranks[source]), "send", f"p{a}", target, size, deps[source]))
            ranks[target].append(Recv(len(ranks[target]), "recv", f"p{a}", source, size, deps[target]))
    used = {op.group for ops in ranks for op in ops if not isinstance(op, Compute)}
    found = {name: group for name, group in groups.items() if name in used}
    return Program("random", tuple(map(tuple, ranks)), found, eager=eager)


def rails(made: Program, kind: str, ports: int = 2) -> FabricPlan:
    return plan(RailTopo(servers=made.ranks, gpus=1, ports=ports, rate_mbps=80, fabric=kind))


def simulated(
    made: Program, where: FabricPlan, policy: str | None, job: Job, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Event], list[tuple[int, Any]]]:
    """The timeline of a simulation, and what its ranks said to the controller."""
    asked: list[tuple[int, Any]] = []
    send = SimulatedControl.send

    def record(control: SimulatedControl, rank: int, message: Any) -> None:
        asked.append((rank, message))
        send(control, rank, message)

    monkeypatch.setattr(SimulatedControl, "send", record)
    loaded = None if policy is None else load_policy(policy, where)
    run = Simulation(made, where, loaded, job, Scale(1.0), STEPS, Costs(), provisioned=job.mode == "provisioned")
    return list(run.run()), asked


def received(events: Iterable[Event]) -> Counter[tuple[Any, ...]]:
    """How often each rank received each transfer, with its size."""
    names = ("rank", "step", "op", "transfer", "peer", "bytes")
    return Counter(tuple(event[name] for name in names) for event in events if event.kind == "transfer")


def ended(events: Iterable[Event]) -> Counter[tuple[Any, ...]]:
    """The communications, computes, phases and steps of each rank, with the bytes sent."""
    kinds = ("communicate", "compute", "phase", "step")
    names = ("rank", "step", "op", "phase", "payload_bytes")
    return Counter((e.kind, *(e.get(name) for name in names)) for e in events if e.kind in kinds)


def orders(events: Iterable[Event]) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """The order in which the computes of a rank, and the collectives of a group on it, ended."""
    found: dict[tuple[int, str], list[tuple[float, int, int]]] = defaultdict(list)
    for event in events:
        if event.kind == "compute" or (event.kind == "communicate" and event["op_kind"] not in ("send", "recv")):
            found[event["rank"], event.get("group", "compute")].append((event.end or 0.0, event["step"], event["op"]))
    return {key: [(step, op) for _, step, op in sorted(entries)] for key, entries in found.items()}


def requests(asked: Iterable[tuple[int, Any]]) -> dict[tuple[int, str, type], list[int]]:
    """The requests of each rank for each group, in order, and its releases (buffered sends may defer those)."""
    found: dict[tuple[int, str, type], list[int]] = defaultdict(list)
    for rank, message in asked:
        if isinstance(message, RequestCircuits | ReleaseCircuits):
            found[rank, message.group, type(message)].append(message.index)
    return found


def check_both(
    made: Program, where: FabricPlan, policy: str | None, mode: AgentMode, seed: int, cycle: Cycle | None = None
) -> None:
    """Both drivers of the machine end, and do the same; every value is right in the played one."""
    check(made)
    job = Job("random", tuple(made.groups.values()), mode, cycle=cycle)
    played = Player(made, where, None if policy is None else load_policy(policy, where), mode, seed, STEPS)
    played.run(job)
    assert [machine.waits_for for machine in played.machines if not machine.finished] == []
    assert not any(played.wrong)
    with pytest.MonkeyPatch.context() as monkeypatch:
        events, asked = simulated(made, where, policy, job, monkeypatch)
    assert received(played.events) == received(events)
    assert ended(played.events) == ended(events)
    assert orders(played.events) == orders(events)
    assert requests(played.asked) == requests(asked)


# ---- both drivers ----------------------------------------------------------------------------------------------------

EXAMPLES = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 1 << 30)


@EXAMPLES
@given(programs(), seeds, st.sampled_from([1, 2]))
def test_without_a_controller(made: Program, seed: int, ports: int) -> None:
    check_both(made, rails(made, "electrical", ports), None, "native", seed)


@EXAMPLES
@given(programs(eager=True), seeds)
def test_buffered_sends(made: Program, seed: int) -> None:
    check_both(made, rails(made, "electrical"), None, "native", seed)


@EXAMPLES
@given(programs(RINGS), seeds, st.sampled_from(["on-demand", "provisioned"]))
def test_circuits_for_each_phase(made: Program, seed: int, mode: AgentMode) -> None:
    check_both(made, rails(made, "ocs"), "opus", mode, seed)


@EXAMPLES
@given(programs(RINGS, eager=True), seeds)
def test_circuits_and_buffered_sends(made: Program, seed: int) -> None:
    check_both(made, rails(made, "ocs"), "opus", "on-demand", seed)


@EXAMPLES
@given(programs(pairs=False), seeds)
def test_circuits_that_follow_a_schedule(made: Program, seed: int) -> None:
    check_both(follow_circuits(made), rails(made, "ocs"), "follow", "on-demand", seed)


@EXAMPLES
@given(st.integers(2, 5), st.integers(1, 3), st.booleans(), seeds)
def test_slots(n: int, count: int, simplex: bool, seed: int) -> None:
    straight = straight_all_to_all(n)
    ops: list[Operation] = [
        Collective(k, "exchange", "all_to_all", "ep", 400 * n, (k - 1,) if k else (), straight.algorithm)
        for k in range(count)
    ]
    groups = {"ep": Group("ep", "ep", tuple(range(n)))}
    made = Program("slots", (tuple(ops),) * n, groups, {straight.algorithm: straight})
    where = rails(made, "ocs", 2 if simplex else 1)
    check_both(made, where, "rotor", "on-demand", seed, Cycle(simplex=simplex))


# ---- one machine -----------------------------------------------------------------------------------------------------

PAIR = Flow(0, 0, 0, point_to_point=True)
HOP = Hop(0, 0, 1, 0)
PATH: PeerKey = ("scale-out", 0, 1, 0)


def machine(ops: tuple[Operation, ...], *, asks: bool = False, eager: bool = False, steps: int = 1) -> RankMachine:
    """Rank 0 of two, with one port, whose peer is the test."""
    made = Program("p", (ops, ()), {"pair": Group("pair", "pp", (0, 1))}, eager=eager)
    one = RankMachine(made, 0, Scale(1.0), phases(made, 0), steps, ports_per_gpu=1, forwarding=not asks)
    one.checked_in("pair", asks=asks)
    return one


def kinds(actions: Iterable[Any]) -> list[str]:
    """The actions by name; events by their kind."""
    return [action.kind if isinstance(action, Event) else type(action).__name__ for action in actions]


def test_followers_of_a_compute_start_at_its_due_time() -> None:
    rank = machine((Compute(0, "a", 0.5), Compute(1, "b", 0.25)))
    assert rank.begin(1.0, 1.0) == [RunCompute(1.5)]
    compute, following = rank.compute_done(1.625)
    assert isinstance(compute, Event) and (compute.t, compute.end, compute["late_s"]) == (1.0, 1.5, 0.125)
    assert following == RunCompute(1.75)
    assert kinds(rank.compute_done(1.75)) == ["compute", "step", "StepEnded"] and rank.finished


def test_a_send_waits_for_the_credit_and_the_end_for_the_acknowledgement() -> None:
    rank = machine((Send(0, "s", "pair", 1, 400),))
    assert rank.begin(0.0, 0.0) == [OpenPath(PATH)]
    assert rank.credit((PAIR.at(1), 1), PATH, 0, 0.5) == [], "of another step"
    (sent,) = rank.credit((PAIR, 1), PATH, 0, 1.0)
    assert isinstance(sent, SendPart) and sent.path == PATH and sent.part.bytes == 400
    (drain,) = rank.taken(sent.in_flight, 2.0)
    assert drain == Drain(sent.in_flight) and not rank.finished
    rank.close(sent.in_flight)
    assert rank.under_way == []
    assert kinds(rank.over(sent.in_flight, 3.0)) == ["phase", "step", "StepEnded"]


def test_a_credit_that_comes_early_counts_and_a_lower_one_takes_nothing_back() -> None:
    rank = machine((Send(0, "s", "pair", 1, 400),))
    assert rank.credit((PAIR, 1), PATH, 0, 0.5) == rank.credit((PAIR, 1), PATH, -1, 0.6) == []
    assert kinds(rank.begin(1.0, 1.0)) == ["SendPart"]


def test_a_receive_announces_itself_and_ends_with_its_last_byte() -> None:
    rank = machine((Recv(0, "r", "pair", 1, 400),))
    (announced,) = rank.begin(0.0, 0.0)
    assert isinstance(announced, Announce) and (announced.path, announced.flow) == (PATH, (PAIR, 1))
    assert kinds(rank.arrived((PAIR, 1), 0, 1.0, 2.0)) == ["transfer", "Drain"]


def ring_of_two() -> RankMachine:
    """Rank 0 in an all-reduce over itself and its peer: in each of two rounds it sends and receives a half."""
    op = Collective(0, "sum", "all_reduce", "pair", 800, algorithm="ring")
    made = Program("p", ((op,), (op,)), {"pair": Group("pair", "dp", (0, 1))})
    rank = RankMachine(made, 0, Scale(1.0), phases(made, 0), STEPS, ports_per_gpu=1, forwarding=True)
    rank.checked_in("pair", asks=False)
    return rank


def sinces(actions: Iterable[Any]) -> list[float | None]:
    """The times at which the sends among ``actions`` became possible."""
    return [action.since for action in actions if isinstance(action, SendPart)]


def test_a_receive_that_begins_late_says_since_when_it_takes_data() -> None:
    (announced,) = machine((Recv(0, "r", "pair", 1, 400),)).begin(1.0, 1.25)
    assert isinstance(announced, Announce) and announced.not_before == 1.0


@pytest.mark.parametrize(
    ("credit", "since"), [(1.125, 1.125), (0.5, 1.0), (None, 2.0), (3.0, 2.0)], ids=["late", "early", "unknown", "now"]
)
def test_a_send_is_possible_since_both_its_ends_have_begun(credit: float | None, since: float) -> None:
    rank = machine((Send(0, "s", "pair", 1, 400),))
    rank.begin(1.0, 1.25)
    assert sinces(rank.credit((PAIR, 1), PATH, 0, 2.0, credit)) == [since]


@pytest.mark.parametrize(("credit", "since"), [(0.75, 1.0), (1.125, 1.125)])
def test_a_send_whose_receiver_is_there_already_is_possible_since_both_have_begun(credit: float, since: float) -> None:
    rank = machine((Send(0, "s", "pair", 1, 400),))
    rank.credit((PAIR, 1), PATH, 0, 1.25, credit)
    assert sinces(rank.begin(1.0, 1.5)) == [since]


@pytest.mark.parametrize("arrived", [2.125, None])
def test_what_follows_an_arrival_is_possible_since_that_came_to_this_machine(arrived: float | None) -> None:
    rank, key = ring_of_two(), (Flow(0, 0, 0), -1)
    rank.begin(1.0, 1.25)
    (first,) = (a for a in rank.credit(key, PATH, 1, 1.5, 1.25) if isinstance(a, SendPart))
    assert first.since == 1.25
    (incoming,) = (part.transfer for part in first.in_flight.exchange.awaited if part.round == 0)
    assert sinces(rank.arrived(key, incoming, 2.0, 2.25, arrived)) == [arrived]


def test_a_collective_is_planned_before_the_first_step_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Exchange] = []

    def plan_and_note(*args: Any, **options: Any) -> Exchange:
        planned.append(collective_exchange(*args, **options))
        return planned[-1]

    monkeypatch.setattr(exchange_module, "collective_exchange", plan_and_note)
    rank, exchanges = ring_of_two(), []
    rank.prepare()
    assert len(planned) == 1
    before = deepcopy(vars(planned[0]))
    actions: list[Any] = rank.begin(1.0, 1.0)
    for step in range(STEPS):
        key = Flow(step, 0, 0), -1
        assert kinds(a for a in actions if isinstance(a, Announce)) == ["Announce"]
        actions = rank.credit(key, PATH, 1, 1.0)
        exchanges.append((in_flight := rank.sending[key]).exchange)
        for _ in range(2):
            actions += rank.arrived(key, in_flight.exchange.awaited[0].transfer, 2.0, 2.0)
            actions += rank.taken(in_flight, 2.0)
        assert kinds(actions)[-1] == "Drain"
        rank.close(in_flight)
        actions = rank.over(in_flight, 3.0)
    assert rank.finished and len(planned) == 1 and planned[0] not in exchanges and vars(planned[0]) == before


def test_what_is_too_much_to_keep_is_planned_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MOST_STEPS", 3)
    rank = ring_of_two()
    rank.prepare()
    assert not rank._plans._planned
    assert "Announce" in kinds(rank.begin(1.0, 1.0))


def test_a_collective_that_waits_for_circuits_of_its_own_is_not_planned_ahead() -> None:
    for rank in (first := ring_of_two(), second := ring_of_two()):
        rank.checked_in("pair", asks=True, rotates=rank is first)
    second.client_groups.add("pair/0.0-1.0")
    for rank in (first, second):
        rank.prepare()
        assert not rank._plans._planned


def test_releases_wait_for_buffered_sends_and_none_is_lost() -> None:
    ops = (Send(0, "a", "pair", 1, 4), Send(1, "b", "pair", 1, 4))
    rank = machine(ops, asks=True, eager=True, steps=2)
    rank.begin(0.0, 0.0)
    sends = []
    for step in range(2):
        actions = rank.acknowledged("pair", step, (HOP,), 1.0)
        for _ in range(2):
            (send,) = [action for action in actions if isinstance(action, SendPart)]
            sends.append(send.in_flight)
            rank.taken(send.in_flight, 2.0)
            actions = rank.buffered(send.in_flight, 2.0)
        assert "ReleaseCircuits" not in kinds(actions), "the rank goes on, and its bytes may be under way"
    assert rank.finished
    assert [rank.over(send, 3.0) for send in sends[:3]] == [[], [], []]
    assert rank.over(sends[3], 4.0) == [ReleaseCircuits("pair", 0), ReleaseCircuits("pair", 1)]


def test_groups_rotate_on_their_own() -> None:
    groups = {name: Group(name, "ep", (0, 1)) for name in ("ep", "other")}
    straight = straight_all_to_all(2)
    ops = tuple(Collective(k, "x", "all_to_all", name, 800, (), straight.algorithm) for k, name in enumerate(groups))
    made = Program("p", (ops, ops), groups, {straight.algorithm: straight})
    rank = RankMachine(made, 0, Scale(1.0), phases(made, 0), 2, ports_per_gpu=1, forwarding=False)
    for name in groups:
        rank.checked_in(name, asks=True, rotates=True)
    assert rank.begin(0.0, 0.0) == [RequestCircuits("ep", 0), RequestCircuits("other", 0)]
    (_, sent) = rank.slot_began("ep", 0, SlotWindow(0, 1.0), (HOP,), 1.0)
    assert isinstance(sent, SendPart) and sent.in_flight.group.name == "ep" and "other" not in rank.slots
    assert rank.delivered(sent.in_flight, sent.part, 2.0) == [Moved("ep", 0, 0, True)]
    first = rank.slots["ep"]
    assert rank.slot_began("ep", 0, SlotWindow(1, 3.0), (), 3.0) == [Moved("ep", 0, 1, True)]
    assert kinds(rank.slot_began("other", 0, SlotWindow(0, 3.0), (HOP,), 3.0)) == ["wait", "SendPart"]
    assert rank.slots["ep"] is first is not rank.slots["other"]


def test_a_script_ends_computes_and_what_it_carries_itself() -> None:
    """Also those of a step that has not begun, as a message of the step before is still under way."""
    groups = {
        "pair": Group("pair", "pp", (0, 1)),
        "gloo": Group("gloo", "dp", (0, 1), "front-end"),
    }
    send, gloo = Send(1, "send", "pair", 1, 8, (0,)), Collective(3, "gloo", "all_reduce", "gloo", 8, (2,))
    mine = (Compute(0, "a", 1.0), send, Compute(2, "b", 1.0), gloo, Compute(4, "c", 1.0, (3,)))
    program = Program("driven", (mine, ()), groups)
    machine = RankMachine(
        program, 0, Scale(1.0), phases(program, 0), 9, ports_per_gpu=1, forwarding=True, layout=lambda _: LAYOUT
    )
    for group in groups.values():
        machine.paths.set_wired(group)

    def ended(actions: Iterable[Any]) -> list[tuple[int, float, float | None]]:
        return [(a["op"], a.t, a.end) for a in actions if isinstance(a, Event) and a.kind == "compute"]

    assert machine.begin(1.0, 1.0) == [], "no compute has a due time"
    actions = machine.come_to(0, 1, 2.0)
    assert ended(actions) == [(0, 1.0, 2.0)]
    (in_flight,) = machine.sending.values()
    assert in_flight.elements == 2
    assert ended(machine.come_to(0, 3, 3.0)) == [(2, 2.0, 3.0)]
    (drain,) = machine.passed(0, 3, 4.0)
    assert isinstance(drain, Drain) and drain.in_flight.op is gloo and drain.in_flight.posted == 3.0
    assert machine.over(drain.in_flight, 4.0) == []
    assert ended(machine.come_to(1, 0, 5.0)) == [(4, 4.0, 5.0)]
    assert machine.come_to(1, 3, 6.0) == machine.passed(1, 3, 7.0) == [], "the send of the step before is under way"
    actions = machine.over(in_flight, 8.0)
    assert ended(actions) == [(0, 8.0, 8.0), (2, 8.0, 8.0)]
    assert [a.in_flight.step for a in actions if isinstance(a, Drain)] == [1]
    assert [a["step"] for a in actions if isinstance(a, Event) and a.kind == "step"] == [0]
