"""How many packets met a dark port, from the counters of the switch's ports. Pure.

The counter of a dark flow lags: Open vSwitch brings flow counters up to date only every half second and when tables
change, so a flow that is taken out tells of none to all of its packets. A port's own counter is exact, and what comes
in on a dark port is lost. It is read twice, both times in the dark: right after its beginning and ``lead_s`` before
its end. So what comes in the last milliseconds is not counted, and nothing is counted that was not lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SHORTEST_DARK_S = 0.02
"""Below this there is no time to read twice, and nothing is counted."""

PortCount = tuple[int, int, int]
"""(port, packets received, bytes received)."""


def lead_s(ports: int) -> float:
    """How long before the end of the dark to read: time for a switch and the framework to handle so many ports."""
    return 0.005 + 0.00005 * ports


@dataclass
class _Dark:
    ports: frozenset[int]
    readings: tuple[dict[int, PortCount], dict[int, PortCount]] = field(default_factory=lambda: ({}, {}))


class Losses:
    """The readings of every reconfiguration that is counted."""

    def __init__(self) -> None:
        self._darks: dict[int, _Dark] = {}
        self._asked: dict[int, tuple[int, int]] = {}

    def counts(self, reconfiguration_id: int) -> bool:
        """Whether this reconfiguration is counted by its ports."""
        return reconfiguration_id in self._darks

    def begin(self, reconfiguration_id: int, ports: Iterable[int], xid: int) -> None:
        """The first reading was asked for under ``xid``."""
        self._darks[reconfiguration_id] = _Dark(frozenset(ports))
        self._asked[xid] = reconfiguration_id, 0

    def again(self, reconfiguration_id: int, xid: int) -> None:
        """The second reading was asked for under ``xid``."""
        self._asked[xid] = reconfiguration_id, 1

    def read(self, xid: int, counts: Iterable[PortCount]) -> None:
        """A reading (or a part of one) has come."""
        reconfiguration_id, which = self._asked.get(xid, (0, 0))
        dark = self._darks.get(reconfiguration_id)
        if dark is not None:
            dark.readings[which].update({count[0]: count for count in counts if count[0] in dark.ports})

    def end(self, reconfiguration_id: int) -> tuple[int, int]:
        """(packets, bytes) lost; the reconfiguration is forgotten. A port that was not read twice counts as nothing."""
        dark = self._darks.pop(reconfiguration_id, None)
        self._asked = {xid: asked for xid, asked in self._asked.items() if asked[0] != reconfiguration_id}
        if dark is None:
            return 0, 0
        first, second = dark.readings
        both = first.keys() & second.keys()
        return sum(second[p][1] - first[p][1] for p in both), sum(second[p][2] - first[p][2] for p in both)
