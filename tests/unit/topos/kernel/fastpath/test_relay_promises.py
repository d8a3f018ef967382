"""What a relay lets pass between a bridge and its client, and when."""

from __future__ import annotations

import errno
import gc
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fast_path.doubles import FakeForwarder, turn

from railyard.accepting import ACCEPT_AGAIN_S
from railyard.loop import Loop
from topos.kernel.fastpath import lasting, openflow, relays
from topos.kernel.fastpath.relays import BridgeRelay, Listener, tcp, unix
from topos.kernel.fastpath.tables import FlowTables

PACKET_IN, BARRIER, BUNDLE = 10, 21, 33


class FakeMonitor:
    """Says that the fast path holds everything, or calls back when it does."""

    def __init__(self) -> None:
        self.tables = FlowTables("s1", (1, 2), FakeForwarder(), {"o5": "s1-eth1"})
        self.current, self.asked, self.woken = True, 0, 0
        self.lasting: list[Callable[[], None]] | None = None
        self.waiting: list[Callable[[], None]] = []
        self.dark, self.unlit = False, list[Callable[[], None]]()

    def synchronize(self, then: Callable[[], None]) -> bool:
        self.asked += 1
        if not self.current:
            self.waiting.append(then)
        return self.current

    def when_current(self, then: Callable[[], None]) -> None:
        self.woken += 1

    def when_gone(self, cookie: int, then: Callable[[], None]) -> bool:
        if self.lasting is None or cookie != 7:
            return False
        self.lasting.append(then)
        return True

    def when_lit(self, then: Callable[[], None]) -> bool:
        if self.dark:
            self.unlit.append(then)
        return self.dark

    def follow(self) -> None:
        """The fast path holds what was waited for."""
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class Pair:
    """A relay with a bridge and a client; ``monitor`` may be None."""

    def __init__(self) -> None:
        self.loop, self.monitor = Loop(), FakeMonitor()
        self.attached: FakeMonitor | None = self.monitor
        (self.bridge, one), (self.client, two) = socket.socketpair(), socket.socketpair()
        for end in (self.bridge, self.client):
            end.setblocking(False)
        self.relay = BridgeRelay(self.loop, one, two, lambda: self.attached)  # type: ignore[arg-type,return-value]

    def says(self, *messages: bytes) -> list[tuple[int, int]]:
        """What the client has got when the bridge has sent ``messages``."""
        self.bridge.send(b"".join(messages))
        return self.got()

    def got(self) -> list[tuple[int, int]]:
        """Type and number of each message that has reached the client."""
        turn(self.loop)
        try:
            data = bytearray(self.client.recv(1 << 20))
        except BlockingIOError:
            return []
        return [(message[1], message[7]) for message in openflow.split(data)]

    @property
    def ended(self) -> bool:
        return not self.loop.watched

    def close(self) -> None:
        for end in (self.bridge, self.client):
            end.close()
        turn(self.loop)
        self.loop.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.close()


def message(kind: int, xid: int = 0, body: bytes = b"", version: int = 5) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), xid) + body


def test_messages_that_promise_nothing_pass_at_once(pair: Pair) -> None:
    pair.monitor.current = False
    plain = [message(kind, kind) for kind in (0, 1, 2, 3, PACKET_IN, 8)]
    assert pair.says(*plain) == [(kind, kind) for kind in (0, 1, 2, 3, PACKET_IN, 8)]
    pair.client.send(message(14, 9))
    turn(pair.loop)
    assert pair.bridge.recv(100) == message(14, 9) and not pair.monitor.asked


def test_open_vswitch_is_woken_for_the_first_bytes_of_a_client_only(pair: Pair) -> None:
    for number in range(3):
        pair.client.send(message(14, number))
        turn(pair.loop)
    assert pair.monitor.woken == 1


def test_a_barrier_reply_waits_for_flows_that_last_and_nothing_else_does(pair: Pair) -> None:
    pair.monitor.lasting = []
    lasts = [lasting.encode(lasting.Lasts(xid, cookie, 1.0)) for xid, cookie in ((1, 7), (2, 8))]
    pair.client.send(b"".join(lasts) + message(20, 1) + message(20, 2))
    turn(pair.loop)
    assert pair.bridge.recv(1000) == message(20, 1) + message(20, 2), "the requests are for the fast path alone"
    assert pair.says(message(BARRIER, 1), message(BARRIER, 2), message(BARRIER, 3)) == [(BARRIER, 2), (BARRIER, 3)]
    (ended,) = pair.monitor.lasting
    ended()
    assert pair.got() == [(BARRIER, 1)]


