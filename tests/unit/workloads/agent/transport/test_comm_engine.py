"""The communication engine of one rank over the loopback interface: against peers that speak as the test says, and
against other engines in the same thread.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from agents.loopback import LONGEST_WAIT_S, Peer, address, loopback_plan, until, use_loopback

from railyard.errors import ControlError, PeerLost, VerifyError
from railyard.loop import Poller
from railyard.scale import Scale
from railyard.timeline import Event
from workloads.agent.config import AgentConfig, AgentMode
from workloads.agent.transport import connection as connections
from workloads.agent.transport import payload
from workloads.agent.transport.comm_engine import CommEngine
from workloads.agent.transport.connection import PeerConnection, Transport
from workloads.agent.transport.message import Header
from workloads.agent.transport.sockets import drop_packets, take_packets
from workloads.collectives.catalog import schedule_of
from workloads.collectives.circuits import follow_circuits
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.rank.executor import ReleaseCircuits, RequestCircuits
from workloads.rank.flows import Flow
from workloads.rank.in_flight import InFlight
from workloads.rank.paths import PeerKey

SEED = 3
QUIET_S = 0.01
"""How long nothing happens before a rank is held to be done with all that it can do."""
SIZE = 4000
"""Bytes of a message: 1000 elements."""
PAIR = Flow(0, 0, 0, point_to_point=True)
"""The first send of the only group in the first step."""
RING = Flow(0, 0, 0)
"""The first collective of the only group in the first step."""


@dataclass
class Rank:
    """One engine, and what it told its owner."""

    config: AgentConfig
    finished: list[InFlight] = field(default_factory=list)
    buffered: list[InFlight] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    notes: list[tuple[str, float, float | None, dict[str, Any]]] = field(default_factory=list)
    ahead_s: float = 0.0
    """How far its clock is ahead of the machine's."""

    def __post_init__(self) -> None:
        self.engine = CommEngine(
            self.config,
            lambda in_flight, now: self.finished.append(in_flight),
            lambda in_flight, now: self.buffered.append(in_flight),
            self._perform,
            lambda kind, t, end=None, **fields: self.notes.append((kind, t, end, fields)),
        )
        self.engine.transport.listen()
        self._poller = Poller()
        for listener in self.engine.transport.listeners:
            self._poller.watch(listener, select.EPOLLIN)

    def _perform(self, action: Any) -> None:
        if isinstance(action, Event):
            self.notes.append((action.kind, action.t, action.end, action.fields))
        else:
            self.requests.append(action)

    @property
    def now(self) -> float:
        return time.monotonic() + self.ahead_s

    def start(self, op: int = 0, step: int = 0) -> None:
        """Come to an operation of the program."""
        found = self.config.program.operations[self.config.rank][op]
        assert not isinstance(found, Compute)
        now = self.now
        self.engine.execute(self.engine.machine.start(step, found, 0, now), now)

    def circuit_up(self, group: str, index: int) -> None:
        self.engine.acknowledged(group, index, (), self.now)

    def open_eager_paths(self) -> None:
        self.engine.open_eager_paths()

    def look(self) -> bool:
        """Do what can be done now, as the agent's loop does; whether there was anything."""
        self.engine.tick(self.now)
        self.engine.watch_changed(self._poller)
        found, now = self._poller.wait(0.0), self.now
        for owner, events in found:
            if isinstance(owner, PeerConnection):
                self.engine.handle(owner, events, now)
            else:
                for connection in self.engine.transport.accept(owner, now):
                    self.engine.accepted(connection)
        return bool(found)

    def close(self) -> None:
        self.engine.transport.close()
        self._poller.close()

    def settle(self) -> None:
        """Do all that can be done without anything new from outside, timers of a few milliseconds included."""
        end = quiet_until = time.monotonic() + LONGEST_WAIT_S
        due = False
        while not due:  # a last look comes after the time is over, however late that is
            assert time.monotonic() < end, "it never settles"
            due = time.monotonic() > quiet_until
            if self.look() or quiet_until == end:
                due, quiet_until = False, time.monotonic() + QUIET_S

    def ends(self, count: int = 1, reader: Peer | None = None) -> None:
        """Go on until so many operations are done, while ``reader`` takes in what is sent to it."""

        def done() -> bool:
            if reader is not None:
                reader.read()
            return len(self.finished) >= count

        self.until(done)

    def fails(self) -> None:
        """Go on until an error is raised."""
        self.until(lambda: False)

    def hears(self, peer: Peer, count: int = 1) -> list[tuple[Header, bytes]]:
        """Go on until ``peer`` has got so many messages."""
        found: list[tuple[Header, bytes]] = []

        def all_here() -> bool:
            found.extend(peer.heard())
            return len(found) >= count

        self.until(all_here)
        return found

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, self.look)


