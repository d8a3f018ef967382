"""Background traffic: real TCP packets from one host to another beside a run, at a given rate.

It passes the same token bucket as the packets of the collective, so it takes its share of the port and no more than its
rate. A separate process sends and receives it, from sockets in the namespaces of both hosts.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from railyard.errors import ConfigError, MachineError
from railyard.process.child import Child
from railyard.process.parent import Parent
from railyard.scale import TCP_IP_HEADER_BYTES, goodput_share
from topos.kernel.namespaces import HostEnd, connect
from topos.plan import FabricPlan

_END_S = 5.0
_DRAIN_S = 2.0
_CONNECT_S = 5.0
_TICK_S = 0.001
_MEMORY_S = 0.05
"""Traffic that could not be sent for this long is dropped, so that a blocked port causes no burst later."""
_BUFFER_S = 0.1
_LEAST_BUFFER_BYTES = 1 << 17
_SO_SNDBUFFORCE = 32


@dataclass(frozen=True)
class SentTraffic:
    """Result of background traffic: bytes of TCP payload sent and received, and the duration of sending in seconds."""

    sent_bytes: int
    received_bytes: int
    seconds: float

    def mbps(self, share: float) -> float:
        """Rate in Mb/s that the traffic took of the port, which counts a byte for ``share`` bytes of payload."""
        return self.sent_bytes * 8 / share / self.seconds / 1e6 if self.seconds > 0 else 0.0


class Drip:
    """Number of bytes that may be sent by now at a steady rate; times are monotonic seconds."""

    def __init__(self, bytes_per_s: float, now: float, memory_s: float = _MEMORY_S) -> None:
        self._rate = bytes_per_s
        self._memory_s = memory_s
        self._paid_until = now

    def due(self, now: float) -> float:
        """Bytes that may be sent; at most the rate times ``memory_s``, older bytes are dropped."""
        self._paid_until = max(self._paid_until, now - self._memory_s)
        return (now - self._paid_until) * self._rate

    def sent(self, size: int) -> None:
        self._paid_until += size / self._rate

    def wait_s(self, now: float, size: int) -> float:
        """Seconds until ``size`` bytes are due."""
        return max(0.0, self._paid_until + size / self._rate - now)


class Background(Child):
    """Traffic of ``rate_mbps`` (as the port counts it, headers included) from ``source`` to ``target``.

    It begins with ``start`` and ends with ``stop``, or with this process. Raises ``ConfigError`` for an invalid rate,
    ``MachineError`` if the two ends cannot connect.

    >>> with Background.on(plan, fds, rank=3, share=0.4) as traffic:   # doctest: +SKIP
    ...     run()
    ...     print(traffic.stop().mbps(plan.goodput_share))
    """

    def __init__(self, source: HostEnd, target: HostEnd, rate_mbps: float, mtu: int, overhead: int = 0) -> None:
        if not 0 < rate_mbps < float("inf"):
            raise ConfigError(f"must be a rate above 0 Mb/s, not {rate_mbps:g}", key="background")
        settings = {
            "source": asdict(source),
            "target": asdict(target),
            "bytes_per_s": rate_mbps * 1e6 / 8 * goodput_share(mtu, overhead),
            "frame_bytes": mtu - TCP_IP_HEADER_BYTES,
        }
        fds = {source.netns_fd, target.netns_fd}
        super().__init__("workloads.stragglers.background", settings, fds, "the background traffic")

    @staticmethod
    def on(plan: FabricPlan, netns_fds: Mapping[int, int], rank: int, share: float) -> Background:
        """Traffic from ``rank`` to the same rail of the next server, ``share`` of the rate of its first rail port.

        ``netns_fds``: rank -> descriptor of its namespace. Raises ``ConfigError`` for a fabric of circuits (they lead
        to one peer at a time, and belong to the collective), for no such rank and for a share outside (0, 1].
        """
        if plan.fabric != "electrical":
            raise ConfigError(f"background traffic needs the electrical fabric, not {plan.fabric}", key="background")
        if not 0 < share <= 1:
            raise ConfigError(f"must be a share above 0 and at most 1, not {share:g}", key="background")
        if not 0 <= rank < plan.ranks:
            raise ConfigError(f"needs a rank from 0 to {plan.ranks - 1}, not {rank}", key="background")
        rail = plan.rail_of(rank)
        ports = [rail.port(r, 0) for r in (rank, (rank + plan.gpus_per_server) % plan.ranks)]
        source, target = (HostEnd(netns_fds[port.rank], port.interface, port.ip) for port in ports)
        return Background(source, target, share * ports[0].rate_mbps, plan.mtu, overhead=plan.overhead)

    def stop(self) -> SentTraffic:
        """End the traffic and return its result; raises ``MachineError`` if it ended early."""
        result = self.answer(_END_S + _DRAIN_S)
        return SentTraffic(result["sent_bytes"], result["received_bytes"], result["seconds"])


def _receive(receiver: socket.socket, into: bytearray) -> int | None:
    """Read the available data; returns its number of bytes, None at the end of the stream."""
    try:
        return receiver.recv_into(into) or None
    except BlockingIOError:
        return 0


def _run(sender: socket.socket, receiver: socket.socket, parent: Parent) -> SentTraffic:
    """Send whole frames when they are due and receive arriving data, until told to stop."""
    settings = parent.settings
    frame, into = settings["frame_bytes"], bytearray(1 << 18)
    payload = memoryview(bytes(max(frame, round(settings["bytes_per_s"] * _MEMORY_S)) + frame))
    sent, received = 0, 0
    start = now = time.monotonic()
    drip = Drip(settings["bytes_per_s"], start, max(_MEMORY_S, 2 * frame / settings["bytes_per_s"]))
    while True:
        pause = max(_TICK_S, drip.wait_s(now, frame))
        arrived = parent.wait(pause, receiver)
        if parent.stopping:
            break
        received += _receive(receiver, into) or 0 if arrived else 0
        now = time.monotonic()
        frames = int(drip.due(now) / frame + 1e-9)
        try:
            size = sender.send(payload[: frames * frame]) if frames else 0
        except BlockingIOError:
            size = 0
        drip.sent(size)
        sent += size
    seconds = time.monotonic() - start
    sender.shutdown(socket.SHUT_WR)
    return SentTraffic(sent, received + _drain(receiver, into), seconds)


def _drain(receiver: socket.socket, into: bytearray) -> int:
    rest, end = 0, time.monotonic() + _DRAIN_S
    while (left := end - time.monotonic()) > 0:
        select.select([receiver], [], [], left)
        got = _receive(receiver, into)
        if got is None:
            break
        rest += got
    return rest


def main() -> None:
    """Run the process that sends and receives the traffic."""
    parent = Parent()
    settings = parent.settings
    buffer_bytes = max(_LEAST_BUFFER_BYTES, round(settings["bytes_per_s"] * _BUFFER_S))
    with ExitStack() as stack:
        try:
            ends = connect(HostEnd(**settings["source"]), HostEnd(**settings["target"]), _CONNECT_S)
        except MachineError as error:
            raise SystemExit(f"background traffic from {error}") from None
        sender, receiver = map(stack.enter_context, ends)
        sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, buffer_bytes)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.setblocking(False)
        receiver.setblocking(False)
        parent.ready()
        parent.tell("result", **asdict(_run(sender, receiver, parent)))
