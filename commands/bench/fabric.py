"""Benchmarks of a fabric: its links and their delay and loss, round trips, bring-up, and its use while it is idle.

Values that stock Mininet with ``TCLink`` can give stand beside those of stock Mininet. All need root.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from mininet.topo import Topo

from commands.bench import Measurement, NotMeasured, at_most
from commands.bench.bed import Bed
from commands.bench.stock import echo_times, ring_goodput
from controllers.northbound.client import ChannelClient
from measure.live.machine_benchmark import SocketPair, busy_processors, connected_ring
from measure.live.packets import Tap
from measure.live.probes import Frames, ProbeTrain
from measure.live.processor import Processor
from railyard.scale import MTU_BYTES, goodput_share
from topos.kernel.emulation import Emulation
from topos.kernel.namespaces import HostEnd
from topos.options import link_parameters
from topos.rails import RailTopo

LEAST_SHARE = 0.99, 0.98
"""Share of the line-rate goodput that the slowest host has to reach, with bpf and with other datapaths."""
LEAST_SHARE_BESIDE_LOAD = 0.985
MOST_SPREAD = 0.005, 0.02
"""Highest (max - min) / median over the hosts, with bpf and with other datapaths."""
_UNIT = "of line rate"
_STOCK_MTU = 1500


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
    """Goodput of the slowest host and spread over all hosts, also of stock Mininet; needs root."""
    ours, name = _goodputs(bed, hosts, rate_mbps, seconds), f"links_{hosts}x{rate_mbps:g}"
    stock, missing = bed.beside(name, _shape(hosts, rate_mbps), ring_s=seconds)
    theirs = stock.get("goodput_mbps")
    least, apart = (min(share_of_line(theirs, rate_mbps, _STOCK_MTU)), spread(theirs)) if theirs else (None, None)
    slowest = bed.at_least(f"{name}_slowest", min(share_of_line(ours, rate_mbps)), _UNIT, *LEAST_SHARE)
    apart_ours = bed.at_most(f"{name}_spread", spread(ours), "of median", *MOST_SPREAD)
    slowest.baseline, apart_ours.baseline = least, apart
    slowest.ratio = slowest.value / least if least and slowest.value else None
    apart_ours.ratio = apart / apart_ours.value if apart is not None and apart_ours.value else None
    return [slowest, apart_ours, *missing]


def links_beside_load(bed: Bed, hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0) -> list[Measurement]:
    """Goodput of the slowest host beside a process that keeps one core busy; needs root."""
    with busy_processors(1):
        found = _goodputs(bed, hosts, rate_mbps, seconds)
    name, least = f"links_{hosts}x{rate_mbps:g}_slowest_loaded", LEAST_SHARE_BESIDE_LOAD
    return [bed.at_least(name, min(share_of_line(found, rate_mbps)), _UNIT, least)]


def _shape(hosts: int, rate_mbps: float) -> dict[str, Any]:
    return {"servers": hosts, "gpus": 1, "ports": 1, "fabric": "electrical", "rate_mbps": rate_mbps}


def _goodputs(bed: Bed, hosts: int, rate_mbps: float, seconds: float) -> list[float]:
    with ring(bed, hosts, rate_mbps) as lanes:
        return ring_goodput(lanes, rate_mbps, seconds)


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
    """The largest sum of goodputs of 16 hosts in a ring over links that are faster than this machine; needs root."""
    name = f"ceiling_plain_streams_{STREAM_HOSTS}"
    ours = max(sum(_goodputs(bed, STREAM_HOSTS, rate_mbps, STREAM_S)) for rate_mbps in RATES_MBPS)
    found = [bed.beside(name, _shape(STREAM_HOSTS, rate_mbps), ring_s=STREAM_S) for rate_mbps in RATES_MBPS]
    missing = next((why for _, why in found if why), [])
    baseline = None if missing else max(sum(stock["goodput_mbps"]) for stock, _ in found)
    ratio, limit = ours / baseline if baseline else None, bed.limit(LEAST_RATIO)
    ok = None if limit is None or ratio is None else ratio >= limit
    return [Measurement(name, ours, "Mb/s", baseline, ratio, limit, ok), *missing]


RTT_LIMIT_US = 60.0
_PAIR: dict[str, Any] = {"servers": 2, "gpus": 1, "ports": 1, "rate_mbps": 100.0}


def round_trip(bed: Bed) -> list[Measurement]:
    """Median and 99th percentile of the round-trip time of 64-byte pings 10 ms apart, in microseconds; needs root."""
    with (
        bed.controlled(**_PAIR, fabric="ocs") as (net, controller),
        ChannelClient(controller.files.channel) as client,
    ):
        client.rewire("rail0", [(1, 2)], "overwrite", delay_s=0.0)
        times = sorted(echo_times(net.netns_fd("g0"), net["g1"].IP()))
    found = bed.at_most("rtt_median", median(times) * 1e6, "us", RTT_LIMIT_US)
    stock, missing = bed.beside("rtt", _PAIR | {"fabric": "electrical"}, pings=True)
    found.baseline = stock["rtt_s"] * 1e6 if stock else None
    found.ratio = found.baseline / found.value if found.baseline and found.value else None
    return [found, Measurement("rtt_p99", times[int(0.99 * len(times))] * 1e6, "us"), *missing]


# ---- bring-up, and a fabric at rest ----------------------------------------------------------------------------------


LEAST_UP_RATIO = 10.0
LEAST_DOWN_RATIO = 2.0
MOST_UP_S = 1.5
"""Largest time with bpf, with its programs attached."""
SHAPE: dict[str, Any] = {"servers": 16, "gpus": 8, "ports": 1, "fabric": "electrical", "scale_up": True}
"""128 GPUs on 8 rails and 16 scale-up switches: 256 links, 24 switches."""


def bring_up(bed: Bed, shape: dict[str, Any] = SHAPE) -> list[Measurement]:
    """Seconds until every link is up and every bridge forwards, and seconds of the tear-down; needs root.

    Railyard's time includes the construction of the ``Emulation`` and the start of its Open vSwitch; stock Mininet's
    time covers build and start on an Open vSwitch that is already running.
    """
    start = time.monotonic()
    net = bed.make(RailTopo(**shape))
    try:
        net.start()
        up_s = time.monotonic() - start
        size = f"{len(net.hosts)}_gpus"
        start = time.monotonic()
    finally:
        net.stop()
    down_s = time.monotonic() - start
    theirs, missing = bed.beside(f"bring_up_{size}", shape)
    return [
        bed.at_most(f"bring_up_{size}", up_s, "s", MOST_UP_S),
        _faster(f"bring_up_{size}_than_stock", up_s, theirs.get("up_s"), LEAST_UP_RATIO),
        _faster(f"tear_down_{size}_than_stock", down_s, theirs.get("down_s"), LEAST_DOWN_RATIO),
        *missing,
    ]


def _faster(name: str, value_s: float, baseline_s: float | None, limit: float) -> Measurement:
    """A measurement whose ``limit`` is for the ratio: how many times faster than the baseline."""
    ratio = baseline_s / value_s if baseline_s is not None else None
    ok = ratio >= limit if ratio is not None else None
    return Measurement(name, value_s, "s", baseline_s, ratio, limit, ok)


IDLE_LIMIT_PERCENT = 3.0
IDLE_SETTLE_S, IDLE_S = 2.0, 6.0


def idle_fabric(bed: Bed) -> list[Measurement]:
    """Share of a core that all processes of an idle fabric of 128 GPUs and its controller use, in percent; needs root.

    The processes are those that the run has registered, with the controller. The fabric is given ``IDLE_SETTLE_S``
    seconds after its start.
    """
    with bed.controlled(servers=16, gpus=8, ports=1, scale_up=True) as (net, controller):
        pids = sorted({controller.pid, *(child.pid for child in net.run.children() if child.alive)})
        time.sleep(IDLE_SETTLE_S)
        processor, began = Processor(pids), time.monotonic()
        time.sleep(IDLE_S)
        load = processor.read(time.monotonic() - began)
        net.check()
        ended = controller.process.poll() is not None
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


def _errors_ms(bed: Bed, delay_ms: float) -> tuple[list[float], str]:
    """|measured - configured| delay of every frame in ms, sorted, and the method that held the frames."""
    interval_s = _FRAME_BYTES * 8 / (LINK_MBPS * 1e6)
    with bed.make(Pairs(links=[link_parameters(delay_ms)] * LINKS)) as net:
        frames = _sent_to_b(net, range(LINKS), round(LOAD_S / interval_s), interval_s, _FRAME_BYTES)
        method = net.delays.method
    delays_s = [delay_s for found in frames.delays_s.values() for delay_s in found]
    if len(delays_s) < len(frames.sent):
        raise NotMeasured(
            f"the delay of {delay_ms:g} ms: {len(frames.sent) - len(delays_s)} of {len(frames.sent)} packets were lost"
        )
    return sorted(abs(delay_s * 1e3 - delay_ms) for delay_s in delays_s), method


def delay(bed: Bed) -> list[Measurement]:
    """Error of the delay of 8 links that carry 20 Mb/s each, by one-way delays of all packets, in ms."""
    found = []
    for delay_ms in DELAYS_MS:
        errors, method = _errors_ms(bed, delay_ms)
        name = f"delay_{delay_ms:g}ms_{method}"
        found.append(at_most(f"{name}_p95_error", errors[int(0.95 * len(errors))], "ms", P95_LIMIT_MS))
        found.append(Measurement(f"{name}_median_error", errors[len(errors) // 2], "ms"))
        found.append(Measurement(f"{name}_worst_error", errors[-1], "ms"))
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
