"""Supervisor of one training job: starts and watches it, and restarts it from its last checkpoint after a failure.

The supervisor has the part of a cluster manager and a launcher (torchrun). The controller decides which chips are dead
and which spares replace them; the supervisor then ends the rest of the incarnation and begins the next one with the new
members, after the checkpoint is copied to members that lack it. Every wait has a timeout.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from controllers.engine.jobs import Job
from experiments.point_run import agent_config, note_circuits
from experiments.racks.forecast import checkpoint_seconds
from experiments.racks.setting import JobSpec
from railyard.errors import AgentError, ControlError
from railyard.liveness import STALL_S
from railyard.ownership import make_folder, naming, open_binary
from railyard.point_folder import BESIDE, NOTES, events_of
from railyard.scale import Scale
from railyard.timeline import Event, write_events
from workloads.agent.config import AgentConfig, Incarnation
from workloads.agent.job_channel import JobChannel
from workloads.agent.launcher import AgentLauncher, AgentTeam

if TYPE_CHECKING:
    from experiments.session import Session


@dataclass
class RunContext:
    """Context of a run: ``folder`` holds events and disks of all hosts, ``dead`` are the ranks of killed hosts.

    ``notes`` are the events of the run itself, which are in ``folder`` too.

    ``clock`` is the clock of all events, in monotonic seconds.
    """

    session: Session
    launcher: AgentLauncher
    folder: Path
    scale: Scale
    dead: set[int] = field(default_factory=set)
    notes: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        make_folder(self.folder)

    def note(self, kind: str, t: float | None = None, **fields: Any) -> None:
        """Add an event of the run to the timeline, now or at ``t``."""
        self.notes.append(Event(self.clock() if t is None else t, "run", kind, None, fields))
        write_events(self.folder / NOTES, self.notes[-1:])

    def note_circuits(self) -> None:
        note_circuits(self.session, self.folder)

    def disk(self, rank: int) -> str:
        """The folder that represents the disk of a host."""
        path = self.folder / "disks" / f"g{rank}"
        make_folder(path)
        return str(path)

    def launch(self, configs: Sequence[AgentConfig]) -> AgentTeam:
        """Start the agents of hosts that are alive; dead hosts start none, as dead machines would."""
        living = [config for config in configs if config.rank not in self.dead]
        fds = [self.session.net.netns_fd(f"g{config.rank}") for config in living]
        return self.launcher.launch(living, fds)

    def kill(self, rank: int, job: str, team: AgentTeam | None) -> None:
        """Kill a chip: cut its links and end its agent, if there is one, at once."""
        self.dead.add(rank)
        began = self.clock()
        self.session.net.cut(f"g{rank}")
        if team is not None:
            team.kill(rank)
        self.note("fault", began, job=job, rank=rank, what="killed: links cut, agent ended")

    def events(self) -> list[Event]:
        """All events of agents, run and controller so far, in order of time."""
        return events_of(self.folder, without=BESIDE)


LAUNCH_S = 2.0
"""Seconds after the launch within which an agent must be forked; after that its host counts as dead."""
GO_S = 0.1
"""Seconds from the last agent that is ready to the first step, in which the start message must reach all agents."""
_SLACK_S = 30.0

State = Literal["new", "starting", "running", "done", "stranded"]


class JobSupervisor:
    """Supervisor of one job; ``poll`` and ``handle_messages`` are called repeatedly and raise errors of the job."""

    def __init__(self, context: RunContext, spec: JobSpec) -> None:
        self.spec = spec
        self.members = spec.members
        self.state: State = "new"
        self.reason = ""
        self.incarnation = -1
        self.first_step = 0
        self.team: AgentTeam | None = None
        self.acknowledged: list[tuple[int, int]] = []
        """(steps, checksum) of every checkpoint that all members have stored."""
        self.resumed: list[tuple[int, int]] = []
        """(first step, steps that are repeated) of every incarnation after the first."""
        self.channel: JobChannel | None = None
        self.go_t = 0.0
        """Start of the first step of this incarnation (monotonic seconds), once the job runs."""
        self._context = context
        self._deadline = 0.0
        self._launched = 0.0
        self._reported: set[int] = set()
        self._holders: tuple[int, ...] = ()
        self._done_before = 0
        self._told_dead: set[int] = set()

    # ---- state and registration ----------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self.state in ("done", "stranded")

    @property
    def last_checkpoint(self) -> int:
        """Number of steps in the last acknowledged checkpoint; 0 without one."""
        return self.acknowledged[-1][0] if self.acknowledged else 0

    @property
    def steps_done(self) -> int:
        """Steps of the job that every member has finished, in this incarnation or before its first step."""
        steps = self.team.steps if self.team is not None else {}
        return min(steps.get(rank, self.first_step) for rank in self.members)

    def register(self) -> None:
        """Register the job with the controller and watch for changes of its members."""
        spec, session = self.spec, self._context.session
        groups = tuple(spec.program(self.members).groups.values())
        delay_s = self._context.scale.emulated_s(spec.setting.delay_s)
        job = Job(spec.name, groups, spec.setting.mode, delay_s, detection=spec.detection)
        session.register(job, spec.setting.policy)
        self._watch(0)

    def report_dead(self) -> None:
        """Report chips that the controller before had declared dead to a restarted controller."""
        for rank in sorted(self._told_dead):
            self._report_failed(rank, "dead before the controller's restart")

    def _report_failed(self, rank: int, cause: str) -> None:
        self._context.session.call("failed", job=self.spec.name, rank=rank, cause=cause)

    # ---- incarnations --------------------------------------------------------------------------------------------

    def begin(self, first_step: int = 0, newcomers: Sequence[int] = ()) -> None:
        """Begin an incarnation at ``first_step``; ``newcomers`` are members that lack the checkpoint."""
        spec, context, now = self.spec, self._context, self._context.clock()
        self.incarnation += 1
        self.first_step = first_step
        self.state = "starting"
        self._launched = now
        self._deadline = now + self._start_limit_s(bool(newcomers))
        self._reported.clear()
        context.note("launch", now, job=spec.name, incarnation=self.incarnation, members=list(self.members))
        self.team = context.launch(self._configs(first_step, newcomers))

    def _start_limit_s(self, copies: bool) -> float:
        """Seconds within which agents must be ready; ``copies``: whether some have to copy the checkpoint first."""
        spec, scale = self.spec, self._context.scale
        given_s = sum(seconds for _, seconds in spec.stages)
        copy_s = checkpoint_seconds(spec.tenant.state_bytes, spec.setting.plan, scale, len(self.members))
        return scale.emulated_s(given_s + copies * 3 * copy_s) + _SLACK_S

    def _configs(self, first_step: int, newcomers: Sequence[int]) -> list[AgentConfig]:
        spec, context, copies = self.spec, self._context, self._copies(newcomers)
        incarnation = Incarnation(
            number=self.incarnation,
            first_step=first_step,
            group=spec.name,
            checkpoint_every=spec.tenant.checkpoint_every,
            state_bytes=round(spec.tenant.state_bytes),
            given=spec.stages,
            heartbeat_s=spec.detection.heartbeat_s,
        )
        template = agent_config(
            context.session.settings,
            context.session,
            context.scale,
            spec.program(self.members),
            job=spec.name,
            mode=spec.setting.mode,
            steps=spec.steps,
        )
        template = replace(template, ack_timeout_s=max(template.ack_timeout_s, self._decision_s))
        servers = [rank for rank in dict.fromkeys(copies.values()) if rank not in self.members]
        return [
            replace(
                template,
                rank=rank,
                events=str(context.folder / f"{spec.name}-incarnation{self.incarnation}-g{rank}.jsonl"),
                incarnation=replace(
                    incarnation,
                    store=context.disk(rank),
                    copy_from=copies.get(rank),
                    copy_to=tuple(new for new, old in copies.items() if old == rank),
                    heartbeat_s=incarnation.heartbeat_s if rank in self.members else 0.0,
                ),
            )
            for rank in (*self.members, *servers)
        ]

    @property
    def _decision_s(self) -> float:
        """Seconds after which the controller has certainly declared a dead or hanging rank failed.

        Its peers wait so long at least, so that they neither give up nor end before.
        """
        detection = self.spec.detection
        return 2 * (detection.heartbeat_s * detection.misses + STALL_S)

    def _copies(self, newcomers: Sequence[int]) -> dict[int, int]:
        """Source of each newcomer's checkpoint: newcomer -> a living host that has it, round-robin.

        ``AgentError`` if no such host is left.
        """
        having = [rank for rank in self._holders if rank not in self._told_dead | self._context.dead]
        if newcomers and not having:
            raise AgentError(f"no host that holds the checkpoint of job {self.spec.name} is left")
        return {rank: having[number % len(having)] for number, rank in enumerate(newcomers)}

    # ---- events --------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Advance the job: start it when all agents are ready, record checkpoints, end it when all are done."""
        if self.team is None or self.over:
            return
        self._take_checkpoints()
        if self.state == "starting":
            self._start(now)
        elif self.state == "running" and self.team.finished.issuperset(self.members):
            self.end("done")
        self._look_for_failures()

    def _start(self, now: float) -> None:
        team = self.team
        assert team is not None
        if team.ready.issuperset(self.members):
            self.go_t = self._context.clock() + GO_S
            team.go(self.go_t)
            self.state = "running"
            if self.first_step:
                self._holders = self.members  # a ready agent has loaded the checkpoint from its own disk
            return
        if now - self._launched > LAUNCH_S:
            for rank in self.members:
                if rank not in team.pids and rank not in self._reported:
                    self._reported.add(rank)
                    self._report_failed(rank, f"its agent did not start within {LAUNCH_S:g} s")
        if now > self._deadline:
            late = next(rank for rank in self.members if rank not in team.ready)
            raise AgentError(f"rank {late} of job {self.spec.name} did not get ready in incarnation {self.incarnation}")

    def _look_for_failures(self) -> None:
        """Raise the error of an agent, unless the agent is dead or failed because a peer died.

        The controller reports the dead peer. If it never does (an unwatched chip), the timeout of the run applies.
        """
        assert self.team is not None
        for failure in self.team.failures:
            excused = failure.consequence or failure.rank in self._context.dead
            if not excused and not self._context.dead.intersection(self.members):
                raise AgentError(failure.sentence)

    def _take_checkpoints(self) -> None:
        """Record checkpoints as acknowledged when every member has them on its disk."""
        assert self.team is not None
        stored = [set(self.team.checkpoints.get(rank, ())) for rank in self.members]
        for step, checksum in sorted(set.intersection(*stored)):
            if step > self.last_checkpoint:
                self.acknowledged.append((step, checksum))
                self._holders = self.members

    def handle_messages(self) -> None:
        """Handle replies of the controller: the job has new members, or is stranded.

        ``ControlError`` when the controller is gone.
        """
        assert self.channel is not None
        for request, answer in self.channel.receive():
            if request["op"] == "watch":
                self._changed(answer)

    def _changed(self, answer: dict[str, Any]) -> None:
        self._told_dead.update(answer.get("dead", ()))
        if answer["state"] == "stranded":
            self.end("stranded", str(answer.get("reason", "")))
            return
        if self.team is not None:
            for rank in self._told_dead.intersection(self.team.pids):
                self.team.kill(rank)  # one that hangs would not stop
        self._interrupt()
        self.members = tuple(answer["members"][self.spec.name])
        self._watch(int(answer["number"]))
        if self._restart():
            self.resume()
        else:
            self.team = None

    def _restart(self) -> bool:
        """Announce a new incarnation to the controller; False if the job is stranded, which the watch will report."""
        call, name = self._context.session.call, self.spec.name
        try:
            call("restart", job=name)
        except ControlError:
            if not any(job["name"] == name and job["state"] == "stranded" for job in call("jobs")["jobs"]):
                raise
            return False
        return True

    def _interrupt(self) -> None:
        if self.team is not None:
            self._take_checkpoints()
            self.team.stop()
            self._take_checkpoints()
            self._done_before = self.steps_done

    def resume(self) -> None:
        """Begin the next incarnation from the last acknowledged checkpoint, or from step 0 if there is none."""
        first = self.last_checkpoint
        lacking = [rank for rank in self.members if rank not in self._holders] if first else []
        self.resumed.append((first, max(0, self._done_before - first)))
        self.begin(first, lacking)

    def interrupt(self) -> None:
        """End the incarnation because the controller is gone; ``register`` and ``resume`` must follow."""
        self._interrupt()
        self.close_channel()

    def end(self, state: Literal["done", "stranded"], reason: str = "") -> None:
        """End the job unless it is over. The controller is told first: it must not take ending agents for failures.

        A controller that hangs delays this by up to ``ack_timeout_s``, one that has ended does not.
        """
        if self.over:
            return
        self.state, self.reason = state, reason
        with suppress(ControlError):
            self._context.session.call("finish", job=self.spec.name)
        self.close_channel()
        if self.team is not None:
            self._take_checkpoints()
            self.team.stop()

    def keep_checkpoint(self, folder: Path) -> Path | None:
        """Copy the last acknowledged checkpoint into ``folder``; returns its path, or None if there is none."""
        living = [rank for rank in self._holders if rank not in self._context.dead]
        if not self.acknowledged or not living:
            return None
        make_folder(folder)
        for file in Path(self._context.disk(living[0])).iterdir():
            if f"{self.last_checkpoint:08d}" in file.name:
                kept = folder / f"{self.spec.name}-{file.name}"
                there = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                with open(there, "rb") as checkpoint, naming(kept), open_binary(kept, "wb") as copy:
                    shutil.copyfileobj(checkpoint, copy)
                return kept
        return None

    def _watch(self, seen: int) -> None:
        if self.channel is None:
            session = self._context.session
            if session.channel_path is None:
                raise ControlError("a training job needs Railyard's controller (ryu or os-ken)")
            timeout_s = session.settings.ack_timeout_s
            self.channel = JobChannel(session.channel_path, self.spec.name, self.members[0], timeout_s)
        self.channel.request("watch", seen=seen)

    def close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
