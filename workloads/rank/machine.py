"""A rank of a job as a state machine: what it may start and send, what it must request, what it has received.

Pure: no clock, no sockets. Events come in as method calls with their time, actions come out as lists
(``workloads.rank.actions``), to be executed in that order, and before the next event where possible. The agent on a
host executes them with sockets and timers, the simulation with ideal links; both note the same events for the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from railyard.protocol import Hop, SlotWindow
from railyard.scale import Scale
from workloads.phases import Phase, stale_phase
from workloads.program import Compute, Program
from workloads.rank.actions import Action, Drain, RunCompute
from workloads.rank.communications import Communications
from workloads.rank.executor import (
    Blocked,
    Executor,
    PhaseBegan,
    PhaseEnded,
    RankAction,
    ReleaseCircuits,
    RequestCircuits,
    StartCommunication,
    StartCompute,
    StepBegan,
)
from workloads.rank.in_flight import InFlight
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.rank.slot_sender import SlotSender
from workloads.rank.tensors import Floats, Layout


class RankMachine(Communications):
    """The machine of ``rank`` for the steps from ``first_step`` to ``steps`` - 1 of ``program``.

    ``phases`` are those of the rank. ``provisioned`` and ``profile_steps`` are those of the ``Executor``.
    ``stale_step``: the step in which its profile is stale (0: none; ``workloads.phases.stale_phase``). The other
    parameters are those of ``Communications``. First call ``checked_in`` for the groups of the rank, then ``begin``.

    With a ``layout`` a user's script drives the rank: no compute has a due time, it ends when the script has come to a
    later operation (``come_to``), and communications over the front-end network are the script's own (``passed``).
    """

    def __init__(
        self,
        program: Program,
        rank: int,
        scale: Scale,
        phases: Sequence[Phase],
        steps: int,
        *,
        ports_per_gpu: int,
        forwarding: bool,
        first_step: int = 0,
        provisioned: bool = False,
        profile_steps: int = 0,
        stale_step: int = 0,
        values: Callable[[InFlight], Floats] | None = None,
        layout: Callable[[InFlight], Layout] | None = None,
        facts: ScheduleFacts | None = None,
    ) -> None:
        super().__init__(
            program,
            rank,
            scale,
            ports_per_gpu=ports_per_gpu,
            forwarding=forwarding,
            values=values,
            layout=layout,
            facts=facts,
        )
        self._phases = phases
        self._steps, self._first_step = steps, first_step
        self._provisioned, self._profile_steps, self._stale_step = provisioned, profile_steps, stale_step
        self._circuit_groups: set[str] = set()
        """The groups whose phases request their circuits."""
        self._executor: Executor | None = None
        self._compute: tuple[int, Compute, float, float] | None = None
        """Step, operation, start and due time of the running compute."""
        self._driven, self._reached = layout is not None, (first_step, 0)
        """Whether a script drives the rank; the step and operation that it has come to."""
        self._passing: dict[tuple[int, int], InFlight] = {}
        """The script's own communications that have begun, by step and operation."""
        self._passed: set[tuple[int, int]] = set()
        """Those that are over, perhaps before they could begin here."""
        self._step_began = self._epoch = 0.0
        self._phase_began: dict[tuple[int, int], float] = {}
        self._buffered: dict[str, int] = {}
        """Number of buffered sends in flight, by group."""
        self._deferred: dict[str, list[ReleaseCircuits]] = {}
        """Releases that wait for the last buffered send of their group: its bytes may not have arrived yet."""

    @property
    def begun(self) -> bool:
        return self._executor is not None

    @property
    def finished(self) -> bool:
        return self._executor is not None and self._executor.finished

    @property
    def waits_for(self) -> str:
        blocked = [wait.group for key, (wait, _) in self._waits.items() if isinstance(key, int)]
        if blocked:
            return f"the circuits of group {blocked[0]}"
        names = dict.fromkeys(f"{in_flight.op.name} in group {in_flight.op.group}" for in_flight in self.under_way)
        return ", ".join(names) or "another operation"

    def checked_in(self, name: str, *, asks: bool, rotates: bool = False, paths: tuple[Hop, ...] = ()) -> None:
        """Process the controller's answer to the check-in with group ``name``.

        ``asks``: its circuits must be requested, and come in slots if it ``rotates``; otherwise ``paths`` are final.
        """
        group = self.program.groups[name]
        if asks and group.domain == "scale-out":
            (self.client_groups if group.parent else self._circuit_groups).add(name)
            if rotates:
                self.rotating.add(name)
        elif paths or group.domain == "scale-out":
            self.paths.set(name, paths)
        else:
            self.paths.set_wired(group)

    def begin(self, at: float, now: float, epoch: float | None = None) -> list[Action]:
        """Begin the first step at ``at``; ``epoch`` is when the job's very first step began (None: it is this one).

        Requests whose time was out by then are left out.
        """
        self._epoch, first = at if epoch is None else epoch, self._first_step
        for op in self.program.operations[self.rank][:1]:
            if isinstance(op, Compute) and op.arrivals is not None:
                first = op.arrivals.first_wanted(first, self.scale.real_s(at - self._epoch))
        stale = stale_phase(self.program, self.rank, self._phases) if self._stale_step else None
        self._executor = Executor(
            self.program.operations[self.rank],
            [phase.operations for phase in self._phases],
            self._circuit_groups,
            self._steps,
            first_step=first,
            provisioned=self._provisioned,
            profile_steps=self._profile_steps,
            stale=None if stale is None else (self._stale_step, stale),
        )
        self._carry_out(self._executor.begin(), at, now)
        return self._drain()

    def compute_done(self, now: float) -> list[Action]:
        """End the running compute; its followers start at its due time, so that lateness does not add up."""
        assert self._compute is not None
        due = self._compute[3]
        self._end_compute(due, max(0.0, now - due), now)
        return self._drain()

    def come_to(self, step: int, operation: int, now: float) -> list[Action]:
        """Process that the script of this rank has come to ``operation`` of ``step``: computes before it are over."""
        self._reached = step, operation
        self._end_computes(now)
        return self._drain()

    def _end_computes(self, now: float) -> None:
        if self._compute is None or (self._compute[0], self._compute[1].id) >= self._reached:
            return
        self._end_compute(max(self._compute[2], now), None, now)

    def _end_compute(self, end: float, late_s: float | None, now: float) -> None:
        assert self._executor is not None and self._compute is not None
        (step, op, began, _), self._compute = self._compute, None
        self._note("compute", began, end, {"step": step, "op": op.id, "name": op.name, "late_s": late_s})
        self._carry_out(self._executor.compute_done(op.id), end, now)

    def passed(self, step: int, operation: int, now: float) -> list[Action]:
        """Process that a communication is over which the script has carried itself, over the front-end network."""
        self._passed.add((step, operation))
        self._end_passed(step, operation)
        return self._drain()

    def _end_passed(self, step: int, operation: int) -> None:
        key = step, operation
        if key in self._passing and key in self._passed:
            self._passed.remove(key)
            self._out.append(Drain(self._passing.pop(key)))

    def acknowledged(self, group: str, index: int, paths: tuple[Hop, ...], now: float) -> list[Action]:
        """Process the acknowledgement of request ``index`` of ``group``: its circuits are up, and make ``paths``."""
        if group in self.client_groups:
            self._circuit_up(group, index, now)
        else:
            self._granted(group, index, paths, now)
        return self._drain()

    def _granted(self, group: str, index: int, paths: tuple[Hop, ...], now: float) -> None:
        assert self._executor is not None
        self.paths.set(group, paths)
        self._carry_out(self._executor.acknowledged(group, index), now, now)

    def slot_began(
        self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float
    ) -> list[Action]:
        """Begin a slot of ``group``, whose circuits make ``paths``; the first one acknowledges request ``index``."""
        slot_sender = self.slots.get(group)
        if slot_sender is None:
            slot_sender = SlotSender(self.rank, group, index, lambda moved: self._out.append(moved))
            self.slots[group] = slot_sender
        slot_sender.begin_slot(slot_window, paths)
        for in_flight in self.under_way:
            if in_flight.group.name == group:
                in_flight.last_progress = now
        self._send_in_slot(slot_sender)
        if slot_window.number == 0:
            self._granted(group, index, paths, now)
        if self.slots.get(group) is slot_sender:  # not released at once
            slot_sender.report()
        return self._drain()

    def buffered(self, in_flight: InFlight, now: float) -> list[Action]:
        """Go on after a send of an eager program that was taken completely; its ``over`` comes later."""
        assert self._executor is not None
        group = in_flight.op.group
        in_flight.buffered = True
        self._buffered[group] = self._buffered.get(group, 0) + 1
        self._carry_out(self._executor.communication_done(in_flight.op.id), now, now)
        return self._drain()

    def over(self, in_flight: InFlight, now: float) -> list[Action]:
        assert self._executor is not None
        if not in_flight.buffered:
            self._carry_out(self._executor.communication_done(in_flight.op.id), now, now)
            return self._drain()
        group = in_flight.op.group
        self._buffered[group] -= 1
        for release in self._deferred.pop(group, ()) if not self._buffered[group] else ():
            self._release(release)
        return self._drain()

    def _carry_out(self, actions: Iterable[RankAction], at: float, now: float) -> None:
        """Carry out the actions of the executor, which became possible at ``at``; communications start ``now``."""
        for action in actions:
            match action:
                case StartCompute(step, op):
                    if op.arrivals is not None:
                        at = max(at, self._epoch + self.scale.emulated_s(op.arrivals.at_s[step]))
                        self._step_began = at
                    due = at + self.scale.emulated_s(op.seconds_in(step))
                    self._compute = step, op, at, due
                    if not self._driven:
                        self._out.append(RunCompute(due))
                case StartCommunication(step, op, phase):
                    self._end_wait(op.id, at)
                    if self._driven and self.program.groups[op.group].domain == "front-end":
                        flow, group, posted = self._names[op.id].at(step), self.program.groups[op.group], max(at, now)
                        self._passing[step, op.id] = InFlight(step, op, phase, group, flow, 0, posted)
                        self._end_passed(step, op.id)
                    else:
                        self._start(step, op, phase, max(at, now), since=at)
                case Blocked():
                    self._end_wait(action.op.id, at)
                    self._waits[action.op.id] = action, at
                case RequestCircuits():
                    self._out.append(action)
                case ReleaseCircuits(group):
                    if self._buffered.get(group):
                        self._deferred.setdefault(group, []).append(action)
                    else:
                        self._release(action)
                case PhaseBegan(step, phase):
                    self._phase_began[step, phase] = at
                case PhaseEnded(step, phase):
                    began, dimension = self._phase_began.pop((step, phase)), self._phases[phase].dimension
                    self._note("phase", began, at, {"step": step, "phase": phase, "dimension": dimension})
                case StepBegan():
                    self._step_began = at
                case _:
                    self._note("step", self._step_began, at, {"step": action.step})
                    self._out.append(action)
        if self._driven:
            self._end_computes(now)

    def _release(self, release: ReleaseCircuits) -> None:
        self.slots.pop(release.group, None)
        self._out.append(release)
