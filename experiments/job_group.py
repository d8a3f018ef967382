"""The jobs of a point, led to their end through its faults, by one loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, nullcontext
from math import inf
from typing import Any, NamedTuple, Protocol

from experiments.fabric_acts import FabricActs
from experiments.faults import NO_FAULTS, Faults, Kill
from experiments.job_point import JobPoint
from experiments.job_supervisor import GO_S, JobSupervisor, State
from experiments.point_run import PointRun, note_circuits
from experiments.timetable import TimedAct, Timetable
from railyard.errors import AgentError, ControlError, RailyardError
from railyard.loop import READ, HasFileno, Poller
from railyard.priority import real_time

STEPS_AFTER = 3
"""Complete steps that the other training jobs must do after their last restart before the run may end."""
_START_AFTER_S = 0.2
"""Seconds from the start message to the first step, in which the message must reach every agent."""
_ROUNDED_S = 0.001
"""How long before what is due the loop stops sleeping: epoll(7) rounds sleeps up to a millisecond."""
_PATIENCE_S = 1.0
"""Longest time from a controller's sockets closing to its end where it is started again, in seconds."""


class _Pace(NamedTuple):
    """Progress of a job in its incarnation: steps done, start of the next step, duration of a step (0: none done)."""

    done: int
    since: float
    took: float


class Arrivals(Protocol):
    """Jobs that come and go, by name; ``experiments.shared_rails.arrivals`` has the one that leases servers."""

    @property
    def next_s(self) -> float:
        """When the next job arrives, in wall-clock seconds after the point began; infinite if none does."""
        ...

    def start(self, elapsed_s: float, dead: Set[int]) -> list[tuple[str, tuple[int, ...]]]:
        """The jobs that begin now, each with its members, of which none is ``dead``."""
        ...

    def end(self, job: str) -> None:
        """Take back what a job has that is over; called again and again."""
        ...

    def hopeless(self) -> list[tuple[str, str]]:
        """The jobs that can never begin, each with the reason, once."""
        ...


