"""The agent of one rank: a loop around the executor (what may start) and the communication engine (how bytes move).

With an incarnation, the rank is a member of a training job (``workloads.agent.member``): the agent sends heartbeats,
runs the start-up stages before the first step, and keeps a state and its checkpoints.

There is one process per host, inside the host's network namespace. It waits in ``select``, whose time-outs are precise
to the microsecond, where epoll rounds to milliseconds. It never proceeds without an acknowledgement, every wait is
bounded, and a failure ends the agent with one sentence.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from railyard.errors import ControlError, PeerLost
from railyard.protocol import Hop, SlotWindow
from workloads.agent.check_in import CheckIn
from workloads.agent.config import AgentConfig
from workloads.agent.deferred_release import DeferredRelease
from workloads.agent.event_log import EventLog
from workloads.agent.executor import (
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
    StepEnded,
)
from workloads.agent.job_channel import JobChannel
from workloads.agent.launcher_channel import LauncherChannel, Stopped
from workloads.agent.member import Member
from workloads.agent.transport.comm_engine import CommEngine
from workloads.agent.transport.connection import Connection
from workloads.agent.transport.in_flight import InFlight
from workloads.agent.transport.paths import paths_in, slot_window_in
from workloads.agent.transport.slot_sender import Moved
from workloads.agent.waits import Waits
from workloads.phases import phases
from workloads.program import Compute

_CHECK_S = 0.25
"""Interval at which the bounds of waits are checked."""


class Agent:
    """Runs the steps of the rank's program up to ``config.steps``.

    ``control`` is a stream socket to the agent launcher.
    """

    def __init__(self, config: AgentConfig, control: socket.socket) -> None:
        self._config = config
        self._launcher = LauncherChannel(control)
        self._log = EventLog(config.events, config.rank)
        self._deferred_release = DeferredRelease()
        self._comm_engine = CommEngine(
            config, self._communication_done, self._send_buffered, self._send_request, self._log.note
        )
        self._channel: JobChannel | None = None
        self._member = (
            Member(config, config.incarnation, self._log.note, self._launcher.report)
            if config.incarnation is not None
            else None
        )
        self._held_back: InFlight | None = None
        """A finished communication that the executor is not told of, while an earlier checkpoint is not on disk."""
        self._phases = phases(config.program, config.rank)
        self._waits = Waits(config.rank, self._phases, self._log.note)
        self._check_ins = CheckIn(config, self._comm_engine)
        self._executor: Executor | None = None
        self._compute: tuple[int, Compute, float, float] | None = None
        """Step, operation, start and due time of the running compute."""
        self._step_began = 0.0
        self._next_check = 0.0
        self._ready = self._finished = self._reported_done = self._lost = False
        self._flush_due = False

    # -- running ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Check in, wait for ``go``, run all steps and wait for ``stop``.

        Raises the error that ended the run early, after writing the log.
        """
        try:
            self._comm_engine.transport.listen()
            if self._member is not None:
                self._member.serve()
            self._check_in()
            if self._member is not None:
                self._member.begin(self._channel)
            self._loop()
        except Stopped:
            return
        finally:
            self._waits.note_unfinished(time.monotonic())
            self._comm_engine.circuit_clients.note_unfinished(time.monotonic())
            self._log.flush()
            self._comm_engine.transport.close()
            if self._member is not None:
                self._member.close()
            if self._channel is not None:
                self._channel.close()

    def _loop(self) -> None:
        try:
            while True:
                now = time.monotonic()
                if (
                    self._executor is None
                    and self._ready
                    and self._launcher.go_at is not None
                    and now >= self._launcher.go_at
                ):
                    self._begin(self._launcher.go_at)
                self._run_compute(now)
                self._comm_engine.tick(time.monotonic())
                self._serve_job()
                self._wait()
        except PeerLost as lost:
            if self._member is not None:
                self._await_stop(lost)
            elif self._finished:  # this rank is done, and the peer stopped first
                self._serve_job()
            else:
                raise

    def _serve_job(self) -> None:
        """Do the work beside the steps: heartbeats, stages, checkpoints and reports to the launcher."""
        if self._member is not None:
            self._member.step(time.monotonic())
            waiting = self._held_back
            if waiting is not None and not self._member.must_wait(waiting):
                self._held_back = None
                self._report_done(waiting, time.monotonic())
        if not self._ready and (self._member is None or self._member.ready):
            self._ready = self._flush_due = True
            self._launcher.report(ready=True)
        if self._finished and not self._reported_done and (self._member is None or self._member.idle):
            self._log.flush()
            self._reported_done = True
            self._launcher.report(done=True)
        if self._flush_due:
            self._flush_due = False
            self._log.flush()

    def _await_stop(self, lost: PeerLost) -> None:
        """Wait for ``stop`` after a peer was lost, so that the job supervisor does not take this rank for dead too."""
        if not self._finished:
            self._launcher.report(error=str(lost), consequence=True)
        self._lost, self._held_back = True, None
        self._comm_engine.transport.close()
        end = time.monotonic() + self._config.peer_timeout_s
        while time.monotonic() < end or self._finished:
            self._serve_job()
            assert self._member is not None
            self._sleep(min(time.monotonic() + _CHECK_S, self._member.next_event()))
        raise lost

    def _sleep(self, until: float, readers: Sequence[Any] = (), writers: Sequence[Any] = ()) -> tuple[Any, Any]:
        """Wait until a file descriptor is ready or ``until``; process messages of the controller and the launcher."""
        background = self._member.running if self._member is not None else ()
        channel = (self._channel,) if self._channel is not None else ()
        writing = [c for c in channel if c.wants_to_write]
        readable, writable, _ = select.select(
            [self._launcher, *channel, *background, *readers],
            [*writing, *writers],
            [],
            max(0.0, until - time.monotonic()),
        )
        for c in channel:
            if c in writable:
                c.flush()
            if c in readable:
                self._receive_from_controller(time.monotonic())
        if self._launcher in readable:
            self._launcher.receive()
        return readable, writable

    def _wait(self) -> None:
        """Sleep until something can be done, and serve the sockets."""
        now = time.monotonic()
        transport = self._comm_engine.transport
        connections = list(transport)
        readers = [*transport.listeners, *(c for c in connections if c.readable)]
        writers = [c for c in connections if c.wants_to_write(now)]
        readable, writable = self._sleep(self._next_event(now), readers, writers)
        now = time.monotonic()
        for listener in transport.listeners:
            if listener in readable:
                for connection in transport.accept(listener, now):
                    self._comm_engine.accepted(connection)
        self._comm_engine.handle(
            [c for c in readable if isinstance(c, Connection)], [c for c in writable if isinstance(c, Connection)], now
        )
        if now >= self._next_check:
            self._next_check = now + _CHECK_S
            self._check_bounds(now)

    def _next_event(self, now: float) -> float:
        times = [self._next_check, self._comm_engine.next_deadline()]
        if self._compute is not None:
            times.append(self._compute[3])
        if self._executor is None and self._ready and self._launcher.go_at is not None:
            times.append(self._launcher.go_at)
        if self._member is not None:
            times.append(self._member.next_event())
        return min(times)

    def _check_bounds(self, now: float) -> None:
        self._waits.check(now, self._config.ack_timeout_s)
        self._comm_engine.check_progress(now)

    # -- before the first step -----------------------------------------------------------------------

    def _check_in(self) -> None:
        """Check in with every group, and learn whether it requests circuits and, if not, its paths."""
        config, check_ins = self._config, self._check_ins
        if config.channel is None:
            check_ins.use_wired_paths()
            return
        self._channel = JobChannel(config.channel, config.job, config.rank, config.ack_timeout_s)
        check_ins.send(self._channel)
        end = time.monotonic() + config.ack_timeout_s
        while check_ins.missing:
            self._sleep(end)
            if check_ins.missing and time.monotonic() >= end:
                raise ControlError(
                    f"the controller did not answer the check-in of rank {config.rank} in group "
                    f"{min(check_ins.missing)} within {config.ack_timeout_s:g} s"
                )

    def _begin(self, at: float) -> None:
        config = self._config
        self._executor = Executor(
            config.program.operations[config.rank],
            [phase.operations for phase in self._phases],
            self._check_ins.circuit_groups,
            config.steps,
            first_step=config.incarnation.first_step if config.incarnation is not None else 0,
            provisioned=config.mode == "provisioned",
        )
        self._comm_engine.open_eager_paths()
        self._execute(self._executor.begin(), at)
        if self._executor.finished and not self._finished:
            self._finish(at)  # no step is left

    # -- answers of the controller -----------------------------------------------------------------------------

    def _receive_from_controller(self, now: float) -> None:
        assert self._channel is not None
        for request, answer in self._channel.receive():
            if self._lost:
                continue  # nothing is sent any more
            if request["op"] == "checkin":
                self._check_ins.answered(request["group"], answer)
            elif request["op"] == "request":
                group, index = request["group"], request["index"]
                if answer.get("group", group) != group or answer.get("index", index) != index:
                    raise ControlError(f"the controller acknowledged {answer} for request {index} of group {group}")
                if group in self._comm_engine.circuit_clients.groups:
                    self._comm_engine.circuit_up(group, index, now)
                    continue
                slot_window, paths = slot_window_in(answer), paths_in(answer)
                if slot_window is None:
                    self._acknowledged(group, index, paths, now)
                else:
                    slot = partial(self._slot_began, group, index, slot_window, paths)
                    self._comm_engine.at(slot_window.began, slot, now)

    def _slot_began(self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float) -> None:
        """Begin a slot: its circuits are up."""
        assert self._channel is not None
        if not self._channel.is_open(group, index):
            return  # released between the announcement of the slot and its beginning
        self._comm_engine.slot_began(group, index, slot_window, paths, now)
        if slot_window.number == 0:
            self._acknowledged(group, index, paths, now)
        self._comm_engine.slot_connections.scheduler.report(group)

    def _acknowledged(self, group: str, index: int, paths: tuple[Hop, ...], now: float) -> None:
        """Go on after the controller has acknowledged a request."""
        assert self._executor is not None
        self._comm_engine.paths[group] = paths
        self._comm_engine.open_eager_paths(group)
        self._execute(self._executor.acknowledged(group, index), now)

    # -- actions of the executor ------------------------------------------------------------------------

    def _execute(self, actions: list[RankAction], now: float) -> None:
        """Apply the actions of the executor.

        ``now`` is the time at which they became possible (the due time of a compute, not the time at which the timer
        fired).
        """
        for action in actions:
            if isinstance(action, StartCompute):
                seconds = self._config.scale.emulated_s(action.op.seconds_in(action.step))
                self._compute = (action.step, action.op, now, now + seconds)
            elif isinstance(action, StartCommunication):
                self._start(action, now)
            elif isinstance(action, RequestCircuits):
                self._send_request(action)
            elif isinstance(action, ReleaseCircuits):
                if self._deferred_release.may_go(action):
                    self._send_request(action)
            elif isinstance(action, Blocked):
                self._waits.began(action, now)
            elif isinstance(action, PhaseBegan):
                self._waits.phase_began(action.step, action.phase, now)
            elif isinstance(action, PhaseEnded):
                self._waits.phase_ended(action.step, action.phase, now)
            elif isinstance(action, StepBegan):
                self._step_began = now
            else:
                self._end_step(action, now)

    def _send_request(self, message: RequestCircuits | ReleaseCircuits | Moved) -> None:
        assert self._channel is not None
        if isinstance(message, Moved):
            self._channel.notify("moved", **asdict(message))
            return
        op = "request" if isinstance(message, RequestCircuits) else "release"
        if isinstance(message, ReleaseCircuits):
            self._comm_engine.released(message.group)
        self._channel.request(op, group=message.group, index=message.index)

    def _start(self, action: StartCommunication, now: float) -> None:
        self._waits.ended(action.op.id, now)
        self._comm_engine.start(action.step, action.op, action.phase, max(now, time.monotonic()))

    def _end_step(self, action: StepEnded, now: float) -> None:
        self._log.note("step", self._step_began, now, step=action.step)
        self._launcher.report(step=action.step)
        if self._member is not None:
            self._member.end_step(action.step)
        self._flush_due = True
        if action.last:
            self._finish(now)

    def _finish(self, now: float) -> None:
        self._log.note("sockets", now, **self._comm_engine.transport.totals())
        self._finished = True

    def _run_compute(self, now: float) -> None:
        """Finish a compute that is due; its followers start at the due time, so lateness does not add up."""
        while self._compute is not None and now >= self._compute[3]:
            step, op, start, due = self._compute
            self._compute = None
            self._log.note("compute", start, due, step=step, op=op.id, name=op.name, late_s=max(0.0, now - due))
            assert self._executor is not None
            self._execute(self._executor.compute_done(op.id), due)

    def _communication_done(self, in_flight: InFlight, now: float) -> None:
        op = in_flight.op
        self._log.note(
            "communicate",
            in_flight.posted if in_flight.first_byte is None else in_flight.first_byte,
            now if in_flight.last_byte is None else in_flight.last_byte,
            bytes=self._config.scale.emulated_bytes(op.bytes),
            **in_flight.fields(),
        )
        if in_flight.wrong is not None:
            self._log.note("verified", now, step=in_flight.step, op=op.id, wrong=in_flight.wrong)
            in_flight.check_result(self._config.rank)
        if in_flight.buffered:
            release = self._deferred_release.ended(op.group)
            if release is not None:
                self._send_request(release)
            return
        if self._member is not None:
            self._member.reduced(in_flight, lambda: self._comm_engine.recycle(in_flight))
            if self._member.must_wait(in_flight):
                self._held_back = in_flight
                return
        self._report_done(in_flight, now)

    def _report_done(self, in_flight: InFlight, now: float) -> None:
        assert self._executor is not None
        self._execute(self._executor.communication_done(in_flight.op.id), now)

    def _send_buffered(self, in_flight: InFlight, now: float) -> None:
        """Let the rank go on: the kernel has taken all of a buffered send."""
        in_flight.buffered = True
        self._deferred_release.began(in_flight.op.group)
        assert self._executor is not None
        self._execute(self._executor.communication_done(in_flight.op.id), now)
