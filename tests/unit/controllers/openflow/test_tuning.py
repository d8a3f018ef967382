"""When switches are ordered to go dark and to light, and when it is said that they did: by a clock of our own."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from fabric_plans import rail_plan
from fake_openflow import FakeSwitch
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.circuits.rotation import Cycle
from controllers.engine.actions import Ack, Action, Darken, Note, Registered, Rewired
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.openflow.datapaths import EXACT, OPEN_VSWITCH, CacheTimes, Datapaths, Decide, Step
from controllers.openflow.tuning import Tuning
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Policy
from controllers.policies.rotor import RotorPolicy
from railyard.protocol import SlotWindow
from topos.kernel.fastpath.lasting import Lasts, NotBefore, decode
from topos.plan import FabricPlan
from workloads.program import Group

REPLY_S = 0.001
SETTLE_S, GAP_S = OPEN_VSWITCH.settle_s, OPEN_VSWITCH.revalidation_s
EP = Group("ep", "ep", (0, 1, 2, 3))
RING, PAIR = Group("dp", "dp", (0, 1)), Group("pp", "pp", (0, 2))
STAGES = (RING, Group("dp1", "dp", (2, 3), stage=1), PAIR, Group("pp1", "pp", (1, 3)))


class South:
    """One switch that answers everything after ``REPLY_S``, and a clock that jumps to what is next.

    If it is asked to, it ends a dark time by itself and answers then.
    """

    def __init__(self, plan: FabricPlan, caches: CacheTimes = OPEN_VSWITCH) -> None:
        self.engine, self.datapaths = Engine(plan), Datapaths(plan, caches)
        self.sent: list[bytes] = []
        datapath = self.datapaths.connect(plan.switches[0], self.take)
        datapath.filled, datapath.trips = True, {"darken": [REPLY_S], "end_dark": [REPLY_S]}
        self.tuning = Tuning(self)
        self.now = 100.0
        self.orders: list[tuple[float, Step]] = []
        self.said: list[tuple[float, Action]] = []
        self._timers: list[tuple[float, int, Decide]] = []
        self._order = itertools.count()

    def send(self, name: str, step: Step, build: Callable[[int], bytes], now: float, number: int = 0) -> bool:
        xid = self.datapaths.send(name, step, build, now, number)
        self.orders.append((now, step))
        lasts = decode(self.sent[-1][:32]) if self.sent else None
        reply = now + REPLY_S
        if isinstance(lasts, Lasts):
            reply = max(reply, self.order("darken") + REPLY_S + lasts.seconds)
        elif isinstance(lasts, NotBefore):
            reply = max(reply, lasts.at + REPLY_S)
        self.later(reply, lambda t: self.tuning.step_done(self.datapaths.transactions.pop(xid), t))
        return bool(xid)

    def take(self, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def later(self, moment: float, decide: Decide) -> None:
        heapq.heappush(self._timers, (moment, next(self._order), decide))

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Darken):
                self.do(self.tuning.begin(action, self.now))
            else:
                self.said.append((self.now, action))

    def play(self) -> None:
        """All that is planned."""
        while self._timers:
            moment, _, decide = heapq.heappop(self._timers)
            self.now = max(self.now, moment)
            self.do(decide(self.now))

    def start(self, policy: Policy, groups: tuple[Group, ...], delay_s: float, cycle: Cycle | None = None) -> None:
        """A job whose members are all here, a second ago."""
        self.do(self.engine.register(Job("job", groups, "on-demand", delay_s, cycle=cycle), policy, self.now))
        self.play()
        self.now += 1.0

    def grant(self, group: Group, index: int = 0) -> None:
        """All members of a group ask now; what comes of it happens."""
        self.orders.clear()
        self.said.clear()
        for rank in group.members:
            self.do(self.engine.request(rank, group.name, index, self.now))
        self.play()

    def when(self, kind: type[Any]) -> list[float]:
        """When such actions came out."""
        return sorted({t for t, action in self.said if isinstance(action, kind)})

    def slot_window(self) -> SlotWindow:
        """The slot that all were told of."""
        (slot_window,) = {action.slot_window for _, action in self.said if isinstance(action, Ack)}
        assert slot_window is not None
        return slot_window

    def dark(self) -> list[tuple[float, float]]:
        """The dark times that were noted, from and until."""
        return [(a.t, a.end or 0.0) for _, a in self.said if isinstance(a, Note) and a.kind == "reconfigure"]

    def order(self, step: Step) -> float:
        """When the switch was last ordered to do so."""
        return max(t for t, kind in self.orders if kind == step)


@pytest.fixture
def rotor() -> Callable[[float], South]:
    def made(delay_s: float) -> South:
        south = South(rail_plan(4, ports=1))
        south.start(RotorPolicy(south.engine.plan), (EP,), delay_s)
        return south

    return made


def opus(delay_s: float, caches: CacheTimes = OPEN_VSWITCH) -> South:
    south = South(rail_plan(4), caches)
    south.start(OpusPolicy(south.engine.plan), STAGES, delay_s)
    return south


WIRINGS = st.permutations(range(1, 9)).flatmap(
    lambda order: st.integers(0, 4).map(lambda n: Matching(zip(order[: 2 * n : 2], order[1::2], strict=False)))
)


@given(steps=st.lists(st.tuples(WIRINGS, st.booleans(), st.sampled_from([0.0, 0.1])), max_size=6))
def test_a_switch_holds_the_last_circuits_and_nothing_of_those_before(
    steps: list[tuple[Matching, bool, float]],
) -> None:
    """Changes of rotations and others, in any order: a flow of the other kind would send packets astray."""
    south, switch = South(rail_plan(4)), FakeSwitch()
    south.engine.reconfigured = lambda *_, **__: []  # type: ignore[method-assign]
    line, standing = south.datapaths.connected["rail0"], Matching()
    line.send = switch.take
    for number, (after, quiet, delay_s) in enumerate(steps):
        change = Darken(number, "rail0", standing.changed_ports(after), standing, after, delay_s, quiet)
        south.do(south.tuning.begin(change, south.now))
        south.play()
        standing = after
        for port in line.plan.ports:
            outs = {switch.goes_to(port.number, other.mac) for other in line.plan.ports}
            assert outs - {None} == {standing.peer(port.number)} - {None}


def test_a_reply_that_comes_late_does_not_hide_the_flow_of_a_rotation() -> None:
    """Port 2 only loses its circuit, so a rotation takes it before the switch has replied to the first change."""
    south, switch = South(rail_plan(4)), FakeSwitch()
    south.engine.reconfigured = lambda *_, **__: []  # type: ignore[method-assign]
    datapath = south.datapaths.connected["rail0"]
    datapath.send = switch.take
    matchings = [Matching([(1, 2)]), Matching([(1, 3)]), Matching([(1, 3), (2, 4)]), Matching([(1, 3), (2, 5)])]
    changes = [
        Darken(number, "rail0", before.changed_ports(after), before, after, 0.1, number == 2)
        for number, (before, after) in enumerate(pairwise(matchings), 1)
    ]
    for change in changes[:2]:
        south.do(south.tuning.begin(change, south.now))
    south.play()
    south.do(south.tuning.begin(changes[2], south.now))
    south.play()
    assert {switch.goes_to(2, port.mac) for port in datapath.plan.ports} == {5}


def test_dark_from_reply_to_reply_and_an_ack_when_the_caches_have_followed() -> None:
    south = opus(0.1)
    south.grant(PAIR)
    dark = south.order("darken") + REPLY_S
    assert south.order("end_dark") == pytest.approx(dark + 0.1 - REPLY_S), "so much earlier as the answer takes"
    assert south.dark() == [(dark, pytest.approx(dark + 0.1))]
    assert south.when(Ack) == [pytest.approx(dark + 0.1 + SETTLE_S)]


@pytest.mark.parametrize("delay_s", [0.0005, 0.006, 0.1])
def test_a_switch_that_keeps_the_time_is_told_early_and_the_ack_comes_with_its_reply(delay_s: float) -> None:
    south = opus(delay_s, EXACT)
    south.grant(PAIR)
    ((dark, lit),) = south.dark()
    assert EXACT.early_s is not None
    with_beginning = delay_s <= EXACT.early_s
    ordered = south.order("darken") if with_beginning else dark + delay_s - EXACT.early_s
    assert south.order("end_dark") == pytest.approx(ordered)
    assert lit == pytest.approx(dark + delay_s) and south.when(Ack) == [lit]
    assert south.datapaths.connected["rail0"].trip_s("end_dark") == REPLY_S, "which was not the trip of this reply"


def test_ranks_are_told_of_a_slot_shortly_before_it_where_no_caches_follow() -> None:
    south = South(rail_plan(4, ports=1), EXACT)
    south.start(RotorPolicy(south.engine.plan), (EP,), 0.01)
    south.grant(EP)
    dark = south.order("darken")
    assert south.when(Ack) == [pytest.approx(dark + 0.01 - EXACT.notice_s)]
    assert south.dark() == [(dark, pytest.approx(dark + 0.01))]
    assert south.slot_window().began == pytest.approx(dark + 0.01)


@pytest.mark.parametrize(("delay_s", "crowded"), [(0.0, False), (0.006, True), (0.1, False)])
def test_a_rewiring_by_hand_is_answered_when_packets_go_where_it_says(delay_s: float, crowded: bool) -> None:
    south = South(rail_plan(4))
    south.do(south.engine.rewire("rail0", Matching([(1, 4)]), "update", south.now, delay_s=delay_s, ticket="mine"))
    south.play()
    ((_, lit),) = south.dark()
    assert (south.now, Rewired("mine")) in south.said
    assert south.when(Rewired) == [pytest.approx(lit + SETTLE_S + crowded * GAP_S)]


def test_a_job_may_begin_when_packets_go_where_its_circuits_lead() -> None:
    south = South(rail_plan(4))
    south.do(south.engine.register(Job("job", STAGES, "on-demand"), OpusPolicy(south.engine.plan), south.now))
    south.play()
    ((_, lit),) = south.dark()
    assert south.when(Registered) == [pytest.approx(lit + SETTLE_S)]


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 1.0])
def test_a_slot_is_lit_early_and_begins_when_the_delay_is_over(rotor: Callable[[float], South], delay_s: float) -> None:
    south = rotor(delay_s)
    south.grant(EP)
    dark = south.order("darken") + REPLY_S
    assert south.order("end_dark") == pytest.approx(dark + delay_s - REPLY_S - OPEN_VSWITCH.quiet_lead_s)
    assert south.dark() == [(dark, pytest.approx(dark + delay_s))]
    assert south.slot_window().began == pytest.approx(dark + delay_s), "neither earlier nor later"
    assert south.when(Ack) == [south.order("end_dark") + REPLY_S], "said as soon as it is sure"


@pytest.mark.parametrize("delay_s", [0.001, 0.004, 0.008])
def test_a_slot_after_a_delay_shorter_than_the_caches_take_begins_when_they_have_followed(
    rotor: Callable[[float], South], delay_s: float
) -> None:
    south = rotor(delay_s)
    south.grant(EP)
    dark = south.order("darken") + REPLY_S
    assert south.order("end_dark") == pytest.approx(dark), "at once"
    assert south.when(Ack) == [dark + REPLY_S]
    assert south.slot_window().began == pytest.approx(dark + REPLY_S + SETTLE_S + GAP_S)


def test_a_slot_without_a_delay_is_one_order(rotor: Callable[[float], South]) -> None:
    south = rotor(0.0)
    south.grant(EP)
    assert [step for _, step in south.orders] == ["darken"]
    assert south.slot_window().began == pytest.approx(south.order("darken") + REPLY_S + SETTLE_S)


def test_slots_close_together_without_a_delay_wait_for_the_caches(rotor: Callable[[float], South]) -> None:
    south = rotor(0.0)
    south.grant(EP)
    south.said.clear()
    for rank in EP.members:
        south.do(south.engine.moved(rank, "ep", 0, 0, False, south.now))
    south.play()
    changed = south.order("darken") + REPLY_S
    assert south.slot_window().began == pytest.approx(changed + SETTLE_S + GAP_S)


def test_a_slot_shorter_dark_than_its_notice_is_one_order_that_waits_for_its_time() -> None:
    """The ranks wait for the end of the delay, so the switch need not be told of it."""
    south = South(rail_plan(4, ports=1), EXACT)
    ended: list[tuple[float | None, float | None]] = []

    def reconfigured(*_: object, since: float | None = None, until: float | None = None) -> list[Action]:
        ended.append((since, until))
        return []

    south.engine.reconfigured = reconfigured  # type: ignore[method-assign,assignment]
    before, after = Matching([(1, 2), (3, 4)]), Matching([(1, 3), (2, 4)])
    moment = south.now + 0.002
    south.do(south.tuning.begin(Darken(1, "rail0", after.ports, before, after, 0.001, True, moment), south.now))
    south.play()
    request = decode(south.sent[-1][:32])
    assert isinstance(request, NotBefore) and request.at == pytest.approx(moment)
    assert [step for _, step in south.orders] == ["darken"]
    assert ended == [(pytest.approx(moment), pytest.approx(moment + 0.001))], "however long the reply takes"