Make = Callable[..., Rank]
MakePeer = Callable[..., Peer]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes engines that verify what they receive."""
    use_loopback(monkeypatch)
    made: list[Rank] = []

    def rank(program: Program, number: int = 0, mode: AgentMode = "native", **options: Any) -> Rank:
        options = {"steps": 2, "seed": SEED, "verify": True, **options}
        config = AgentConfig(number, "job", mode, program, Scale(1.0), loopback_plan(program.ranks), "", **options)
        made.append(Rank(config))
        if mode == "native":
            for group in program.groups.values():
                made[-1].engine.machine.paths.set_wired(group)
        return made[-1]

    yield rank
    for one in made:
        one.close()


@pytest.fixture
def peer(make: Make) -> Iterator[MakePeer]:
    """Makes peers. (After ``make``: agents close first.)"""
    made: list[Peer] = []

    def one(*args: Any, **options: Any) -> Peer:
        made.append(Peer(*args, **options))
        return made[-1]

    yield one
    for found in made:
        found.close()


def program(ranks: Sequence[Sequence[Operation]], *groups: Group, eager: bool = False) -> Program:
    return Program("p", tuple(tuple(ops) for ops in ranks), {g.name: g for g in groups}, eager=eager)


def pair(*, sender: int = 0, count: int = 1, size: int = SIZE, eager: bool = False) -> Program:
    """``count`` messages from ``sender`` to the other of two ranks."""
    receiver = 1 - sender
    ops: dict[int, list[Operation]] = {
        sender: [Send(k, f"send {k}", "pair", receiver, size) for k in range(count)],
        receiver: [Recv(k, f"receive {k}", "pair", sender, size) for k in range(count)],
    }
    return program([ops[0], ops[1]], Group("pair", "pp", (0, 1)), eager=eager)


def collective(kind: str, n: int, algorithm: str = "ring", size: int = 24_000) -> Program:
    op = Collective(0, kind, kind, "ring", size, algorithm=algorithm)  # type: ignore[arg-type]
    return program([(op,)] * n, Group("ring", "dp", tuple(range(n))))


def numbers(flow: Flow, rank: int, size: int = SIZE) -> bytes:
    """What ``rank`` sends in a flow."""
    return payload.total(SEED, flow, [rank], 0, size // 4).tobytes()


# ---- the first connection --------------------------------------------------------------------------------------------


def test_a_lost_syn_costs_some_tens_of_milliseconds_and_not_the_second_that_tcp_waits(make: Make) -> None:
    ranks = [make(collective("all_reduce", 2), number) for number in range(2)]
    (listener,) = ranks[1].engine.transport.listeners
    drop_packets(listener)
    began = time.monotonic()
    for rank in ranks:
        rank.start()

    def look() -> None:
        for rank in ranks:
            rank.look()

    until(lambda: time.monotonic() - began > 0.01, look)
    take_packets(listener)
    until(lambda: all(rank.finished for rank in ranks), look)
    assert 0.02 < time.monotonic() - began < 0.9
    caller, called = (rank.engine.transport for rank in ranks)
    assert caller.totals()["retransmits"] >= 1, "a repeated call counts"
    assert len([*caller]) == len([*called]) == 1
    assert not any(rank.finished[0].wrong for rank in ranks)


def test_a_call_that_is_answered_is_not_repeated(make: Make) -> None:
    ranks = [make(collective("all_reduce", 2), number) for number in range(2)]
    for rank in ranks:
        rank.start()
    until(lambda: all(rank.finished for rank in ranks), lambda: [rank.look() for rank in ranks])
    (connection,) = ranks[0].engine.transport
    port = connection.sock.getsockname()
    ranks[0].ahead_s = 5.0
    ranks[0].settle()
    assert connection.sock.getsockname() == port and ranks[0].engine.next_deadline() == float("inf")


def test_an_answer_that_comes_while_the_call_is_repeated_opens_no_second_connection(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = [make(collective("all_reduce", 2), number) for number in range(2)]
    (listener,) = ranks[1].engine.transport.listeners
    drop_packets(listener)
    call, calls, taken = Transport._call, list[socket.socket](), list[socket.socket]()

    def call_slowly(transport: Transport, key: PeerKey) -> tuple[socket.socket, bool]:
        if calls:  # TCP repeats the first call now, after a second
            take_packets(listener)
            taken.extend(select.select([listener], [], [], 1.1)[0])
        calls.append(call(transport, key)[0])
        return calls[-1], False

    monkeypatch.setattr(Transport, "_call", call_slowly)
    for rank in ranks:
        rank.start()
    until(lambda: len(calls) == 2, ranks[0].look)  # the peer is late, and finds all that has come since
    until(lambda: all(rank.finished for rank in ranks), lambda: [rank.look() for rank in ranks])
    assert not any(rank.finished[0].wrong for rank in ranks)
    assert not taken, "what the peer sends over the first connection would be lost"


def test_of_two_calls_of_a_peer_that_wait_together_only_the_last_is_open(make: Make, peer: MakePeer) -> None:
    rank = make(pair(), 1)
    (listener,) = rank.engine.transport.listeners
    calls = [peer(0, 1), peer(0, 1)]
    for caller in calls:
        caller.connect()
    (connection,) = rank.engine.transport.accept(listener, 0.0)
    assert connection.sock.getpeername() == calls[1].sock.getsockname()


# ---- what may be sent, and when --------------------------------------------------------------------------------------


def test_a_send_goes_when_its_receiver_is_ready_and_not_before(make: Make, peer: MakePeer) -> None:
    receiver, rank = peer(1, 0), make(pair())
    rank.start()
    rank.settle()
    assert receiver.called and receiver.heard() == [] and rank.finished == []
    receiver.say(Header("ready", PAIR, 0))
    rank.ends()
    assert receiver.heard() == [(Header("data", PAIR, 0, SIZE), numbers(PAIR, 0))]
    assert rank.finished[0].sent_bytes == SIZE + len(Header("data", PAIR).pack())


def test_a_ready_that_names_a_time_counts_from_then_on(make: Make, peer: MakePeer) -> None:
    receiver, rank = peer(1, 0), make(pair())
    rank.start()
    rank.until(lambda: rank.engine.next_deadline() == float("inf"))  # its call was answered
    receiver.say(Header("ready", PAIR, 0, round((time.monotonic() + 3600) * 1e6)))
    rank.settle()
    assert receiver.heard() == [] and 3500 < rank.engine.next_deadline() - rank.now <= 3600
    rank.ahead_s = 3601
    rank.engine.tick(rank.now)
    while rank.engine.transport.activity.sending:
        assert rank.engine.next_deadline() - rank.now < 1, "it would sleep with a message in hand"
        time.sleep(max(0.0, rank.engine.next_deadline() - rank.now))
        rank.engine.tick(rank.now)
    rank.ends()
    assert len(receiver.heard()) == 1


def _transfers(rank: Rank) -> Any:
    op = rank.config.program.operations[0][0]
    assert isinstance(op, Collective)
    return schedule_of(rank.config.program, op).transfers


def test_a_ready_for_a_path_that_the_peer_has_yet_to_open_waits_for_it(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1)
    rank.start()
    rank.settle()
    sender.connect()
    assert [header.kind for header, _ in rank.hears(sender)] == ["ready"]


# ---- when it is done -------------------------------------------------------------------------------------------------


def test_a_receive_is_done_when_its_last_byte_is_here(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1)
    sender.connect()
    rank.start()
    rank.settle()
    message = Header("data", PAIR, 0, SIZE).pack() + numbers(PAIR, 0)
    sender.sock.sendall(message[:-1])
    rank.settle()
    assert rank.finished == [] and not [note for note in rank.notes if note[0] == "transfer"]
    sender.sock.sendall(message[-1:])
    rank.ends()
    (done,) = rank.finished
    assert (done.wrong, done.elements, done.sent_bytes) == (0, SIZE // 4, 0)
    (transfer,) = (fields for kind, _, _, fields in rank.notes if kind == "transfer")
    assert (transfer["peer"], transfer["bytes"], transfer["step"]) == (0, SIZE, 0)


def test_without_verification_nothing_is_said_of_the_numbers(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1, verify=False)
    sender.connect()
    rank.start()
    sender.say(Header("data", PAIR, 0, SIZE), bytes(SIZE))
    rank.ends()
    assert rank.finished[0].wrong is None


# ---- misdelivered messages ----------------------------------------------------------------------------------------


UNEXPECTED = "from rank 0, which it does not expect"


@pytest.mark.parametrize(
    ("rank_is", "headers", "sentence"),
    [
        ("receiving", [Header("data", PAIR, 0, SIZE - 4)], "but expects 4000 bytes from rank 0 on another path or in"),
        ("receiving", [Header("data", PAIR, 1, SIZE)], f"group pair, operation 0, step 0 {UNEXPECTED}"),
        ("receiving", [Header("data", Flow(0, 0, 1, True), 0, SIZE)], f"operation 1, step 0 {UNEXPECTED}"),
        ("receiving", [Header("data", Flow(1, 0, 0, True), 0, SIZE)], f"operation 0, step 1 {UNEXPECTED}"),
        ("receiving", [Header("data", Flow(0, 5, 0, True), 0, SIZE)], "of group ?, operation 0, step 0 from rank 0"),
        ("idle", [Header("data", PAIR, 0, SIZE)], UNEXPECTED),
        ("eager", [Header("data", PAIR, 0, SIZE + 4)], "but expects 4000 bytes (receive 0)"),
        ("eager", [Header("data", PAIR, 1, SIZE)], "but expects 4000 bytes (receive 0)"),
        ("eager", [Header("data", PAIR, 0, SIZE)] * 2, "but expects 4000 bytes (receive 0)"),
        ("eager", [Header("data", Flow(2, 0, 0, True), 0, SIZE)], f"step 2 {UNEXPECTED}"),
        ("eager", [Header("data", Flow(0, 0, 1, True), 0, SIZE)], f"operation 1, step 0 {UNEXPECTED}"),
    ],
)
def test_a_message_that_no_receive_is_for_is_misdelivered(
    make: Make, peer: MakePeer, rank_is: str, headers: list[Header], sentence: str
) -> None:
    sender, rank = peer(0, 1), make(pair(eager=rank_is == "eager"), 1)
    sender.connect()
    if rank_is == "receiving":
        rank.start()
    for header in headers:
        sender.say(header, bytes(header.length))
    with pytest.raises(VerifyError) as caught:
        rank.fails()
    assert str(caught.value).startswith("misdelivered: rank 1 got transfer") and sentence in str(caught.value)


def test_bytes_that_are_no_header_are_refused(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1)
    sender.connect()
    sender.sock.sendall(b"GET / HTTP/1.1\r\nHost: g1\r\n\r\n..........")
    with pytest.raises(VerifyError, match="a message must begin with magic"):
        rank.fails()


def test_a_stranger_is_hung_up_on_and_nobody_else_notices(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.settimeout(10)
        stranger.connect((address(1), connections.TCP_PORT))
        rank.settle()
        assert stranger.recv(1) == b""
    assert list(rank.engine.transport) == []
    sender.connect()
    rank.start()
    assert len(rank.hears(sender)) == 1


# ---- eager programs --------------------------------------------------------------------------------------------------


def test_an_eager_send_is_done_when_its_own_bytes_are_acknowledged_whatever_follows(make: Make, peer: MakePeer) -> None:
    size = 100_000
    receiver, rank = peer(1, 0, room=16 << 10), make(pair(count=2, size=size, eager=True))
    rank.start(0)
    rank.until(lambda: len(rank.buffered) == 1)
    rank.start(1)
    rank.until(lambda: len(rank.buffered) == 2)
    rank.hears(receiver)
    rank.ends()
    assert rank.finished[0].flow.sequence == 0
    rank.ends(2, reader=receiver)


def test_the_lower_rank_opens_the_paths_of_eager_receives_before_they_begin(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(1, 0), make(pair(sender=1, eager=True))
    assert not sender.called
    rank.open_eager_paths()
    rank.settle()
    assert sender.called and sender.heard() == []


def test_an_unexpected_message_is_kept_until_its_receive_begins(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(eager=True), 1)
    sender.connect()
    sender.say(Header("data", PAIR, 0, SIZE), numbers(PAIR, 0))
    rank.settle()
    assert rank.finished == []
    before = rank.now
    rank.start()
    rank.ends()
    (done,) = rank.finished
    assert done.wrong == 0 and done.posted >= before
    assert done.first_byte is not None and done.last_byte is not None
    assert done.first_byte <= done.last_byte < before, "when it really came"
    (transfer,) = (note for note in rank.notes if note[0] == "transfer")
    assert transfer[1:3] == (done.first_byte, done.last_byte)


def test_a_message_that_is_half_here_when_its_receive_begins_is_completed(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(eager=True), 1)
    sender.connect()
    message = Header("data", PAIR, 0, SIZE).pack() + numbers(PAIR, 0)
    sender.sock.sendall(message[: len(message) // 2])
    rank.settle()
    rank.start()
    rank.settle()
    assert rank.finished == []
    sender.sock.sendall(message[len(message) // 2 :])
    rank.ends()
    assert rank.finished[0].wrong == 0


# ---- circuits of a collective ----------------------------------------------------------------------------------------

FIRST, SECOND = "ring/0.0-1.0", "ring/0.0-2.0"
"""The circuits of rank 0 in the two rounds of recursive doubling over four ranks."""


def on_circuits(make: Make) -> Rank:
    """Rank 0 of an all-reduce whose circuits follow its schedule, with the controller in the test's hands."""
    made = follow_circuits(collective("all_reduce", 4, "recursive-doubling", SIZE))
    rank = make(made, mode="on-demand", verify=False)
    rank.engine.machine.client_groups.update(name for name, group in made.groups.items() if group.parent)
    return rank


