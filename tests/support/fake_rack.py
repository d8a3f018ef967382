"""A rack with its agents and its controller, all pretended, on a clock of its own, for ``JobSupervisor`` and ``Crew``.

``Rack.pass_time`` is the only thing that moves: agents get ready, do steps and store checkpoints; the controller
notices who is dead and names who stands in. Tests that need an exact moment set it by hand instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from controllers.engine.jobs import Job
from controllers.northbound.messages import read_request
from experiments.racks.failover.experiment import FailoverSettings
from experiments.racks.setting import JobSpec
from experiments.racks.supervisor import JobSupervisor, RunContext
from experiments.session import Session
from experiments.settings import validated
from railyard.errors import AgentError, ControlError
from railyard.protocol import encode
from railyard.scale import Scale
from workloads.agent.config import AgentConfig
from workloads.agent.launcher import AgentLauncher, Failure

TICK_S = 0.05
FORK_S, READY_S, STEP_S, DETECT_S = 0.05, 0.2, 1.0, 0.5


class Team:
    """The agents of one launch, as ``workloads.agent.launcher.AgentTeam`` shows them."""

    def __init__(self, rack: Rack, configs: Sequence[AgentConfig]) -> None:
        self.configs = {config.rank: config for config in configs}
        self.launched = rack.now
        self.pids: dict[int, int] = {}
        self.steps = {config.rank: self.incarnation(config.rank).first_step for config in configs}
        self.checkpoints: dict[int, list[tuple[int, int]]] = {config.rank: [] for config in configs}
        self.ready: set[int] = set()
        self.finished: set[int] = set()
        self.failures: list[Failure] = []
        self.killed: set[int] = set()
        self.go_t: float | None = None
        self.stopped = False
        self._rack = rack

    def incarnation(self, rank: int) -> Any:
        return self.configs[rank].incarnation

    @property
    def job(self) -> str:
        return next(iter(self.configs.values())).job

    def go(self, t0: float) -> None:
        self.go_t = t0
        self._rack.log.append(f"go {self.job}")

    def kill(self, rank: int) -> None:
        self.killed.add(rank)

    def stop(self) -> None:
        if self._rack.nursery_gone:
            raise AgentError("the process that starts the agents is gone")
        self.stopped = True
        self._rack.log.append(f"stop {self.job}")

    def store(self, step: int, ranks: Sequence[int] | None = None, checksum: int | None = None) -> None:
        for rank in self.checkpoints if ranks is None else ranks:
            self.checkpoints[rank].append((step, 1000 + step if checksum is None else checksum))

    def get_ready(self) -> None:
        for rank in self.configs:
            self.pids.setdefault(rank, 100 + rank)
            self.ready.add(rank)

    def pass_time(self, now: float) -> None:
        if self.stopped:
            return
        for rank in set(self.configs) - self.killed:
            if now >= self.launched + FORK_S:
                self.pids[rank] = 100 + rank
            if now >= self.launched + READY_S and rank not in self._rack.slow:
                self.ready.add(rank)
        if self.go_t is not None and not self.killed:
            for rank, config in self.configs.items():
                if rank in config.program.groups[self.job].members:
                    self._step(rank, config, now)

    def _step(self, rank: int, config: AgentConfig, now: float) -> None:
        incarnation = self.incarnation(rank)
        done = incarnation.first_step + max(0, int((now - (self.go_t or 0.0)) / STEP_S + 1e-6))
        while self.steps[rank] < min(done, config.steps):
            self.steps[rank] += 1
            if incarnation.checkpoint_every and self.steps[rank] % incarnation.checkpoint_every == 0:
                self.store(self.steps[rank], [rank])
        if self.steps[rank] == config.steps:
            self.finished.add(rank)


class Channel:
    """A connection of a supervisor to the controller; its answers come when the controller has some."""

    def __init__(self, rack: Rack, job: str) -> None:
        self._rack = rack
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._answers: list[dict[str, Any]] = []
        self.job = job
        self.seen: int | None = None
        self.closed = False

    def request(self, op: str, seen: int) -> None:
        assert op == "watch"
        read_request(encode(0, op, job=self.job, rank=0, seen=seen))
        self.seen = seen
        self._rack.controller.tell_watchers()

    def answer(self, **fields: Any) -> None:
        self.seen = None
        self._answers.append({"ok": True, **fields})
        self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._fd, 1)

    def receive(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        if self._rack.controller.gone:
            raise ControlError("the controller closed the job channel")
        os.eventfd_read(self._fd)
        answers, self._answers = self._answers, []
        return [({"op": "watch"}, answer) for answer in answers]

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)
        self.closed = True


class Controller:
    """Who is in which job, who is dead, and who stands in: the first free spare."""

    def __init__(self, rack: Rack) -> None:
        self._rack = rack
        self.gone = False
        self.begin()

    def begin(self) -> None:
        """As one that has just been started: it knows no job."""
        self.members: dict[str, list[int]] = {}
        self.dead: list[int] = []
        self.number: dict[str, int] = {}
        self.stranded: dict[str, str] = {}

    def register(self, job: Job) -> None:
        self.members[job.name] = list(job.groups[0].members)
        self.number[job.name] = 0

    def fail(self, rank: int) -> None:
        if rank in self.dead:
            return
        self.dead.append(rank)
        for job, members in self.members.items():
            if rank in members:
                used = {r for ranks in self.members.values() for r in ranks}
                free = [r for r in self._rack.spares if r not in self.dead and r not in used]
                self.number[job] += 1
                if free:
                    members[members.index(rank)] = free[0]
                else:
                    self.stranded[job] = f"rank {rank} has failed and cannot be replaced"
        self.tell_watchers()

    def tell_watchers(self) -> None:
        for channel in self._rack.channels:
            job = channel.job
            if not channel.closed and channel.seen is not None and self.number.get(job, 0) > channel.seen:
                channel.answer(
                    number=self.number[job],
                    state="stranded" if job in self.stranded else "replaced",
                    dead=list(self.dead),
                    members={job: list(self.members[job])},
                    reason=self.stranded.get(job, ""),
                )

    def call(self, op: str, job: str = "", rank: int = -1, cause: str = "") -> dict[str, Any]:
        self._rack.log.append(" ".join(filter(None, (op, job, "" if rank < 0 else str(rank)))))
        if self.gone:
            raise ControlError("the controller ended during the run")
        if op == "restart" and job in self.stranded:
            raise ControlError(f"job {job} cannot restart: {self.stranded[job]}")
        if op == "finish":
            self.members.pop(job)
        if op == "failed":
            self.fail(rank)
        states = {name: "stranded" if name in self.stranded else "running" for name in self.members}
        return {"ok": True, "jobs": [{"name": name, "state": state} for name, state in states.items()]}


@dataclass
class Process:
    """The controller's process."""

    rack: Rack

    def kill(self) -> None:
        self.rack.end_controller()

    def poll(self) -> int | None:
        return -9 if self.rack.controller.gone else None


