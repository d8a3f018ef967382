"""Switches that go, come back, refuse, and lose or repeat replies, in any order with requests and failures.

Whatever happened, once all switches are well their tables are what the engine wants, and each request has one answer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from core_world import REPLY_S, World
from fabric_plans import pipeline_groups, rail_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from rack_player import rack, rented

from controllers.engine.jobs import Detection, Job
from controllers.openflow.recovery import AWAY_S, PATIENCE_S, connect_again, other_spelling
from topos.plan import FabricPlan, SwitchPlan

PHOTONIC = rack(spare_servers=2)
TORUS = rack(fabric="electrical-torus", torus="4x4", reserve="4x1@0,2/4x1@0,3")
DELAYS = st.sampled_from([0.0, 0.0008, 0.004, 0.05, 1.5])


class Ailing(World):
    """A world whose switches may be ill. Counts answers, and checks that grants come with their circuits."""

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self.deaf: set[int] = set()
        self.speechless: set[int] = set()
        self.away: set[int] = set()
        self.replies: list[tuple[int, int]] = []
        """Every reply to a barrier that confirms its message, lost ones included: none after an error, which a
        connection would have delivered before it."""
        self.count: Counter[object] = Counter()
        for dpid in self.switches:
            self.join(dpid)
        self.until(self.ready.is_set)

    def join(self, dpid: int = 0x10000) -> None:
        switch = self.switches[dpid]
        self.away.discard(dpid)

        def send(data: bytes) -> bool:
            if dpid in self.away or self.sends[dpid] is not send:
                return False
            if dpid in self.deaf:
                return True
            switch.take(data)
            sent, switch.sent = switch.sent, []
            if all(kind in ("barrier", "ports") for kind, _ in sent):
                self.replies += [(dpid, number) for kind, number in sent if kind == "barrier"]
            if dpid not in self.speechless:
                self.clock.after(REPLY_S, lambda: self.reply(dpid, sent) if self.sends[dpid] is send else None)
            return True

        self.sends[dpid] = send
        self.core.joined(dpid, send)

    def leave(self, dpid: int) -> None:
        if dpid not in self.away:
            self.away.add(dpid)
            self.core.left(dpid, self.sends[dpid])

    def answer(self, request_id: object, answer: bytes) -> None:
        super().answer(request_id, answer)
        self.count[request_id] += 1
        told = self.answers[request_id]
        for rank, lane, peer, peer_lane in told.get("paths", ()):
            rail = self.plan.rail_of(rank)
            port, far = rail.port(rank, lane), rail.port(peer, peer_lane)
            assert self.switches[rail.dpid].goes_to(port.number, far.mac) == far.number, "granted without its circuit"

    def heal(self) -> None:
        """Make all switches well, and wait until nothing is under way any more."""
        self.deaf.clear()
        self.speechless.clear()
        for dpid, switch in self.switches.items():
            switch.refuses = False
            if dpid in self.away:
                self.join(dpid)
        self.clock.advance(3 * PATIENCE_S + AWAY_S)
        assert not self.core.datapaths.missing() and not self.core.datapaths.troubles
        assert not self.core.datapaths.transactions

    def check_tables(self) -> None:
        """Check that the flows of each switch are those that the engine wants, and no others."""
        for switch in self.plan.switches:
            flows = self.switches[switch.dpid].flows
            if switch.kind == "ocs":
                up = self.core.engine.optical.switches[switch.name].up
                assert up == self.core.engine.optical.switches[switch.name].target.without_ports(
                    self.core.engine.optical.switches[switch.name].failed
                )
                assert {p: self.goes(switch, p) for p in up.ports} == {p: up.peer(p) for p in up.ports}
                assert len(flows) == len(up.ports) + 1, "the circuits, and one flow that drops all else"
            elif switch.name in self.core.engine.routing.held:
                held = self.core.engine.routing.held[switch.name]
                assert {mac: self.switches[switch.dpid].goes_to(0, mac) for mac in held} == held
                assert len(flows) == len(held)

    def goes(self, switch: SwitchPlan, port: int) -> int | None:
        return self.switches[switch.dpid].goes_to(port)


def ail(world: Ailing, data: st.DataObject) -> None:
    """One thing that happens to a switch, or to its connection."""
    dpid = data.draw(st.sampled_from(sorted(world.switches)))
    move = data.draw(st.sampled_from(["leave", "join", "deaf", "speechless", "refuse", "well", "late", "time"]))
    if move == "leave":
        world.leave(dpid)
    elif move == "join":
        world.join(dpid)
    elif move == "deaf":
        world.deaf.add(dpid)
    elif move == "speechless":
        world.speechless.add(dpid)
    elif move == "refuse":
        world.switches[dpid].refuses = True
    elif move == "well":
        world.deaf.discard(dpid)
        world.speechless.discard(dpid)
        world.switches[dpid].refuses = False
    elif move == "late" and world.replies:
        world.core.answered(*data.draw(st.sampled_from(world.replies)))
    else:
        world.clock.advance(data.draw(st.sampled_from([0.0004, 0.001, 0.01, 0.3, 1.1, 6.0, 12.0])))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_requests_and_rewirings_of_rails(data: st.DataObject) -> None:
    world = Ailing(rail_plan(4))
    groups = {group.name: group for group in pipeline_groups(2, 2)}
    world.ask("job", op="register", policy="opus", job=Job("j", tuple(groups.values()), "x", data.draw(DELAYS)))
    assert world.wait("job") == {"ok": True}
    index = dict.fromkeys(groups, 0)
    asked: dict[str, set[int]] = {name: set() for name in groups}
    single: list[object] = []
    for number in range(data.draw(st.integers(1, 25))):
        move = data.draw(st.sampled_from(["ail", "ail", "ail", "request", "request", "release", "rewire", "port"]))
        name = data.draw(st.sampled_from(sorted(groups)))
        if move == "ail":
            ail(world, data)
        elif move == "request":
            rank = data.draw(st.sampled_from(groups[name].members))
            if rank not in asked[name]:
                asked[name].add(rank)
                world.ask(
                    f"{name} {index[name]} {rank}", op="request", job="j", rank=rank, group=name, index=index[name]
                )
        elif move == "release" and over(world, name, index[name], groups[name].members):
            for rank in groups[name].members:
                world.ask(number, op="release", job="j", rank=rank, group=name, index=index[name])
            index[name] += 1
            asked[name].clear()
        elif move == "rewire":
            single.append(number)
            pairs = data.draw(st.permutations(range(1, 9)))[:4]
            wanted: dict[str, Any] = {"circuits": [pairs[:2], pairs[2:]], "delay_s": data.draw(DELAYS)}
            world.ask(number, op="rewire", switch="rail0", **wanted)
        elif move == "port":
            world.core.port_changed(0x10000, data.draw(st.integers(1, 8)), data.draw(st.booleans()))
    world.heal()
    for name, ranks in asked.items():
        answers = [world.count[f"{name} {index[name]} {rank}"] for rank in groups[name].members]
        if ranks == set(groups[name].members) and not all(answers):
            assert not any(answers)
            assert world.core.engine._queue._rounds[name, index[name]] in world.core.engine._queue._pending
    assert all(times == 1 for request, times in world.count.items() if isinstance(request, str))
    waits = [request for request in single if not world.count[request]]
    assert all(world.count[request] <= 1 for request in single)
    held = world.core.engine.optical._holders
    assert not waits or held, "a rewiring waits for ports in use at most"
    world.check_tables()


def registered() -> Ailing:
    world = Ailing(rail_plan(4))
    world.ask("job", op="register", policy="opus", job=Job("j", tuple(pipeline_groups(2, 2)), "x", 0.0))
    assert world.wait("job") == {"ok": True}
    return world


def test_what_a_rewiring_took_is_not_granted_when_its_switch_is_given_up() -> None:
    world = registered()
    switch = world.plan.switches[0]
    world.ask("by hand", op="rewire", switch=switch.name, circuits=[[1, 2], [3, 4]])
    world.leave(switch.dpid)
    for rank in (0, 1):
        world.ask(rank, op="request", job="j", rank=rank, group="dp-s0-r0", index=0)
    world.clock.advance(AWAY_S + 1)
    assert {world.answers[asked].get("error") for asked in ("by hand", 0, 1)} == {
        "rail0 lost its connection to the controller"
    }
    world.heal()
    assert (world.goes(switch, 1), world.goes(switch, 2)) == (4, 3)
    world.check_tables()


def test_a_rewiring_that_goes_on_leaves_a_port_that_another_has_taken_since() -> None:
    world = registered()
    switch = world.plan.switches[0]
    world.ask("long", op="rewire", switch=switch.name, circuits=[[2, 4]], delay_s=1.5)
    world.ask("short", op="rewire", switch=switch.name, circuits=[[1, 5]], delay_s=0.0)
    assert world.wait("short") == {"ok": True}
    world.leave(switch.dpid)
    world.join(switch.dpid)
    assert world.wait("long") == {"ok": True}
    assert world.goes(switch, 1) == 5
    world.check_tables()


@pytest.mark.parametrize("filled_s", [1.0, 0.0])
def test_a_circuit_returns_to_a_port_that_failed_while_its_switch_was_given_up(filled_s: float) -> None:
    """Also where the return is given up too, since the switch does not have its flows yet."""
    world = registered()
    switch = world.plan.switches[0]
    world.leave(switch.dpid)
    world.core.port_changed(switch.dpid, 7, False)
    world.clock.advance(AWAY_S + 1)
    world.join(switch.dpid)
    world.clock.advance(filled_s)
    assert world.goes(switch, 6) is None
    world.core.port_changed(switch.dpid, 7, True)
    world.heal()
    assert world.goes(switch, 6) == 7
    world.check_tables()


def over(world: Ailing, name: str, index: int, members: tuple[int, ...]) -> bool:
    """Whether all members have their grant."""
    return all(world.answers.get(f"{name} {index} {rank}", {}).get("ok") for rank in members)


def fail_chips(data: st.DataObject, plan: FabricPlan, policy: str) -> None:
    """Chips fail while switches are ill."""
    world = Ailing(plan)
    for tenant in "AB":
        job = Job(tenant, rented(plan, tenant).groups, "x", data.draw(DELAYS), detection=Detection(exit=True))
        world.ask(tenant, op="register", policy=policy, job=job)
        assert world.wait(tenant) == {"ok": True}
        world.ask(f"news {tenant}", op="watch", job=tenant, seen=0)
    fails = 0
    for number in range(data.draw(st.integers(1, 15))):
        if data.draw(st.integers(0, 3)):
            ail(world, data)
        else:
            world.ask(number, op="failed", rank=data.draw(st.integers(0, plan.ranks - 1)), cause="x")
            fails += 1
    world.heal()
    world.check_tables()
    for tenant in "AB":
        membership = world.core.engine.registry.job(tenant)
        assert membership.state in ("running", "stranded"), "the switches are well, so nothing is under way"
        assert world.count[f"news {tenant}"] == bool(membership.number)
    assert all(times == 1 for times in world.count.values())
    assert len(world.count) == 2 + fails + sum(bool(world.count[f"news {tenant}"]) for tenant in "AB")


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_splices_of_a_photonic_rack(data: st.DataObject) -> None:
    fail_chips(data, PHOTONIC, "lumion")


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_routes_of_an_electrical_torus(data: st.DataObject) -> None:
    fail_chips(data, TORUS, "torus")


@pytest.mark.parametrize(
    ("target", "other"),
    [
        ("tcp:127.0.0.1:6653", "tcp:127.0.0.1:06653"),
        ("tcp:[::1]:6653", "tcp:[::1]:06653"),
        ("unix:/run/railyard/1/ovs/rail0.controller", "unix://run/railyard/1/ovs/rail0.controller"),
    ],
)
def test_a_target_has_two_spellings(target: str, other: str) -> None:
    assert other_spelling(target) == other and other_spelling(other) == target


class Database:
    """A database with one bridge; ``controllers`` is what the bridge has. Keeps what is written."""

    def __init__(self, controllers: list[Any]) -> None:
        self.controllers = controllers
        self.written: list[dict[str, Any]] = []

    def transact(self, operation: dict[str, Any]) -> list[dict[str, Any]]:
        if operation["op"] == "update":
            assert operation["where"] == [["_uuid", "==", self.controllers]]
            self.written.append(operation["row"])
            return [{"count": 1}]
        if operation["table"] == "Bridge":
            return [{"rows": [{"controller": self.controllers}] if operation["where"][0][2] == "rail0" else []}]
        return [{"rows": [{"target": "tcp:127.0.0.1:6653", "max_backoff": 1000}]}]


def test_a_bridge_gets_the_other_spelling_and_is_woken() -> None:
    database, slept = Database(["uuid", "c"]), list[float]()
    connect_again(database, "rail0", slept.append)  # type: ignore[arg-type]
    assert database.written[0] == {"target": "tcp:127.0.0.1:06653"}
    assert [row["max_backoff"] for row in database.written[1:]] == [1001, 1000, 1001, 1000]
    assert len(slept) == 4


@pytest.mark.parametrize(
    ("bridge", "controllers"), [("rail0", ["set", []]), ("rail0", ["set", [["uuid", "a"], ["uuid", "b"]]]), ("x", [])]
)
def test_other_bridges_are_left_alone(bridge: str, controllers: list[Any]) -> None:
    database = Database(controllers)
    connect_again(database, bridge)  # type: ignore[arg-type]
    assert not database.written
