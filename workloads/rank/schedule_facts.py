"""What all ranks of a program need to know of its schedules, computed once."""

from __future__ import annotations

from workloads.collectives.circuits import CircuitUse, circuit_uses
from workloads.rank.exchange import by_position
from workloads.schedule import Schedule, Transfer


class ScheduleFacts:
    """The transfers of each position and the circuits of the schedules of one program, computed once."""

    def __init__(self) -> None:
        self._transfers: dict[int, list[list[tuple[int, Transfer]]]] = {}
        """By identity of the schedule, which the program or the catalog keeps alive."""
        self._uses: dict[int, tuple[CircuitUse, ...]] = {}

    def transfers(self, schedule: Schedule, position: int) -> list[tuple[int, Transfer]]:
        """The numbered transfers that ``position`` takes part in."""
        if id(schedule) not in self._transfers:
            self._transfers[id(schedule)] = by_position(schedule)
        return self._transfers[id(schedule)][position]

    def uses(self, schedule: Schedule) -> tuple[CircuitUse, ...]:
        """Uses of each circuit by the transfers of a schedule."""
        if id(schedule) not in self._uses:
            self._uses[id(schedule)] = circuit_uses(schedule)
        return self._uses[id(schedule)]