def transfer(rank: Rank, src: int, dst: int) -> int:
    """The number of the transfer between two positions."""
    return next(number for number, t in enumerate(_transfers(rank)) if (t.src, t.dst) == (src, dst))


def test_a_circuit_is_kept_until_its_own_data_is_acknowledged_by_the_peer(make: Make, peer: MakePeer) -> None:
    size = 400_000
    made = follow_circuits(collective("all_reduce", 2, "recursive-doubling", size))
    first, rank = peer(1, 0, room=16 << 10), make(made, mode="on-demand", verify=False)
    rank.engine.machine.client_groups.add(FIRST)
    rank.start()
    rank.circuit_up(FIRST, 0)
    first.say(Header("data", RING, transfer(rank, 1, 0), size), bytes(size))
    rank.settle()
    assert [note[0] for note in rank.notes].count("transfer") == 1, "all that comes in is here"
    assert rank.requests == [RequestCircuits(FIRST, 0)]
    rank.ends(reader=first)
    assert rank.requests[1:] == [ReleaseCircuits(FIRST, 0)]


def test_a_circuit_that_is_not_acknowledged_in_time_is_an_error(make: Make) -> None:
    rank = on_circuits(make)
    rank.start()
    limit = rank.config.peer_timeout_s
    rank.engine.check_progress(rank.now + limit - 1)
    with pytest.raises(ControlError) as caught:
        rank.engine.check_progress(rank.now + limit + 1)
    assert f"rank 0 got no acknowledgement of request 0 of circuit {FIRST} within {limit:g} s" in str(caught.value)


