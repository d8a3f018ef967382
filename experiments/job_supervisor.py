"""Supervisor of one job of a point: registers it, starts and watches its agents, and restarts a training job.

It has the part of a cluster manager and a launcher (torchrun). Of a training job the controller decides which chips are
dead and which spares replace them; the supervisor then ends the rest of the incarnation and begins the next one with
the new members, after the checkpoint is copied to members that lack it. Of any other job the end of an agent is an
error, and so is one that hangs. Every wait has a timeout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from controllers.engine.jobs import Job
from experiments.job_point import JobPoint, Training
from experiments.point_run import PointRun
from experiments.script import ScriptTeam
from measure.model.wires import checkpoint_seconds
from railyard.errors import AgentError, ControlError
from railyard.liveness import STALL_S
from railyard.ownership import make_folder, naming, open_binary
from workloads.agent.config import AgentConfig, Incarnation
from workloads.agent.job_channel import JobChannel
from workloads.agent.launcher import READY_S, AgentTeam

LAUNCH_S = 2.0
"""Seconds after the launch within which an agent must be forked; after that its host counts as dead."""
GO_S = 0.1
"""Seconds from the last agent that is ready to the first step, in which the start message must reach all agents."""
_SLACK_S = 30.0
STOP_S = 2.0
"""Seconds in which the agents of a job that is done end by themselves, before that is waited for."""
_TICK_S = 0.1
"""Longest time between two checks of the timeouts of a training job; messages are handled when they arrive."""

State = Literal["new", "starting", "ready", "running", "ending", "done", "stranded"]


class JobSupervisor:
    """Supervisor of one job; ``poll`` and ``handle_messages`` are called repeatedly and raise errors of the job."""

    def __init__(self, run: PointRun, job: JobPoint, *, outlives_controller: bool = False) -> None:
        self.job = job
        self.name = job.job_name
        self.members = job.members or tuple(range(run.session.plan.ranks))
        """Those of its program's ranks, in order; set anew for a job that gets them as it begins."""
        self.state: State = "new"
        self.reason = ""
        self.incarnation = -1
        self.first_step = 0
        self.team: AgentTeam | None = None
        self.script: ScriptTeam | None = None
        """The processes of this incarnation of a PyTorch script."""
        self.acknowledged: list[tuple[int, int]] = []
        """(steps, checksum) of every checkpoint that all members have stored."""
        self.resumed: list[tuple[int, int]] = []
        """(first step, steps that are repeated) of every incarnation after the first."""
        self.channel: JobChannel | None = None
        self.go_t = 0.0
        """Start of the first step of this incarnation (monotonic seconds), once the job runs."""
        self.epoch: float | None = None
        """The same of the first incarnation that ran."""
        self._run = run
        self._outlives_controller = outlives_controller
        self._registered = self._ended = False
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

    def register(self, *, resumes: bool = False) -> None:
        """Register the job with the controller, and watch for changes of the members of a training job.

        ``resumes``: its agents have outlived the controller before, and go on with this one.
        """
        job, emulated = self.job, self._run.scale.emulated_s
        self._run.session.register(
            Job(
                name=self.name,
                groups=tuple(job.program_of(self.members).groups.values()),
                mode=job.mode,
                reconfiguration_delay_s=emulated(job.reconfiguration_delay_s),
                link_recovery_s=emulated(job.link_recovery_s),
                detection=None if job.training is None else job.training.detection,
                cycle=job.cycle,
                traffic=job.traffic,
            ),
            job.policy,
            resumes=resumes,
        )
        self._registered = True
        if job.training is not None:
            self._watch(0)

    def report_dead(self) -> None:
        """Report chips that the controller before had declared dead to a restarted controller."""
        for rank in sorted(self._told_dead):
            self._report_failed(rank, "dead before the controller's restart")

    def _report_failed(self, rank: int, cause: str) -> None:
        self._run.session.call("failed", job=self.name, rank=rank, cause=cause)

    # ---- incarnations --------------------------------------------------------------------------------------------

    def begin(self, first_step: int = 0, newcomers: Sequence[int] = ()) -> None:
        """Begin an incarnation at ``first_step``; ``newcomers`` are members that lack the checkpoint."""
        run, training, now = self._run, self.job.training, self._run.clock()
        self.incarnation += 1
        self.first_step = first_step
        self.state = "starting"
        self._launched = now
        self._reported.clear()
        template = AgentConfig(
            rank=0,
            events="",
            job=self.name,
            mode=self.job.agent_mode,
            program=self.job.program_of(self.members),
            scale=run.scale,
            plan=run.session.plan,
            channel=run.session.channel_path,
            steps=self.job.steps,
            seed=run.session.settings.seed,
            verify=run.session.settings.verify,
            ack_timeout_s=run.session.settings.ack_timeout_s,
            profile_steps=self.job.profile_steps,
            stale_step=self.job.stale_step,
            outlives_controller=self._outlives_controller,
            agents_per_process=run.session.settings.agents_per_process,
        )
        if training is None:
            self._deadline = now + READY_S
            configs = [replace(template, rank=rank, events=str(run.folder / f"g{rank}.jsonl")) for rank in self.members]
        else:
            self._deadline = now + self._start_limit_s(training, bool(newcomers))
            if training.arrivals is not None and not self.incarnation:
                self._holders = self.job.holders(self.members)
            run.note("launch", now, job=self.name, incarnation=self.incarnation, members=list(self.members))
            configs = self._training_configs(template, training, newcomers)
        script = self.job.script
        if script is not None:
            self._deadline = math.inf  # the time-out of the script counts
            configs = [
                replace(
                    config,
                    script=run.script_socket(config.rank, self.incarnation),
                    script_pause_s=script.timeout_s,
                )
                for config in configs
            ]
        self.team = run.launch(configs)
        if script is not None:
            self.script = run.launch_script(script, self.members, self.incarnation)

    def _start_limit_s(self, training: Training, copies: bool) -> float:
        """Seconds within which agents must be ready; ``copies``: whether some have to copy the checkpoint first."""
        start_s, scale = sum(seconds for _, seconds in training.stages), self._run.scale
        if copies:
            plan, members = self._run.session.plan, len(self.members)
            start_s += 3 * checkpoint_seconds(training.state_bytes, plan, scale, members)
        return scale.emulated_s(start_s) + _SLACK_S

    def _training_configs(
        self, template: AgentConfig, training: Training, newcomers: Sequence[int]
    ) -> list[AgentConfig]:
        run, copies = self._run, self._copies(newcomers)
        incarnation = Incarnation(
            number=self.incarnation,
            first_step=self.first_step,
            group=self.name if self.name in template.program.groups else "",
            checkpoint_every=training.checkpoint_every,
            state_bytes=round(training.state_bytes),
            given=training.stages,
            heartbeat_s=training.detection.heartbeat_s,
            serves=training.arrivals is not None,
            epoch=self.epoch,
        )
        template = replace(template, ack_timeout_s=max(template.ack_timeout_s, self._decision_s(training)))
        servers = [rank for rank in dict.fromkeys(copies.values()) if rank not in self.members]
        return [
            replace(
                template,
                rank=rank,
                events=str(run.folder / f"{self.name}-incarnation{self.incarnation}-g{rank}.jsonl"),
                incarnation=replace(
                    incarnation,
                    store=run.disk(rank),
                    copy_from=copies.get(rank),
                    copy_to=tuple(new for new, old in copies.items() if old == rank),
                    heartbeat_s=incarnation.heartbeat_s if rank in self.members else 0.0,
                ),
            )
            for rank in (*self.members, *servers)
        ]

    @staticmethod
    def _decision_s(training: Training) -> float:
        """Seconds after which the controller has certainly declared a dead or hanging rank failed.

        Its peers wait so long at least, so that they neither give up nor end before.
        """
        detection = training.detection
        return 2 * (detection.heartbeat_s * detection.misses + STALL_S)

    def _copies(self, newcomers: Sequence[int]) -> dict[int, int]:
        """Source of each newcomer's checkpoint: newcomer -> a living host that has it, round-robin.

        ``AgentError`` if no such host is left.
        """
        having = [rank for rank in self._holders if rank not in self._told_dead | self._run.dead]
        if newcomers and not having:
            raise AgentError(f"no host that holds the checkpoint of job {self.name} is left")
        return {rank: having[number % len(having)] for number, rank in enumerate(newcomers)}

    # ---- events --------------------------------------------------------------------------------------------------

    def poll(self, now: float, heard: bool) -> None:
        """Advance the job: start it when all agents are ready, record checkpoints, end it when all are done.

        ``heard``: messages came since the last call, so more may wait.
        """
        if self.team is None or self.over:
            return
        if self.script is not None:
            self._poll_script(self.script, wait=bool(self.team.failures))
            if self.over:
                return
        if self.job.training is None:
            self.team.check(heard)
        else:
            self._take_checkpoints()
            if self.state == "running" and self.steps_done >= self.job.steps:
                self._free()  # while its agents still write what they have seen
        if self.state == "starting":
            self._start(now, heard)
        elif self.state == "running" and self._finished:
            if self.job.training is None:
                self.state = "done"  # its agents end when all counters are read
            else:
                self._free()
                self.team.begin_stop()
                self.state, self._deadline = "ending", now + STOP_S
        elif self.state == "ending" and (self.team.gone or now >= self._deadline):
            self.end("done")
        if self._registered and self.job.training is not None:
            self._look_for_failures()

    def _poll_script(self, script: ScriptTeam, *, wait: bool) -> None:
        """Look after the processes of a script; one that went on from its checkpoint may be done before all else."""
        if self.job.training is None:
            script.poll(self.steps_done, wait=wait)
        else:
            script.poll(self.steps_done, patience_s=self._decision_s(self.job.training))
        if self.state == "starting" and script.ended_well:
            if not self.incarnation:
                raise AgentError("the script ended before its recorded step; it must do more steps than setup_steps")
            self.end("done")

    @property
    def _finished(self) -> bool:
        """All agents have done their steps, and no process of a script is left."""
        assert self.team is not None
        return self.team.finished.issuperset(self.members) and (self.script is None or self.script.over)

    def _start(self, now: float, heard: bool) -> None:
        team = self.team
        assert team is not None
        if team.ready.issuperset(self.members):
            self.state = "ready"
            if self.job.training is not None:
                self.go(self._run.clock() + GO_S)
            return
        if self.job.training is None:
            if now >= self._deadline and not heard:
                raise self.late(READY_S)
            return
        if now - self._launched > LAUNCH_S:
            for rank in self.members:
                if rank not in team.pids and rank not in self._reported:
                    self._reported.add(rank)
                    self._report_failed(rank, f"its agent did not start within {LAUNCH_S:g} s")
        if now > self._deadline:
            late = next(rank for rank in self.members if rank not in team.ready)
            raise AgentError(f"rank {late} of job {self.name} did not get ready in incarnation {self.incarnation}")

    def go(self, at: float) -> None:
        """Start the first step of all agents, which are ready, at the time ``at``."""
        assert self.team is not None
        self.go_t = at
        self.epoch = at if self.epoch is None else self.epoch
        self.team.go(at)
        self.state = "running"
        if self._holders:
            self._holders = self.job.holders(self.members)  # a ready agent has loaded the state from its own disk

    def late(self, timeout_s: float) -> AgentError:
        if self.job.training is not None or self.team is None:
            return AgentError(
                f"job {self.name} was not over within {timeout_s:.0f} s: {self.state} in incarnation "
                f"{self.incarnation}, {self.steps_done} of {self.job.steps} steps done"
            )
        arrived, aim = self.team.finished, "finish its program"
        if self.state == "starting":
            arrived, aim = self.team.ready, "get ready"
        late = next(rank for rank in self.members if rank not in arrived)
        return AgentError(f"the agent of rank {late} did not {aim} within {timeout_s:g} s")

    def next_poll(self, now: float) -> float:
        if self.job.training is not None or self.script is not None:
            return now + _TICK_S
        starts = self._deadline if self.state == "starting" else math.inf
        return starts if self.team is None else min(starts, self.team.next_check())

    def _look_for_failures(self) -> None:
        """Raise the error of an agent, unless the agent is dead or failed because a peer died.

        The controller reports the dead peer. If it never does (an unwatched chip), the timeout of the run applies.
        """
        assert self.team is not None
        for failure in self.team.failures:
            excused = failure.consequence or failure.rank in self._run.dead
            if not excused and not self._run.dead.intersection(self.members):
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
        for answer in self.channel.receive():
            answer.check()
            if answer.request["op"] == "watch":
                self._changed(answer.fields)

    def _changed(self, answer: dict[str, Any]) -> None:
        self._told_dead.update(answer.get("dead", ()))
        if answer["state"] == "stranded":
            self.end("stranded", str(answer.get("reason", "")))
            return
        if self.team is not None:
            for rank in self._told_dead.intersection(self.team.pids):
                self.team.kill(rank)  # one that hangs would not stop
        self._interrupt()
        replaced = dict(answer["replacements"])
        self.members = tuple(replaced.get(rank, rank) for rank in self.members)
        self._watch(int(answer["number"]))
        if self._restart():
            self.resume()
        else:
            self.team = None

    def _restart(self) -> bool:
        """Announce a new incarnation to the controller; False if the job is stranded, which the watch will report."""
        call, name = self._run.session.call, self.name
        try:
            call("restart", job=name)
        except ControlError:
            if not any(job["name"] == name and job["state"] == "stranded" for job in call("jobs")["jobs"]):
                raise
            return False
        return True

    def _interrupt(self) -> None:
        if self.script is not None:
            self.script.stop(at_once=True)
        if self.team is not None:
            self._take_checkpoints()
            self.team.stop()
            self._take_checkpoints()
            self._done_before = self.steps_done

    def resume(self) -> None:
        """Begin the next incarnation from the last acknowledged checkpoint, or from step 0 if there is none.

        An inference job goes on with the first request that is not answered.
        """
        first, lacking = self.last_checkpoint if self.job.arrivals is None else self._done_before, list[int]()
        if self._holders and not (self.job.training is not None and self.job.training.preloaded):
            lacking = [rank for rank in self.job.holders(self.members) if rank not in self._holders]
        self.resumed.append((first, max(0, self._done_before - first)))
        self.begin(first, lacking)

    def interrupt(self) -> None:
        """End the incarnation because the controller is gone; ``register`` and ``resume`` must follow."""
        self._interrupt()
        self.close_channel()

    def end(self, state: Literal["done", "stranded"], reason: str = "") -> None:
        """End the job, unless it has ended or was not registered.

        The controller is told first: it must not take ending agents for failures. One that hangs
        delays this by up to ``ack_timeout_s``, one that has ended does not.
        """
        if self._ended or (self.team is None and not self._registered):
            return
        self._ended = True
        if not self.over:
            self.state, self.reason = state, reason
        try:
            self._free()
        finally:
            if self.script is not None:
                self.script.stop()
            if self.team is not None:
                self._take_checkpoints()
                self.team.stop()

    def _free(self) -> None:
        """Tell the controller that the job is over, if it is registered, so that others may have its ports."""
        if not self._registered:
            return
        self._registered = False
        try:
            with suppress(ControlError):
                self._run.session.call("finish", job=self.name)
        finally:
            self.close_channel()

    def keep_checkpoint(self, folder: Path) -> Path | None:
        """Copy the last acknowledged checkpoint into ``folder``; returns its path, or None if there is none."""
        living = [rank for rank in self._holders if rank not in self._run.dead]
        if not self.acknowledged or not living:
            return None
        make_folder(folder)
        name = f"checkpoint-{self.last_checkpoint:08d}"
        kept = folder / f"{self.name}-{name}"
        with naming(kept), open_binary(kept, "wb") as copy:
            copy.writelines(self._run.session.read_disk(living[0], self._run.disk(living[0]), name))
        return kept

    def _watch(self, seen: int) -> None:
        if self.channel is None:
            session = self._run.session
            if session.channel_path is None:
                raise ControlError("a training job needs Railyard's controller (ryu or os-ken)")
            timeout_s = session.settings.ack_timeout_s
            self.channel = JobChannel(session.channel_path, self.name, self.members[:1], timeout_s)
        self.channel.request("watch", seen=seen)

    def close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
