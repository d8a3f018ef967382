"""What every fabric of ours is made of, as a Mininet topology: hosts that are ranks, and links that are plugged in.

``topos.rails`` and ``topos.racks`` build on it; ``topos.describe`` reads the plan off it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mininet.topo import Topo

from railyard.errors import ConfigError
from topos.options import rate, whole
from topos.plan import MeshPlan, RackPlan

MOST_PORTS_PER_SWITCH = 32000
FRONT_END_DPID = 0x30000
_FRONT_END_KIND = 3


def mac_address(kind: int, index: int, port: int, far_end: bool = False) -> str:
    """The MAC of the host's end (or, ``far_end``, the switch's end) of port ``port`` of a switch.

    ``kind`` is that of the switch (1 rail, 2 scale-up, 3 front-end, 4 node of a torus), ``index`` its number.
    """
    first = 0x06 if far_end else 0x02
    return ":".join(f"{b:02x}" for b in (first, kind, index >> 8, index & 255, port >> 8, port & 255))


class FabricTopo(Topo):  # type: ignore[misc]
    """A topology whose hosts ``g{rank}`` are accelerators; a subclass sets the attributes in ``build``."""

    fabric: str
    servers: int
    gpus: int
    """Accelerators of a server."""
    ports_per_gpu: int
    mtu: int
    rack: RackPlan | None = None
    """The geometry, where there is one."""
    mesh: MeshPlan | None = None
    """What every optical rail is made of, where that limits it."""

    def refuse_stray(self, stray: Iterable[object]) -> None:
        """Options have names; one without comes from a comma that ``mn`` took for the end of an option."""
        for value in stray:
            raise ConfigError(
                f"write options as name=value, not {value} alone (for mn, which splits at every comma, write the "
                "place of a slice with colons, as in 2x2@0:2)",
                key="topo",
            )

    def set_mtu(self, mtu: object) -> None:
        """Bytes of a frame's payload, on every link."""
        self.mtu = whole("mtu", mtu, 576, 9216)

    def add_rank(self, rank: int, ip: str) -> None:
        """Host ``g{rank}``; ``ip`` with prefix length is that of its first interface."""
        self.addHost(f"g{rank}", ip=ip, rank=rank)

    def add_switch(self, name: str, dpid: int, kind: str, network: str, **more: Any) -> None:
        """A switch; ``more`` are parameters of ``topos.kernel.nodes.RailSwitch``."""
        self.addSwitch(name, dpid=f"{dpid:016x}", kind=kind, network=network, **more)

    def add_front_end(self, ranks: int, rate_mbps: object, key: str) -> None:
        """One switch ``fe`` for the management traffic of all, with a port of ``rate_mbps`` (option ``key``) for each.

        Raises ``ConfigError`` when there are too many for one switch.
        """
        if ranks > MOST_PORTS_PER_SWITCH:
            raise ConfigError(f"one switch has room for {MOST_PORTS_PER_SWITCH} GPUs", key="front_end")
        mbps = rate(key, rate_mbps)
        self.add_switch("fe", FRONT_END_DPID, "electrical", "front-end")
        for rank in range(ranks):
            number = rank + 1
            self.plug(
                rank,
                "fe",
                number=number,
                interface=f"g{rank}-fe",
                ip=f"10.250.{number >> 8}.{number & 255}/16",
                macs=(_FRONT_END_KIND, 0),
                rate_mbps=mbps,
            )

    def plug(
        self,
        rank: int,
        switch: str,
        *,
        number: int,
        interface: str,
        ip: str,
        macs: tuple[int, int],
        rate_mbps: float,
        lane: int = 0,
    ) -> None:
        """One link: the host's interface to OpenFlow port ``number`` of ``switch``.

        ``bw`` is Mininet's own word for the rate, so ``mn --link tc`` shapes it as well.
        """
        self.addLink(
            f"g{rank}",
            switch,
            port2=number,
            intfName1=interface,
            addr1=mac_address(*macs, number),
            addr2=mac_address(*macs, number, far_end=True),
            params1={"ip": ip},
            bw=rate_mbps,
            mtu=self.mtu,
            lane=lane,
        )
