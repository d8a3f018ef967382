"""Runs several training jobs at the same time on one fabric, with kills of chips and of the controller."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from experiments.racks.kill import Kill
from experiments.racks.run_context import RunContext
from experiments.racks.supervisor import JobSupervisor
from railyard.errors import AgentError, ControlError, RailyardError

STEPS_AFTER = 3
"""Complete steps that the other jobs must do after their last restart before the run may end."""
_TICK_S = 0.1
"""Longest time between two checks of timeouts, in seconds; messages are handled when they arrive."""
_PATIENCE_S = 1.0
"""Longest time from a controller's sockets closing to its end, in seconds."""


class _Pace(NamedTuple):
    """Progress of a job in its incarnation: steps done, start of the next step, duration of a step (0: none done)."""

    done: int
    since: float
    took: float


class JobGroup:
    """Several jobs on one fabric; the run is over when ``jobs[0]`` is.

    ``kills`` happen in order; ``report`` is called with progress lines. The controller is killed
    ``controller_dies_after_s`` real seconds after the first kill, unless that is None.
    """

    def __init__(
        self,
        context: RunContext,
        jobs: Sequence[JobSupervisor],
        kills: Sequence[Kill] = (),
        report: Callable[[str], None] = lambda text: None,
        controller_dies_after_s: float | None = None,
    ) -> None:
        self._context = context
        self._jobs = tuple(jobs)
        self._kills = list(kills)
        self._report = report
        self._kill_at: float | None = None
        self._last_kill: float | None = None
        self._controller_dies_after_s = controller_dies_after_s
        self._controller_dies_at: float | None = None
        self._pace: dict[str, _Pace] = {}
        """Progress of the running jobs, by name."""

    def run(self, timeout_s: float) -> None:
        """Run all jobs from their first incarnation to the end; every job is stopped in any case.

        ``AgentError`` when the jobs are not over within ``timeout_s`` (wall-clock); errors of a job are raised too.
        """
        end = self._context.clock() + timeout_s
        with ExitStack() as stack:
            for job in self._jobs:
                stack.callback(job.end, "done")
            for job in self._jobs:
                job.register()
            self._context.note_circuits()
            for job in self._jobs:
                job.begin()
            while not self._finished():
                self._poll()
                if self._context.clock() > end:
                    slow = next(job for job in self._jobs if not job.over)
                    raise AgentError(
                        f"job {slow.spec.name} was not over within {timeout_s:.0f} s: {slow.state} in incarnation "
                        f"{slow.incarnation}, {slow.steps_done} of {slow.spec.steps} steps done"
                    )
        for kill in self._kills:
            self._report(f"the kill {kill} was not executed: the run ended before")

    def _finished(self) -> bool:
        """Whether the first job is over and the others are over or have resumed."""
        first, *others = self._jobs
        return first.over and all(job.over or self._has_resumed(job) for job in others)

    def _has_resumed(self, job: JobSupervisor) -> bool:
        if job.state != "running":
            return False
        return job.incarnation == 0 or job.steps_done - job.first_step >= STEPS_AFTER

    def _poll(self) -> None:
        now = self._context.clock()
        try:
            for job in self._jobs:
                job.poll(now)
            self._count_steps(now)
            self._kill_due(now)
            self._listen(self._next_event(now))
        except (ControlError, AgentError) as error:  # agents end when the controller does, and may be noticed first
            self._controller_gone(error)

    # ---- sockets -------------------------------------------------------------------------------------------------

    def _listen(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` for messages of agents and controller, and handle them."""
        launcher = self._context.launcher
        channels = {job.channel.fileno(): (job.channel, job) for job in self._jobs if job.channel is not None}
        with select.epoll() as waiting:  # select() has no room for descriptors above 1023
            for fd in (launcher.fileno(), *channels):
                waiting.register(fd, select.EPOLLIN)
            readable = {fd for fd, _ in waiting.poll(wait_s)}
        while launcher.listen(0.0):
            continue
        for fd, (channel, job) in channels.items():
            if fd in readable and job.channel is channel:
                members, state = job.members, job.state
                job.handle_messages()
                self._report_change(job, members, state)

    def _report_change(self, job: JobSupervisor, members: tuple[int, ...], state: str) -> None:
        if job.state == "stranded" and state != "stranded":
            self._report(f"job {job.spec.name} stops: {job.reason}")
        elif job.members != members:
            new = [rank for rank in job.members if rank not in members]
            gone = [rank for rank in members if rank not in job.members]
            self._report(
                f"job {job.spec.name}: rank {', '.join(map(str, new))} replaces {', '.join(map(str, gone))}; "
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
            self._kill_at = self._kill_time(kill, job)
        if self._kill_at is not None and now >= self._kill_at:
            self._kills.pop(0)
            self._kill_at = None
            self._kill(kill, job)

    def _kill_time(self, kill: Kill, job: JobSupervisor) -> float | None:
        """The time of a kill (event clock); None as long as it is not known."""
        if kill.after_s is not None:
            return None if self._last_kill is None else self._last_kill + self._context.scale.emulated_s(kill.after_s)
        pace = self._pace.get(job.spec.name)
        whole, share = divmod(kill.step or 0.0, 1)
        if pace is None or pace.done < whole:
            return None
        return pace.since + share * (pace.took or job.spec.predicted_step_s)

    def _kill(self, kill: Kill, job: JobSupervisor) -> None:
        member = kill.rank in job.members
        self._context.kill(kill.rank, job.spec.name if member else "", job.team if member else None)
        self._last_kill = self._context.clock()
        what = f"a member of job {job.spec.name}" if member else "a spare"
        self._report(f"rank {kill.rank} is killed, {what}, {job.steps_done} steps done")
        if self._controller_dies_after_s is not None:
            after_s = self._context.scale.emulated_s(self._controller_dies_after_s)
            self._controller_dies_at, self._controller_dies_after_s = self._last_kill + after_s, None

    # ---- the controller ------------------------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        controller = self._context.session.controller
        assert controller is not None
        self._report("the controller is killed")
        self._context.note("fault", job="", rank=-1, what="the controller is killed")
        controller.process.kill()

    def _controller_gone(self, error: RailyardError) -> None:
        """Restart the controller and begin new incarnations; raises ``error`` if the controller has not ended."""
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
        self._report("the controller was restarted; jobs resume from their last checkpoints")
        for job in going:
            job.register()
        for job in going:  # after all are registered, so that no job gets a spare that another job uses
            job.report_dead()
        for job in going:
            job.resume()
