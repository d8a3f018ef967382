"""Jobs that share rails: they come and go, lose a chip, a server or a port, and outlive the controller (Opus)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from controllers.allocation.leases import ServerLeases
from controllers.engine.jobs import Detection
from experiments.faults import Faults, Kill, check_kills, parse_kills
from experiments.job_point import JobPoint, Training, machine_costs
from experiments.racks.recovery import NEVER, read_incarnations
from experiments.racks.row import NEIGHBOUR, RAILS, FailoverRow, judge_together
from experiments.racks.run import RackResult, play
from experiments.racks.setting import FabricSetting
from experiments.rails.job import (
    check_floors,
    model_scale,
    policy_name,
    program_on,
    scale_for,
    scale_needs,
    topology_options,
)
from experiments.rails.settings import MODES
from experiments.rehearsal import try_policy
from experiments.repeats import Piece, RepeatedExperiment
from experiments.shared_rails.arrivals import LeasedServers, free_ports, members_on
from experiments.shared_rails.forecast import Forecast, forecast
from experiments.shared_rails.row import SharedJobRow
from experiments.shared_rails.settings import SharedJob, SharedRailsSettings
from measure.live.calibration import this_machine
from measure.metrics.point import Point
from measure.results.row import MeasuredRow
from railyard.digits import alike, spans
from railyard.errors import CircuitError, ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.placing import placed
from workloads.program import Program

if TYPE_CHECKING:
    from experiments.runner import Runner

SHARED, ALONE = "shared", "alone"


@dataclass(frozen=True, kw_only=True)
class RailSetting(FabricSetting):
    """Rails of ``servers`` for the jobs, and the spare ones after them."""

    jobs: tuple[SharedJob, ...]
    servers: int
    spare_servers: int

    def topology(self) -> RailTopo:
        largest = max(self.jobs, key=lambda job: job.workload.gpus_per_server)
        options = topology_options(largest.alone, largest.workload, MODES[largest.alone.modes[0]].fabric, self.scale)
        for job in self.jobs:
            if job.workload.uses_scale_up:
                mbps = self.scale.emulated_mbps(job.workload.scale_up_gbps)
                options |= {"scale_up": True, "scale_up_mbps": mbps}
        return RailTopo(
            **options
            | {
                "servers": self.servers + self.spare_servers,
                "spare_servers": self.spare_servers,
                "front_end": True,
                "front_end_mbps": self.scale.emulated_mbps(self.front_end_gbps),
            }
        )

    def job_point(self, job: SharedJob, detection: Detection, checkpoint_every: int, state_bytes: float) -> JobPoint:
        """The job on the first servers, until it is given others."""
        program, plan = program_on(job.alone, job.workload, job.alone.modes[0]), self.plan

        def on(members: Sequence[int]) -> Program:
            return placed(program, members, plan.ranks, job.name)

        first = members_on(job, range(job.servers), plan.gpus_per_server)
        return JobPoint(
            job.name,
            self.fabric,
            on(first),
            self.mode,
            self.policy,
            job.request.steps,
            job.request.steps,
            self.delay_s,
            job.alone.link_recovery_ms / 1e3,
            members=first,
            training=Training(on, detection, checkpoint_every, state_bytes),
        )


class SharedRails(RepeatedExperiment[SharedRailsSettings]):
    """Training jobs that share rails: each alone, and all together, through dead chips, servers, ports, controller."""

    name = "shared-rails"
    Settings = SharedRailsSettings
    rows = (SharedJobRow, FailoverRow)
    quick: ClassVar = {"jobs": ["2xsmoke*3"], "baseline": False}
    examples = (
        "--jobs 2xsmoke,smoke@3:spread --servers 8        # the third job waits for servers",
        "--jobs smoke:0+1+2+3,smoke:4+5+6+7 --delay 200   # two jobs on servers that are named",
        "--jobs 2xsmoke --spare-servers 1 --kill 5@2.5    # a chip dies, a spare server takes over",
        "--jobs smoke --spare-servers 1 --kill rail0:3@2.5 --detect port",
        "--jobs 32xllama3-8b-64@0+20 --servers 512 --predict",
    )

    @cached_property
    def jobs(self) -> tuple[SharedJob, ...]:
        return self.settings.shared_jobs

    @cached_property
    def scale(self) -> Scale:
        """The scale of a run; with rate ``auto`` the largest that this machine carries with all jobs at work."""
        settings, machine = self.settings, this_machine().beside(self.spared_share)
        needs = [scale_needs(job.alone, job.workload) for job in self.jobs]
        together = replace(
            needs[0],
            ports=self.servers * max(job.workload.gpus_per_server for job in self.jobs) * 2,
            smallest_bytes=min((each.smallest_bytes for each in needs if each.smallest_bytes), default=0.0),
            pace=max((each.pace or {} for each in needs), key=lambda pace: sum(pace.values())),
        )
        scale = scale_for(settings, together, machine)
        for job in {id(job.workload): job for job in self.jobs}.values():
            check_floors(job.alone, job.workload, scale, machine.floors(settings.datapath))
        return scale

    @property
    def servers(self) -> int:
        return self.settings.servers or sum(job.servers for job in self.jobs)

    def setting(self, scale: Scale) -> RailSetting:
        settings = self.settings
        return RailSetting(
            name=RAILS,
            system="Opus" if settings.policy == "opus" else settings.policy,
            policy=policy_name(self.jobs[0].alone, self.jobs[0].workload, settings.mode),
            mode=settings.mode,
            delay_s=settings.delay_ms / 1e3,
            scale=scale,
            front_end_gbps=settings.front_end_gbps,
            jobs=self.jobs,
            servers=self.servers,
            spare_servers=settings.spare_servers,
        )

    def job_points(self, setting: RailSetting, jobs: Sequence[SharedJob], *, kills: bool) -> list[JobPoint]:
        """``jobs`` on the fabric of ``setting``; with ``kills`` they are watched, and store checkpoints."""
        settings = self.settings
        if not kills:
            return [setting.job_point(job, Detection(), 0, 0.0) for job in jobs]
        detection = settings.detection.detection(setting.scale)
        return [setting.job_point(job, detection, settings.checkpoint_every, settings.state_bytes) for job in jobs]

    def _kills(self, plan: FabricPlan) -> tuple[Kill, ...]:
        kills, steps = parse_kills(self.settings.kill, plan), max(job.request.steps for job in self.jobs)
        check_kills(kills, plan, steps, range(plan.ranks), port="port" in self.settings.detection.detect)
        if kills and not self.settings.spare_servers:
            raise ConfigError("needs a server that takes over; give spare_servers 1 or more", key="kill")
        return kills

    @property
    def setting_scale(self) -> Scale:
        return model_scale(self.jobs[0].alone, self.jobs[0].workload)

    def check(self) -> None:
        """Load the jobs, and look whether each fits, on named servers that exist, and the policy serves it."""
        setting = self.setting(self.setting_scale)
        plan = setting.plan
        for job in self.jobs:
            self._check_room(job, plan)
        for point in self.job_points(setting, [*{job.modelled.name: job for job in self.jobs}.values()], kills=False):
            try:
                try_policy(setting.policy, plan, tuple(point.program.groups.values()))
            except CircuitError as error:
                raise ConfigError(str(error), key="jobs") from None
        self._kills(plan)
        self.settings.acts(plan, self.jobs[0].request.steps)

    def _check_room(self, job: SharedJob, plan: FabricPlan) -> None:
        if job.servers > self.servers:
            raise ConfigError(
                f"{job.name} ({job.request.workload}) needs {job.servers} servers; "
                f"{free_ports(range(self.servers), plan)}",
                key="jobs",
            )
        named = getattr(job.placement, "servers", ())
        if named and (len(named) != job.servers or max(named) >= self.servers):
            raise ConfigError(
                f"{job.name} ({job.request.workload}) needs {job.servers} of the servers 0 to {self.servers - 1}, "
                f"not {job.request.placement}",
                key="jobs",
            )

    def _forecast(
        self, setting: RailSetting, jobs: Sequence[SharedJob], kills: Sequence[Kill], *, ideal: bool
    ) -> Forecast:
        points = {point.name: point for point in self.job_points(setting, jobs, kills=bool(kills))}
        leases = ServerLeases(self.servers, self.settings.order)
        at_work = sum(point.program.ranks_at_work for point in points.values())
        costs = None if ideal else machine_costs(at_work, datapath=self.settings.datapath)
        return forecast(jobs, points, setting, leases, kills, costs)

    def predict(self) -> Iterator[SharedJobRow]:
        setting = self.setting(self.setting_scale)
        predicted = self._forecast(setting, self.jobs, self._kills(setting.plan), ideal=True)
        for job in self.jobs:
            yield self._row(job, setting.scale, predicted, alone=False)

    def points(self) -> int | None:
        if self.settings.kill:
            return None
        return len(self.jobs) + len(self._kinds())

    def _kinds(self) -> dict[str, SharedJob]:
        """The first job of each workload, which is measured alone."""
        first = {job.request.workload: job for job in reversed(self.jobs)} if self.settings.baseline else {}
        return dict(reversed(first.items()))

    def pieces(self) -> list[Piece]:
        kinds = [Piece(f"{name} alone", (ALONE, [job])) for name, job in self._kinds().items()]
        return [*kinds, Piece("all jobs", (SHARED, list(self.jobs)))]

    def same(self, row: MeasuredRow) -> Any:
        if isinstance(row, SharedJobRow):
            return row.job, row.alone
        return (row.tenant, row.event) if isinstance(row, FailoverRow) else None

    def measure(self, runner: Runner, piece: Piece) -> list[MeasuredRow]:
        """Bring the fabric up anew and run one job, or all of them through the faults; a row for each job and fault."""
        kind, jobs = piece.of
        shared = kind == SHARED
        if not shared:
            first = jobs[0]
            jobs = [replace(first, request=replace(first.request, arrival_s=0.0))]
        setting = self.setting(self.scale)
        kills = self._kills(setting.plan) if shared else ()
        dies_ms = self.settings.controller_dies_after_ms if shared else None
        predicted = self._forecast(setting, jobs, kills, ideal=False)
        arrivals = LeasedServers(
            jobs, ServerLeases(self.servers, self.settings.order), setting.plan, self.scale.emulated_s
        )
        played = play(
            runner,
            setting,
            self.job_points(setting, jobs, kills=bool(kills)),
            Faults(kills, None if dies_ms is None else dies_ms / 1e3),
            seen=predicted.windows,
            expected_s=predicted.end_s,
            arrivals=arrivals,
        )
        rows = [self._measured(job, setting, predicted, played, alone=not shared) for job in jobs]
        for row in rows:
            form = alike((row.completion_s, row.predicted_completion_s))
            took = row.reason or f"over {form(row.completion_s or 0)} s after its arrival"
            runner.progress.result(
                f"{row.job} ({row.workload}): {took} (model {form(row.predicted_completion_s)} s), {row.verdict}"
            )
        hit = [row for row in played.rows() if row.event != NEIGHBOUR or (row.steps_before and row.steps_after)]
        return [*rows, *hit]

    def _measured(
        self, job: SharedJob, setting: RailSetting, predicted: Forecast, played: RackResult, *, alone: bool
    ) -> SharedJobRow:
        row = self._row(job, setting.scale, predicted, alone=alone)
        supervisor = next(each for each in played.jobs if each.name == job.name)
        row.point = played.number
        row.outcome, row.reason = ("stranded" if supervisor.state == "stranded" else "done"), supervisor.reason
        row.count(played.delivered)
        incarnations = read_incarnations(played.events, job.name)
        if incarnations:
            gpus = setting.plan.gpus_per_server
            row.servers = spans(dict.fromkeys(rank // gpus for rank in incarnations[0].members))
            row.take_steps(incarnations, played.began, played.events, setting.scale)
            mine = [point for point in played.points if point.job == job.name]
            if mine:
                longest = max(mine, key=lambda each: each.metrics.steps)
                row.circuit_wait_s = longest.metrics.circuit_wait_s
                row.packets_lost = sum(each.metrics.packets_lost for each in mine)
                row.retransmissions = sum(each.metrics.retransmissions for each in mine)
            groups = supervisor.job.program.groups
            end = max((e.end or e.t for each in incarnations for e in each.events), default=NEVER)
            events = [e for e in played.events if e.t <= end]
            point = Point(played.number, setting.mode, setting.plan, groups, setting.scale, setting.delay_s)
            row.take_circuits(point, events)
        judge_together(row, played.verdicts(job.name))
        return row

    def _row(self, job: SharedJob, scale: Scale, predicted: Forecast, *, alone: bool) -> SharedJobRow:
        row = SharedJobRow(
            job=job.name,
            workload=job.modelled.name,
            mode=self.settings.mode,
            alone=alone,
            gpus=job.workload.program.ranks,
            placement=job.request.placement,
            reconfiguration_delay_ms=self.settings.delay_ms,
            arrival_s=job.request.arrival_s,
            predicted_step_time_s=predicted.jobs[job.name].step_time_s,
        )
        row.at(scale, self.settings.seed)
        stay = predicted.stays.get(job.name)
        if stay is not None:
            row.servers = spans(stay.servers)
            row.predicted_start_s, row.predicted_end_s = stay.start_s, stay.end_s
            row.predicted_queue_s = stay.start_s - job.request.arrival_s
            row.predicted_completion_s = stay.end_s - job.request.arrival_s
        return row

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        shared = [row for row in rows if isinstance(row, SharedJobRow)]
        alone = {row.workload: row.step_time_s for row in shared if row.alone}
        for row in shared:
            row.alone_step_time_s = alone.get(row.workload)