def test_requests_that_no_barrier_follows_are_bounded(pair: Pair) -> None:
    for xid in range(270):
        pair.client.send(lasting.encode(lasting.Lasts(xid, 5, 1.0)))
    turn(pair.loop, 1)
    assert len(pair.relay._ends) == 256 and 269 in pair.relay._ends


COUNTED = struct.pack("!HH4x", 1, 0)
PROMISES = [
    message(BARRIER, 1),
    message(19, 1, version=1),
    message(BUNDLE, 1, bytes(8)),
    message(openflow.FLOW_REMOVED, 1, bytes(48)),
    message(openflow.PORT_STATUS, 1, bytes(80)),
    message(19, 1, COUNTED, version=4),
]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda data: f"{data[0]}-{data[1]}")
def test_a_promise_waits_until_the_fast_path_holds_it(pair: Pair, promise: bytes) -> None:
    pair.monitor.current = False
    assert pair.says(message(PACKET_IN, 1), promise, message(PACKET_IN, 2)) == [(PACKET_IN, 1)]
    assert pair.says(message(PACKET_IN, 3)) == [], "none overtakes"
    pair.monitor.follow()
    assert pair.got() == [(promise[1], 1), (PACKET_IN, 2), (PACKET_IN, 3)]


def test_several_promises_of_one_reading_need_one_look(pair: Pair) -> None:
    assert pair.says(message(BARRIER, 1), message(BARRIER, 2)) == [(BARRIER, 1), (BARRIER, 2)]
    assert pair.monitor.asked == 1
    assert pair.says(message(BARRIER, 3)) == [(BARRIER, 3)]
    assert pair.monitor.asked == 2


def test_promises_behind_a_waiting_one_are_looked_at_again(pair: Pair) -> None:
    pair.monitor.current = False
    assert pair.says(message(BARRIER, 1), message(BARRIER, 2), message(PACKET_IN, 3)) == []
    pair.monitor.follow()
    assert pair.got() == [(BARRIER, 1)]
    pair.monitor.follow()
    assert pair.got() == [(BARRIER, 2), (PACKET_IN, 3)]
    pair.monitor.current = True
    assert pair.says(message(BARRIER, 4)) == [(BARRIER, 4)]


def test_without_a_fast_path_everything_passes(pair: Pair) -> None:
    pair.attached = None
    assert pair.says(message(BARRIER, 1), PROMISES[-1]) == [(BARRIER, 1), (19, 1)]


def test_names_of_ports_are_those_of_the_links(pair: Pair) -> None:
    port = struct.pack("!IH2x6s2x16sII", 1, 40, bytes(6), b"o5", 0, 0)
    pair.bridge.send(message(openflow.PORT_STATUS, 1, bytes(8) + port))
    turn(pair.loop)
    assert b"s1-eth1\0" in pair.client.recv(200)


@pytest.mark.parametrize("side", ["client", "bridge"])
def test_one_side_that_closes_in_the_middle_ends_both(pair: Pair, side: str) -> None:
    pair.monitor.current = False
    assert pair.says(message(BARRIER, 1), message(BARRIER, 2)) == []
    end = getattr(pair, side)
    end.send(message(14, 1)[:5])
    end.close()
    turn(pair.loop)
    assert pair.ended
    pair.monitor.follow()
    pair.monitor.follow()
    assert getattr(pair, "bridge" if side == "client" else "client").fileno() != -1


def test_a_connection_that_has_ended_leaves_no_memory_behind(pair: Pair) -> None:
    """The process has no garbage collector, so nothing may refer to itself."""
    gc.disable()
    try:
        pair.client.send(message(18, 1, bytes(50)))
        assert pair.says(PROMISES[-1]) == [(19, 1)]
        relay = weakref.ref(pair.relay)
        del pair.relay
        assert relay() is not None
        pair.client.close()
        turn(pair.loop)
        assert pair.ended and relay() is None
    finally:
        gc.enable()


# ---- callers -------------------------------------------------------------------------------------------------------


HELLO = bytes([5, 0, 0, 8, 0, 0, 0, 1])


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    waker, waiting = socket.socketpair()
    made.watch(waiting, lambda _: setattr(made, "ended", True))
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    waker.send(b"x")
    thread.join(5)
    waker.close()
    for owner in made.watched:
        owner.close()
    made.close()