class Rack:
    """Everything that is pretended; ``context`` is real and stands on it."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.log: list[str] = []
        self.teams: list[Team] = []
        self.channels: list[Channel] = []
        self.slow: set[int] = set()
        """Ranks that never get ready."""
        self.nursery_gone = False
        self.due: list[tuple[float, Callable[[], object]]] = []
        """What happens at which moment."""
        self.made = validated(FailoverSettings, {"steps": 6, "job": {"checkpoint_every": 2}})
        self.scale = Scale(1 / 800)
        self.setting = self.made.setting("photonic")
        self.plan = self.setting.plan
        assert self.plan.rack is not None
        self.spares = list(self.plan.rack.spares)
        self.controller = Controller(self)
        self._always = os.eventfd(1)
        self._killed_at: dict[int, float] = {}
        session, launcher = cast(Session, self._session()), cast(AgentLauncher, self)
        self.context = RunContext(session, launcher, folder, self.scale, clock=lambda: self.now)

    def _session(self) -> SimpleNamespace:
        return SimpleNamespace(
            plan=self.plan,
            settings=self.made,
            channel_path="job.sock",
            netns_fds=lambda: [-1] * self.plan.ranks,
            cut=lambda rank: self.log.append(f"cut g{rank}"),
            collect=lambda folder: None,
            read_disk=lambda rank, store, name: [Path(store, name).read_bytes()],
            controller=SimpleNamespace(process=Process(self)),
            call=self._call,
            register=self._register,
            check=self._check,
            restart_controller=self._restart_controller,
        )

    def _call(self, op: str, **fields: Any) -> dict[str, Any]:
        read_request(encode(0, op, **fields))
        return self.controller.call(op, **fields)

    def _register(self, job: Job, policy: str) -> None:
        self.log.append(f"register {job.name}")
        self.controller.register(job)

    def _check(self, patience_s: float = 0.0) -> None:
        if self.controller.gone:
            raise ControlError("the controller ended during the run")

    def _restart_controller(self) -> None:
        self.log.append("restart the controller")
        self.controller.gone = False
        self.controller.begin()

    def end_controller(self) -> None:
        self.controller.gone = True
        for channel in self.channels:
            if not channel.closed:
                channel.wake()

    def connect(self, path: str, job: str, rank: int, timeout_s: float) -> Channel:
        self.channels.append(Channel(self, job))
        return self.channels[-1]

    # ---- the nursery -----------------------------------------------------------------------------------------------

    def launch(self, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> Team:
        self.teams.append(Team(self, configs))
        return self.teams[-1]

    def fileno(self) -> int:
        return self._always

    def listen(self, timeout: float) -> bool:
        """News come with time: it passes whenever somebody listens."""
        self.pass_time(TICK_S)
        return False

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for at, happens in [entry for entry in self.due if entry[0] <= self.now]:
            self.due.remove((at, happens))
            happens()
        for team in self.teams:
            team.pass_time(self.now)
        for rank in sorted(self.context.dead):
            if self.now >= self._killed_at.setdefault(rank, self.now) + DETECT_S and not self.controller.gone:
                self.controller.fail(rank)

    # ---- jobs --------------------------------------------------------------------------------------------------------

    def specs(self, **changes: Any) -> list[JobSpec]:
        return [replace(spec, predicted_step_s=STEP_S, **changes) for spec in self.made.specs(self.setting)]

    def job(self, **changes: Any) -> JobSupervisor:
        """Job A, registered; its first life has begun."""
        job = JobSupervisor(self.context, self.specs(**changes)[0])
        job.register()
        job.begin()
        return job

    @property
    def team(self) -> Team:
        """The latest."""
        return self.teams[-1]
