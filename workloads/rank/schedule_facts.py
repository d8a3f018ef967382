"""What all ranks of a program need to know of its schedules, computed once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from operator import attrgetter

from workloads.collectives.circuits import CircuitUse, circuit_uses
from workloads.schedule import Schedule, Transfer

Mine = list[tuple[int, Transfer]]
"""The numbered transfers that one position takes part in."""
_values = attrgetter(*Transfer.__match_args__)


class ScheduleFacts:
    """The transfers of each position and the circuits of the schedules of one program, computed once."""

    def __init__(self) -> None:
        self._numbers: dict[int, list[array[int]]] = {}
        """Numbers of the transfers of each position, by identity of the schedule, which the program or the catalog
        keeps alive."""
        self._transfers: dict[tuple[int, int], Mine] = {}
        self._uses: dict[int, tuple[CircuitUse, ...]] = {}

    def transfers(self, schedule: Schedule, position: int) -> Mine:
        key = id(schedule), position
        if key not in self._transfers:
            self._transfers[key] = [(n, schedule.transfers[n]) for n in self._of_positions(schedule)[position]]
        return self._transfers[key]

    def prepare(self, schedule: Schedule) -> None:
        """Compute what takes long, so that processes forked later share it."""
        self._of_positions(schedule)
        _ = schedule.moves

    def of_one(self, places: Iterable[tuple[Schedule, int]]) -> ScheduleFacts:
        """The same facts for one rank, at ``places`` (schedule, position), for a process that is forked next.

        The transfers are copies side by side. Those of a schedule are far apart, and a process that uses them gets a
        page of its own for almost each: 3 MB per rank of a ring of 128.
        """
        facts = ScheduleFacts()
        facts._numbers, facts._uses = self._numbers, self._uses
        for schedule, position in places:
            key = id(schedule), position
            if key not in facts._transfers:
                numbers = self._of_positions(schedule)[position]
                facts._transfers[key] = [(n, Transfer(*_values(schedule.transfers[n]))) for n in numbers]
        return facts

    def uses(self, schedule: Schedule) -> tuple[CircuitUse, ...]:
        if id(schedule) not in self._uses:
            self._uses[id(schedule)] = circuit_uses(schedule)
        return self._uses[id(schedule)]

    def _of_positions(self, schedule: Schedule) -> list[array[int]]:
        if id(schedule) not in self._numbers:
            numbers = self._numbers[id(schedule)] = [array("L") for _ in range(schedule.n)]
            for number, t in enumerate(schedule.transfers):
                numbers[t.src].append(number)
                if not t.local:
                    numbers[t.dst].append(number)
        return self._numbers[id(schedule)]
