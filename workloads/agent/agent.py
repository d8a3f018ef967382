"""The agent of one rank: a loop around its machine (what to do next) and the communication engine (how bytes move).

A user's script may drive the rank (``workloads.agent.script``): then computes end when the script makes its next call,
and the tensors are the script's. With an incarnation, the rank is a member of a training job
(``workloads.agent.member``): the agent sends heartbeats, runs the start-up stages before the first step, and keeps a
state and its checkpoints.

It never proceeds without an acknowledgement, every wait is bounded, that for a script by who started it, and a failure
ends the agent with one sentence. ``workloads.agent.agent_loop`` runs the agents of a process.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from railyard.errors import ControlError, PeerLost, RailyardError, VerifyError, from_os_error
from railyard.loop import READ, Poller
from railyard.ownership import naming, open_binary
from railyard.protocol import Hop, SlotWindow
from railyard.timeline import Event
from workloads.agent.config import AgentConfig
from workloads.agent.job_channel import ChannelAnswer, JobChannel
from workloads.agent.member import Member
from workloads.agent.script import Script
from workloads.agent.transport.comm_engine import CommEngine
from workloads.agent.transport.connection import PeerConnection
from workloads.rank.actions import Message, RunCompute
from workloads.rank.executor import ReleaseCircuits, RequestCircuits, StepEnded
from workloads.rank.in_flight import InFlight
from workloads.rank.paths import slot_window_in
from workloads.rank.schedule_facts import ScheduleFacts

R = TypeVar("R")
LONGEST_S = 1.0
"""An event is in the file at most this long after it was recorded."""
_PAUSE_S, _APART_S, _RANKS_APART = 0.01, 0.002, 32
"""Time from the end of a step until its events are written, and that between ranks (those of so many in turn): the ends
of a step on other ranks would wait for the processors, as encoding the events takes up to a millisecond."""
RARE = frozenset({"alive", "stage", "checkpoint"})
"""Kinds of events that are written at once: few, and each may be the last before a failure."""


class EventLog:
    """Events of one rank, written to its own file. ``due``: when ``flush`` has to be called (infinity: not at all)."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = Path(path)
        self._rank = rank
        self._events: list[Event] = []
        self._written = 0
        self._fd = -1
        self._longest_s = LONGEST_S
        self.due = float("inf")

    @property
    def count(self) -> int:
        return self._written + len(self._events)

    @property
    def empty(self) -> bool:
        return not self._events

    def note(self, kind: str, t: float, end: float | None = None, **fields: Any) -> None:
        self.add(Event(t, "agent", kind, end, {"rank": self._rank, **fields}))

    def add(self, event: Event) -> None:
        if not self._events:
            self.due = min(self.due, time.monotonic() + self._longest_s)
        self._events.append(event)
        if event.kind in RARE:
            self.due = 0.0

    def end_step(self) -> None:
        """Have the events written soon, but later than those of a step that other ranks end at the same time."""
        self.due = min(self.due, time.monotonic() + _PAUSE_S + _APART_S * (self._rank % _RANKS_APART))

    def end_run(self) -> None:
        """Have all later events written soon: the run waits for them."""
        self._longest_s = _PAUSE_S
        self.end_step()

    def close(self) -> None:
        try:
            self.flush()
        finally:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def flush(self) -> None:
        """Append the recorded events to the file; ``MachineError`` if it cannot be written."""
        self.due = float("inf")
        if not self._events:
            return
        data = "".join(event.to_line() + "\n" for event in self._events).encode()
        self._written += len(self._events)
        self._events = []
        try:
            with naming(self._path):
                if self._fd < 0:
                    with open_binary(self._path, "ab") as file:
                        self._fd = os.dup(file.fileno())
                while data:
                    data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise from_os_error(error) from None


class Stopped(Exception):
    """The agent launcher told this agent to stop, or is gone."""


Wait = Generator[float, None, R]
"""What an agent does until it has to wait: for its descriptors (``Agent.fileno``), its answers, or a time (monotonic
seconds, to the microsecond)."""


_CHECK_S = 1.0
"""Longest interval at which the bounds of waits are checked; every check wakes the process."""
_CHECKS = 8
"""Least number of checks within the time-out of an acknowledgement."""


