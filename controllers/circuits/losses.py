"""The number of packets lost on dark ports, from the counters of the ports of a switch. Pure.

The counter of a dark flow lags: Open vSwitch updates flow counters only every half second and when tables change, so a
flow that is removed may report none or all of its packets. The counter of a port is exact, and every packet received
on a dark port is lost. The counter is read twice within the dark time: right after its beginning and ``lead_s`` before
its end. So packets of the last milliseconds are not counted, and no packet is counted that was not lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SHORTEST_DARK_S = 0.02
"""The shortest dark time in which the counters can be read twice; losses of shorter ones are not counted."""

PortCount = tuple[int, int, int]
"""(port, packets received, bytes received)."""


def lead_s(ports: int) -> float:
    """Seconds before the end of the dark time to read: a switch and the framework need them for ``ports`` ports."""
    return 0.005 + 0.00005 * ports


@dataclass
class _Dark:
    ports: frozenset[int]
    readings: tuple[dict[int, PortCount], dict[int, PortCount]] = field(default_factory=lambda: ({}, {}))


class Losses:
    """The readings of port counters during reconfigurations under way."""

    def __init__(self) -> None:
        self._darks: dict[int, _Dark] = {}
        self._asked: dict[int, tuple[int, int]] = {}

    def counts(self, reconfiguration_id: int) -> bool:
        return reconfiguration_id in self._darks

    def has_begun(self, reconfiguration_id: int) -> bool:
        return self.counts(reconfiguration_id) and bool(self._darks[reconfiguration_id].readings[0])

    def begin(self, reconfiguration_id: int, ports: Iterable[int], xid: int) -> None:
        """Count losses on ``ports``: the first reading was asked for under ``xid``."""
        self._darks[reconfiguration_id] = _Dark(frozenset(ports))
        self._asked[xid] = reconfiguration_id, 0

    def again(self, reconfiguration_id: int, xid: int) -> None:
        self._asked[xid] = reconfiguration_id, 1

    def read(self, xid: int, counts: Iterable[PortCount]) -> None:
        """Take a reading, or a part of one, that was asked for under ``xid``."""
        reconfiguration_id, which = self._asked.get(xid, (0, 0))
        dark = self._darks.get(reconfiguration_id)
        if dark is not None:
            dark.readings[which].update({count[0]: count for count in counts if count[0] in dark.ports})

    def end(self, reconfiguration_id: int) -> tuple[int, int]:
        """(packets, bytes) lost in a reconfiguration, which is then forgotten; ports not read twice count as 0."""
        dark = self._darks.pop(reconfiguration_id, None)
        self._asked = {xid: asked for xid, asked in self._asked.items() if asked[0] != reconfiguration_id}
        if dark is None:
            return 0, 0
        first, second = dark.readings
        both = first.keys() & second.keys()
        return sum(second[p][1] - first[p][1] for p in both), sum(second[p][2] - first[p][2] for p in both)
