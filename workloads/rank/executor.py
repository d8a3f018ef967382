"""One rank's part of a program as a state machine: what may start now, which circuits to request and to release.

Pure: no clock, no sockets. Events come in as method calls (``begin``, ``compute_done``, ``communication_done``,
``acknowledged``), actions come out as a list, to be executed in that order. The messages of a started communication are
decided by ``workloads.rank.exchange``.

Rules. An operation is runnable when all its ``deps`` are done. Computes run one after another in program order. In a
group the collectives run one after another, and a pair's sends and its receives each keep their order (a pair is full
duplex: a send never waits for a receive that comes earlier in the list, so crossing sends cannot deadlock). An
operation of a group that requests circuits starts only after the acknowledgement of its group in its phase; phases of
such groups never overlap on a rank. No operation of step k+1 starts, and no circuit for it is requested, before step k
is done on this rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from railyard.errors import ConfigError, ControlError
from workloads.program import Collective, Communication, Compute, Operation, Send


@dataclass(frozen=True)
class StepBegan:
    """Report that ``step`` begins on this rank."""

    step: int


@dataclass(frozen=True)
class StepEnded:
    """Report that all operations of ``step`` are done on this rank; ``last`` if no step follows."""

    step: int
    last: bool


@dataclass(frozen=True)
class StartCompute:
    """Action: occupy the accelerator with ``op``."""

    step: int
    op: Compute


@dataclass(frozen=True)
class StartCommunication:
    """Action: start ``op``; its circuits are up."""

    step: int
    op: Communication
    phase: int


@dataclass(frozen=True)
class Blocked:
    """Report that ``op`` waits for the acknowledgement of request ``index`` of ``group``.

    ``StartCommunication`` ends the wait.
    """

    step: int
    op: Communication
    group: str
    index: int
    phase: int


@dataclass(frozen=True)
class RequestCircuits:
    """Action: request the circuits of ``group``, for the ``index``-th time."""

    group: str
    index: int


@dataclass(frozen=True)
class ReleaseCircuits:
    """Action: release the circuits of ``group``; nothing of this rank is in flight on them."""

    group: str
    index: int


@dataclass(frozen=True)
class PhaseBegan:
    """Report that the first operation of a phase is runnable."""

    step: int
    phase: int


@dataclass(frozen=True)
class PhaseEnded:
    """Report that the last operation of a phase is done."""

    step: int
    phase: int


RankAction = (
    StepBegan
    | StepEnded
    | StartCompute
    | StartCommunication
    | Blocked
    | RequestCircuits
    | ReleaseCircuits
    | PhaseBegan
    | PhaseEnded
)

NO_PHASE = -1
"""Phase of an operation that uses no rail."""


class Executor:
    """Runs the operations of one rank in every step from ``first_step`` to ``steps`` - 1.

    ``phases`` lists, in program order, the operation ids of each phase; ``circuit_groups`` the groups that request
    their circuits. ``provisioned``: request the circuits of a phase when the phase before it is done, instead of when
    they are first needed; in the first ``profile_steps`` steps the order of the phases is not known yet. ``stale``: a
    step and a phase of one group that a stale profile takes for over after its first operation. The rank releases the
    group and requests the circuits of the next phase (after the last: of the first); the second operation waits until
    these are granted, has them released unused, and requests its own again.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        phases: Sequence[Sequence[int]],
        circuit_groups: Iterable[str],
        steps: int,
        *,
        first_step: int = 0,
        provisioned: bool = False,
        profile_steps: int = 0,
        stale: tuple[int, int] | None = None,
    ) -> None:
        self._operations = tuple(operations)
        self._phases = tuple(tuple(phase) for phase in phases)
        self._circuit_groups = frozenset(circuit_groups)
        self._steps = steps
        self._first_step = first_step
        self._provisioned, self._profile_steps, self._stale = provisioned, profile_steps, stale
        self._phase_of = {op: number for number, phase in enumerate(self._phases) for op in phase}
        self._needs = all_dependencies(self._operations)
        self._enables: list[list[int]] = [[] for _ in self._operations]
        for op, needs in enumerate(self._needs):
            for need in needs:
                self._enables[need].append(op)
        self._uses = [Counter(map(self._group, phase)) for phase in self._phases]
        """Number of operations of each phase, by group in the order of their first operations."""
        self._next_index: dict[str, int] = {}
        self._outstanding: dict[str, int] = {}
        """Index of the request without acknowledgement, by group."""
        self._granted: dict[str, int] = {}
        """Index of the request that is acknowledged and not released, by group."""
        self._step = -1
        self._out: list[RankAction] = []

    @property
    def finished(self) -> bool:
        return self._step >= self._steps

    def begin(self) -> list[RankAction]:
        """Start the first step (none is left where ``first_step`` is ``steps``)."""
        self._begin_step(self._first_step)
        self._end_steps()
        return self._drain()

    def compute_done(self, op: int) -> list[RankAction]:
        self._done(op)
        return self._drain()

    def communication_done(self, op: int) -> list[RankAction]:
        """End ``op``: all its bytes are received, sent and acknowledged by the peers' kernels."""
        self._done(op)
        return self._drain()

    def acknowledged(self, group: str, index: int) -> list[RankAction]:
        """Start the operations that wait for request ``index`` of ``group``, whose circuits are up."""
        if self._outstanding.get(group) != index:
            waiting = self._outstanding.get(group)
            state = "no request is open" if waiting is None else f"request {waiting} is open"
            raise ControlError(f"the controller acknowledged request {index} of group {group}, but {state}")
        del self._outstanding[group]
        self._granted[group] = index
        if group in self._mistaken:
            self._try_later_phases()
        for op in [op for op in self._blocked if self._group(op) == group]:
            self._blocked.remove(op)
            self._start(op)
        return self._drain()

    # -- inside ------------------------------------------------------------------------------------

    def _drain(self) -> list[RankAction]:
        out, self._out = self._out, []
        return out

    def _begin_step(self, step: int) -> None:
        self._step = step
        self._missing = [len(needs) for needs in self._needs]
        self._undone = len(self._operations)
        self._left = [len(phase) for phase in self._phases]
        self._uses_left = [uses.copy() for uses in self._uses]
        self._begun = [False] * len(self._phases)
        self._current = 0
        self._running: set[int] = set()
        self._blocked: list[int] = []
        self._later_phases: list[int] = []
        """Runnable operations of phases that follow one that is not done, of groups that request circuits.

        Also those that wait until circuits requested by mistake can be released.
        """
        self._mistaken: list[str] = []
        """The groups whose circuits were requested by mistake and are not released."""
        if self.finished:
            return
        self._out.append(StepBegan(step))
        for op, missing in enumerate(self._missing):
            if missing == 0:
                self._runnable(op)

    def _end_steps(self) -> None:
        """End the step if it is done (and the next ones, if there is nothing to do in them)."""
        while self._undone == 0 and not self.finished:
            self._out.append(StepEnded(self._step, self._step + 1 == self._steps))
            self._begin_step(self._step + 1)

    def _runnable(self, op: int) -> None:
        operation = self._operations[op]
        if isinstance(operation, Compute):
            self._running.add(op)
            self._out.append(StartCompute(self._step, operation))
            return
        phase = self._phase_of.get(op, NO_PHASE)
        if operation.group not in self._circuit_groups:
            self._begin_phase(phase)
            self._start(op)
        elif phase > self._current:
            self._later_phases.append(op)
        else:
            self._need_circuits(op, operation, phase)

    def _need_circuits(self, op: int, operation: Communication, phase: int) -> None:
        self._begin_phase(phase)
        for group in [group for group in self._mistaken if group in self._granted]:
            self._mistaken.remove(group)
            self._release(group)
        if self._mistaken:
            self._later_phases.append(op)
            group = self._mistaken[0]
            self._out.append(Blocked(self._step, operation, group, self._outstanding[group], phase))
            return
        self._request_phase(phase)
        if operation.group in self._granted:
            self._start(op)
        else:
            self._blocked.append(op)
            index = self._outstanding[operation.group]
            self._out.append(Blocked(self._step, operation, operation.group, index, phase))

    def _begin_phase(self, phase: int) -> None:
        if phase != NO_PHASE and not self._begun[phase]:
            self._begun[phase] = True
            self._out.append(PhaseBegan(self._step, phase))

    def _request_phase(self, phase: int) -> None:
        """Request the circuits of every group that the phase will use, once."""
        self._request(group for group, uses in self._uses_left[phase].items() if uses)

    def _request(self, groups: Iterable[str]) -> None:
        for group in groups:
            if group not in self._circuit_groups or group in self._outstanding or group in self._granted:
                continue
            index = self._next_index.get(group, 0)
            self._next_index[group] = index + 1
            self._outstanding[group] = index
            self._out.append(RequestCircuits(group, index))

    def _release(self, group: str) -> None:
        self._out.append(ReleaseCircuits(group, self._granted.pop(group)))

    def _group(self, op: int) -> str:
        operation = self._operations[op]
        return "" if isinstance(operation, Compute) else operation.group

    def _start(self, op: int) -> None:
        operation = self._operations[op]
        assert not isinstance(operation, Compute)
        self._running.add(op)
        self._out.append(StartCommunication(self._step, operation, self._phase_of.get(op, NO_PHASE)))

    def _done(self, op: int) -> None:
        if op not in self._running:
            raise ConfigError(f"operation {op} was reported done in step {self._step} but was not running")
        self._running.remove(op)
        self._missing[op] = -1
        self._undone -= 1
        if op in self._phase_of:
            self._done_in_phase(op, self._phase_of[op])
        for follower in self._enables[op]:
            self._missing[follower] -= 1
            if self._missing[follower] == 0:
                self._runnable(follower)
        self._end_steps()

    def _done_in_phase(self, op: int, phase: int) -> None:
        group = self._group(op)
        self._uses_left[phase][group] -= 1
        self._left[phase] -= 1
        mistake = (self._step, phase) == self._stale and self._left[phase] == len(self._phases[phase]) - 1
        if group in self._granted and (mistake or not self._uses_left[phase][group]):
            self._release(group)
        if mistake:
            following = self._uses[(phase + 1) % len(self._phases)]
            self._mistaken = [group for group in following if group in self._circuit_groups]
            self._request(self._mistaken)
        if self._left[phase] == 0:
            self._out.append(PhaseEnded(self._step, phase))
            self._advance()

    def _advance(self) -> None:
        """Move on to the first phase with work left, whose circuits are requested at once if ``provisioned``."""
        before = self._current
        while self._current < len(self._phases) and self._left[self._current] == 0:
            self._current += 1
        if self._current == before or self._current == len(self._phases):
            return
        if self._provisioned and self._step >= self._profile_steps:
            self._request_phase(self._current)
        self._try_later_phases()

    def _try_later_phases(self) -> None:
        ready, self._later_phases = self._later_phases, []
        for op in ready:
            self._runnable(op)


