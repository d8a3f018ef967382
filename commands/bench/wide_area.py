"""Benchmarks of links with delay and loss, measured in band by numbered packets from host to host. Needs root."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from mininet.topo import Topo

from commands.bench import Measurement, NotMeasured, at_most
from commands.bench.bed import Bed
from measure.live.numbered import NumberedReceiver, NumberedStreams, Stream
from topos.kernel.emulation import Emulation
from topos.options import link_parameters

DELAYS_MS = (5.0, 20.0, 50.0)
LINKS, LINK_MBPS, LOAD_S = 8, 20.0, 4.0
P95_LIMIT_MS = 1.0
LOSSES = {0.1: 1_000_000, 0.5: 200_000, 1.0: 100_000, 2.0: 100_000, 5.0: 100_000}
"""Packets by loss (percent). A tenth of the loss is more than three standard deviations of the lost packets."""
LOSS_LIMIT = 0.10
_MTU = 1500
_WIRE_BYTES, _UDP_HEADERS_BYTES, _ETHERNET_BYTES = 1250, 28, 14
_SMALL_BYTES = 32
_SETTLE_S = 0.3
_AT_ONCE = 50_000
"""Packets that are sent before the receivers are read; so many have room in a receiver."""


class Pairs(Topo):  # type: ignore[misc]
    """Pairs of hosts a0 - b0, a1 - b1, ..., each joined by one link; ``links`` are the parameters of each."""

    def build(self, links: Sequence[Mapping[str, Any]] = ()) -> None:
        """Build the graph; called by ``Topo.__init__``."""
        for number, link in enumerate(links):
            ends = [self.addHost(f"{side}{number}", ip=f"{_ip(number, side)}/24") for side in "ab"]
            self.addLink(*ends, mtu=_MTU, **link)


def _ip(number: int, side: str) -> str:
    return f"10.0.{number}.{'ab'.index(side) + 1}"


@contextmanager
def _pairs(bed: Bed, links: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Emulation, list[NumberedReceiver]]]:
    """A net of pairs of hosts that know each other's hardware address, and the receivers at the hosts b."""
    with bed.make(Pairs(links=links)) as net, ExitStack() as stack:
        for number in range(len(links)):
            net[f"a{number}"].setARP(_ip(number, "b"), net[f"b{number}"].MAC())
        receivers = [NumberedReceiver(net.netns_fd(f"b{n}"), _ip(n, "b")) for n in range(len(links))]
        yield net, [stack.enter_context(receiver) for receiver in receivers]


def _streams(net: Emulation, counts: Sequence[int], payload_bytes: int, interval_s: float) -> NumberedStreams:
    streams = [
        Stream(net.netns_fd(f"a{n}"), _ip(n, "b"), count, payload_bytes, interval_s) for n, count in enumerate(counts)
    ]
    return NumberedStreams(streams)


def _errors_ms(bed: Bed, delay_ms: float) -> tuple[list[float], str]:
    """|measured - configured| delay of every packet in ms, sorted, and the method that held the packets."""
    interval_s = _WIRE_BYTES * 8 / (LINK_MBPS * 1e6)
    counts = [round(LOAD_S / interval_s)] * LINKS
    with _pairs(bed, [link_parameters(delay_ms)] * LINKS) as (net, receivers):
        with _streams(net, counts, _WIRE_BYTES - _UDP_HEADERS_BYTES - _ETHERNET_BYTES, interval_s) as streams:
            sent = sum(streams.sent())
        time.sleep(_SETTLE_S + delay_ms / 1e3)
        arrivals = [packet for receiver in receivers for packet in receiver.read()]
        method = net.delays.method
    if len(arrivals) < sent:
        raise NotMeasured(f"the delay of {delay_ms:g} ms: {sent - len(arrivals)} of {sent} packets were lost")
    return sorted(abs(packet.delay_s * 1e3 - delay_ms) for packet in arrivals), method


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
    left, arrived, sent = list(LOSSES.values()), [0] * len(LOSSES), [0] * len(LOSSES)
    with _pairs(bed, [link_parameters(loss=percent) for percent in LOSSES]) as (net, receivers):
        while any(left):
            counts = [min(count, _AT_ONCE) for count in left]
            with _streams(net, counts, _SMALL_BYTES, 0.0) as streams:
                sent = [total + count for total, count in zip(sent, streams.sent(), strict=True)]
            time.sleep(_SETTLE_S)
            arrived = [total + len(receiver.read()) for total, receiver in zip(arrived, receivers, strict=True)]
            left = [total - count for total, count in zip(left, counts, strict=True)]
    return [_loss_row(*row) for row in zip(LOSSES, arrived, sent, strict=True)]


def _loss_row(percent: float, arrived: int, sent: int) -> Measurement:
    ratio = (1 - arrived / sent) * 100 / percent
    name = f"loss_{percent:g}pct_of_{sent}"
    return Measurement(name, ratio, "of the loss asked for", limit=1 + LOSS_LIMIT, ok=abs(ratio - 1) <= LOSS_LIMIT)
