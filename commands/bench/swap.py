"""Benchmarks of a swap of all circuits of a 64-port switch: until packets follow, in-band, and of the map alone.

Frames leave every other port in turn, four of them each quarter of a millisecond, while the circuits of all ports
alternate between two matchings. The benchmark itself is the controller of the switch. Packets follow from the first
frame on after which no frame of any port went the old way; its time of sending is known to a quarter of a millisecond
if the ports of the switch change at once, else to two milliseconds.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from statistics import median
from typing import NamedTuple

from commands.bench import Measurement, NotMeasured
from commands.bench.bed import Bed
from commands.bench.control import matching
from controllers.openflow.flows import TYPE_BARRIER_REPLY, TYPE_ERROR, VERSION, bundle, circuit_flow, header
from measure.live.packets import Tap
from measure.live.probes import Frames, ProbeTrain
from topos.kernel import namespaces
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.rules import OUT, KernelPort, PortRules, Rule
from topos.kernel.namespaces import inside
from topos.kernel.netlink import Netlink, VethEnd, veth
from topos.rails import RailTopo

PORTS = 64
SWAPS = CHANGES = 200
MEDIAN_LIMIT_MS, P99_LIMIT_MS = 1.5, 4.0
MAP_LIMIT_MS = 0.1
_CONTROLLER = ("127.0.0.1", 6653)
_LEAD_S, _GAP_S = 0.2, 0.015
INTERVAL_S, BATCH = 0.00025, 4
_MOST_S = 0.0002
"""Longest time that the sending of a frame may take."""
_SWITCH = "s"
_MTU = 1500


class Probe(NamedTuple):
    """One frame: its time of sending (monotonic s), the number of its sender, and that of its receiver (-1: lost)."""

    sent: float
    sender: int
    receiver: int


class Followed(NamedTuple):
    """A change in-band: seconds until packets followed, frames lost, and frames that did not follow after the reply."""

    seconds: float
    lost: int
    late: int


def peers(shift: int) -> tuple[int, ...]:
    """The number of the receiver of each sender; sender i is at port 2 i + 1, receiver i at port 2 i + 2."""
    count = PORTS // 2
    return tuple(number if shift % 2 == 0 else (number - 1) % count for number in range(count))


def followed(probes: Sequence[Probe], began: float, replied: float, shift: int) -> Followed:
    """The change to the circuits of ``shift`` that was asked for at ``began``; ``probes`` are those after it.

    ``NotMeasured`` if the last of them did not go the new way.
    """
    new = peers(shift)
    astray = [number for number, probe in enumerate(probes) if probe.receiver != new[probe.sender]]
    after = astray[-1] + 1 if astray else 0
    if after >= len(probes):
        raise NotMeasured("the swap of 64 ports: packets did not follow before the next swap")
    lost = sum(probes[number].receiver < 0 for number in astray)
    return Followed(probes[after].sent - began, lost, sum(probes[number].sent > replied for number in astray))


def swap_64(bed: Bed) -> list[Measurement]:
    """Time from the OpenFlow request (a bundle of 64 flow-mods) until packets follow in all circuits; needs root."""
    topo = RailTopo(servers=PORTS, gpus=1, ports=1, rate_mbps=10, fabric="ocs")
    net = bed.make(topo, openflow=_CONTROLLER)
    try:
        net.start()
        with OpenFlowPeer(net.yard.netns_fd, _CONTROLLER) as controller:
            controller.wait()
            ports = {port.number: port for port in net.plan.switches[0].ports}
            taps = [Tap(net.netns_fd(ports[n].host), ports[n].interface) for n in range(1, PORTS + 1)]
            _swap(controller, 0)
            count = round((2 * _LEAD_S + SWAPS * 2 * _GAP_S) / INTERVAL_S) * BATCH
            receivers = {str(number): tap for number, tap in enumerate(taps[1::2])}
            with ProbeTrain(
                taps[::2], [ports[2].mac], receivers, count=count, interval_s=INTERVAL_S, together=BATCH, spin=False
            ) as train:
                time.sleep(_LEAD_S)
                times = []
                for shift in range(1, SWAPS + 1):
                    times.append(_swap(controller, shift))
                    time.sleep(_GAP_S * (1 + shift % 7 / 20))
                probes = _probes(train.frames())
    finally:
        net.stop()
    return _rows(bed, times, probes)


def _probes(frames: Frames) -> list[Probe]:
    """The frames in the order of sending, without those whose sending took so long that its time is not known."""
    at = {number: int(receiver) for receiver, numbers in frames.received.items() for number in numbers}
    times = enumerate(zip(frames.sent, frames.took_s, strict=True))
    return [Probe(t, number % (PORTS // 2), at.get(number, -1)) for number, (t, took_s) in times if took_s <= _MOST_S]


def _swap(controller: OpenFlowPeer, shift: int) -> tuple[float, float]:
    return controller.change(
        flow for a, b in matching(PORTS, shift) for flow in (circuit_flow(a, b), circuit_flow(b, a))
    )


def _rows(bed: Bed, times: Sequence[tuple[float, float]], probes: Sequence[Probe]) -> list[Measurement]:
    starts = [bisect_left(probes, (began,)) for began, _ in times]
    found = []
    for shift, (first, last) in enumerate(zip(starts, [*starts[1:], len(probes)], strict=True), 1):
        found.append(followed(probes[first:last], *times[shift - 1], shift))
    took = sorted(one.seconds * 1e3 for one in found)
    replies = sorted((replied - began) * 1e3 for began, replied in times)
    name = f"swap_{PORTS}"
    return [
        bed.at_most(f"{name}_following_median", median(took), "ms", MEDIAN_LIMIT_MS),
        bed.at_most(f"{name}_following_p99", took[int(0.99 * len(took))], "ms", P99_LIMIT_MS),
        Measurement(f"{name}_barrier_median", median(replies), "ms"),
        bed.at_most(f"{name}_old_way_after_reply", sum(one.late for one in found), "frames", 0),
        Measurement(f"{name}_lost_per_swap", sum(one.lost for one in found) / len(found), "frames"),
    ]


def map_change(bed: Bed) -> list[Measurement]:
    """Median and longest time in which the rules of 64 ports change, in ms; nothing with ``ovs``. Needs root."""
    if bed.used != "bpf":
        return []
    with _ports() as (netns_fd, ports), closing(BpfForwarder(netns_fd, PORTS)) as forwarder:
        forwarder.add(ports)
        flows = [forwarder.new_flow() for _ in ports]
        took = []
        for shift in range(CHANGES):
            rules = {
                a: PortRules(Rule(OUT, b, flows[a - 1]))
                for pair in matching(PORTS, shift)
                for a, b in (pair, pair[::-1])
            }
            began = time.perf_counter()
            forwarder.set(_SWITCH, rules)
            took.append((time.perf_counter() - began) * 1e3)
    return [
        bed.at_most("swap_64_map_change_median", median(took), "ms", MAP_LIMIT_MS),
        Measurement("swap_64_map_change_worst", max(took), "ms"),
    ]


@contextmanager
def _ports() -> Iterator[tuple[int, list[KernelPort]]]:
    """A namespace with 64 ports, each a pair of interfaces of which one is the link and one stands for the tap."""
    (fd,) = namespaces.make(1)
    try:
        ports = [KernelPort(_SWITCH, number, 1000 + number, 2000 + number) for number in range(1, PORTS + 1)]
        with Netlink(fd) as kernel:
            kernel.run(
                veth(VethEnd(f"l{port.number}", port.link), VethEnd(f"t{port.number}", port.tap), _MTU)
                for port in ports
            )
        yield fd, ports
    finally:
        os.close(fd)


# ---- the controller of the switch ------------------------------------------------------------------------------------


_HEADER = struct.Struct("!BBHI")
_HELLO, _ECHO_REQUEST, _ECHO_REPLY = 0, 2, 3
_PATIENCE_S = 10.0


class OpenFlowPeer:
    """Listens at ``address`` in the namespace ``netns_fd`` for a switch, which ``wait`` then awaits."""

    def __init__(self, netns_fd: int, address: tuple[str, int]) -> None:
        with inside(netns_fd):
            self._listener = socket.create_server(address)
        self._listener.settimeout(_PATIENCE_S)
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._xids = itertools.count(1)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def wait(self) -> None:
        """Wait until the switch has connected; ``NotMeasured`` if it does not within ten seconds."""
        try:
            self._socket = self._listener.accept()[0]
        except TimeoutError:
            raise NotMeasured(f"no switch connected to its controller within {_PATIENCE_S:g} s") from None
        self._socket.settimeout(_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(header(_HELLO, next(self._xids), 0))

    def change(self, bodies: Iterable[bytes]) -> tuple[float, float]:
        """Send flow-mods as one bundle; the monotonic times of the request and of the barrier reply.

        ``NotMeasured`` if the switch refuses it or does not answer.
        """
        assert self._socket is not None, "wait() first"
        xid = next(self._xids)
        message = bundle(bodies, xid)
        began = time.monotonic()
        try:
            self._socket.sendall(message)
            while True:
                kind, of, body = self._receive()
                if kind == TYPE_BARRIER_REPLY and of == xid:
                    return began, time.monotonic()
                if kind == TYPE_ERROR:
                    raise NotMeasured(f"the switch refused a change with error {body[:4].hex()}")
                if kind == _ECHO_REQUEST:
                    self._socket.sendall(header(_ECHO_REPLY, of, len(body)) + body)
        except TimeoutError:
            raise NotMeasured(f"the switch did not answer a change within {_PATIENCE_S:g} s") from None

    def _receive(self) -> tuple[int, int, bytes]:
        """Type, xid and body of the next message."""
        version, kind, length, xid = _HEADER.unpack(self._read(_HEADER.size))
        body = self._read(length - _HEADER.size)
        if version != VERSION and kind != _HELLO:
            raise NotMeasured(f"the switch speaks version {version} of OpenFlow, not {VERSION}")
        return kind, xid, body

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        while len(self._buffer) < count:
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise NotMeasured("the switch closed the connection to its controller")
            self._buffer += piece
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._listener.close()

    def __enter__(self) -> OpenFlowPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
