"""Links and interfaces that record their settings, so that the kernel can make all of them in one batch.

Before the net starts, a MAC, an address or a state is only recorded. Afterwards the stock behaviour of Mininet
applies (``ifconfig`` in the node's shell).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from typing import Any, NamedTuple

from mininet.link import Intf, Link
from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.kernel import tuning
from topos.kernel.netlink import Tunnel
from topos.options import MOST_MBPS, number, seconds

DEFAULT_MTU = 1500


class Way(NamedTuple):
    """One direction of a link: its propagation delay, the jitter of it (seconds) and its random loss (percent)."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss_percent: float = 0.0


@dataclass(frozen=True)
class Part:
    """The nodes that this one of several machines emulates (None: all), and the tunnels of links that lead to others.

    ``tunnels`` has the tunnel of each such link by the name of its interface here: that of a host (``g3-r0``) or that
    of a switch (``rail1-eth4``).
    """

    nodes: frozenset[str] | None = None
    tunnels: Mapping[str, Tunnel] = field(default_factory=dict)

    def has(self, *names: str) -> bool:
        return self.nodes is None or self.nodes.issuperset(names)


WHOLE = Part()
"""All of a fabric on one machine."""


class RecordedIntf(Intf):  # type: ignore[misc]
    """An interface whose settings are recorded until the emulation makes it.

    ``params`` may hold ``bw`` (rate, Mb/s), ``mtu``, ``overhead`` and ``burst`` (bytes), ``rto_min_ms``, and for what
    leaves the interface ``delay`` and ``jitter`` (times with unit, as in ``5ms``) and ``loss`` (percent). Mininet's
    other parameters are accepted and ignored.
    """

    made = False
    index = 0
    """Interface index in the namespace of its node."""
    earlier_mbps: tuple[float, ...] = ()
    """The lowest and the highest rate that the interface has had before it was changed; empty before the first time."""

    @property
    def network(self) -> IPv4Network | None:
        """The IP network of the interface; None without an address."""
        return IPv4Interface(f"{self.ip}/{self.prefixLen}").network if self.ip else None

    @property
    def rate_mbps(self) -> float | None:
        """Rate of the interface in Mb/s; None for one that is not shaped."""
        rate = self.params.get("bw")
        return None if rate is None else float(rate)

    @property
    def mtu(self) -> int:
        """MTU of the interface in bytes (default 1500)."""
        return int(self.params.get("mtu", DEFAULT_MTU))

    @property
    def overhead(self) -> int:
        """Bytes that the rate counts for each packet beside its headers."""
        return int(self.params.get("overhead", 0))

    @property
    def burst(self) -> int:
        """Least depth of the token bucket in bytes."""
        return int(self.params.get("burst", 0))

    @property
    def rto_min_ms(self) -> int:
        """Minimum retransmission time-out of TCP over the interface, in ms (default: that for its lowest rate yet)."""
        slowest = None if self.rate_mbps is None else min(self.rate_mbps, *self.earlier_mbps, MOST_MBPS)
        return int(self.params.get("rto_min_ms", tuning.rto_min_ms(slowest, self.mtu, self.burst)))

    @property
    def way(self) -> Way:
        """The link in the direction of packets that leave this interface; ``ConfigError`` for bad parameters."""
        delay, jitter = (seconds(key, self.params.get(key)) for key in ("delay", "jitter"))
        if jitter > delay:
            raise ConfigError(f"must be at most delay ({delay * 1e3:g} ms), not {jitter * 1e3:g} ms", key="jitter")
        return Way(delay, jitter, number("loss", self.params.get("loss") or 0, 0, 100, "percent"))

    def setMAC(self, macstr: str) -> Any:
        if self.made:
            return super().setMAC(macstr)
        self.mac = macstr
        return ""

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> Any:
        if self.made:
            return super().setIP(ipstr, prefixLen)
        self.ip, _, length = ipstr.partition("/")
        self.prefixLen = length or prefixLen or 8
        return ""

    def ifconfig(self, *args: Any) -> Any:
        return super().ifconfig(*args) if self.made else ""

    def isUp(self, setUp: bool = False) -> Any:
        return super().isUp(setUp) if self.made else setUp

    def delete(self) -> None:
        if self.made:
            super().delete()
        else:
            self.node.delIntf(self)
            self.link = None


class RecordedLink(Link):  # type: ignore[misc]
    """A veth pair between two recorded interfaces, made by the emulation in a batch."""

    def __init__(self, node1: Any, node2: Any, **params: Any) -> None:
        params["intf"] = RecordedIntf
        params.setdefault("fast", True)
        super().__init__(node1, node2, **params)

    @classmethod
    def makeIntfPair(cls, *_: Any, **__: Any) -> tuple[None, None]:
        """Make no interface; the emulation makes all of them together."""
        return None, None


def changing(topo: Topo) -> Topo:
    """``topo`` with links whose rates are to change often: a changed token bucket would wait on at the rate before.

    Their queues are of HTB; frames are single, as a packet takes the time of the rate at which its turn came.
    """
    for *_, link in topo.links(withInfo=True):
        link["changing"] = True
    return topo