class JobGroup:
    """The jobs of a point on one fabric.

    Jobs start together and are over together. With a training job among them each starts as it is ready, and the point
    is over when ``jobs[0]`` is and the others have resumed. With ``arrivals`` training jobs come and go, each when it
    gets its members, and the point is over when all are.

    ``say`` is called with progress lines, ``on_step`` with the number of steps that ``jobs[0]`` (with ``arrivals``: all
    jobs together) has done.
    """

    def __init__(
        self,
        run: PointRun,
        jobs: Sequence[JobPoint],
        faults: Faults = NO_FAULTS,
        say: Callable[[str], None] = lambda text: None,
        on_step: Callable[[int], None] = lambda done: None,
        arrivals: Arrivals | None = None,
    ) -> None:
        outlives = faults.controller_dies_step is not None
        self.jobs = tuple(JobSupervisor(run, job, outlives_controller=outlives) for job in jobs)
        self.began = self.ended = run.clock()
        """When the point began and ended; of jobs that start together the preparation comes before."""
        self._run = run
        self._trains = any(job.training is not None for job in jobs)
        self._say = say
        self._on_step = on_step
        self._arrivals = arrivals
        self._by_name = {job.name: job for job in self.jobs}
        self._placed = [] if arrivals else list(self.jobs)
        """The jobs that have their members, in the order in which they got them."""
        timed, at_steps = (tuple(act for act in faults.acts if (act.step is None) == known) for known in (True, False))
        self._kills = Timetable(faults.kills, self._kill_time, self._kill)
        self._acts = tuple(Timetable(acts, self._act_time, self._act) for acts in (timed, at_steps))
        controller = Timetable(faults.controller_dies, self._kill_time, self._kill)
        self._due: tuple[Timetable[Any], ...] = (*self._acts, self._kills, controller)
        self._fabric_acts = FabricActs(run.session, self._act_refused)
        self._last_kill: float | None = None
        self._first_go: float | None = None
        """When the first step of ``jobs[0]`` began, of which the times of acts count (with ``arrivals``: the point)."""
        self._controller_died_at: float | None = None
        self._watches = ExitStack()
        self._pace: dict[str, _Pace] = {}
        """Progress of the running jobs, by name."""
        self._steps = 0
        self._heard = True

    def play(self, timeout_s: float, beside: AbstractContextManager[None] | None = None) -> None:
        """Run all jobs from their first incarnation to the end; every job is stopped in any case.

        ``beside`` lasts from the registration of the jobs to the end of their agents.
        ``AgentError`` when the jobs are not over within ``timeout_s`` (wall-clock); errors of a job are raised too.
        """
        try:
            with ExitStack() as longer, ExitStack() as ending:
                for job in self.jobs:
                    ending.callback(job.end, "done")
                for job in self._placed:
                    job.register()
                note_circuits(self._run.session, self._run.folder)
                longer.enter_context(beside or nullcontext())
                longer.enter_context(real_time() if any(acts.left for acts in self._acts) else nullcontext())
                if self._trains:
                    self._play_training(timeout_s)
                else:
                    self._play_together(timeout_s)
        finally:
            if self._trains:
                self.ended = self._run.clock()
            self._run.record_no_more()
            self._fabric_acts.close()
            for act in (act for acts in self._acts for act in acts.left):
                self._run.note("undone", act=str(act), reason="the run ended before")
        for kill in self._kills.left:
            self._say(f"the kill {kill} was not executed: the run ended before")

    def _play_training(self, timeout_s: float) -> None:
        run = self._run
        with run.counting(), run.launcher.watching(run.counted.pids, run.counted.check):
            self.began = run.clock() if self._arrivals else self.began
            for job in self._placed:
                job.begin()
            self._until("done", timeout_s)
            for job in self._placed:
                job.end("done")  # before the counters are read, so that no neighbour sends any more

    def _play_together(self, timeout_s: float) -> None:
        """Run the jobs, of which any that fails ends the run; an error of the network or the controller goes first."""
        run = self._run
        try:
            with run.launcher.watching(run.session.pids, run.check):
                for job in self.jobs:
                    job.begin()
                self._until("ready", inf)
            with run.counting(), self._watches:
                self._watch({*run.session.pids, *run.counted.pids})
                self.began = run.clock()
                run.record(self.began)
                for job in self.jobs:
                    job.go(self.began + _START_AFTER_S)
                run.note("started", self.began, point=run.number)
                self._until("done", timeout_s)
                self.ended = run.clock()
        except RailyardError as error:
            self.ended = run.clock()
            run.check()
            self._blame_remote(error)
            raise
        finally:
            self.ended = max(self.ended, self.began)
            if left := run.left(self.began):
                run.note("left", left[0], what=left[1])
                self._say(left[1])

    def _blame_remote(self, error: RailyardError) -> None:
        """Raise a ``ControlError`` if a remote controller is why agents failed: it left, or installed no circuits."""
        run, remote = self._run, self._run.session.remote
        if remote is None or not isinstance(error, AgentError):
            return
        if left := run.left(self.began):
            raise ControlError(f"{left[1]}, and the run could not go on: {error}") from error
        native = [group for job in self.jobs if job.job.mode == "native" for group in job.job.program.groups.values()]
        remote.explain(error, run.session.plan, native)

    def _watch(self, pids: Iterable[int]) -> None:
        self._watches.enter_context(self._run.launcher.watching(pids, self._check))

    def _check(self) -> None:
        self._run.counted.check()
        self._run.check()

    def _until(self, state: State, timeout_s: float) -> None:
        """Let time pass until all jobs are in ``state``."""
        end = self._run.clock() + timeout_s
        while not self._reached(state):
            self._poll(state, end)
            if self._run.clock() > end and (self._trains or not self._heard):
                raise next(job for job in self.jobs if not job.over).late(timeout_s)

    def _reached(self, state: State) -> bool:
        first, *others = self.jobs
        if not self._trains:
            return all(job.state == state for job in self.jobs)
        if self._arrivals is not None:
            return all(job.over for job in self.jobs)
        return first.over and all(job.over or self._has_resumed(job) for job in others)

    def _has_resumed(self, job: JobSupervisor) -> bool:
        if job.state != "running":
            return False
        return job.incarnation == 0 or job.steps_done - job.first_step >= STEPS_AFTER

    def _poll(self, state: State, end: float) -> None:
        now = self._run.clock()
        try:
            for job in self._placed:
                job.poll(now, self._heard)
                if self._trains and job.state == "ready":
                    job.go(self._run.clock() + GO_S)
            if self._arrivals is not None:
                self._come_and_go(self._arrivals, now)
            self._count_steps(now)
            for each in self._due:
                each.run_due(self._run.clock())
            if self._reached(state):  # the next message may be a heartbeat, seconds from now
                return
            jobs_wake = (job.next_poll(now) for job in self._placed)
            arrives = inf if self._arrivals is None else self.began + self._arrivals.next_s
            wake = (end, arrives, *(each.next_time() - _ROUNDED_S for each in self._due), *jobs_wake)
            self._listen(max(0.0, min(wake) - self._run.clock()))
        except (ControlError, AgentError) as error:  # agents end when the controller does, and may be noticed first
            if not self._trains and self._controller_died_at is None:
                raise
            self._controller_gone(error)

    def _come_and_go(self, arrivals: Arrivals, now: float) -> None:
        """Begin the jobs that get their members now, as others have ended or they have arrived."""
        for job in self._placed:
            if job.over:
                arrivals.end(job.name)
        for name, members in arrivals.start(now - self.began, self._run.dead):
            job = self._by_name[name]
            job.members = members
            self._placed.append(job)
            job.register()
            job.begin()
        for name, reason in arrivals.hopeless():
            self._by_name[name].state, self._by_name[name].reason = "stranded", reason
            self._say(f"job {name} does not start: {reason}")

    # ---- sockets -------------------------------------------------------------------------------------------------

    def _listen(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` for messages of agents and controller, and handle them."""
        launcher, readable = self._run.launcher, set[object]()
        channels = [(job.channel, job) for job in self.jobs if job.channel is not None]
        asked = tuple(self._fabric_acts.unanswered)
        if channels or asked:
            with Poller() as poller:
                watched: list[HasFileno] = [launcher, *asked, *(channel for channel, _ in channels)]
                for owner in watched:
                    poller.watch(owner, READ)
                readable = {owner for owner, _ in poller.wait(inf, time.monotonic() + wait_s)}
            wait_s = 0.0
        self._heard = more = launcher.listen(wait_s)
        while more:
            more = launcher.listen(0.0)
        for client in asked:
            if client in readable:
                self._fabric_acts.take_answer(client)
        for channel, job in channels:
            if channel in readable and job.channel is channel:
                members, state = job.members, job.state
                job.handle_messages()
                self._report_change(job, members, state)

    def _report_change(self, job: JobSupervisor, members: tuple[int, ...], state: str) -> None:
        if job.state == "stranded" and state != "stranded":
            self._say(f"job {job.name} stops: {job.reason}")
        elif job.members != members:
            new = [rank for rank in job.members if rank not in members]
            gone = [rank for rank in members if rank not in job.members]
            self._say(
                f"job {job.name}: rank {', '.join(map(str, new))} replaces {', '.join(map(str, gone))}; "
                f"incarnation {job.incarnation} begins at step {job.first_step}"
            )

    # ---- kills ---------------------------------------------------------------------------------------------------

    def _count_steps(self, now: float) -> None:
        if self._first_go is None and (self._arrivals or self.jobs[0].state == "running"):
            self._first_go = self.began if self._arrivals else self.jobs[0].go_t
        counted = self.jobs if self._arrivals else self.jobs[:1]
        if (steps := sum(job.steps_done for job in counted)) > self._steps:
            self._steps = steps
            self._on_step(self._steps)
        for job in self._placed:
            name, done = job.name, job.steps_done
            pace = self._pace.get(name)
            if job.state != "running":
                self._pace.pop(name, None)
            elif pace is None:
                self._pace[name] = _Pace(done, job.go_t, 0.0)
            elif done > pace.done:
                self._pace[name] = _Pace(done, now, (now - pace.since) / (done - pace.done))

    def _job_of(self, kill: Kill) -> JobSupervisor:
        running = (job for job in self._placed if not (self._arrivals and job.over))
        dying = {*kill.ranks(self._run.session.plan)}
        return next((job for job in running if not dying.isdisjoint(job.members)), self.jobs[0])

    def _kill_time(self, kill: Kill) -> float | None:
        """The time of a kill (event clock); None as long as it is not known."""
        if kill.after_s is not None:
            return None if self._last_kill is None else self._last_kill + self._run.scale.emulated_s(kill.after_s)
        return self._step_time(kill.step or 0.0, self._job_of(kill))

    def _step_time(self, step: float, job: JobSupervisor) -> float | None:
        """The time at which ``job`` has done so many steps; None as long as that is not known.

        Of an inference job it is when so many requests have come and, for the rest, part of the next was served.
        """
        pace = self._pace.get(job.name)
        whole, share = divmod(step, 1)
        if job.job.arrivals is not None and job.epoch is not None:
            came_s = self._run.scale.emulated_s(job.job.arrivals.at_s[int(whole)])
            return job.epoch + came_s + share * job.job.expected_step_s
        if pace is None or pace.done < whole:
            return None
        return pace.since + share * (pace.took or job.job.expected_step_s)

    def _kill(self, kill: Kill, due: float) -> None:
        if kill.rank < 0:
            self._kill_controller()
            return
        job = self._job_of(kill)
        dying = sorted(kill.ranks(self._run.session.plan), key=lambda rank: rank not in job.members)
        member = dying[0] in job.members
        name, team = (job.name, job.team) if member else ("", None)
        switch, _, port = kill.place.partition(":")
        if port:
            self._run.fail_port(switch, int(port), dying[0], name)
        else:
            self._run.kill(dying, name, team)
            if member and job.script is not None:
                job.script.kill(dying)
        self._last_kill = self._run.clock()
        what = f"a member of job {name}" if member else "a spare"
        place = kill.place and f" ({kill.place})"
        self._say(f"rank {dying[0]}{place} is killed, {what}, {job.steps_done} steps done")

    # ---- acts of a timetable -------------------------------------------------------------------------------------

    def _act_time(self, act: TimedAct) -> float | None:
        """The time of an act (event clock); None as long as it is not known."""
        if act.at_s is None:
            return self._step_time(act.step or 0.0, self.jobs[0])
        return None if self._first_go is None else self._first_go + self._run.scale.emulated_s(act.at_s)

    def _act(self, act: TimedAct, due: float) -> None:
        began = self._run.clock()
        if self._fabric_acts.do(act):
            self._run.note("act", began, self._run.clock(), act=str(act), late_s=began - due)

    def _act_refused(self, act: TimedAct, reason: str) -> None:
        self._run.note("undone", act=str(act), reason=reason)
        self._say(f"not done: {act}, as {reason}")

    # ---- the controller ------------------------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        controller = self._run.session.controller
        assert controller is not None
        self._say("the controller is killed")
        self._controller_died_at = self._run.clock()
        self._run.note("fault", self._controller_died_at, job="", rank=-1, what="the controller is killed")
        controller.process.kill()

    def _controller_gone(self, error: RailyardError) -> None:
        """Restart the controller and begin new incarnations; raises ``error`` if the controller has not ended."""
        session = self._run.session
        try:
            session.check(_PATIENCE_S)
        except ControlError:
            pass
        else:
            raise error
        if not self._trains:
            self._go_on()
            return
        going = [job for job in self._placed if not job.over and job.state != "ending"]
        for job in going:
            job.interrupt()
        session.restart_controller()
        self._say("the controller was restarted; jobs resume from their last checkpoints")
        for job in going:
            job.register()
        for job in going:  # after all are registered, so that no job gets a spare that another job uses
            job.report_dead()
        for job in going:
            job.resume()

    def _go_on(self) -> None:
        """Restart the controller under jobs that have outlived it: they go on over the circuits that are up."""
        session, died_at = self._run.session, self._controller_died_at
        assert session.controller is not None and died_at is not None
        session.restart_controller(takes_over=True)
        self._watch([session.controller.pid])
        self._run.note("restarted", restart_s=self._run.clock() - died_at)
        self._controller_died_at = None
        for job in self.jobs:
            job.register(resumes=True)
        for job in self.jobs:
            assert job.team is not None
            job.team.resume()
        self._say("the controller was restarted; the job goes on")
