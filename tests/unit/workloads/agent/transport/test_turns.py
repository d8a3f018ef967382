"""When the messages of one port begin: held for its tokens, in turn, and overtaken by receiver credits."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents.loopback import loopback_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from railyard.scale import Scale, goodput_share
from workloads.agent.config import AgentConfig
from workloads.agent.transport import comm_engine
from workloads.agent.transport import connection as connection_module
from workloads.agent.transport.comm_engine import CommEngine, DeliveryTimers, Outbox, SlotConnections
from workloads.agent.transport.connection import Inbox, PeerConnection
from workloads.agent.transport.message import HEADER_BYTES, Header, Outgoing
from workloads.agent.transport.pacing import Bucket
from workloads.agent.transport.sockets import receive_time
from workloads.program import Group, Program, Send
from workloads.rank.actions import Announce, SendPart
from workloads.rank.exchange import MessagePart
from workloads.rank.flows import Flow
from workloads.rank.in_flight import InFlight
from workloads.rank.paths import PeerKey

KEY: PeerKey = ("scale-out", 0, 1, 0)
FLOW = Flow(0, 0, 0)
MTU, RATE_MBPS = 9000, 50.0
PATIENCE_S = 5.0


class Line:
    """A socket that sends at the rate of the port what it was given, and its connection.

    Other connections of the port share its ``bucket``. ``begun``: times at which each message was given to it.
    """

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket or Bucket(RATE_MBPS, MTU)
        self.begun: list[tuple[float, Header]] = []
        self.now = self._empty_at = 0.0
        sock = cast(socket.socket, self)
        inbox = cast(Inbox, SimpleNamespace(written=lambda connection, token: None))
        self.connection = PeerConnection(sock, KEY, self.bucket, inbox, connected=True, mtu=MTU)

    def setsockopt(self, *_: object) -> None:
        return

    def sendmsg(self, parts: list[Any], ancillary: object = (), flags: int = 0) -> int:
        content = b"".join(map(bytes, parts))
        self.begun.append((self.now, Header.unpack(content[:HEADER_BYTES])))
        self._empty_at = max(self._empty_at, self.now) + len(content) / self.bytes_per_s
        return len(content)

    @property
    def bytes_per_s(self) -> float:
        return self.bucket.bytes_per_s * goodput_share(MTU)

    @property
    def waiting(self) -> int:
        """Bytes given to this socket that have not left."""
        return round(max(0.0, self._empty_at - self.now) * self.bytes_per_s)

    def flush(self, now: float) -> None:
        self.now = now
        self.connection.flush(now)

    def run(self) -> None:
        """Send all, each message as soon as the connection says."""
        for _ in range(1000):
            if self.connection.sends_at == float("inf"):
                return
            self.flush(max(self.now, self.connection.sends_at))
        raise AssertionError("it does not end")

    @property
    def order(self) -> list[tuple[str, int]]:
        """Kind and transfer of the messages in the order in which they were sent."""
        return [(header.kind, header.transfer) for _, header in self.begun]


@pytest.fixture(autouse=True)
def _the_line_says_what_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "unacknowledged", lambda sock: sock.waiting)


def data(transfer: int, size: int = 100_000, *, in_turn: bool = True, **options: Any) -> Outgoing:
    return Outgoing(Header("data", FLOW, transfer, size).pack(), memoryview(bytes(size)), in_turn=in_turn, **options)


def credit() -> Outgoing:
    return Outgoing(Header("ready", FLOW, 7).pack(), memoryview(b""))


def test_a_credit_overtakes_the_second_of_two_messages() -> None:
    line = Line()
    for transfer in (0, 1):
        line.connection.send(data(transfer))
    line.flush(10.0)
    assert line.order == [("data", 0)] and 10.001 < line.connection.sends_at < 11.0
    line.connection.send(credit())
    line.flush(10.001)
    assert line.order == [("data", 0), ("ready", 7)]
    line.run()
    assert line.order == [("data", 0), ("ready", 7), ("data", 1)]


def test_of_an_eager_program_all_messages_go_at_once() -> None:
    line = Line()
    for transfer in (0, 1):
        line.connection.send(data(transfer, in_turn=False))
    line.flush(10.0)
    assert line.order == [("data", 0), ("data", 1)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 300_000), min_size=2, max_size=5))
def test_a_message_goes_while_at_most_a_burst_is_before_it_and_the_port_is_never_idle(sizes: list[int]) -> None:
    line = Line()
    line.now = 10.0
    line.bucket.sent(10.0, line.bucket.burst_s * line.bucket.bytes_per_s)  # nothing saved up
    for transfer, size in enumerate(sizes):
        line.connection.send(data(transfer, size))
    line.run()
    assert [transfer for _, transfer in line.order] == list(range(len(sizes)))
    end = 10.0
    for (begun, _), size in zip(line.begun, sizes, strict=True):
        assert begun <= end <= begun + line.bucket.burst_s + 1e-6
        end += (size + HEADER_BYTES) / line.bytes_per_s


def test_a_message_does_not_wait_for_bytes_that_leave_by_another_connection() -> None:
    line = Line()
    other = Line(line.bucket)
    other.connection.send(data(0))
    other.flush(10.0)
    assert line.bucket.backlog_s(10.0) > line.bucket.burst_s
    line.connection.send(data(1))
    line.flush(10.0)
    assert line.order == [("data", 1)]


def test_a_message_does_not_wait_for_an_acknowledgement_that_is_late() -> None:
    line = Line()
    for transfer in (0, 1):
        line.connection.send(data(transfer, int(2 * line.bucket.burst_s * line.bytes_per_s) - HEADER_BYTES))
    line.flush(10.0)
    assert line.bucket.backlog_s(10.0) == pytest.approx(3 * line.bucket.burst_s, abs=1e-4), "of both"
    assert line.order == [("data", 0), ("data", 1)]


@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.0039])
def test_a_message_begins_a_burst_after_its_emulated_begin(late_s: float) -> None:
    line = Line()
    line.connection.send(data(0, hold=True, since=10.0))
    line.flush(10.0 + late_s)
    assert line.begun == []
    line.run()
    ((begun, _),) = line.begun
    assert begun == pytest.approx(10.0 + line.bucket.burst_s)


def posted(*sinces: float | None, eager: bool = False) -> list[Outgoing]:
    """Messages of one collective by one path that became possible at these times, and a credit."""
    sent: list[Outgoing] = []
    line = SimpleNamespace(connected=True, send=sent.append)
    transport = SimpleNamespace(find=lambda path: line, connection=lambda path, now: line)
    machine = SimpleNamespace(program=SimpleNamespace(eager=eager))
    box = Outbox(cast(Any, machine), cast(Any, transport), SlotConnections(lambda *_: None), DeliveryTimers())
    in_flight = InFlight(0, cast(Any, None), 0, cast(Any, None), FLOW, 100, 0.0)
    for transfer, since in enumerate(sinces):
        box.post(SendPart(in_flight, MessagePart(transfer, 1, 0, 0, 0, 100, False), KEY, since=since))
    box.announce(Announce(in_flight, KEY, 3, 2.5))
    return sent


@pytest.mark.parametrize("eager", [False, True])
def test_messages_are_held_and_wait_for_their_turn_unless_the_program_is_eager_and_credits_never(eager: bool) -> None:
    *messages, credit = posted(1.5, None, 2.5, eager=eager)
    assert [(message.hold, message.since) for message in messages] == [(True, 1.5), (True, None), (True, 2.5)]
    assert [message.in_turn for message in messages] == [not eager] * 3
    assert Header.unpack(credit.head) == Header("ready", FLOW, 3, 2_500_000), "the time since when it holds"
    assert not credit.hold and not credit.in_turn


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "discarded"])
def test_a_message_that_is_read_late_has_arrived_before(keep: bool) -> None:
    arrived: list[float | None] = []
    inbox = SimpleNamespace(
        may_receive=lambda connection, header: True,
        expect=lambda connection, header: memoryview(bytearray(header.payload_bytes)) if keep else None,
        arrived=lambda connection, header: arrived.append(receive_time(connection.control)),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as far:
        near, _ = listener.accept()
        near.setblocking(False)
        with near:
            connection = PeerConnection(near, KEY, Bucket(1000.0), cast(Inbox, inbox), connected=True, mtu=MTU)
            end = time.monotonic() + PATIENCE_S
            while True:  # the kernel begins to take times only some time after the first request
                before = time.monotonic()
                far.sendall(Header("data", FLOW, 0, 1000).pack() + bytes(1000))
                after = time.monotonic()
                time.sleep(0.005)
                while len(arrived) == 0:
                    connection.receive(0.0)
                found = arrived.pop()
                if found is not None:
                    break
                assert time.monotonic() < end, "no packet has a time"
    assert before - 1e-4 <= found <= after + 1e-3


@pytest.mark.parametrize("since", [9.5, None])
def test_the_machine_is_told_since_when_a_credit_holds_and_a_message_is_here(
    since: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comm_engine, "receive_time", lambda control: control[0])
    told: list[float | None] = []
    program = Program("p", ((Send(0, "s", "pair", 1, 4),), ()), {"pair": Group("pair", "pp", (0, 1))})
    config = AgentConfig(0, "job", "native", program, Scale(1.0), loopback_plan(2), "")
    engine = CommEngine(config, *cast(Any, [lambda *_: None] * 4))
    machine = SimpleNamespace(credit=lambda *args: told.append(args[4]), arrived=lambda *args: told.append(args[4]))
    engine.machine, engine.execute = cast(Any, machine), cast(Any, lambda actions: None)  # type: ignore[method-assign]
    engine.tick(10.0)
    engine._began[KEY] = 9.0
    flow = Flow(0, 0, 0, True)
    connection = cast(PeerConnection, SimpleNamespace(key=KEY, peer=1, control=[since]))
    engine.arrived(connection, Header("ready", flow, 0, round((since or 0.0) * 1e6)))
    engine.arrived(connection, Header("data", flow, 0, 4))
    assert told == [since, since]
