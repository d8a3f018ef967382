"""A rack with pretended agents and the real engine on a clock of its own, for ``JobSupervisor`` and ``JobGroup``.

``Rack.pass_time`` is the only thing that moves: agents get ready, do steps and store checkpoints; the controller
notices who is dead and names who stands in. Tests that need an exact moment set it by hand instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from controllers.engine.actions import Action, Darken, Note, Reroute
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.northbound.messages import read_request
from controllers.northbound.operations import Operations
from controllers.openflow.datapaths import Datapaths
from experiments.job_point import JobPoint
from experiments.job_supervisor import JobSupervisor
from experiments.point_run import PointRun
from experiments.racks.failover.experiment import FabricName, FailoverSettings
from experiments.session import Session
from experiments.settings import validated
from railyard.errors import AgentError, ControlError
from railyard.protocol import encode
from railyard.scale import Scale
from railyard.timeline import Event
from workloads.agent.config import AgentConfig
from workloads.agent.job_channel import ChannelAnswer
from workloads.agent.launcher import AgentLauncher, AgentTeam

TICK_S = 0.05
FORK_S, READY_S, STEP_S, DETECT_S = 0.05, 0.2, 1.0, 0.5


class Team(AgentTeam):
    """The agents of one launch, of which only time tells."""

    def __init__(self, rack: Rack, configs: Sequence[AgentConfig]) -> None:
        self.configs = {config.rank: config for config in configs}
        first_steps = {rank: self.first_step(rank) for rank in self.configs}
        super().__init__(cast(AgentLauncher, rack), len(rack.teams), first_steps)
        self.launched = rack.now
        self.killed: set[int] = set()
        self.go_t: float | None = None
        self.stopped = False
        self._rack = rack

    def incarnation(self, rank: int) -> Any:
        return self.configs[rank].incarnation

    def first_step(self, rank: int) -> int:
        return self.incarnation(rank).first_step if self.incarnation(rank) else 0

    @property
    def job(self) -> str:
        return next(iter(self.configs.values())).job

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
                if config.incarnation is None or rank in config.program.groups[self.job].members:
                    self._step(rank, config, now)

    def _step(self, rank: int, config: AgentConfig, now: float) -> None:
        incarnation = self.incarnation(rank)
        done = self.first_step(rank) + max(0, int((now - (self.go_t or 0.0)) / STEP_S + 1e-6))
        while self.steps[rank] < min(done, config.steps):
            self.steps[rank] += 1
            if incarnation and incarnation.checkpoint_every and self.steps[rank] % incarnation.checkpoint_every == 0:
                self.store(self.steps[rank], [rank])
        if self.steps[rank] == config.steps:
            self.finished.add(rank)


class Channel:
    """A connection of a supervisor to the controller; its answers come when the controller has some."""

    trusted = True

    def __init__(self, rack: Rack, job: str, rank: int) -> None:
        self._rack = rack
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._answers: list[dict[str, Any]] = []
        self.job, self.rank = job, rank
        self.closed = False

    def request(self, op: str, **fields: Any) -> None:
        self._rack.controller.ask(self, op, job=self.job, rank=self.rank, **fields)

    def answer(self, request_id: object, answer: bytes) -> None:
        if not self.closed:
            self._answers.append(json.loads(answer))
            self.wake()

    def wake(self) -> None:
        os.eventfd_write(self._fd, 1)

    def receive(self) -> list[ChannelAnswer]:
        if self._rack.controller.gone:
            raise ControlError("the controller closed the job channel")
        os.eventfd_read(self._fd)
        answers, self._answers = self._answers, []
        return [ChannelAnswer(self.rank, {"op": "watch"}, answer) for answer in answers]

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)
        self.closed = True


class Controller:
    """The operations of the job channel over the real engine, whose switches do at once what it wants."""

    trusted = True

    def __init__(self, rack: Rack) -> None:
        self._rack = rack
        self.gone = False
        self.begin()

    def begin(self) -> None:
        """As one that has just been started: it knows no job."""
        plan = self._rack.plan
        self.engine, datapaths = Engine(plan), Datapaths(plan)
        for switch in plan.switches:
            datapaths.connect(switch, lambda data: True).filled = True
        self._operations = Operations(plan, self.engine, datapaths, lambda: None)
        self._answer: dict[str, Any] = {}

    def answer(self, request_id: object, answer: bytes) -> None:
        self._answer = json.loads(answer)

    def ask(self, requester: Any, op: str, **fields: Any) -> None:
        self._act(self._operations.execute(read_request(encode(0, op, **fields)), requester, self._rack.now))

    def fail(self, rank: int) -> None:
        self._act(self.engine.chip_failed(rank, "it is dead", self._rack.now))

    def _act(self, actions: Iterable[Action]) -> None:
        replies, now = self._operations.pending_replies, self._rack.now
        for action in actions:
            if isinstance(action, Darken):
                self._act(self.engine.reconfigured(action.reconfiguration_id, now))
            elif isinstance(action, Reroute):
                self.engine.routes_due(action.reconfiguration_id)
                self._act(self.engine.rerouted(action.reconfiguration_id, now))
            elif not isinstance(action, Note):
                replies.report(action)
        answers, replies.answers = replies.answers, []
        for (requester, number), answer in answers:
            requester.answer(number, answer)

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        self._rack.log.append(" ".join([op, *(str(fields[key]) for key in ("job", "rank") if key in fields)]))
        if self.gone:
            raise ControlError("the controller ended during the run")
        self.ask(self, op, **fields)
        if not self._answer.get("ok", True):
            raise ControlError(self._answer["error"])
        return self._answer


@dataclass
class Process:
    """The controller's process."""

    rack: Rack

    def kill(self) -> None:
        self.rack.end_controller()

    def poll(self) -> int | None:
        return -9 if self.rack.controller.gone else None