@contextmanager
def caller(loop: Loop, folder: Path) -> Iterator[socket.socket]:
    """A bridge that has called, although no controller listens yet."""
    Listener(loop, folder / "bridge", unix(folder / "controller"), "bridge", lambda: None)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(folder / "bridge"))
        yield connection


def test_no_file_descriptors_left_is_a_pause(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries: list[float] = []
    real = socket.socket

    class Full(real):  # type: ignore[valid-type,misc]
        """A listening socket that cannot accept twice."""

        def accept(self) -> Any:
            tries.append(time.monotonic())
            if len(tries) < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    with socket.socket(socket.AF_UNIX) as controller:
        controller.bind(str(tmp_path / "controller"))
        controller.listen(1)
        controller.settimeout(5)
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", Full)
            Listener(loop, tmp_path / "bridge", unix(tmp_path / "controller"), "bridge", lambda: None)
        with socket.socket(socket.AF_UNIX) as bridge:
            bridge.connect(str(tmp_path / "bridge"))
            controller.accept()[0].close()
    assert len(tries) == 3 and tries[2] - tries[0] >= 2 * ACCEPT_AGAIN_S, "it waited in between"
    assert capsys.readouterr().err.count("no connection is accepted for now: [Errno 24]") == 1


def test_a_bridge_that_calls_too_early_reaches_the_controller_that_comes(loop: Loop, tmp_path: Path) -> None:
    with caller(loop, tmp_path) as bridge, socket.socket(socket.AF_UNIX) as controller:
        bridge.sendall(HELLO)
        time.sleep(0.05)
        controller.bind(str(tmp_path / "controller"))
        controller.listen(1)
        controller.settimeout(5)
        connection, _ = controller.accept()
        connection.settimeout(5)
        assert connection.recv(100) == HELLO
        connection.sendall(HELLO)
        assert bridge.recv(100) == HELLO
        connection.close()
        assert bridge.recv(100) == b"", "the bridge hears of the end"


def test_a_bridge_hears_it_if_no_controller_comes(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "_PATIENCE_S", 0.05)
    with caller(loop, tmp_path) as bridge:
        assert bridge.recv(100) == b""


def test_a_server_without_room_keeps_nobody_waiting() -> None:
    """A controller that is stopped: its kernel takes some callers, and does not answer the others."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        callers = [stack.enter_context(tcp(server.getsockname())()) for _ in range(4)]
        states = {caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for caller in callers}
    assert states == {1, 2}, "established, and begun"


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            tcp(nobody.getsockname())()


COMMITTED, OPENED = (struct.pack("!IHH", 1, kind, 0) for kind in (5, 1))


@pytest.mark.parametrize("reply", [message(BARRIER, 1), message(19, 1, version=1), message(BUNDLE, 1, COMMITTED)])
@pytest.mark.parametrize("current", [True, False])
def test_what_tells_of_light_waits_for_it_and_echoes_do_not(pair: Pair, reply: bytes, current: bool) -> None:
    pair.monitor.current, pair.monitor.dark = current, True
    early = pair.says(reply, message(openflow.ERROR, 2), message(openflow.ECHO_REQUEST, 3))
    pair.monitor.follow()
    assert early + pair.got() == [(openflow.ECHO_REQUEST, 3)]
    assert pair.says(message(openflow.ECHO_REPLY, 4), message(BARRIER, 5)) == [(openflow.ECHO_REPLY, 4)]
    pair.client.send(message(openflow.ECHO_REPLY, 3))
    turn(pair.loop)
    assert pair.bridge.recv(100) == message(openflow.ECHO_REPLY, 3)
    pair.monitor.current, pair.monitor.dark = True, False
    (lit,) = pair.monitor.unlit
    lit()
    assert pair.got() == [(reply[1], 1), (openflow.ERROR, 2), (BARRIER, 5)], "and the order is kept"
    assert pair.says(message(BARRIER, 6)) == [(BARRIER, 6)]


def test_the_opening_of_a_bundle_waits_for_no_light(pair: Pair) -> None:
    pair.monitor.dark = True
    assert pair.says(message(BUNDLE, 1, OPENED)) == [(BUNDLE, 1)]


def test_a_client_that_asks_on_and_on_in_the_dark_is_disconnected(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "_MOST_HELD", 8)
    pair.monitor.dark = True
    pair.says(*(message(BARRIER, xid) for xid in range(8)))
    assert not pair.ended
    pair.says(message(BARRIER, 9))
    assert pair.ended
