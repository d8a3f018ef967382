"""A PyTorch script that outlives its hosts: its fabric with spare servers, the kills, and what the model expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controllers.allocation.leases import load_placement
from experiments.faults import Kill, check_kills, parse_kills
from experiments.job_point import JobPoint
from experiments.racks.forecast import JobPrediction, JobWindow, deaths
from experiments.racks.row import RAILS
from experiments.rails.job import policy_name
from experiments.rails.settings import RailPoint
from experiments.script import ENDLESS
from experiments.shared_rails.experiment import RailSetting
from experiments.shared_rails.settings import JobRequest, SharedJob
from experiments.torch.settings import TorchSettings
from measure.model.prediction import Prediction
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.catalog import Workload


def setting_of(settings: TorchSettings, workload: Workload, point: RailPoint, scale: Scale) -> RailSetting:
    """The rails of a script alone, with spare servers."""
    alone = settings.model_copy(update={"modes": (point.mode,), "delays_ms": (point.delay_ms,)})
    request = JobRequest(point.mode, workload.name, ENDLESS, 0.0, "packed")
    policy = policy_name(settings, workload, point.mode)
    return RailSetting(
        name=RAILS,
        system=policy,
        policy=policy,
        mode=point.mode,  # type: ignore[arg-type]
        delay_s=point.delay_ms / 1e3,
        scale=scale,
        front_end_gbps=settings.front_end_gbps,
        jobs=(SharedJob(request, alone, workload, workload, load_placement(request.placement)),),
        servers=workload.servers,
        spare_servers=settings.spare_servers,
    )


def outliving(setting: RailSetting, settings: TorchSettings) -> JobPoint:
    """The job of ``setting``, with other hosts in the place of dead ones; its script has its own checkpoints."""
    detection = settings.detection.detection(setting.scale)
    job = setting.job_point(setting.jobs[0], detection, checkpoint_every=0, state_bytes=0.0)
    return replace(job, model_steps=settings.steps)


def kills_of(settings: TorchSettings, plan: FabricPlan) -> tuple[Kill, ...]:
    """The kills, in steps of the agents, which count from the end of the set-up; ``ConfigError`` for wrong ones."""
    kills, first = parse_kills(settings.kill, plan), settings.setup_steps
    check_kills(kills, plan, ENDLESS, range(plan.ranks), port="port" in settings.detection.detect)
    if any(kill.step is not None and kill.step < first for kill in kills):
        raise ConfigError(f"must be after the {first} steps of set-up (setup_steps)", key="kill")
    return tuple(kill if kill.step is None else replace(kill, step=kill.step - first) for kill in kills)


def windows_of(
    job: JobPoint, setting: RailSetting, kills: Sequence[Kill], prediction: Prediction
) -> tuple[JobWindow, ...]:
    """The predictions before and after each kill: the same on all members."""
    model = {job.name: JobPrediction(prediction.step_times_s[0], prediction.step_time_s, {})}
    between = deaths(setting, [job], {job.name: job.members}, [kill.ranks(setting.plan) for kill in kills])
    return tuple(JobWindow(members, dead, model, contended=False) for members, dead in between)
