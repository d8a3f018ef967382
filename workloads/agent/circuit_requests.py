"""Requests for circuits by the collectives of one rank while they run; logs the waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from railyard.errors import ControlError
from workloads.agent.circuit_client import CircuitClient, circuit_client_of
from workloads.agent.executor import ReleaseCircuits, RequestCircuits
from workloads.collectives.circuits import CircuitUse, circuit_uses
from workloads.program import Communication, Group
from workloads.schedule import Schedule


class CircuitCommunication(Protocol):
    """A communication in flight that may have a circuit client."""

    step: int
    op: Communication
    phase: int
    circuit_client: CircuitClient | None


_T = TypeVar("_T", bound=CircuitCommunication)


class CircuitRequests(Generic[_T]):
    """The circuit requests of one rank; ``send`` passes a request or a release to the controller.

    ``groups`` are the circuit groups that request their circuits.
    """

    def __init__(
        self, rank: int, send: Callable[[RequestCircuits | ReleaseCircuits], None], note: Callable[..., Any]
    ) -> None:
        self._rank = rank
        self._send = send
        self._note = note
        self.groups: set[str] = set()
        self._next_index: dict[str, int] = {}
        self._uses: dict[int, tuple[CircuitUse, ...]] = {}
        """Circuit uses by identity of the schedule, which the program or the catalog keeps alive."""
        self._waiting: dict[tuple[str, int], tuple[_T, float]] = {}

    def client_of(self, group: Group, schedule: Schedule) -> CircuitClient | None:
        """The circuit client of a collective that begins now; None if it requests no circuits."""
        if not self.groups or not schedule.transfers:
            return None
        if id(schedule) not in self._uses:
            self._uses[id(schedule)] = circuit_uses(schedule)
        return circuit_client_of(group, self._uses[id(schedule)], self._rank, self.groups, self._next_index)

    def send(self, in_flight: _T, messages: Iterable[RequestCircuits | ReleaseCircuits], now: float) -> None:
        """Send messages to the controller, and remember the requests until they are acknowledged."""
        for message in messages:
            if isinstance(message, RequestCircuits):
                self._waiting[message.group, message.index] = in_flight, now
            self._send(message)

    def acknowledged(self, group: str, index: int, now: float) -> tuple[_T, tuple[int, ...]]:
        """The collective that waited for this circuit, and its transfers that may go."""
        found = self._waiting.pop((group, index), None)
        if found is None:
            raise ControlError(f"the controller acknowledged request {index} of group {group}, which is not open")
        in_flight, since = found
        assert in_flight.circuit_client is not None
        self._note_wait(in_flight, group, index, since, now)
        transfers = in_flight.circuit_client.acknowledged(group, index)
        self.send(in_flight, in_flight.circuit_client.release(transfers[0]), now)
        return in_flight, transfers

    def check(self, now: float, timeout_s: float) -> None:
        """Raise ``ControlError`` when an acknowledgement is missing for longer than ``timeout_s``."""
        for (group, index), (_, since) in self._waiting.items():
            if now - since > timeout_s:
                raise ControlError(
                    f"rank {self._rank} got no acknowledgement of request {index} of circuit {group} within "
                    f"{timeout_s:g} s, and does not send without one"
                )

    def note_unfinished(self, now: float) -> None:
        """Log the waits that have not ended, when the agent stops."""
        for (group, index), (in_flight, since) in self._waiting.items():
            self._note_wait(in_flight, group, index, since, now)

    def _note_wait(self, in_flight: _T, group: str, index: int, since: float, now: float) -> None:
        step, op, phase = in_flight.step, in_flight.op.id, in_flight.phase
        self._note("wait", since, max(now, since), step=step, op=op, group=group, index=index, phase=phase)