def all_dependencies(operations: Sequence[Operation]) -> tuple[frozenset[int], ...]:
    """Dependencies of each operation: its own ``deps`` and the order that its stream or group imposes.

    Raises ``ConfigError`` for an operation that depends on a later one or whose id is not its position.
    """
    needs: list[frozenset[int]] = []
    last: dict[tuple[str, str], int] = {}
    for position, op in enumerate(operations):
        if op.id != position:
            raise ConfigError(f"operation {op.name!r} has id {op.id} at position {position}; ids must be the positions")
        late = [dep for dep in op.deps if not 0 <= dep < position]
        if late:
            raise ConfigError(f"operation {op.name!r} depends on operation {late[0]}, which does not come before it")
        before = _streams_before(op)
        needs.append(frozenset(op.deps).union(last[stream] for stream in before if stream in last))
        last[_stream(op)] = position
    return tuple(needs)


def _stream(op: Operation) -> tuple[str, str]:
    """The stream whose operations run one after another: the computes, or one kind of communication of a group."""
    if isinstance(op, Compute):
        return "", "compute"
    return op.group, "collective" if isinstance(op, Collective) else "send" if isinstance(op, Send) else "recv"


def _streams_before(op: Operation) -> tuple[tuple[str, str], ...]:
    """The streams whose last operation so far must be done before ``op``."""
    if isinstance(op, Compute):
        return (_stream(op),)
    if isinstance(op, Collective):
        return (op.group, "collective"), (op.group, "send"), (op.group, "recv")
    return (op.group, "collective"), _stream(op)
