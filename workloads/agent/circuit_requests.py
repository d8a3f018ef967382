"""The circuits that the collectives of one rank ask for while they run: requests out, waits on the timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from railyard.errors import ControlError
from workloads.agent.circuit_client import CircuitClient, circuit_client_of
from workloads.agent.executor import ReleaseCircuits, RequestCircuits
from workloads.collectives.circuits import CircuitUse, circuit_uses
from workloads.program import Communication, Group
from workloads.schedule import Schedule


class Gated(Protocol):
    """A communication under way that may have a gate."""

    step: int
    op: Communication
    phase: int
    gate: CircuitClient | None


_T = TypeVar("_T", bound=Gated)


class CircuitRequests(Generic[_T]):
    """``ask`` sends a request or a release to the controller; ``asking`` are the circuit groups that ask it."""

    def __init__(
        self, rank: int, ask: Callable[[RequestCircuits | ReleaseCircuits], None], note: Callable[..., Any]
    ) -> None:
        self._rank = rank
        self._ask = ask
        self._note = note
        self.asking: set[str] = set()
        self._next_index: dict[str, int] = {}
        self._uses: dict[int, tuple[CircuitUse, ...]] = {}
        """By identity of the schedule, which the program or the catalog keeps alive."""
        self._waiting: dict[tuple[str, int], tuple[_T, float]] = {}

    def gate(self, group: Group, schedule: Schedule) -> CircuitClient | None:
        """The gate of a collective that begins now."""
        if not self.asking or not schedule.transfers:
            return None
        if id(schedule) not in self._uses:
            self._uses[id(schedule)] = circuit_uses(schedule)
        return circuit_client_of(group, self._uses[id(schedule)], self._rank, self.asking, self._next_index)

    def say(self, carriage: _T, messages: Iterable[RequestCircuits | ReleaseCircuits], now: float) -> None:
        """Tell the controller; what is asked for is waited for."""
        for message in messages:
            if isinstance(message, RequestCircuits):
                self._waiting[message.group, message.index] = carriage, now
            self._ask(message)

    def acknowledged(self, group: str, index: int, now: float) -> tuple[_T, tuple[int, ...]]:
        """The collective that waited for this circuit, and its transfers that may go."""
        found = self._waiting.pop((group, index), None)
        if found is None:
            raise ControlError(f"the controller acknowledged request {index} of group {group}, which is not open")
        carriage, since = found
        assert carriage.gate is not None
        self._note_wait(carriage, group, index, since, now)
        transfers = carriage.gate.acknowledged(group, index)
        self.say(carriage, carriage.gate.release(transfers[0]), now)
        return carriage, transfers

    def check(self, now: float, timeout_s: float) -> None:
        """``ControlError`` when an ack is missing for longer than ``timeout_s``."""
        for (group, index), (_, since) in self._waiting.items():
            if now - since > timeout_s:
                raise ControlError(
                    f"rank {self._rank} got no acknowledgement of request {index} of circuit {group} within "
                    f"{timeout_s:g} s, and does not send without one"
                )

    def note_unfinished(self, now: float) -> None:
        """Leave what is waited for on the timeline."""
        for (group, index), (carriage, since) in self._waiting.items():
            self._note_wait(carriage, group, index, since, now)

    def _note_wait(self, carriage: _T, group: str, index: int, since: float, now: float) -> None:
        step, op, phase = carriage.step, carriage.op.id, carriage.phase
        self._note("wait", since, max(now, since), step=step, op=op, group=group, index=index, phase=phase)
