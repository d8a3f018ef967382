"""The exchanges of the collectives of one rank, planned once: a copy of each is run in every step."""

from __future__ import annotations

from collections.abc import Collection

from railyard.scale import Scale
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Group, Program
from workloads.rank.exchange import Exchange, collective_exchange, elements_of
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.schedule import Schedule

MOST_STEPS = 2_000
"""Number of steps of exchanges, each some 300 bytes, that a rank keeps for the next time."""


class ExchangePlans:
    """Exchanges of ``rank``. ``facts`` may be shared by the ranks of a program."""

    def __init__(self, rank: int, facts: ScheduleFacts) -> None:
        self._rank, self._facts = rank, facts
        self._planned: dict[tuple[int, str, int, frozenset[int]], tuple[Schedule, Exchange]] = {}
        """By schedule (its identity, so it is kept), group, elements and transfers with a circuit of their own."""
        self._left, self._full = MOST_STEPS, False

    def exchange(self, schedule: Schedule, group: Group, elements: int, circuits: frozenset[int]) -> Exchange:
        """A new exchange of ``group``; ``circuits`` are the transfers with a circuit of their own while they last."""
        key = id(schedule), group.name, elements, circuits
        if key not in self._planned:
            mine = self._facts.transfers(schedule, group.members.index(self._rank))
            exchange = collective_exchange(schedule, group.members, self._rank, elements, mine, circuits)
            if len(exchange) > self._left:
                self._full = True
                return exchange
            self._left -= len(exchange)
            self._planned[key] = schedule, exchange
        return self._planned[key][1].copy()

    def prepare(self, program: Program, scale: Scale, rotating: Collection[str]) -> None:
        """Plan the collectives of the rank as far as they are kept; slots change those of groups ``rotating``."""
        for op in program.communications(self._rank):
            if self._full:
                return
            if isinstance(op, Collective) and op.group not in rotating:
                elements = elements_of(scale.emulated_bytes(op.bytes))
                self.exchange(schedule_of(program, op), program.groups[op.group], elements, frozenset())
