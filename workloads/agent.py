"""The agent of one rank: a loop around the executor (what may start) and the courier (how bytes move).

One process per host, inside the host's network namespace. It waits in ``select``, whose time-outs are precise to the
microsecond where epoll rounds to milliseconds. It never proceeds without an acknowledgement and never waits for ever:
every wait is bounded, and what ends it badly is one sentence.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any

from railyard.errors import ControlError, VerifyError
from workloads.agent_config import AgentConfig
from workloads.carriage import Carriage
from workloads.connection import Connection, PeerLost
from workloads.courier import Courier
from workloads.event_log import EventLog
from workloads.executor import (
    NO_PHASE,
    Blocked,
    Executor,
    Intent,
    PhaseBegan,
    PhaseEnded,
    Release,
    Request,
    StartCommunication,
    StartCompute,
    StepBegan,
    StepEnded,
)
from workloads.farewell import Farewell
from workloads.job_channel import JobChannel
from workloads.paths import Path, wired_paths
from workloads.phases import phases
from workloads.program import Collective, Compute

_CHECK_S = 0.25
"""How often the bounds of waits are looked at."""


class Stopped(Exception):
    """The parent asked this agent to stop."""


class Agent:
    """Runs ``config.steps`` steps of the rank's program. ``control`` is a stream socket to the parent."""

    def __init__(self, config: AgentConfig, control: socket.socket) -> None:
        self._config = config
        self._control = control
        self._control_in = b""
        self._log = EventLog(config.events, config.rank)
        self._farewell = Farewell()
        self._courier = Courier(config, self._communication_done, self._send_buffered, self._ask, self._log.note)
        self._channel: JobChannel | None = None
        self._phases = phases(config.program, config.rank)
        used = {op.group for op in config.program.communications(config.rank)}
        self._groups = [
            group
            for group in config.program.groups.values()
            if group.name in used or (group.parent in used and config.rank in group.members)
        ]
        self._asks: set[str] = set()
        self._unchecked: set[str] = set()
        self._executor: Executor | None = None
        self._compute: tuple[int, Compute, float, float] | None = None
        """Step, operation, start and due time of the compute under way."""
        self._blocked: dict[int, tuple[Blocked, float]] = {}
        self._phase_began: dict[tuple[int, int], float] = {}
        self._step_began = 0.0
        self._next_check = 0.0
        self._go_at: float | None = None
        self._finished = False
        self._flush_due = False

    # -- life --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Check in, wait for go, run all steps, wait for stop. Raises what ended it badly, after writing the log."""
        try:
            self._courier.transport.listen()
            self._check_in()
            self.say(ready=True)
            self._loop()
        except Stopped:
            return
        except PeerLost:
            if not self._finished:  # afterwards it is only another one that stopped first
                raise
        finally:
            self._note_the_unfinished()
            self._log.flush()
            self._courier.transport.close()
            if self._channel is not None:
                self._channel.close()

    def say(self, **fields: Any) -> None:
        """Tell the parent something (one line of JSON)."""
        self._control.sendall(json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def _loop(self) -> None:
        while True:
            now = time.monotonic()
            if self._executor is None and self._go_at is not None and now >= self._go_at:
                self._begin(self._go_at)
            self._run_compute(now)
            self._courier.tick(time.monotonic())
            if self._flush_due:
                self._flush_due = False
                self._log.flush()
            self._wait()

    def _wait(self) -> None:
        """Sleep until something can be done, and do what sockets say."""
        now = time.monotonic()
        transport = self._courier.transport
        connections = list(transport)
        readers: list[Any] = [self._control, *transport.listeners, *(c for c in connections if c.connected)]
        writers: list[Any] = [c for c in connections if c.wants_to_write(now)]
        if self._channel is not None:
            readers.append(self._channel)
            if self._channel.wants_to_write:
                writers.append(self._channel)
        readable, writable, _ = select.select(readers, writers, [], max(0.0, self._next_event(now) - now))
        now = time.monotonic()
        for listener in transport.listeners:
            if listener in readable:
                for connection in transport.accept(listener, now):
                    self._courier.accepted(connection, now)
        self._courier.handle(
            [c for c in readable if isinstance(c, Connection)], [c for c in writable if isinstance(c, Connection)], now
        )
        if self._channel is not None:
            if self._channel in writable:
                self._channel.flush()
            if self._channel in readable:
                self._hear_controller(now)
        if self._control in readable:
            self._hear_parent()
        if now >= self._next_check:
            self._next_check = now + _CHECK_S
            self._check_bounds(now)

    def _next_event(self, now: float) -> float:
        times = [self._next_check, self._courier.next_deadline()]
        if self._compute is not None:
            times.append(self._compute[3])
        if self._executor is None and self._go_at is not None:
            times.append(self._go_at)
        return min(times)

    def _check_bounds(self, now: float) -> None:
        for blocked, since in self._blocked.values():
            if now - since > self._config.ack_timeout_s:
                raise ControlError(
                    f"rank {self._config.rank} got no acknowledgement of request {blocked.index} of group "
                    f"{blocked.group} within {self._config.ack_timeout_s:g} s, and does not send without one"
                )
        for name, index, since in self._courier.gates.waits():
            if now - since > self._config.peer_timeout_s:
                raise ControlError(
                    f"rank {self._config.rank} got no acknowledgement of request {index} of circuit {name} within "
                    f"{self._config.peer_timeout_s:g} s, and does not send without one"
                )
        self._courier.check_progress(now)

    # -- before the first step -----------------------------------------------------------------------

    def _check_in(self) -> None:
        """Learn of every group whether it asks and, if not, its paths."""
        config = self._config
        if config.channel is None:
            if config.mode != "native":
                raise ControlError(f"mode {config.mode} needs a controller, and no job channel was given")
            self._courier.paths.update({g.name: wired_paths(g, config.plan.ports_per_gpu) for g in self._groups})
            return
        self._channel = JobChannel(config.channel, config.job, config.rank, config.ack_timeout_s)
        self._unchecked = {group.name for group in self._groups}
        for group in self._groups:
            self._channel.ask("checkin", group=group.name)
        end = time.monotonic() + config.ack_timeout_s
        while self._unchecked:
            left = end - time.monotonic()
            readers: list[Any] = [self._channel, self._control]
            writers: list[Any] = [self._channel] if self._channel.wants_to_write else []
            readable, writable, _ = select.select(readers, writers, [], max(0.0, left))
            if writable:
                self._channel.flush()
            if self._channel in readable:
                self._hear_controller(time.monotonic())
            if self._control in readable:
                self._hear_parent()
            if left <= 0:
                raise ControlError(
                    f"the controller did not answer the check-in of rank {config.rank} in group "
                    f"{min(self._unchecked)} within {config.ack_timeout_s:g} s"
                )

    def _begin(self, at: float) -> None:
        config = self._config
        self._executor = Executor(
            config.program.operations[config.rank],
            [phase.operations for phase in self._phases],
            self._asks,
            config.steps,
            provisioned=config.mode == "provisioned",
        )
        self._courier.open_early()
        self._carry_out(self._executor.begin(), at)

    # -- what others say -----------------------------------------------------------------------------

    def _hear_parent(self) -> None:
        data = self._control.recv(1 << 16)
        if not data:
            raise Stopped
        *lines, self._control_in = (self._control_in + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "stop" in message:
                raise Stopped
            if "go" in message:
                self._go_at = float(message["go"])

    def _hear_controller(self, now: float) -> None:
        assert self._channel is not None
        for request, answer in self._channel.receive():
            if request["op"] == "checkin":
                self._checked_in(request["group"], answer)
            elif request["op"] == "request":
                assert self._executor is not None
                group, index = request["group"], request["index"]
                if answer.get("group", group) != group or answer.get("index", index) != index:
                    raise ControlError(f"the controller acknowledged {answer} for request {index} of group {group}")
                if group in self._courier.gates.asking:
                    self._courier.circuit_stands(group, index, now)
                    continue
                self._courier.paths[group] = _paths(answer)
                self._courier.open_early(group)
                self._carry_out(self._executor.acknowledged(group, index), now)

    def _checked_in(self, name: str, answer: dict[str, Any]) -> None:
        self._unchecked.discard(name)
        group = self._config.program.groups[name]
        if answer.get("asks") and group.domain == "scale-out":
            (self._courier.gates.asking if group.parent else self._asks).add(name)
            return
        paths = _paths(answer)
        self._courier.paths[name] = paths if paths or group.domain == "scale-out" else wired_paths(group)

    # -- carrying out intents ------------------------------------------------------------------------

    def _carry_out(self, intents: list[Intent], now: float) -> None:
        """``now`` is the time at which it became possible (a compute's due time, not when the timer fired)."""
        for intent in intents:
            if isinstance(intent, StartCompute):
                seconds = self._config.scale.emulated_s(intent.op.seconds_in(intent.step))
                self._compute = (intent.step, intent.op, now, now + seconds)
            elif isinstance(intent, StartCommunication):
                self._start(intent, now)
            elif isinstance(intent, Request):
                self._ask(intent)
            elif isinstance(intent, Release):
                if self._farewell.may_go(intent):
                    self._ask(intent)
            elif isinstance(intent, Blocked):
                self._blocked[intent.op.id] = (intent, now)
            elif isinstance(intent, PhaseBegan):
                self._phase_began[intent.step, intent.phase] = now
            elif isinstance(intent, PhaseEnded):
                self._note_phase(intent.step, intent.phase, now)
            elif isinstance(intent, StepBegan):
                self._step_began = now
            else:
                self._end_step(intent, now)

    def _ask(self, message: Request | Release) -> None:
        assert self._channel is not None
        op = "request" if isinstance(message, Request) else "release"
        self._channel.ask(op, group=message.group, index=message.index)

    def _start(self, intent: StartCommunication, now: float) -> None:
        waited = self._blocked.pop(intent.op.id, None)
        if waited is not None:
            self._note_wait(*waited, now)
        self._courier.start(intent.step, intent.op, intent.phase, max(now, time.monotonic()))

    def _end_step(self, intent: StepEnded, now: float) -> None:
        self._log.note("step", self._step_began, now, step=intent.step)
        self.say(step=intent.step)
        self._flush_due = True
        if intent.last:
            self._finish(now)

    def _finish(self, now: float) -> None:
        connections = list(self._courier.transport)
        self._log.note(
            "sockets",
            now,
            retransmits=sum(c.retransmits() for c in connections),
            bytes=sum(c.sent_bytes for c in connections),
        )
        self._log.flush()
        self._finished = True
        self.say(done=True)

    def _run_compute(self, now: float) -> None:
        """Finish the compute that is due; what follows starts at its due time, so lateness does not add up."""
        while self._compute is not None and now >= self._compute[3]:
            step, op, start, due = self._compute
            self._compute = None
            self._log.note("compute", start, due, step=step, op=op.id, name=op.name, late_s=max(0.0, now - due))
            assert self._executor is not None
            self._carry_out(self._executor.compute_done(op.id), due)

    def _communication_done(self, carriage: Carriage, now: float) -> None:
        op = carriage.op
        self._log.note(
            "communicate",
            carriage.posted if carriage.first_byte is None else carriage.first_byte,
            now if carriage.last_byte is None else carriage.last_byte,
            step=carriage.step,
            op=op.id,
            name=op.name,
            group=op.group,
            dimension=carriage.group.dimension,
            op_kind=op.kind if isinstance(op, Collective) else type(op).__name__.lower(),
            bytes=self._config.scale.emulated_bytes(op.bytes),
            sent_bytes=carriage.sent_bytes,
            phase=None if carriage.phase == NO_PHASE else carriage.phase,
            lanes=sorted(carriage.lanes),
            posted=carriage.posted,
            payload_bytes=carriage.payload_bytes,
        )
        if carriage.wrong is not None:
            self._log.note("verified", now, step=carriage.step, op=op.id, wrong=carriage.wrong)
            if carriage.wrong:
                raise VerifyError(
                    f"rank {self._config.rank} ended {op.name} of step {carriage.step} (group {op.group}) with "
                    f"{carriage.wrong} of {carriage.elements} elements wrong"
                )
        if carriage.told:
            release = self._farewell.ended(op.group)
            if release is not None:
                self._ask(release)
            return
        assert self._executor is not None
        self._carry_out(self._executor.communication_done(op.id), now)

    def _send_buffered(self, carriage: Carriage, now: float) -> None:
        """The kernel has all of a send that nobody needs to wait for."""
        carriage.told = True
        self._farewell.began(carriage.op.group)
        assert self._executor is not None
        self._carry_out(self._executor.communication_done(carriage.op.id), now)

    def _note_wait(self, blocked: Blocked, since: float, now: float) -> None:
        self._log.note(
            "wait",
            since,
            max(now, since),
            step=blocked.step,
            op=blocked.op.id,
            group=blocked.group,
            index=blocked.index,
            phase=blocked.phase,
        )

    def _note_phase(self, step: int, phase: int, now: float) -> None:
        began = self._phase_began.pop((step, phase))
        self._log.note("phase", began, now, step=step, phase=phase, dimension=self._phases[phase].dimension)

    def _note_the_unfinished(self) -> None:
        """An agent that is stopped in the middle leaves what it was waiting for on the timeline."""
        now = time.monotonic()
        for blocked, since in self._blocked.values():
            self._note_wait(blocked, since, now)
        self._courier.gates.note_unfinished(now)


def _paths(answer: dict[str, Any]) -> tuple[Path, ...]:
    return tuple((int(r), int(lane), int(p), int(pl)) for r, lane, p, pl in answer.get("paths", ()))