class Agent:
    """Runs the steps of the rank's program up to ``config.steps``.

    ``report`` tells the agent launcher. ``connect`` gives the channel to the controller, whose ``answers`` to this rank
    the owner of the agent enters here. ``facts`` may be shared with the agents of other ranks. ``enter`` moves the
    thread into the network of the rank's host, where that has to make a socket or to read a counter.
    """

    def __init__(
        self,
        config: AgentConfig,
        report: Callable[..., None],
        connect: Callable[[], JobChannel],
        facts: ScheduleFacts | None = None,
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._report = report
        self._connect = connect
        self.answers: deque[ChannelAnswer] = deque()
        self.go_at = math.inf
        """Start of the first step in monotonic seconds; infinity: not known yet."""
        self.processor_s = 0.0
        """What the owner of the agent has seen it take of a processor; at the end of the run since the first step."""
        self._poller = Poller()
        self._check_s = min(_CHECK_S, config.ack_timeout_s / _CHECKS)
        self._log = EventLog(config.events, config.rank)
        self._script = script = Script(config) if config.script else None
        self._comm_engine = CommEngine(
            config,
            self._communication_done,
            self._send_buffered,
            self._perform,
            self._log.note,
            facts,
            script,
            script.layout if script is not None else None,
            enter,
        )
        self._machine = self._comm_engine.machine
        self._channel: JobChannel | None = None
        self._member = (
            Member(config, config.incarnation, self._log.note, report) if config.incarnation is not None else None
        )
        self._held_back: InFlight | None = None
        """A finished communication that the machine is not told of, while an earlier checkpoint is not on disk."""
        self._unanswered: set[str] = set()
        """Groups for whose check-in the controller has not answered yet."""
        self._compute_due: float | None = None
        """Time at which the running compute ends."""
        self._next_check = 0.0
        self._ready = self._finished = self._reported_done = self._lost = False

    # -- running ------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to do."""
        return self._poller.fileno()

    def run(self) -> Wait[None]:
        """Check in, wait for ``go``, run all steps and wait for ``Stopped``.

        Raises the error that ended the run early, after writing the log.
        """
        stopped = False
        try:
            self._comm_engine.transport.listen()
            if self._script is not None:
                self._script.channel.listen()
            if self._member is not None:
                self._member.serve()
            yield from self._check_in()
            self._machine.prepare()
            if self._member is not None:
                self._member.begin(self._channel)
            yield from self._loop()
        except Stopped:
            stopped = True
        except RailyardError as error:
            if self._script is not None and not self._lost:
                self._script.fail(str(error))
            raise
        finally:
            for action in self._machine.note_waits(time.monotonic()):
                if isinstance(action, Event):  # nothing is sent any more
                    self._log.add(action)
            self._log.close()
            self._comm_engine.transport.close(silent=stopped)
            if self._member is not None:
                self._member.close()
            if self._script is not None:
                self._script.channel.close()
            self._poller.close()

    def _loop(self) -> Wait[None]:
        for listener in self._comm_engine.transport.listeners:
            self._poller.watch(listener, READ)
        try:
            while True:
                now = time.monotonic()
                if now >= self._begins_at:
                    self._begin(self._begins_at)
                if self._compute_due is not None:
                    self._run_compute(now)
                self._comm_engine.tick(time.monotonic())
                self._serve_job()
                yield from self._wait()
        except PeerLost as lost:
            if self._member is not None:
                yield from self._await_stop(lost)
            elif self._finished:  # this rank is done, and the peer stopped first
                self._log.flush()
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
                self._go_on(waiting, time.monotonic())
        script = self._script
        if script is not None and script.ended and not self._finished and not self._machine.waits:
            self._finish()
        prepared = (self._member is None or self._member.ready) and (script is None or script.ready)
        if prepared and not self._ready:
            self._ready, self._log.due = True, 0.0
            self._report(ready=True)
        if time.monotonic() >= self._log.due:
            self._log.flush()
        done = self._finished and self._log.empty and (self._member is None or self._member.idle)
        if done and not self._reported_done:
            self._reported_done = True
            self._report(done=True)

    def _await_stop(self, lost: PeerLost) -> Wait[None]:
        """Wait for ``stop`` after a peer was lost, so that the job supervisor does not take this rank for dead too."""
        if not self._finished:
            self._report(error=str(lost), consequence=True)
        if self._script is not None:
            self._script.fail(str(lost))
        self._lost, self._held_back = True, None
        self._comm_engine.transport.close()
        end = time.monotonic() + self._config.peer_timeout_s
        while time.monotonic() < end or self._finished:
            self._serve_job()
            assert self._member is not None
            yield from self._sleep(min(self._member.next_event(), self._log.due, end, time.monotonic() + _CHECK_S))
        raise lost

    def _sleep(self, at: float) -> Wait[list[tuple[Any, int]]]:
        """Wait for an event or a time, and process answers of the controller and what a script asks for.

        Returns the other events with their owners.
        """
        heartbeat = None if self._member is None else self._member.heartbeat
        if self._member is not None:
            for background in self._member.running:
                self._poller.watch(background, READ)
        script = self._script
        if script is not None:
            self._poller.watch(script.channel, 0 if script.gone else READ)
        if heartbeat is not None:
            self._poller.watch(heartbeat, READ)
        yield at
        if self.answers:
            self._take_answers(time.monotonic())
        ready = self._poller.ready()
        for owner, _ in ready:
            if owner is heartbeat and heartbeat is not None:
                heartbeat.answer()
            elif script is not None and owner is script.channel:
                script.receive(self._machine, self._comm_engine.execute)
        return ready

    def _wait(self) -> Wait[None]:
        engine = self._comm_engine
        engine.watch_changed(self._poller)
        ready = yield from self._sleep(min(self._next_event(), self._next_check if self._machine.waits else math.inf))
        now = time.monotonic()
        for owner, events in ready:
            if isinstance(owner, PeerConnection):
                engine.handle(owner, events, now)
            elif isinstance(owner, socket.socket):
                for connection in engine.transport.accept(owner, now):
                    engine.accepted(connection)
        if now >= self._next_check:
            self._next_check = now + self._check_s
            engine.check_progress(now)

    def _next_event(self) -> float:
        """Time at which something is to be done, to the microsecond."""
        at = min(self._comm_engine.next_deadline(), self._begins_at, self._log.due)
        if self._compute_due is not None:
            at = min(at, self._compute_due)
        if self._member is not None:
            at = min(at, self._member.next_event())
        return at

    @property
    def _begins_at(self) -> float:
        """Time at which the first step has to begin (infinity: it has begun, or the time is not known yet)."""
        return self.go_at if self._ready and not self._machine.begun else math.inf

    # -- before the first step -----------------------------------------------------------------------

    def _check_in(self) -> Wait[None]:
        """Check in with every group that the rank uses; the controller answers when all its members have checked in."""
        config, groups = self._config, self._config.program.groups
        used = {op.group for op in config.program.communications(config.rank)}
        mine = [g for g in groups.values() if g.name in used or (g.parent in used and config.rank in g.members)]
        if config.channel is None:
            if config.mode != "native":
                raise ControlError(f"mode {config.mode} needs a controller, and no job channel was given")
            for group in mine:
                self._machine.paths.set_wired(group)
            return
        self._channel = self._connect()
        self._unanswered = {group.name for group in mine}
        for group in mine:
            self._channel.request("checkin", config.rank, group=group.name)
        end = time.monotonic() + config.ack_timeout_s
        while self._unanswered:
            yield from self._sleep(end)
            if self._unanswered and time.monotonic() >= end:
                raise ControlError(
                    f"the controller did not answer the check-in of rank {config.rank} in group "
                    f"{min(self._unanswered)} within {config.ack_timeout_s:g} s"
                )

    def _begin(self, at: float) -> None:
        self.processor_s = 0.0
        self._comm_engine.open_eager_paths()
        now = time.monotonic()
        incarnation = self._config.incarnation
        epoch = None if incarnation is None else incarnation.epoch
        self._comm_engine.execute(self._machine.begin(at, now, epoch), now)
        if self._script is not None:
            self._script.channel.tell(go=True)
        if self._machine.finished and not self._finished:
            self._finish()  # no step is left

    # -- answers of the controller -----------------------------------------------------------------------------

    def _take_answers(self, now: float) -> None:
        while self.answers:
            given = self.answers.popleft()
            given.check()
            _, request, answer, paths = given
            if self._lost:
                continue  # nothing is sent any more
            if request["op"] == "checkin":
                asks, rotates = bool(answer.get("asks")), bool(answer.get("rotates"))
                self._unanswered.discard(request["group"])
                self._machine.checked_in(request["group"], asks=asks, rotates=rotates, paths=paths)
            elif request["op"] == "request":
                group, index = request["group"], request["index"]
                if answer.get("group", group) != group or answer.get("index", index) != index:
                    raise ControlError(f"the controller acknowledged {answer} for request {index} of group {group}")
                slot_window = slot_window_in(answer)
                if slot_window is None:
                    self._comm_engine.acknowledged(group, index, paths, now)
                else:
                    slot = partial(self._slot_began, group, index, slot_window, paths)
                    self._comm_engine.at(slot_window.began, slot, now)

    def _slot_began(self, group: str, index: int, slot_window: SlotWindow, paths: tuple[Hop, ...], now: float) -> None:
        assert self._channel is not None
        if self._channel.is_open(
            self._config.rank, group, index
        ):  # not released between the announcement of the slot and its beginning
            self._comm_engine.slot_began(group, index, slot_window, paths, now)

    # -- actions of the machine ------------------------------------------------------------------------

    def _perform(self, action: Message | RunCompute | StepEnded | Event) -> None:
        if isinstance(action, Event):
            self._log.add(action)
        elif isinstance(action, RunCompute):
            self._compute_due = action.due
        elif isinstance(action, StepEnded):
            self._end_step(action)
        else:
            self._send_message(action)

    def _send_message(self, message: Message) -> None:
        assert self._channel is not None
        if isinstance(message, RequestCircuits | ReleaseCircuits):
            op = "request" if isinstance(message, RequestCircuits) else "release"
            self._channel.request(op, self._config.rank, group=message.group, index=message.index)
        else:
            self._channel.notify("moved", self._config.rank, **asdict(message))

    def _end_step(self, ended: StepEnded) -> None:
        self._report(step=ended.step)
        if self._member is not None:
            self._member.end_step(ended.step)
            self._log.due = 0.0  # a member may be killed at once, and the step has ended
        self._log.end_step()
        if ended.last:
            self._finish()

    def _finish(self) -> None:
        totals = self._comm_engine.transport.totals()
        used_s = round(self.processor_s, 6)
        self._log.note("sockets", time.monotonic(), **totals, processor_s=used_s, events=self._log.count)
        self._log.end_run()
        self._finished = True

    def _run_compute(self, now: float) -> None:
        while self._compute_due is not None and now >= self._compute_due:
            self._compute_due = None
            self._comm_engine.execute(self._machine.compute_done(now), now)

    def _communication_done(self, in_flight: InFlight, now: float) -> None:
        op = in_flight.op
        if self._script is not None:
            self._script.done(in_flight)
        self._log.note(
            "communicate",
            in_flight.posted if in_flight.first_byte is None else in_flight.first_byte,
            now if in_flight.last_byte is None else in_flight.last_byte,
            bytes=self._config.scale.emulated_bytes(op.bytes) if in_flight.layout is None else in_flight.layout.bytes,
            lanes=sorted(in_flight.lanes),
            **in_flight.fields(),
        )
        if in_flight.wrong is not None:
            self._log.note("verified", now, step=in_flight.step, op=op.id, wrong=in_flight.wrong)
        if in_flight.wrong:
            raise VerifyError(
                f"rank {self._config.rank} ended {op.name} of step {in_flight.step} (group {op.group}) with "
                f"{in_flight.wrong} of {in_flight.elements} elements wrong"
            )
        if self._member is not None and not in_flight.buffered:
            self._member.reduced(in_flight, lambda: self._comm_engine.values.recycle(in_flight))
            if self._member.must_wait(in_flight):
                self._held_back = in_flight
                return
        self._go_on(in_flight, now)

    def _go_on(self, in_flight: InFlight, now: float) -> None:
        """Go on after a communication that is done."""
        self._comm_engine.execute(self._machine.over(in_flight, now), now)

    def _send_buffered(self, in_flight: InFlight, now: float) -> None:
        """Let the rank go on: the kernel has taken all of a buffered send."""
        self._comm_engine.execute(self._machine.buffered(in_flight, now), now)