# ---- lost peers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("breaks_off", "sentence"),
    [
        (False, "rank 1 closed its connection before the program was done"),
        (True, "the connection to rank 1 broke while receiving: Connection reset by peer"),
    ],
)
def test_a_peer_that_hangs_up_is_named(make: Make, peer: MakePeer, breaks_off: bool, sentence: str) -> None:
    other, rank = peer(1, 0), make(pair())
    rank.start()
    rank.settle()
    if breaks_off:
        other.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.sock.close()
    with pytest.raises(PeerLost, match=f"^{sentence}$"):
        rank.fails()


def test_bytes_that_come_in_prove_that_a_peer_is_there(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(), 1)
    sender.connect()
    rank.start()
    rank.settle()
    limit = rank.config.peer_timeout_s
    rank.ahead_s = limit - 1
    sender.sock.sendall(Header("data", PAIR, 0, SIZE).pack() + bytes(100))
    rank.settle()
    rank.engine.check_progress(rank.now + limit - 1)
    with pytest.raises(PeerLost) as caught:
        rank.engine.check_progress(rank.now + limit + 1)
    assert str(caught.value) == (
        f"rank 1 moved nothing for {limit:.3g} s in receive 0 (step 0, group pair) with rank 0"
    )


def test_a_byte_counts_once_a_peer_has_been_silent_for_long(make: Make, peer: MakePeer) -> None:
    sender, rank = peer(0, 1), make(pair(size=1 << 20), 1)
    sender.connect()
    rank.start()
    rank.settle()
    sender.sock.sendall(Header("data", PAIR, 0, 1 << 20).pack())
    rank.settle()
    connection, limit = next(iter(rank.engine.transport)), rank.config.peer_timeout_s
    before = connection.last_progress
    sender.sock.sendall(bytes(1))
    rank.settle()
    assert connection.last_progress == before, "a byte of a megabyte wakes nobody"
    rank.engine.check_progress(rank.now + limit * 0.6)
    rank.ahead_s = limit * 0.6
    rank.settle()
    assert connection.last_progress > before


def test_a_peer_that_does_not_listen_is_named(make: Make) -> None:
    rank = make(pair())
    with pytest.raises(PeerLost, match=r"^cannot connect to rank 1: Connection refused$"):
        rank.start()
        rank.fails()
