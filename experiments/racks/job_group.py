"""Runs several training jobs beside each other on one site, kills what is to be killed, and outlives its controller."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from experiments.racks.kill import Kill
from experiments.racks.run_context import RunContext
from experiments.racks.supervisor import JobSupervisor
from railyard.errors import AgentError, ControlError, RailyardError

STEPS_AFTER = 3
"""Whole steps that a job which does not end by itself is given after its last failure."""
_TICK_S = 0.1
"""How often bounds are looked at; everything else wakes the crew up."""
_PATIENCE_S = 1.0
"""A controller that is ending closes its sockets so much earlier."""


class _Pace(NamedTuple):
    """Where a job is in its life: steps done, when the next one began, what one took (0: it has done none yet)."""

    done: int
    since: float
    took: float


class JobGroup:
    """``jobs[0]`` decides when the run is over. ``kills`` in order; ``heard`` is told of what happens, in words."""

    def __init__(
        self,
        context: RunContext,
        jobs: Sequence[JobSupervisor],
        kills: Sequence[Kill] = (),
        heard: Callable[[str], None] = lambda text: None,
        controller_dies_after_s: float | None = None,
    ) -> None:
        self._context = context
        self._jobs = tuple(jobs)
        self._kills = list(kills)
        self._heard = heard
        self._kill_at: float | None = None
        self._last_kill: float | None = None
        self._controller_dies_after_s = controller_dies_after_s
        self._controller_dies_at: float | None = None
        self._pace: dict[str, _Pace] = {}
        """Of the jobs that run."""

    def run(self, timeout_s: float) -> None:
        """From the first incarnation of all jobs to the end; every job is stopped whatever happens.

        Raises ``AgentError`` when the jobs are not over within ``timeout_s`` (wall-clock), and what ended a job badly.
        """
        end = self._context.clock() + timeout_s
        with ExitStack() as stack:
            for job in self._jobs:
                stack.callback(_end, job)
            for job in self._jobs:
                job.register()
            for job in self._jobs:
                job.begin()
            while not self._settled():
                self._turn()
                if self._context.clock() > end:
                    slow = next(job for job in self._jobs if not job.over)
                    raise AgentError(
                        f"job {slow.spec.name} was not over within {timeout_s:.0f} s: {slow.state} in incarnation "
                        f"{slow.incarnation}, {slow.steps_done} of {slow.spec.steps} steps done"
                    )
        for kill in self._kills:
            self._heard(f"the kill {kill} was not carried out: the run was over before")

    def _settled(self) -> bool:
        """Whether the first job is over and the others have shown how they go on."""
        first, *others = self._jobs
        return first.over and all(job.over or self._shown(job) for job in others)

    def _shown(self, job: JobSupervisor) -> bool:
        if job.state != "running":
            return False
        return job.incarnation == 0 or job.steps_done - job.first_step >= STEPS_AFTER

    def _turn(self) -> None:
        now = self._context.clock()
        try:
            for job in self._jobs:
                job.poll(now)
            self._count_steps(now)
            self._kill_due(now)
            self._listen(self._next_event(now))
        except (ControlError, AgentError) as error:  # agents too end when the controller does, and may be heard first
            self._controller_gone(error)

    # ---- sockets -------------------------------------------------------------------------------------------------

    def _listen(self, wait_s: float) -> None:
        """Sleep until somebody says something, and take it in."""
        launcher = self._context.launcher
        channels = {job.channel: job for job in self._jobs if job.channel is not None}
        readers: list[Any] = [launcher, *channels]
        readable, _, _ = select.select(readers, [], [], wait_s)
        while launcher.listen(0.0):
            continue
        for channel, job in channels.items():
            if channel in readable and job.channel is channel:
                members, state = job.members, job.state
                job.hear()
                self._tell(job, members, state)

    def _tell(self, job: JobSupervisor, members: tuple[int, ...], state: str) -> None:
        if job.state == "stranded" and state != "stranded":
            self._heard(f"job {job.spec.name} stops: {job.reason}")
        elif job.members != members:
            new = [rank for rank in job.members if rank not in members]
            self._heard(
                f"job {job.spec.name}: rank {', '.join(map(str, new))} stands in; "
                f"incarnation {job.incarnation} begins at step {job.first_step}"
            )

    def _next_event(self, now: float) -> float:
        times = [now + _TICK_S, self._kill_at, self._controller_dies_at]
        return max(0.0, min(t for t in times if t is not None) - now)

    # ---- kills ---------------------------------------------------------------------------------------------------

    def _count_steps(self, now: float) -> None:
        for job in self._jobs:
            name, done = job.spec.name, job.steps_done
            pace = self._pace.get(name)
            if job.state != "running":
                self._pace.pop(name, None)
            elif pace is None:
                self._pace[name] = _Pace(done, job.go_t, 0.0)
            elif done > pace.done:
                self._pace[name] = _Pace(done, now, (now - pace.since) / (done - pace.done))

    def _kill_due(self, now: float) -> None:
        if self._controller_dies_at is not None and now >= self._controller_dies_at:
            self._controller_dies_at = None
            self._kill_controller()
        if not self._kills:
            return
        kill = self._kills[0]
        job = next((job for job in self._jobs if kill.rank in job.members), self._jobs[0])
        if self._kill_at is None:
            self._kill_at = self._when(kill, job)
        if self._kill_at is not None and now >= self._kill_at:
            self._kills.pop(0)
            self._kill_at = None
            self._kill(kill, job)

    def _when(self, kill: Kill, job: JobSupervisor) -> float | None:
        """The moment of a kill, once it can be known."""
        if kill.after_s is not None:
            return None if self._last_kill is None else self._last_kill + self._context.scale.emulated_s(kill.after_s)
        pace = self._pace.get(job.spec.name)
        if pace is None or pace.done < kill.whole_steps:
            return None
        return pace.since + kill.share * (pace.took or job.spec.predicted_step_s)

    def _kill(self, kill: Kill, job: JobSupervisor) -> None:
        member = kill.rank in job.members
        self._context.kill(kill.rank, job.spec.name if member else "", job.team if member else None)
        self._last_kill = self._context.clock()
        what = f"a member of job {job.spec.name}" if member else "a spare"
        self._heard(f"rank {kill.rank} is killed, {what}, {job.steps_done} steps done")
        if self._controller_dies_after_s is not None:
            after_s = self._context.scale.emulated_s(self._controller_dies_after_s)
            self._controller_dies_at, self._controller_dies_after_s = self._last_kill + after_s, None

    # ---- the controller ------------------------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        controller = self._context.session.controller
        assert controller is not None
        self._heard("the controller is killed")
        self._context.note("fault", job="", rank=-1, what="the controller is killed")
        controller.process.kill()

    def _controller_gone(self, error: RailyardError) -> None:
        """Start it again and begin new lives; ``error`` is raised if it is there all the same."""
        session = self._context.session
        assert session.controller is not None
        try:
            session.check(_PATIENCE_S)
        except ControlError:
            pass
        else:
            raise error
        going = [job for job in self._jobs if not job.over]
        for job in going:
            job.interrupt()
        session.restart_controller()
        self._heard("the controller was started again; jobs go on from their last checkpoints")
        for job in going:
            job.register()
        for job in going:  # all are known by now: nobody is given a spare that is in another job
            job.report_dead()
        for job in going:
            job.resume()


def _end(job: JobSupervisor) -> None:
    if not job.over:
        job.end("done")