class Counters:
    """Counters that stand still, and their sampler."""

    pids = ()

    def check(self) -> None:
        """Nothing has ended."""

    def read(self) -> tuple[list[Event], dict[Any, Any]]:
        return [], {}

    def sampler(self, log: Path) -> Any:
        return nullcontext(self)


class Rack:
    """Everything that is pretended; ``context`` is real and stands on it."""

    def __init__(self, folder: Path, fabric: FabricName = "photonic") -> None:
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
        self.setting = self.made.setting(fabric)
        self.plan = self.setting.plan
        assert self.plan.rack is not None
        self.controller = Controller(self)
        self._always = os.eventfd(1)
        self._check_process: Callable[[], None] = lambda: None
        self._killed_at: dict[int, float] = {}
        session, launcher = cast(Session, self._session()), cast(AgentLauncher, self)
        self.context = PointRun(session, launcher, folder, self.scale, clock=lambda: self.now)

    def _session(self) -> SimpleNamespace:
        return SimpleNamespace(
            plan=self.plan,
            settings=self.made,
            channel_path="job.sock",
            netns_fds=lambda: [-1] * self.plan.ranks,
            pids=(),
            counters=lambda: Counters(),
            cut=lambda rank: self.log.append(f"cut g{rank}"),
            read_disk=lambda rank, store, name: [Path(store, name).read_bytes()],
            remote=None,
            controller=SimpleNamespace(process=Process(self), pid=1),
            call=self._call,
            register=self._register,
            check=self._check,
            collect=lambda folder: None,
            record=lambda point, since=0.0: None,
            restart_controller=self._restart_controller,
        )

    def _call(self, op: str, **fields: Any) -> dict[str, Any]:
        return self.controller.call(op, **fields)

    def _register(self, job: Job, policy: str, *, resumes: bool = False) -> None:
        self.log.append(f"register {job.name}{' again' if resumes else ''}")
        self.controller.ask(self.controller, "register", job=job, policy=policy, resumes=resumes)

    def _check(self, patience_s: float = 0.0) -> None:
        if self.controller.gone:
            raise ControlError("the controller ended during the run")

    def _restart_controller(self, *, takes_over: bool = False) -> None:
        self.log.append(f"restart the controller{', which takes over' if takes_over else ''}")
        self.controller.gone = False
        self.controller.begin()

    def end_controller(self) -> None:
        self.controller.gone = True
        for channel in self.channels:
            if not channel.closed:
                channel.wake()

    def connect(self, path: str, job: str, ranks: Sequence[int], timeout_s: float) -> Channel:
        self.channels.append(Channel(self, job, ranks[0]))
        return self.channels[-1]

    # ---- the nursery -----------------------------------------------------------------------------------------------

    def forget(self, team: int) -> None:
        """Nothing is kept of a team but what it has done."""

    def send(self, order: dict[str, Any]) -> None:
        """Pass an order to a team, as the process that starts the agents does."""
        if self.nursery_gone:
            raise AgentError("the process that starts the agents is gone")
        team = self.teams[order["team"]]
        if "kill" in order:
            team.killed.add(order["kill"])
        elif "stop" in order:
            team.stopped = True
            team.exited.update(dict.fromkeys(team.configs, 0))
            self.log.append(f"stop {team.job}")
        elif "resume" in order["say"]:
            self.log.append(f"resume {team.job}")
        else:
            team.go_t = order["say"]["go"]
            self.log.append(f"go {team.job}")

    def launch(self, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> Team:
        self.teams.append(Team(self, configs))
        return self.teams[-1]

    @contextmanager
    def watching(self, pids: Any, check: Callable[[], None]) -> Iterator[None]:
        """As if the controller were among the processes."""
        self._check_process = check
        yield

    def fileno(self) -> int:
        return self._always

    def listen(self, timeout: float) -> bool:
        """News come with time: it passes whenever somebody listens."""
        self.pass_time(TICK_S)
        if self.controller.gone:
            self._check_process()
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

    def kill_spares(self, *left: int) -> None:
        """No spares are left but these."""
        assert self.plan.rack is not None
        for rank in set(self.plan.rack.spares) - set(left):
            self.controller.fail(rank)

    def jobs(self, **changes: Any) -> list[JobPoint]:
        return [
            replace(job, expected_step_s=STEP_S, training=replace(job.training, **changes))  # type: ignore[type-var]
            for job in self.made.jobs(self.setting)
        ]

    def job(self, **changes: Any) -> JobSupervisor:
        """Job A, registered; its first life has begun."""
        job = JobSupervisor(self.context, self.jobs(**changes)[0])
        job.register()
        job.begin()
        return job

    @property
    def team(self) -> Team:
        """The latest."""
        return self.teams[-1]
