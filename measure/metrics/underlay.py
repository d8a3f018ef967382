"""Whether the network between machines (the underlay) carries a fabric that spreads over them, and their clocks. Pure.

A link whose ends lie on two machines travels through their network in VXLAN packets. ``refusals`` judges that network
before a run, from a probe (``measure.live.underlay``), and ``underlay_checks`` and ``clock_checks`` after a point.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from measure.metrics.checks import Check, Limits, not_measured
from railyard.timeline import Event

_VXLAN_BYTES = 8 + 8 + 14
"""UDP, VXLAN and Ethernet headers around a packet of a link."""
_IP_BYTES = {4: 20, 6: 40}
_LEAST_MTU = 576
_LEAST_MBPS = 1e-3
LOSS, RATE, CLOCK = "underlay loss", "underlay rate", "clock uncertainty"
"""Names of the checks."""


@dataclass(frozen=True)
class Underlay:
    """Results of a probe of the network between two machines.

    ``round_trip_ms`` is the median and ``jitter_ms`` the mean difference of successive round trips. ``loss_share`` is
    the share of ``datagrams`` that did not come back. ``packet_bytes`` is the largest IP packet that passed both ways
    without being split; none larger than wanted was tried. ``tcp_mbps`` is the lower of the two directions' rates.
    """

    round_trip_ms: float
    round_trip_p99_ms: float
    jitter_ms: float
    loss_share: float
    datagrams: int
    packet_bytes: int
    tcp_mbps: float


@dataclass(frozen=True)
class UnderlayNeeds:
    """Needs of links of MTU ``mtu`` between machines ``a`` and ``b``: ``demand_mbps`` each way, by ``Placed``.

    ``version`` is that of the Internet Protocol of the underlay, 4 or 6 (``ip_version``).
    """

    a: str
    b: str
    mtu: int
    demand_mbps: float
    version: int = 4

    @property
    def overhead_bytes(self) -> int:
        """By how much a packet of the underlay is longer than that of the link that it carries."""
        return _IP_BYTES[self.version] + _VXLAN_BYTES

    @property
    def packet_bytes(self) -> int:
        """The longest packet that the underlay must pass without splitting it."""
        return self.mtu + self.overhead_bytes


def ip_version(address: str) -> int:
    """4 or 6; ``ValueError`` for what is no address. An interface after % (``fe80::1%eth0``) may follow."""
    return ipaddress.ip_address(address.partition("%")[0]).version


def refusals(needs: UnderlayNeeds, found: Underlay, limits: Limits | None = None) -> list[str]:
    """Sentences that say why the network that was ``found`` does not carry what is needed; empty if it does."""
    limits, between, says = limits or Limits(), f"the network between {needs.a} and {needs.b}", []
    if found.packet_bytes < needs.packet_bytes:
        smaller = found.packet_bytes - needs.overhead_bytes
        instead = f", or run with --mtu {smaller}" if smaller >= _LEAST_MTU else ""
        says.append(
            f"{between} passes packets of at most {found.packet_bytes} bytes; links of MTU {needs.mtu} need "
            f"{needs.packet_bytes}: raise the MTU of the interfaces there{instead}"
        )
    if found.loss_share > limits.underlay_loss_share:
        says.append(
            f"{between} lost {found.loss_share:.2%} of {found.datagrams} packets; at most "
            f"{limits.underlay_loss_share:.1%} may be lost: look for a faulty or overloaded link there"
        )
    least = needs.demand_mbps / limits.underlay_rate_share
    if found.tcp_mbps < least:
        says.append(
            f"{between} carries {found.tcp_mbps:.0f} Mb/s; the links cut there may ask for {needs.demand_mbps:.0f} "
            f"Mb/s, for which it must carry {least:.0f}: lower the rate of the links, or cut fewer with another "
            "--placement"
        )
    if found.round_trip_ms > limits.underlay_round_trip_ms:
        says.append(
            f"{between} takes {found.round_trip_ms:.3g} ms there and back; at most {limits.underlay_round_trip_ms:g} "
            "ms is allowed: take machines that are nearer to each other"
        )
    return says


def shared_refusals(found: Sequence[tuple[UnderlayNeeds, Underlay]]) -> list[str]:
    """Sentences about machines whose links to several others ask for more together than their network carries.

    A machine has one way into the network: what its pairs use of it, each by its own rate, adds up.
    """
    limits = Limits()
    shares: dict[str, list[float]] = defaultdict(list)
    for needs, under in found:
        for machine in (needs.a, needs.b):
            shares[machine].append(needs.demand_mbps / max(under.tcp_mbps, _LEAST_MBPS))
    return [
        f"the links cut at {machine} may ask for {sum(own):.0%} of what its network carries to {len(own)} machines; at "
        f"most {limits.underlay_rate_share:.0%} is allowed: lower the rate of the links, or cut fewer with another "
        "--placement"
        for machine, own in shares.items()
        if len(own) > 1 and sum(own) > limits.underlay_rate_share
    ]


def underlay_event(t: float, needs: UnderlayNeeds, found: Underlay) -> Event:
    asked = {"a": needs.a, "b": needs.b, "demand_mbps": needs.demand_mbps}
    got = {"round_trip_ms": found.round_trip_ms, "loss_share": found.loss_share, "mbps": found.tcp_mbps}
    return Event(t, "link", "underlay", None, asked | got)


def underlay_checks(events: Iterable[Event], limits: Limits) -> Iterator[Check]:
    """Checks of loss and of the share of its rate that cut links may ask for: of the worst pair, the busiest machine.

    There are none without ``link underlay`` events. Each pair must have been probed before and after the steps.
    """
    pairs: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for e in events:
        if e.source == "link" and e.kind == "underlay":
            pairs[e["a"], e["b"]].append(e)
    if not pairs:
        return
    unit, once = "of packets", [pair for pair, found in pairs.items() if len(found) < 2]
    of_rate, most_loss, most_rate = "of the underlay's rate", limits.underlay_loss_share, limits.underlay_rate_share
    if once:
        what = f"the network between {once[0][0]} and {once[0][1]} was not probed before and after the steps"
        yield not_measured(LOSS, most_loss, unit, what)
        yield not_measured(RATE, most_rate, of_rate, what)
        return
    every = [e for found in pairs.values() for e in found]
    worst = max(every, key=lambda e: float(e["loss_share"]))
    loss = float(worst["loss_share"])
    says = f"the network between {worst['a']} and {worst['b']} lost {loss:.2%} of the packets (limit {most_loss:.1%})"
    yield Check(LOSS, loss, most_loss, unit, loss <= most_loss, says)
    shares: dict[str, float] = defaultdict(float)
    for pair, found in pairs.items():
        for machine in pair:
            shares[machine] += max(float(e["demand_mbps"]) / max(float(e["mbps"]), _LEAST_MBPS) for e in found)
    busiest = max(shares, key=lambda machine: shares[machine])
    share = shares[busiest]
    says = f"cut links may ask for {share:.0%} of what the network of {busiest} carries (limit {most_rate:.0%})"
    yield Check(RATE, share, most_rate, of_rate, share <= most_rate, says)


def clock_checks(events: Iterable[Event], delay_s: float, limits: Limits) -> Iterator[Check]:
    """The check of how far the clocks of machines may be off during a point, of the worst; none without events of them.

    That is what they have drifted since they were set (times of events are corrected for it, what agents do is not) and
    how exactly that is known. ``delay_s`` is the shortest reconfiguration delay above 0, in wall-clock seconds, or 0 if
    there is none.
    """
    clocks = [e for e in events if e.source == "link" and e.kind == "clock"]
    if not clocks:
        return
    limit = max(limits.clock_floor_s, limits.clock_delay_share * delay_s)
    worst = max(clocks, key=_off_s)
    value = _off_s(worst)
    off = f"{value * 1e3:.3g} ms of wall-clock time (limit {limit * 1e3:.3g} ms)"
    says = f"the clock of {worst['machine']} may be off by {off}"
    yield Check(CLOCK, value, limit, "s", value <= limit, says)


def _off_s(clock: Event) -> float:
    """How far a clock may be off, in seconds."""
    return abs(float(clock["offset_s"])) + float(clock["uncertainty_s"])
