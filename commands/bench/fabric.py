"""Benchmarks of a fabric beside stock Mininet: links and their delay and loss, round trips, bring-up, and idle use.

Stock Mininet, with ``TCLink`` and its classes unchanged, runs in a process and a yard of its own: in the yard's network
namespace on a private Open vSwitch, which it finds by ``OVS_RUNDIR``, so the machine's own Open vSwitch is not touched.
All need root.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from typing import Any

from mininet.topo import Topo

from commands.bench import Measurement, NotMeasured, at_most, not_measured
from commands.bench.bed import Bed
from measure.live.machine_benchmark import SocketPair, busy_processors, connected_ring, ring_goodputs, sample_of
from measure.live.probes import Frames, ProbeTrain
from measure.live.processor import Processor
from railyard.errors import MachineError, RailyardError
from railyard.process.start import start_python
from railyard.scale import MTU_BYTES, goodput_share
from topos.kernel import namespaces
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import HostEnd, inside
from topos.kernel.netlink import LO_INDEX, Netlink, link_up
from topos.kernel.ovs import PrivateOvs
from topos.kernel.packet_sockets import Tap
from topos.kernel.run_registry import RegisteredRun
from topos.options import link_parameters
from topos.rails import RailTopo

LEAST_SHARE = 0.99, 0.98
"""Share of the line-rate goodput that the slowest host has to reach, with bpf and with other datapaths."""
LEAST_SHARE_BESIDE_LOAD = 0.985
MOST_SPREAD = 0.005, 0.02
"""Highest (max - min) / median over the hosts, with bpf and with other datapaths."""
_UNIT = "of line rate"
_STOCK_MTU = 1500
_WARM_UP_S = 0.5


def share_of_line(goodput_mbps: Sequence[float], rate_mbps: float, mtu_bytes: int = MTU_BYTES) -> list[float]:
    """Goodput of each host as a share of the TCP goodput that a line of ``rate_mbps`` can carry."""
    return [mbps / (rate_mbps * goodput_share(mtu_bytes)) for mbps in goodput_mbps]


def spread(values: Sequence[float]) -> float:
    """Spread of ``values``: (max - min) / median; ``NotMeasured`` if the median is 0."""
    middle = median(values)
    if not middle:
        raise NotMeasured("the spread of goodput: half of the hosts received nothing")
    return (max(values) - min(values)) / middle


def links(bed: Bed, hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0) -> list[Measurement]:
    """Goodput of the slowest host and spread over all hosts, also of stock Mininet."""
    ours, name = _goodputs(bed, hosts, rate_mbps, seconds), f"links_{hosts}x{rate_mbps:g}"
    slowest = bed.at_least(f"{name}_slowest", min(share_of_line(ours, rate_mbps)), _UNIT, *LEAST_SHARE)
    apart = bed.at_most(f"{name}_spread", spread(ours), "of median", *MOST_SPREAD)
    found, missing = beside(bed, name, _shape(hosts, rate_mbps), ring_s=seconds)
    if theirs := found.get("goodput_mbps"):
        against(slowest, min(share_of_line(theirs, rate_mbps, _STOCK_MTU)), more=True)
        against(apart, spread(theirs))
    return [slowest, apart, *missing]


def links_beside_load(bed: Bed, hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0) -> list[Measurement]:
    """Goodput of the slowest host beside a process that keeps one core busy."""
    with busy_processors(1):
        found = _goodputs(bed, hosts, rate_mbps, seconds)
    name, least = f"links_{hosts}x{rate_mbps:g}_slowest_loaded", LEAST_SHARE_BESIDE_LOAD
    return [bed.at_least(name, min(share_of_line(found, rate_mbps)), _UNIT, least)]


def _shape(hosts: int, rate_mbps: float) -> dict[str, Any]:
    return {"servers": hosts, "gpus": 1, "ports": 1, "fabric": "electrical", "rate_mbps": rate_mbps}


def _goodputs(bed: Bed, hosts: int, rate_mbps: float, seconds: float) -> list[float]:
    with ring(bed, hosts, rate_mbps) as lanes:
        return ring_goodput(lanes, rate_mbps, seconds)


def ring_goodput(lanes: Sequence[SocketPair], rate_mbps: float, seconds: float) -> list[float]:
    """Goodput in Mb/s that each host sends to the next one over ``seconds``, on links of ``rate_mbps``.

    The same code measures Railyard and stock Mininet. ``NotMeasured`` if a host has no goodput.
    """
    found = ring_goodputs(lanes, rate_mbps, _WARM_UP_S, seconds)
    for number, goodput in enumerate(found):
        if not goodput:
            raise NotMeasured(f"the goodput of host {number} of a ring: nothing that it sent was received")
    return found


@contextmanager
def ring(bed: Bed, hosts: int, rate_mbps: float) -> Iterator[list[SocketPair]]:
    """``hosts`` on one electrical bridge, with a TCP connection from each host to the next."""
    with bed.make(RailTopo(**_shape(hosts, rate_mbps))) as net:
        ends = [HostEnd(net.netns_fd(port.host), port.interface, port.ip) for port in net.plan.rail_of(0).ports]
        with connected_ring(ends) as lanes:
            yield lanes


LEAST_RATIO = 4.0
"""Least aggregate of plain streams with bpf, as a multiple of that of stock Mininet with ``TCLink``."""
RATES_MBPS = (250.0, 1000.0)
"""Rates of the links of the plain streams: the higher is the highest that ``TCLink`` accepts."""
STREAM_HOSTS, STREAM_S = 16, 3.0


def plain_streams(bed: Bed) -> list[Measurement]:
    """The largest sum of goodputs of 16 hosts in a ring over links that are faster than this machine."""
    name = f"ceiling_plain_streams_{STREAM_HOSTS}"
    ours = max(sum(_goodputs(bed, STREAM_HOSTS, rate_mbps, STREAM_S)) for rate_mbps in RATES_MBPS)
    found = [beside(bed, name, _shape(STREAM_HOSTS, rate_mbps), ring_s=STREAM_S) for rate_mbps in RATES_MBPS]
    missing = next((why for _, why in found if why), [])
    baseline = None if missing else max(sum(stock["goodput_mbps"]) for stock, _ in found)
    return [against(Measurement(name, ours, "Mb/s"), baseline, bed.limit(LEAST_RATIO), more=True), *missing]


# ---- round trips -----------------------------------------------------------------------------------------------------


RTT_LIMIT_US = 60.0
_PAIR: dict[str, Any] = {"servers": 2, "gpus": 1, "ports": 1, "rate_mbps": 100.0}
ECHOES, ECHO_INTERVAL_S = 300, 0.01
ECHO_WARM_UP = 20
_PAYLOAD_BYTES = 56
"""With the eight bytes of the ICMP header: 64 bytes, the default of ``ping``."""
_HEAD = struct.Struct("!BBHHH")
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_ECHO_PATIENCE_S = 1.0
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("=qq")


def echo_times(netns_fd: int, ip: str, count: int = ECHOES, interval_s: float = ECHO_INTERVAL_S) -> list[float]:
    """Round-trip times in seconds of ``count`` echo requests to ``ip``; those of a warm-up before them are left out.

    ``NotMeasured`` if ``ip`` cannot be reached or does not answer within a second.
    """
    with inside(netns_fd):
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with raw:
        raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        times = []
        try:
            raw.connect((ip, 0))
            for number in range(ECHO_WARM_UP + count):
                times.append(_echo(raw, number, ip))
                time.sleep(interval_s)
        except OSError as error:
            raise NotMeasured(f"the round-trip time: {ip} cannot be reached ({error.strerror})") from None
    return times[ECHO_WARM_UP:]


def _echo(raw: socket.socket, number: int, ip: str) -> float:
    identity = os.getpid() & 0xFFFF
    request = echo_request(identity, number)
    began_ns = time.time_ns()
    raw.send(request)
    deadline = time.monotonic() + _ECHO_PATIENCE_S
    answered = select.poll()
    answered.register(raw, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0 and answered.poll(left * 1e3):
        packet, control, _, _ = raw.recvmsg(2048, socket.CMSG_SPACE(_TIMESPEC.size))
        kind, _, _, ident, sequence = _HEAD.unpack_from(packet, (packet[0] & 15) * 4)
        if (kind, ident, sequence) == (_ECHO_REPLY, identity, number):
            seconds, ns = _TIMESPEC.unpack(control[0][2])
            return float(seconds * 1_000_000_000 + ns - began_ns) / 1e9
    raise NotMeasured(f"the round-trip time: {ip} did not answer echo request {number} within {_ECHO_PATIENCE_S:g} s")


def echo_request(identity: int, number: int) -> bytes:
    """An ICMP echo request of 64 bytes with its checksum (RFC 792, RFC 1071); the payload is zero."""
    total = (_ECHO_REQUEST << 8) + identity + number
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return _HEAD.pack(_ECHO_REQUEST, 0, checksum, identity, number) + bytes(_PAYLOAD_BYTES)


def round_trip(bed: Bed) -> list[Measurement]:
    """Median and 99th percentile of the round-trip time of 64-byte pings 10 ms apart, in microseconds."""
    with bed.rail(**_PAIR) as rail:
        rail.swap()
        times = sample_of(echo_times(rail.net.netns_fd("g0"), rail.net["g1"].IP()), "round trips")
    theirs, missing = beside(bed, "rtt", _PAIR | {"fabric": "electrical"}, pings=True)
    found = bed.at_most("rtt_median", times.p50 * 1e6, "us", RTT_LIMIT_US)
    against(found, theirs["rtt_s"] * 1e6 if theirs else None)
    return [found, Measurement("rtt_p99", times.p99 * 1e6, "us"), *missing]


# ---- bring-up, and a fabric at rest ----------------------------------------------------------------------------------


LEAST_UP_RATIO = 10.0
LEAST_DOWN_RATIO = 2.0
MOST_UP_S = 1.5
"""Largest time with bpf, with its programs attached."""
SHAPE: dict[str, Any] = {"servers": 16, "gpus": 8, "ports": 1, "fabric": "electrical", "scale_up": True}
"""128 GPUs on 8 rails and 16 scale-up switches: 256 links, 24 switches."""


def bring_up(bed: Bed, shape: dict[str, Any] = SHAPE) -> list[Measurement]:
    """Seconds until every link is up and every bridge forwards, and seconds of the tear-down.

    Railyard's time includes the construction of the ``Emulation`` and the start of its Open vSwitch; stock Mininet's
    time covers build and start on an Open vSwitch that is already running.
    """
    start = time.monotonic()
    with bed.make(RailTopo(**shape)) as net:
        up_s = time.monotonic() - start
        size = f"{len(net.hosts)}_gpus"
        start = time.monotonic()
    down_s = time.monotonic() - start
    theirs, missing = beside(bed, f"bring_up_{size}", shape)
    up = Measurement(f"bring_up_{size}_than_stock", up_s, "s")
    down = Measurement(f"tear_down_{size}_than_stock", down_s, "s")
    return [
        bed.at_most(f"bring_up_{size}", up_s, "s", MOST_UP_S),
        against(up, theirs.get("up_s"), LEAST_UP_RATIO),
        against(down, theirs.get("down_s"), LEAST_DOWN_RATIO),
        *missing,
    ]


IDLE_LIMIT_PERCENT = 3.0
IDLE_SETTLE_S, IDLE_S = 2.0, 6.0


def idle_fabric(bed: Bed) -> list[Measurement]:
    """Share of a core that all processes of an idle fabric of 128 GPUs and its controller use, in percent.

    The processes are those that the run has registered, with the controller. The fabric is given ``IDLE_SETTLE_S``
    seconds after its start.
    """
    with bed.rail(servers=16, gpus=8, ports=1, scale_up=True) as rail:
        children = rail.net.run.children()
        pids = sorted({rail.controller.pid, *(child.pid for child in children if child.alive)})
        time.sleep(IDLE_SETTLE_S)
        processor, began = Processor(pids), time.monotonic()
        time.sleep(IDLE_S)
        load = processor.read(time.monotonic() - began)
        rail.net.check()
        ended = rail.controller.process.poll() is not None
    if ended or load.processes is None:
        raise NotMeasured("the processor use of an idle fabric: its controller has ended")
    name = f"idle_128_gpus_{len(pids)}_processes"
    return [bed.at_most(name, load.processes * 100, "% of a core", IDLE_LIMIT_PERCENT, IDLE_LIMIT_PERCENT)]


# ---- links with delay and loss, in band by numbered frames -----------------------------------------------------------


DELAYS_MS = (5.0, 20.0, 50.0)
LINKS, LINK_MBPS, LOAD_S = 8, 20.0, 4.0
P95_LIMIT_MS = 1.0
LOSSES = {0.1: 1_000_000, 0.5: 200_000, 1.0: 100_000, 2.0: 100_000, 5.0: 100_000}
"""Frames by loss (percent). A tenth of the loss is more than three standard deviations of the lost frames."""
LOSS_LIMIT = 0.10
_FRAME_BYTES = 1250
_AT_ONCE = 50_000
"""Frames of a train for each receiver: so many have room there."""


class Pairs(Topo):  # type: ignore[misc]
    """Pairs of hosts a0 - b0, a1 - b1, ..., each joined by one link; ``links`` are the parameters of each."""

    def build(self, links: Sequence[Mapping[str, Any]] = ()) -> None:
        """Build the graph; called by ``Topo.__init__``."""
        for number, link in enumerate(links):
            self.addLink(self.addHost(f"a{number}"), self.addHost(f"b{number}"), mtu=_STOCK_MTU, **link)


def _sent_to_b(net: Emulation, pairs: Sequence[int], count: int, interval_s: float, size: int = 0) -> Frames:
    """The fate of ``count`` frames that host a of each of ``pairs`` sends to its b, all pairs at the same time."""
    a, b = ([Tap(net.netns_fd(f"{side}{n}"), f"{side}{n}-eth0") for n in pairs] for side in "ab")
    macs, receivers = [net[f"b{n}"].MAC() for n in pairs], dict(zip(map(str, pairs), b, strict=True))
    together = len(macs)
    with ProbeTrain(
        a, macs, receivers, count=count * together, interval_s=interval_s, together=together, spin=False, size=size
    ) as train:
        return train.frames()


def delay(bed: Bed) -> list[Measurement]:
    """Error of the delay of 8 links that carry 20 Mb/s each, by one-way delays of all packets, in ms.

    The names have the method that held the frames.
    """
    found, interval_s = [], _FRAME_BYTES * 8 / (LINK_MBPS * 1e6)
    for delay_ms in DELAYS_MS:
        with bed.make(Pairs(links=[link_parameters(delay_ms)] * LINKS)) as net:
            frames = _sent_to_b(net, range(LINKS), round(LOAD_S / interval_s), interval_s, _FRAME_BYTES)
            name = f"delay_{delay_ms:g}ms_{net.delays.method}"
        delays_s = [delay_s for of_link in frames.delays_s.values() for delay_s in of_link]
        if lost := len(frames.sent) - len(delays_s):
            raise NotMeasured(f"the delay of {delay_ms:g} ms: {lost} of {len(frames.sent)} packets were lost")
        errors = sample_of([abs(delay_s * 1e3 - delay_ms) for delay_s in delays_s], "delays")
        found.append(at_most(f"{name}_p95_error", errors.p95, "ms", P95_LIMIT_MS))
        found.append(Measurement(f"{name}_median_error", errors.p50, "ms"))
        found.append(Measurement(f"{name}_worst_error", errors.high, "ms"))
    return found


def loss(bed: Bed) -> list[Measurement]:
    """Share of the packets that links lose, as a multiple of the configured share."""
    left, arrived = list(LOSSES.values()), [0] * len(LOSSES)
    with bed.make(Pairs(links=[link_parameters(loss=percent) for percent in LOSSES])) as net:
        while pairs := [number for number, count in enumerate(left) if count]:
            count = min(_AT_ONCE, *(left[number] for number in pairs))
            for number, found in _sent_to_b(net, pairs, count, 0.0).received.items():
                arrived[int(number)] += len(found)
                left[int(number)] -= count
    return [_loss_row(percent, got, sent) for (percent, sent), got in zip(LOSSES.items(), arrived, strict=True)]


def _loss_row(percent: float, arrived: int, sent: int) -> Measurement:
    ratio = (1 - arrived / sent) * 100 / percent
    name = f"loss_{percent:g}pct_of_{sent}"
    return Measurement(name, ratio, "of the loss asked for", limit=1 + LOSS_LIMIT, ok=abs(ratio - 1) <= LOSS_LIMIT)


# ---- stock Mininet ---------------------------------------------------------------------------------------------------


_PATIENCE_S = 600.0


def beside(bed: Bed, name: str, shape: dict[str, Any], **work: Any) -> tuple[dict[str, Any], list[Measurement]]:
    """The result of ``stock`` for row ``name``, or none and the row that says why; each shape is measured once."""
    key = json.dumps([shape, work], sort_keys=True)
    if key not in bed.stock:
        try:
            bed.stock[key] = stock(shape, **work)
        except MachineError as error:
            bed.stock[key] = error
    found = bed.stock[key]
    return ({}, [not_measured(f"{name}_stock", found)]) if isinstance(found, MachineError) else (found, [])


def against(row: Measurement, baseline: float | None, least: float | None = None, *, more: bool = False) -> Measurement:
    """``row`` with the value of stock Mininet, and how many times better its own is: by being ``more``, or less.

    ``least`` is the limit of that ratio, where there is one.
    """
    if baseline is not None and row.value is not None:
        better, worse = (row.value, baseline) if more else (baseline, row.value)
        row.baseline, row.ratio = baseline, better / worse if worse else None
    if least is not None:
        row.limit, row.ok = least, None if row.ratio is None else row.ratio >= least
    return row


def stock(shape: dict[str, Any], ring_s: float = 0.0, pings: bool = False) -> dict[str, Any]:
    """Run ``RailTopo(**shape)`` on stock Mininet.

    Returns ``up_s`` (build and start), ``down_s`` and, with ``ring_s`` above 0, ``goodput_mbps`` of each host when all
    hosts send to the next one for ``ring_s`` seconds; with ``pings`` also ``rtt_s``, the median round-trip time
    between the first two hosts. ``MachineError`` if stock Mininet fails.
    """
    namespaces.check_root_directory()
    with RegisteredRun.open() as run, ExitStack() as stack:
        (yard,) = namespaces.make(1)
        stack.callback(os.close, yard)
        with Netlink(yard) as kernel:
            kernel.run([link_up(LO_INDEX, "lo")])
        ovs = PrivateOvs(run.path, yard, on_child=run.add_child)
        stack.callback(ovs.stop)
        ovs.start()
        datapath = "user" if ovs.datapath == "netdev" else "kernel"
        order = json.dumps({"shape": shape, "ring_s": ring_s, "pings": pings, "datapath": datapath})
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with inside(yard):
            child = start_python("commands.bench.fabric", order, environment=ovs.environment, **streams)
        run.add_child(child.pid)
        try:
            output, errors = child.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise MachineError(f"stock Mininet was not done within {_PATIENCE_S:g} s") from None
    if child.returncode != 0:
        last = (errors.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
        raise MachineError(f"stock Mininet ended with status {child.returncode}: {last}")
    result: dict[str, Any] = json.loads(output)
    return result


def measure(shape: dict[str, Any], ring_s: float, pings: bool, datapath: str) -> dict[str, Any]:
    """Bring stock Mininet up and down in the network namespace of this process; returns the result of ``stock``."""
    from mininet.link import TCLink
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    Mininet.inited = True  # its limits for the whole machine are not needed here
    switch = partial(OVSSwitch, datapath=datapath, failMode="standalone")
    topo = RailTopo(**shape)
    start = time.monotonic()
    net = Mininet(topo, switch=switch, link=TCLink, controller=None)
    net.start()
    result: dict[str, Any] = {"up_s": time.monotonic() - start}
    with ExitStack() as stack:
        ends = []
        for host in net.hosts if ring_s or pings else ():
            namespace = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, namespace)
            ends.append(HostEnd(namespace, host.defaultIntf().name, host.IP()))
        if ring_s:
            lanes = stack.enter_context(connected_ring(ends))
            result["goodput_mbps"] = ring_goodput(lanes, shape["rate_mbps"], ring_s)
        if pings:
            result["rtt_s"] = median(echo_times(ends[0].netns_fd, ends[1].ip))
    start = time.monotonic()
    net.stop()
    result["down_s"] = time.monotonic() - start
    return result


def main() -> None:
    """Entry of the child process, whose argument is that of ``measure``: prints the result as JSON."""
    try:
        print(json.dumps(measure(**json.loads(sys.argv[1]))))
    except RailyardError as error:
        sys.exit(str(error))
