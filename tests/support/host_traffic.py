"""Traffic on a running net: pings, and streams that send all they can."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from topos.kernel.emulation import Emulation


def pings(net: Emulation, source: str, *arguments: str) -> bool:
    child = net[source].popen(["ping", "-c1", "-W2", *arguments])
    child.communicate(timeout=10)
    return bool(child.returncode == 0)


def pings_soon(net: Emulation, source: str, *arguments: str) -> bool:
    """Whether a ping is answered within 2 s: a link that comes up passes packets some milliseconds later."""
    end = time.monotonic() + 2
    while not (answered := pings(net, source, "-W0.2", *arguments)) and time.monotonic() < end:
        pass
    return answered


@contextmanager
def pouring(sender: socket.socket) -> Iterator[None]:
    """A thread sends all it can until the block ends."""

    def pour() -> None:
        with suppress(OSError):
            while True:
                sender.sendall(bytes(1 << 18))

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            sender.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def drain(streams: list[socket.socket], seconds: float) -> list[float]:
    """Goodput of each stream in Mb/s, over ``seconds``."""
    received = dict.fromkeys(streams, 0)
    start = time.monotonic()
    while (now := time.monotonic()) < start + seconds:
        for stream in select.select(streams, [], [], 0.1)[0]:
            received[stream] += len(stream.recv(1 << 18))
    return [count * 8 / (now - start) / 1e6 for count in received.values()]
