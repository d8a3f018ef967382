"""A communication engine in slots, without a network: which data goes in which slot, and which waits to be received."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from controllers.circuits.matchings import one_factorization
from railyard.errors import VerifyError
from railyard.protocol import Hop, SlotWindow
from railyard.scale import Scale
from railyard.timeline import Event
from topos.describe import plan
from topos.rails import RailTopo
from workloads.agent.config import AgentConfig
from workloads.agent.transport.comm_engine import CommEngine, SlotConnections
from workloads.agent.transport.message import Header, Outgoing
from workloads.agent.transport.pacing import Bucket, SendAllowance, UpWindow
from workloads.collectives.algorithms import straight_all_to_all
from workloads.program import Collective, Group, Program
from workloads.rank.executor import RequestCircuits
from workloads.rank.flows import Flow
from workloads.rank.paths import PeerKey, keys_at
from workloads.rank.slot_sender import LATE_S

N, RANK, SIZE = 4, 3, 1000
SLOTS = [tuple(Hop(a, 0, b, 0) for a, b in pairs) for pairs in one_factorization(N)]
"""The slots of a rotor between all."""


@dataclass(eq=False)
class Line:
    """A connection that a peer has opened: what is to go out by it, and what it hears of lights."""

    peer: int
    out: list[Header] = field(default_factory=list)
    lights: list[UpWindow | None] = field(default_factory=list)
    hold: list[bool] = field(default_factory=list)
    sent_bytes: int = 0
    allowance: SendAllowance | None = None

    @property
    def key(self) -> PeerKey:
        return "scale-out", 0, self.peer, 0

    def send(self, message: Outgoing) -> None:
        self.out.append(Header.unpack(message.head))
        self.hold.append(message.hold)

    def allow_until(self, light: UpWindow | None) -> None:
        self.lights.append(light)

    def arrival_s(self, size: int) -> float:
        return 0.0


@dataclass
class Office:
    """The communication engine of the last rank (all peers connect to it), and what it asks the controller."""

    comm_engine: CommEngine
    asked: list[Any]

    def come(self, number: int, until: float | None = None) -> int:
        """A slot comes; the peer in it."""
        paths = SLOTS[number % len(SLOTS)]
        self.comm_engine.slot_began("ep", 0, SlotWindow(number, 5.0 + number, until), paths, 5.0 + number)
        (peer,) = {end for path in paths if RANK in (path[0], path[2]) for end in (path[0], path[2])} - {RANK}
        return peer

    def opened(self, peer: int) -> Line:
        """The peer has opened its connection: what waited for that goes."""
        line = Line(peer)
        self.comm_engine.accepted(cast(Any, line))
        return line


@pytest.fixture
def office() -> Office:
    straight = straight_all_to_all(N)
    operations = (Collective(0, "exchange", "all_to_all", "ep", N * SIZE, algorithm=straight.algorithm),)
    groups = {name: Group(name, "ep", tuple(range(N))) for name in ("ep", "still")}
    program = Program("p", (operations,) * N, groups, {straight.algorithm: straight})
    where = plan(RailTopo(servers=N, gpus=1, ports=1, rate_mbps=50, fabric="ocs"))
    config = AgentConfig(RANK, "job", "on-demand", program, Scale(1.0), where, "", steps=2)
    asked: list[Any] = []

    def perform(action: Any) -> None:
        if not isinstance(action, Event):
            asked.append(action)

    comm_engine = CommEngine(config, lambda *_: None, lambda *_: None, perform, lambda *_, **__: None)
    comm_engine.machine.checked_in("ep", asks=True, rotates=True)
    comm_engine.execute(comm_engine.machine.begin(5.0, 5.0), 5.0)
    assert asked == [RequestCircuits("ep", 0)]
    asked.clear()
    return Office(comm_engine, asked)


def may_receive(office: Office, header: Header) -> bool:
    return office.comm_engine.may_receive(cast(Any, Line(0)), header)


def test_data_goes_in_the_slot_of_its_peer(office: Office) -> None:
    first = office.come(0)
    lines = {first: office.opened(first)}
    assert [header.payload_bytes for header in lines[first].out] == [SIZE]
    for number in (1, 2):
        peer = office.come(number)
        lines[peer] = office.opened(peer)
        assert [header.payload_bytes for header in lines[peer].out] == [SIZE]
    assert set(lines) == {0, 1, 2} and all(line.hold == [True] for line in lines.values())
    assert office.asked == [], "nothing was acknowledged yet"


def test_a_collective_of_a_rotating_group_is_not_announced(office: Office) -> None:
    office.come(0)
    kinds = {header.kind for peer in range(3) for header in office.opened(peer).out}
    assert kinds == {"data"}


def test_data_of_a_peer_that_is_ahead_waits_until_it_is_awaited(office: Office) -> None:
    early, later = (Header("data", Flow(step, 0, 0), 0, SIZE) for step in (0, 1))
    assert not may_receive(office, early)
    office.come(0)
    assert may_receive(office, early) and not may_receive(office, later)


def test_what_has_nothing_to_do_with_turns_is_taken_in_at_once(office: Office) -> None:
    flow = Flow(0, 0, 0)
    assert may_receive(office, Header("ready", flow))
    assert may_receive(office, Header("data", Flow(0, 0, 0, point_to_point=True), 0, 4))
    assert may_receive(office, Header("data", Flow(0, 1, 0), 0, 4)), "another group"
    assert may_receive(office, Header("data", Flow(0, 9, 0), 0, 4)), "no group: the error comes when it is taken in"


def test_data_may_come_by_any_port_of_its_sender_but_from_nobody_else(office: Office) -> None:
    office.come(0)
    (in_flight,) = office.comm_engine.machine.receiving.values()
    part = next(iter(in_flight.exchange.incoming.values()))
    header = Header("data", in_flight.flow, part.transfer, part.bytes)
    with pytest.raises(VerifyError, match="misdelivered: rank 3 got transfer"):
        office.comm_engine.expect(cast(Any, Line((part.peer + 1) % 3)), header)
    assert office.comm_engine.expect(cast(Any, Line(part.peer)), header) is None


PAIR = (Hop(0, 0, 1, 0), Hop(2, 0, 3, 0))


def rotating(notes: list[dict[str, Any]] | None = None) -> SlotConnections:
    """The slot connections of a rank; what they note."""
    found = [] if notes is None else notes
    return SlotConnections(lambda kind, t, end, **more: found.append({"t": t, "end": end, **more}))


def begin(slot_connections: SlotConnections, window: SlotWindow, now: float = 5.0, rank: int = 0) -> PeerKey:
    """A slot comes; the path of the rank in it."""
    (key,) = keys_at(rank, PAIR)
    slot_connections.begin_slot("ep", window, [key], now)
    return key


def shone(slot_connections: SlotConnections, key: PeerKey) -> list[UpWindow | None]:
    """What a connection that is there now hears."""
    line = Line(key[2])
    assert line.key == key
    slot_connections.allow_until(cast(Any, line))
    return line.lights


def test_only_the_first_in_a_slot_without_an_end_pays_for_the_dark() -> None:
    slot_connections = rotating()
    for _ in range(2):  # numbers of slots begin again with each request
        for number in range(2):
            key = begin(slot_connections, SlotWindow(number, 5.0 + number))
            assert [slot_connections.is_first(key) for _ in range(4)] == [True, False, False, False]
        slot_connections.end("ep")


def test_in_a_slot_with_an_end_the_light_is_the_limit() -> None:
    slot_connections = rotating()
    key = begin(slot_connections, SlotWindow(0, 5.0, 6.0, 0.1))
    assert key == ("scale-out", 0, 1, 0)
    assert not slot_connections.is_first(key)
    assert shone(slot_connections, key) == [UpWindow(5.0, 5.9)], "without the guard time"
    assert shone(slot_connections, key) == [], "said once"
    assert shone(slot_connections, ("scale-out", 0, 3, 0)) == []


@pytest.mark.parametrize(
    ("ends", "heard"), [((5.5, 6.5), UpWindow(6.0, 6.5)), ((6.0, None), None)], ids=["with an end", "without"]
)
def test_a_connection_that_the_peer_opens_late_hears_of_the_last_light_until_the_rotation_ends(
    ends: tuple[float | None, ...], heard: UpWindow | None
) -> None:
    slot_connections = rotating()
    for number, end in enumerate(ends):
        key = begin(slot_connections, SlotWindow(number, 5.0 + number, end), rank=1)
    assert shone(slot_connections, key) == [heard]
    begin(slot_connections, SlotWindow(2, 7.0, 8.0), rank=1)
    slot_connections.end("ep")
    assert shone(slot_connections, key) == []


def test_each_turn_is_noted_when_it_is_over() -> None:
    notes: list[dict[str, Any]] = []
    slot_connections = rotating(notes)
    key = begin(slot_connections, SlotWindow(0, 5.0, 6.0), 5.25)
    allowance = SendAllowance(UpWindow(5.0, 6.0), Bucket(8.0), 0.5, again=300)
    line = Line(key[2], sent_bytes=1000, allowance=allowance)
    slot_connections.allow_until(cast(Any, line))
    line.sent_bytes = 1800
    assert notes == []
    begin(slot_connections, SlotWindow(1, 7.0, 8.0), 7.0)
    planned = pytest.approx((1 - LATE_S) * 500_000)
    of_slot = {"t": 5.0, "end": 5.25, "group": "ep", "slot": 0, "late_s": 0.25}
    assert notes == [of_slot | {"bytes": 800, "planned": planned, "again": 300}]
    slot_connections.end("ep")
    unused = {"bytes": 0, "planned": 0, "again": 0}
    assert notes[1:] == [{"t": 7.0, "end": 7.0, "group": "ep", "slot": 1, "late_s": 0.0} | unused]
    slot_connections.end("ep")
    assert len(notes) == 2
