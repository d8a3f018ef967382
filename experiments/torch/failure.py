"""A PyTorch script that outlives its hosts: the fabric with its spare servers, the job, and what the model expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.faults import Kill, check_kills, parse_kills
from experiments.job_point import JobPoint, Training
from experiments.racks.forecast import JobPrediction, JobWindow, deaths
from experiments.racks.row import RAILS
from experiments.racks.setting import FabricSetting
from experiments.script import ENDLESS
from experiments.torch.settings import TorchSettings
from measure.model.prediction import Prediction
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.placing import placed
from workloads.program import Program


@dataclass(frozen=True, kw_only=True)
class SpareRails(FabricSetting):
    """Rails with spare servers; ``options`` are those of the topology."""

    options: Mapping[str, Any]

    def topology(self) -> RailTopo:
        return RailTopo(**self.options)


def setting_of(job: JobPoint, settings: TorchSettings, scale: Scale) -> SpareRails:
    """The fabric of ``job`` with the spare servers of the settings after its own."""
    spare = settings.spare_servers
    return SpareRails(
        name=RAILS,
        system=job.policy,
        policy=job.policy,
        mode=job.agent_mode,
        delay_s=job.reconfiguration_delay_s,
        scale=scale,
        front_end_gbps=settings.front_end_gbps,
        options={**job.fabric.options, "servers": job.fabric.options["servers"] + spare, "spare_servers": spare},
    )


def outliving(job: JobPoint, setting: SpareRails, settings: TorchSettings) -> JobPoint:
    """``job`` on the first servers, with others in the place of dead ones; its script has its own checkpoints."""
    program, ranks = job.program, setting.plan.ranks

    def on(members: Sequence[int]) -> Program:
        return placed(program, members, ranks, job.name)

    members, detection = tuple(range(program.ranks)), settings.detection.detection(setting.scale)
    training = Training(on, detection, checkpoint_every=0, state_bytes=0.0)
    return replace(job, fabric=setting.fabric, program=on(members), members=members, training=training)


def kills_of(settings: TorchSettings, plan: FabricPlan) -> tuple[Kill, ...]:
    """The kills, in steps of the agents, which count from the end of the set-up; ``ConfigError`` for wrong ones."""
    kills = parse_kills(settings.kill, plan)
    check_kills(kills, plan.ranks, ENDLESS, range(plan.ranks))
    if any(":" in kill.place for kill in kills) and "port" not in settings.detection.detect:
        raise ConfigError("of a port is noticed by its light alone; add detection.detect port", key="kill")
    if any(kill.step is not None and kill.step < settings.setup_steps for kill in kills):
        raise ConfigError(f"must be after the {settings.setup_steps} steps of set-up (setup_steps)", key="kill")
    return tuple(kill if kill.step is None else replace(kill, step=kill.step - settings.setup_steps) for kill in kills)


def windows_of(
    job: JobPoint, setting: SpareRails, kills: Sequence[Kill], prediction: Prediction
) -> tuple[JobWindow, ...]:
    """The predictions before and after each kill: the same on all members."""
    steps = prediction.step_times_s
    model = {job.name: JobPrediction(steps[0], prediction.step_time_s, {})}
    between = deaths(setting, [job], {job.name: job.members}, [kill.rank for kill in kills])
    return tuple(JobWindow(members, dead, model, contended=False) for members, dead in between)
