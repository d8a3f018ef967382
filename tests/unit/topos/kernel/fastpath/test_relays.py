"""Callers of the relay wait for a server that comes later, and not for ever; timers of its loop keep their time."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from railyard.accepting import ACCEPT_AGAIN_S
from topos.kernel.fastpath import relays
from topos.kernel.fastpath.relays import Listener, tcp, unix
from topos.kernel.fastpath.streams import Loop

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
    for key in list(made.selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    made.selector.close()


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


def test_timers_are_called_in_order_and_in_time() -> None:
    loop, seen = Loop(), []
    start = time.monotonic()
    for after in (0.02, 0.0, 0.01):
        loop.at(start + after, lambda after=after: seen.append((after, time.monotonic() - start)))  # type: ignore[misc]
    loop.at(start + 0.03, lambda: setattr(loop, "ended", True))
    loop.run()
    assert [after for after, _ in seen] == [0.0, 0.01, 0.02]
    assert all(after <= took < after + 0.5 for after, took in seen), "half a second is for a busy machine"
