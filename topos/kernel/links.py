"""Links and interfaces that take notes instead of acting, so that the kernel is asked once for all.

Before the net starts, setting a MAC, an address or a state is written down. From then on the stock
behaviour of Mininet applies (``ifconfig`` in the node's shell).
"""

from __future__ import annotations

from typing import Any

from mininet.link import Intf, Link

DEFAULT_MTU = 1500


class RecordedIntf(Intf):  # type: ignore[misc]
    """An interface that the emulation will make.

    ``params`` may hold ``bw`` (rate, Mb/s), ``mtu`` (bytes) and ``burst`` (bytes); the rest of Mininet's
    words are accepted and left alone.
    """

    made = False
    index = 0
    """Its interface index, once made."""

    @property
    def rate_mbps(self) -> float | None:
        """The rate it is shaped to, or None."""
        rate = self.params.get("bw")
        return None if rate is None else float(rate)

    @property
    def mtu(self) -> int:
        """In bytes."""
        return int(self.params.get("mtu", DEFAULT_MTU))

    def setMAC(self, macstr: str) -> Any:
        """As in Mininet, once made; noted before."""
        if self.made:
            return super().setMAC(macstr)
        self.mac = macstr
        return ""

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> Any:
        """As in Mininet, once made; noted before."""
        if self.made:
            return super().setIP(ipstr, prefixLen)
        self.ip, _, length = ipstr.partition("/")
        self.prefixLen = length or prefixLen or 8
        return ""

    def ifconfig(self, *args: Any) -> Any:
        """As in Mininet, once made; before, every interface is to come up anyway."""
        return super().ifconfig(*args) if self.made else ""

    def isUp(self, setUp: bool = False) -> Any:
        """As in Mininet, once made."""
        return super().isUp(setUp) if self.made else setUp

    def delete(self) -> None:
        """As in Mininet, once made; before, only the note is struck out."""
        if self.made:
            super().delete()
        else:
            self.node.delIntf(self)
            self.link = None


class RecordedLink(Link):  # type: ignore[misc]
    """A veth pair that the emulation will make."""

    def __init__(self, node1: Any, node2: Any, **params: Any) -> None:
        params["intf"] = RecordedIntf
        params.setdefault("fast", True)
        super().__init__(node1, node2, **params)

    @classmethod
    def makeIntfPair(cls, *_: Any, **__: Any) -> tuple[None, None]:
        """Nothing yet."""
        return None, None
