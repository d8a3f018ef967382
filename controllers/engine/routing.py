"""Routes of an electrical torus: the forwarding tables of its switches, and re-routing round failed chips. Pure.

A re-routing begins (and waits for its delay, if any), becomes due (the differences of the tables are sent), and ends
when every switch has confirmed its new table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controllers.circuits.torus_routes import routes
from controllers.engine.actions import Reroute
from controllers.engine.requests import PendingRequest
from railyard.errors import ControlError
from topos.plan import FabricPlan

Table = Mapping[str, int | None]
"""Destination MAC -> output port; None: the destination cannot be reached any more."""


@dataclass(frozen=True)
class RouteUpdate:
    """The table entries to send, by switch. ``dead``: switches whose chip has failed and whose reply is not needed."""

    tables: dict[str, Table]
    dead: frozenset[str]


class Routing:
    """The forwarding tables of every switch of an electrical torus; empty on other fabrics.

    ``avoid()`` returns the chips that no route may lead to or through, ``number()`` a new number for a re-routing.
    """

    def __init__(self, plan: FabricPlan, avoid: Callable[[], frozenset[int]], number: Callable[[], int]) -> None:
        self._plan = plan
        self._avoid = avoid
        self._number = number
        self._running: dict[int, PendingRequest] = {}
        self._known: tuple[frozenset[int], dict[str, dict[str, int]]] | None = None
        self._chip = {s.name: s.ports[0].rank for s in plan.network("rail") if plan.links and s.kind == "electrical"}
        self.held: dict[str, dict[str, int]] = self._wanted()
        """The table that every switch holds, or will hold once the entries under way have arrived."""

    @property
    def exists(self) -> bool:
        return bool(self._chip)

    def cut_off(self, ranks: Sequence[int]) -> int | None:
        """A chip of ``ranks`` that the first of them cannot reach; None if it reaches all (or needs no routes)."""
        if not self._chip or not ranks:
            return None
        port = {chip: self._plan.rail_of(chip).ports[0] for chip in ranks}
        table = self._wanted()[self._plan.rail_of(ranks[0]).name]
        return next((chip for chip in ranks if port[chip].mac not in table), None)

    def has(self, number: int) -> bool:
        return number in self._running

    @property
    def stale(self) -> bool:
        return self._wanted() != self.held

    def begin(self, owner: PendingRequest, delay_s: float) -> Reroute:
        """Begin a re-routing that ``owner`` waits for; the order to execute."""
        number = self._number()
        self._running[number] = owner
        owner.awaiting.add(number)
        return Reroute(number, delay_s)

    def due(self, number: int, dead: frozenset[int]) -> RouteUpdate:
        """The entries to send at the end of a re-routing's delay. ``ControlError`` if it is not under way."""
        self._check(number)
        self._running[number].delayed()
        wanted = self._wanted()
        tables = {name: _difference(self.held[name], wanted[name]) for name in wanted}
        self.held = wanted
        return RouteUpdate(
            {name: table for name, table in tables.items() if table},
            frozenset(name for name, chip in self._chip.items() if chip in dead),
        )

    def end(self, number: int) -> PendingRequest:
        """End a re-routing, finished or aborted; the request that waited for it. ``ControlError`` as in ``due``."""
        self._check(number)
        owner = self._running.pop(number)
        owner.awaiting.discard(number)
        return owner

    def _wanted(self) -> dict[str, dict[str, int]]:
        if not self._chip:
            return {}
        avoid = self._avoid()
        if self._known is None or self._known[0] != avoid:
            self._known = avoid, routes(self._plan, avoid)
        return self._known[1]

    def _check(self, number: int) -> None:
        if number not in self._running:
            raise ControlError(f"no re-routing {number} is under way")


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> Table:
    gone: dict[str, int | None] = dict.fromkeys(before.keys() - after.keys())
    return gone | {mac: port for mac, port in after.items() if before.get(mac) != port}
