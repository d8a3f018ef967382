"""Rules of the fast path: what the kernel does with the packets that it receives on the ports of a switch.

``tables`` computes them from the flow tables of Open vSwitch; a ``Forwarder`` puts them into the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

UP, OUT, DROP = 0, 1, 2
"""Kinds of a rule: pass the packet to Open vSwitch, send it out of another port, drop it."""
ANY_FLOW = 0
"""The counter slot of rules whose packets no flow counts, and of flows for which no slot was left."""


class Rule(NamedTuple):
    """A decision about packets in the kernel.

    - ``port``: OpenFlow number of the port of the same switch that sends the packet (kind ``OUT``); a packet is never
      sent out of the port that received it, but dropped;
    - ``flow``: the slot of the counters of the flow that decides.
    """

    kind: int
    port: int = 0
    flow: int = ANY_FLOW


TO_OVS = Rule(UP)


class PortRules(NamedTuple):
    """The rules for packets received on one port.

    ``to`` has a rule by destination MAC address (6 bytes), ``other`` holds for every other destination. Ports with
    equal tables should share one mapping: it is then in the kernel once.
    """

    other: Rule = TO_OVS
    to: Mapping[bytes, Rule] = {}


class Counts(NamedTuple):
    """Packets and bytes, with Ethernet headers; a segment that the host's stack left whole (TSO) is one packet."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: tuple[int, ...]) -> Counts:  # type: ignore[override]
        return Counts(self.packets + other[0], self.bytes + other[1])


class PortCounts(NamedTuple):
    """Counts of the packets that the kernel forwarded at one port, without those that passed through Open vSwitch.

    ``dark``: packets received and dropped by a rule, which ``received`` includes.
    """

    received: Counts
    sent: Counts
    dark: Counts


class KernelPort(NamedTuple):
    """A port of a switch: its OpenFlow number, and the interface indices of its two interfaces in the yard.

    ``link`` is the switch's end of the link, ``tap`` the port of Open vSwitch behind it.
    """

    switch: str
    number: int
    link: int
    tap: int


def by_switch(ports: Iterable[KernelPort]) -> dict[str, list[KernelPort]]:
    by_switch: dict[str, list[KernelPort]] = {}
    for port in ports:
        by_switch.setdefault(port.switch, []).append(port)
    return by_switch


class Forwarder(Protocol):
    """A way of the kernel to forward packets by rules. Each method raises ``MachineError`` if the kernel refuses."""

    def add(self, ports: Sequence[KernelPort]) -> None:
        """Forward between the interfaces of ``ports``, each of which starts with ``PortRules()``."""

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        """Change the rules of the ports (OpenFlow numbers) named, those of the switch's other ports stay."""

    def new_flow(self) -> int:
        """A free slot of counters, which are 0; ``ANY_FLOW`` if no slot is left."""

    def free_flow(self, flow: int) -> None:
        """Give a slot back that no rule names any more."""

    def flow_counts(self, flow: int) -> Counts:
        """Counts of the packets that the rules of slot ``flow`` have decided about; zeros for ``ANY_FLOW``."""

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        """Counts of what the ports of a switch forwarded, by OpenFlow number."""

    def close(self) -> None:
        """Stop forwarding where that does not end with the process or the yard."""
