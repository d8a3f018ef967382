"""Decides how the two interfaces of a port follow each other, so that Open vSwitch sees what happens to the link.

The tap has a carrier as long as the link passes packets; the link is administratively up as long as the tap is, which
Open vSwitch takes down on request of a controller. Only changes of one have an effect on the other, and a tap's carrier
has none, so the two directions cannot chase each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topos.kernel.fastpath.rules import KernelPort


class SetCarrier(NamedTuple):
    """Give ``interface`` a carrier or take it away."""

    interface: int
    on: bool


class SetUp(NamedTuple):
    """Set ``interface`` administratively up or down."""

    interface: int
    up: bool


Act = SetCarrier | SetUp


@dataclass(slots=True)
class _Pair:
    """The known state of a port: whether its link passes packets, whether its tap is up; None before they were seen."""

    port: KernelPort
    running: bool | None = None
    up: bool | None = None
    fixed_carrier: bool = False
    """The tap's carrier cannot be changed; the tap is set down in its place."""
    lowered: bool = False
    """The tap was set down in place of its carrier."""
    awaited: bool | None = None
    """What the tap was set to and is not reported yet: reports of other states are from before."""


class LinkStates:
    """The states of the interfaces of ``ports``; methods take what the kernel reports and return what to do."""

    def __init__(self, ports: Sequence[KernelPort]) -> None:
        pairs = [_Pair(port) for port in ports]
        self._links = {pair.port.link: pair for pair in pairs}
        self._taps = {pair.port.tap: pair for pair in pairs}

    def concerns(self, index: int) -> bool:
        return index in self._links or index in self._taps

    def seen(self, index: int, up: bool, carrier: bool) -> list[Act]:
        """Interface ``index`` is administratively up or not, and has a carrier or not.

        What is seen first has no effect, except that a tap loses its carrier if its link passes no packets.
        """
        pair = self._links.get(index)
        if pair is not None:
            return self._link(pair, up and carrier)
        pair = self._taps.get(index)
        if pair is not None and pair.awaited == up:
            pair.awaited = None
        if pair is None or pair.awaited is not None or pair.up == up:
            return []
        first, pair.up = pair.up is None, up
        return [] if first else [SetUp(pair.port.link, up)]

    def _link(self, pair: _Pair, running: bool) -> list[Act]:
        if running == pair.running or (running and pair.running is None):
            pair.running = running
            return []
        pair.running = running
        return self._lower(pair) if pair.fixed_carrier else [SetCarrier(pair.port.tap, running)]

    def gone(self, index: int) -> list[Act]:
        pair = self._taps.pop(index, None)
        if pair is not None:
            self._links.pop(pair.port.link, None)
            return []
        pair = self._links.pop(index, None)
        return [] if pair is None else self._link(pair, False)

    def carrier_refused(self, tap: int) -> list[Act]:
        pair = self._taps.get(tap)
        if pair is None:
            return []
        pair.fixed_carrier = True
        return self._lower(pair)

    @staticmethod
    def _lower(pair: _Pair) -> list[Act]:
        """Let the tap be down while its link passes no packets, unless someone else has set it down."""
        wanted = bool(pair.running)
        if pair.up is wanted or (wanted and not pair.lowered):
            return []
        pair.up, pair.lowered, pair.awaited = wanted, not wanted, wanted
        return [SetUp(pair.port.tap, wanted)]
