"""The opus experiment: what photonic rails cost training jobs of any size, by the model of the rails (Opus).

A study is a table of cases: jobs of the catalog (or files, such as records of scripts) by modes by the values of one
axis. Each case is a step that the model plays (``measure.model.prediction``) with the engine, policy and rank machines
of a run, ranks that cannot be told apart once (``workloads.training.fold``, ``workloads.pytorch.fold``). No packets, no
machine: delays are those of the switches alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from experiments.experiment import Experiment
from experiments.fabric_cost.experiment import ClusterDesign, parts
from experiments.rails.job import fitted, job_point, model_scale
from experiments.rails.settings import Mode, RailSettings, make_settings
from experiments.settings import Delay, Delays, Option, Settings
from measure.metrics.quantiles import median
from measure.metrics.stall import hidden_s
from measure.metrics.windows import read_phases, windows_between
from measure.model.prediction import Prediction
from measure.published import published
from measure.results.row import ResultRow
from railyard.errors import ConfigError
from workloads.catalog import Workload, make_workload, recipe_or_record, recorded_workload
from workloads.program import Compute
from workloads.pytorch.record import Record
from workloads.training.fold import layout_of
from workloads.training.recipe import Recipe, changed

if TYPE_CHECKING:
    from experiments.runner import Runner


StudyName = Literal["windows", "delay", "bandwidth", "scale", "experts", "cost", "recovery", "technologies"]
Placement = Literal["in servers", "on rails"]
StudiedJob = Recipe | Record
PORTS, DELAYS = published("ocs-ports"), published("ocs-delay")
TECHNOLOGIES = tuple(PORTS.values)
ON_CIRCUITS: tuple[Mode, ...] = ("on-demand", "provisioned")
_ALL: tuple[Mode, ...] = ("electrical", "one-shot", *ON_CIRCUITS)
_LLAMA, _H200 = "llama3-8b-16", "llama-128-h200"
_FRONTIER = ("frontier-2048", "frontier-4096", "frontier-8192", "frontier-16384")


@dataclass(frozen=True)
class Study:
    """The jobs and modes of a study, unless the settings name jobs; its axis is in ``Opus.cases``."""

    jobs: Sequence[str]
    modes: Sequence[Mode]


STUDIES: Mapping[StudyName, Study] = {
    "windows": Study((_LLAMA, _H200, *_FRONTIER), ("on-demand",)),
    "delay": Study((_LLAMA, "llama3-8b-64", "deepseek-16b-32", _H200), _ALL),
    "bandwidth": Study((_LLAMA, _H200), _ALL),
    "scale": Study(_FRONTIER, _ALL),
    "experts": Study(("experts-256",), ("electrical", *ON_CIRCUITS)),
    "cost": Study((_H200, "gb200-256", "gb200-512", "gb200-1024", "gb200-2048"), ("electrical", *ON_CIRCUITS)),
    "recovery": Study((_LLAMA, _H200), ON_CIRCUITS),
    "technologies": Study((_H200, "gb200-2048", "frontier-16384"), ("electrical", *ON_CIRCUITS)),
}


class OpusSettings(Settings):
    """Studies of the opus experiment, and the values of their axes."""

    study: tuple[StudyName, ...] = Field(default=("windows", "delay"), min_length=1, description="studies to measure")
    jobs: Annotated[tuple[str, ...], Option("--jobs", "NAME|FILE,...")] = Field(
        default=(), description="workloads, or records of scripts, in place of those of the studies"
    )
    delays_ms: Delays = Field(
        default=(0.0, 10.0, 50.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2000.0, 3000.0),
        min_length=1,
        description="reconfiguration delays, in ms",
    )
    delay_ms: Delay = Field(default=25.0, description="reconfiguration delay of the other studies, in ms")
    ports_gbps: Annotated[tuple[Annotated[float, Field(gt=0, le=3200)], ...], Option(metavar="GBPS,...")] = Field(
        default=(12.5, 25.0, 50.0, 100.0, 200.0, 400.0), min_length=1, description="rates of a port of study bandwidth"
    )
    recoveries_s: Annotated[tuple[Annotated[float, Field(ge=0, le=100)], ...], Option(metavar="S,...")] = Field(
        default=(0.0, 0.2, 1.0, 5.0), min_length=1, description="link recoveries of study recovery, in s"
    )
    experts: Annotated[tuple[Annotated[int, Field(ge=1, le=1024)], ...], Option(metavar="N,...")] = Field(
        default=(2, 4, 8), min_length=1, description="degrees of expert parallelism of study experts"
    )
    technologies: Annotated[tuple[str, ...], Option(metavar="NAME,...")] = Field(
        default=(),
        description=f"optical switches of study technologies: {', '.join(TECHNOLOGIES)} (default all that fit)",
    )
    sensitivity: bool = Field(default=False, description="each step with the least and the most of each assumed size")


@dataclass(frozen=True)
class Case:
    """One step to compute; ``job`` is its recipe or the record of a script, with what the case changes."""

    study: StudyName
    job: StudiedJob
    mode: Mode
    delay_ms: float = 0.0
    recovery_s: float = 0.0
    policy: str | None = None
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its row."""

    @property
    def on_circuits(self) -> bool:
        return self.mode in ON_CIRCUITS


@dataclass(kw_only=True)
class OpusRow(ResultRow):
    """A step of one job in one case of a study; times are those of the real system."""

    study: Annotated[str, "the study"]
    job: Annotated[str, "name of the workload"]
    gpus: Annotated[int, "number of GPUs of the job"]
    mode: Annotated[str, "mode of the job"]
    delay_ms: Annotated[float, "reconfiguration delay"] = 0.0
    recovery_s: Annotated[float, "link recovery after a reconfiguration"] = 0.0
    port_gbps: Annotated[float, "rate of one of a GPU's ports"] = 0.0
    technology: Annotated[str, "kind of optical switch (study technologies)"] = ""
    ep: Annotated[int, "degree of expert parallelism (study experts)"] = 1
    placement: Annotated[str, "where the groups of experts lie (study experts): in servers or on rails"] = ""
    transition: Annotated[str, "dimensions before and after a window (study windows)"] = ""
    step_s: Annotated[float, "time of a step"]
    exposed_s: Annotated[float, "what the delays add to the step: over its own time without them"] = 0.0
    hidden_s: Annotated[float, "delays of the rank with the most, less the exposed time, at least 0"] = 0.0
    changes: Annotated[float, "reconfigurations in a step, of the rank with the most"] = 0.0
    utilisation: Annotated[float, "share of the step in which the rank with the most to compute computes"] = 0.0
    window_s: Annotated[float | None, "window between two phases of this transition, median"] = None
    windows_s: Annotated[Sequence[float], "every window of a step of this transition"] = ()
    cost_ratio: Annotated[float | None, "cost of rails of packet switches over that of photonic rails"] = None
    power_ratio: Annotated[float | None, "power of rails of packet switches over that of photonic rails"] = None
    authors: Annotated[float | None, "of the authors: exposed time (opus-llama-growth-*) or window (opus-windows)"] = (
        None
    )
    sensitivity: Annotated[
        dict[str, tuple[float, float]], "step with the least and the most of each assumed size, over the step"
    ] = field(default_factory=dict)


class Opus(Experiment[OpusSettings]):
    """Steps of training jobs of up to 16,384 GPUs on photonic rails: windows, delays, ports, sizes, technologies."""

    name = "opus"
    Settings = OpusSettings
    rows = (OpusRow,)
    quick: ClassVar = {"study": ["windows"], "jobs": [_LLAMA]}
    examples = (
        "                                            # windows, and step against delay",
        "--study scale,technologies --sensitivity    # up to 16,384 GPUs; what assumed sizes change",
        "--study delay --jobs my_job.yaml --delays 0,10,100",
    )
    packets = root = False

    @cached_property
    def _jobs(self) -> Mapping[str, StudiedJob]:
        names = dict.fromkeys(self.settings.jobs or [job for one in self.settings.study for job in STUDIES[one].jobs])
        return {name: recipe_or_record(name) for name in names}

    def check(self) -> None:
        for technology in self.settings.technologies:
            if technology not in TECHNOLOGIES:
                raise ConfigError(
                    f"has {technology}, which is not known; known: {', '.join(TECHNOLOGIES)}", key="technologies"
                )
        for case in self.cases:
            if isinstance(case.job, Recipe):
                layout_of(case.job, folded=True)

    def points(self) -> int:
        return len(self.cases)

    def run(self, runner: Runner) -> None:
        for case in self.cases:
            runner.add(*rows_of(case, sensitivity=self.settings.sensitivity))

    # ---- the cases of each study -------------------------------------------------------------------------------------

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        axes = {
            "windows": self._windows,
            "delay": self._delay,
            "bandwidth": self._bandwidth,
            "scale": self._at_one_delay,
            "experts": self._experts,
            "cost": self._at_one_delay,
            "recovery": self._recovery,
            "technologies": self._technologies,
        }
        return tuple(case for base in self._bases() for case in axes[base.study](base))

    def _bases(self) -> Iterator[Case]:
        for study in self.settings.study:
            for job in self.settings.jobs or STUDIES[study].jobs:
                for mode in STUDIES[study].modes:
                    yield Case(study, self._jobs[job], mode)

    def _windows(self, base: Case) -> Iterator[Case]:
        yield base

    def _delay(self, base: Case) -> Iterator[Case]:
        job = base.job
        if isinstance(job, Recipe) and job.compute.native_step_s is not None:  # of the authors' testbed, on its ports
            base = replace(base, job=_on_ports(job, published("opus-testbed-port").value / job.fabric.ports_per_gpu))
        for delay_ms in self.settings.delays_ms if base.on_circuits else (0.0,):
            yield replace(base, delay_ms=delay_ms)

    def _at_one_delay(self, base: Case) -> Iterator[Case]:
        yield replace(base, delay_ms=self.settings.delay_ms if base.on_circuits else 0.0)

    def _bandwidth(self, base: Case) -> Iterator[Case]:
        for gbps in self.settings.ports_gbps:
            yield from self._at_one_delay(replace(base, job=_on_ports(base.job, gbps)))

    def _experts(self, base: Case) -> Iterator[Case]:
        if not isinstance(base.job, Recipe):
            raise ConfigError(f"experts changes the parallelism of a job, and {base.job.name} is a record", key="study")
        for placement in get_args(Placement):
            for ep in self.settings.experts:
                recipe = placed_experts(base.job, ep, placement)
                yield from self._at_one_delay(replace(base, job=recipe, shown={"ep": ep, "placement": placement}))

    def _recovery(self, base: Case) -> Iterator[Case]:
        for policy in ("opus", "opus-whole-rail"):
            for recovery_s in self.settings.recoveries_s:
                delay_ms = self.settings.delay_ms
                yield replace(base, policy=policy, recovery_s=recovery_s, delay_ms=delay_ms)

    def _technologies(self, base: Case) -> Iterator[Case]:
        if not base.on_circuits:
            yield base
            return
        needed = _rail_ports(base.job)
        for technology in self.settings.technologies or TECHNOLOGIES:
            if needed <= PORTS.values[technology]:
                yield replace(base, delay_ms=DELAYS.values[technology], shown={"technology": technology})
            elif self.settings.technologies:
                raise ConfigError(
                    f"{technology} switches have {PORTS.values[technology]:g} ports, and a rail of {base.job.name} "
                    f"needs {needed}; name others, or jobs of fewer servers",
                    key="technologies",
                )

    @property
    def omitted(self) -> Sequence[str]:  # type: ignore[override]
        """The technologies that have too few ports for a rail of a job, unless some were named."""
        if "technologies" not in self.settings.study or self.settings.technologies:
            return ()
        few = {
            job: [name for name in TECHNOLOGIES if PORTS.values[name] < _rail_ports(self._jobs[job])]
            for job in self.settings.jobs or STUDIES["technologies"].jobs
        }
        return [
            f"Left out for {job}: {', '.join(names)}, whose ports are too few." for job, names in few.items() if names
        ]


def _rail_ports(job: StudiedJob) -> int:
    ports = _workload(job).ports_per_gpu if isinstance(job, Record) else job.fabric.ports_per_gpu
    return _gpus(job) // _gpus_per_server(job) * ports


def _gpus(job: StudiedJob) -> int:
    return job.ranks if isinstance(job, Record) else job.parallelism.ranks


def _gpus_per_server(job: StudiedJob) -> int:
    return job.gpus_per_server if isinstance(job, Record) else job.fabric.gpus_per_server


def _on_ports(job: StudiedJob, gbps: float) -> StudiedJob:
    return replace(job, port_gbps=gbps) if isinstance(job, Record) else changed(job, {"fabric.port_gbps": gbps})


def placed_experts(recipe: Recipe, ep: int, placement: Placement) -> Recipe:
    """``recipe`` with experts of degree ``ep`` in servers (EP+TP+DP) or on the rails (EP+DP), on the same GPUs.

    The batch of the whole job stays. ``ConfigError`` (key ``experts``) for a degree that does not fit.
    """
    p, gpus, batch = recipe.parallelism, recipe.fabric.gpus_per_server, recipe.batch
    tp = gpus // ep if placement == "in servers" else gpus
    ranks = p.ranks // p.pp
    if not tp or (placement == "in servers" and gpus % ep) or ranks % (tp * ep):
        raise ConfigError(
            f"{ep} experts' ranks {placement} do not fit {recipe.name}: {ranks} GPUs of a stage in servers of {gpus}",
            key="experts",
        )
    dp = ranks // (tp * ep)
    each, rest = divmod(batch.local_batch * p.ep * p.dp, ep * dp)
    if rest or each % recipe.microbatches:
        raise ConfigError(f"the batch of {recipe.name} does not divide by {ep * dp} replicas", key="experts")
    return changed(
        recipe,
        {
            "parallelism.tp": tp,
            "parallelism.ep": ep,
            "parallelism.dp": dp,
            "batch.local_batch": each,
            "batch.microbatch": each // recipe.microbatches,
        },
    )


# ---- a case computed -------------------------------------------------------------------------------------------------


def rows_of(case: Case, *, sensitivity: bool = False) -> Iterator[OpusRow]:
    """The row of a case; in study windows one for each transition."""
    found, ideal = computed(case), computed(replace(case, delay_ms=0.0, recovery_s=0.0))
    job, dark_s = case.job, case.delay_ms / 1e3 + case.recovery_s
    changes, exposed_s = found.reconfigurations_per_step or 0.0, found.step_time_s - ideal.step_time_s
    row = OpusRow(
        study=case.study,
        job=job.name,
        gpus=_gpus(job),
        mode=case.mode if case.policy != "opus-whole-rail" else f"{case.mode}, whole rail",
        delay_ms=case.delay_ms,
        recovery_s=case.recovery_s,
        port_gbps=_workload(job).port_gbps,
        step_s=found.step_time_s,
        exposed_s=exposed_s,
        hidden_s=hidden_s(changes, dark_s, exposed_s) if case.on_circuits else 0.0,
        changes=changes,
        utilisation=_compute_s(_workload(job)) / found.step_time_s,
        sensitivity=_sensitivity(case, found.step_time_s) if sensitivity else {},
        **case.shown,
    )
    if case.study == "windows":
        for transition, windows in _windows(found, job).items():
            known = published("opus-windows").values.get(row.gpus) if job.name in _FRONTIER else None
            yield replace(
                row,
                transition=" to ".join(transition),
                window_s=median(windows),
                windows_s=windows,
                authors=known and known / 1e3,
            )
        return
    if case.study == "cost":
        cluster = ClusterDesign(row.gpus, _gpus_per_server(job))
        costs = [published(key).values for key in ("opus-part-cost", "opus-part-power")]
        row.cost_ratio, row.power_ratio = (
            parts("formula", "rail-optimized", cluster).sum(each) / parts("formula", "photonic", cluster).sum(each)
            for each in costs
        )
    if case.study == "delay" and job.name == _LLAMA and case.on_circuits:
        row.authors = published(f"opus-llama-growth-{case.mode}").values.get(case.delay_ms)
    yield row


@lru_cache(maxsize=256)
def _predicted(content: str | Record, mode: Mode, policy: str | None, delay_ms: float, recovery_s: float) -> Prediction:
    settings, workload = _settings(mode, policy), _built(content)
    scale = model_scale(settings, workload)
    job = replace(job_point(settings, workload, mode, delay_ms, scale), link_recovery_s=recovery_s)
    return job.prediction(job.fabric.plan(), scale)


def computed(case: Case) -> Prediction:
    return _predicted(_content(case.job), case.mode, case.policy, case.delay_ms, case.recovery_s)


def _settings(mode: Mode, policy: str | None = None) -> RailSettings:
    return make_settings({"modes": [mode], "policy": policy} if policy else {"modes": [mode]})


@lru_cache(maxsize=64)
def _built(content: str | Record) -> Workload:
    if isinstance(content, Record):
        return recorded_workload(content, folded=True)
    recipe = Recipe.model_validate_json(content)
    if recipe.compute.native_step_s is not None:
        recipe = fitted(_settings("electrical"), recipe)
    return make_workload(recipe, folded=True)


def _workload(job: StudiedJob) -> Workload:
    return _built(_content(job))


def _content(job: StudiedJob) -> str | Record:
    """The job as a key: its recipe as text, or the record."""
    return job if isinstance(job, Record) else job.model_dump_json(exclude_unset=True)


def _compute_s(workload: Workload) -> float:
    return max(
        sum(op.seconds for op in operations if isinstance(op, Compute)) for operations in workload.program.operations
    )


def _windows(found: Prediction, job: StudiedJob) -> Mapping[tuple[str, str], list[float]]:
    """The windows of a step by their transition, in real seconds."""
    scale = model_scale(_settings("on-demand"), _workload(job))
    windows = defaultdict[tuple[str, str], list[float]](list)
    for transition, window in windows_between(read_phases(found.events), (1,)):
        windows[transition].append(scale.real_s(window))
    return windows


def _sensitivity(case: Case, step_s: float) -> dict[str, tuple[float, float]]:
    return {
        key: (_ratio(case, key, assumed.least, step_s), _ratio(case, key, assumed.most, step_s))
        for key, assumed in (case.job.assumptions if isinstance(case.job, Recipe) else {}).items()
    }


def _ratio(case: Case, key: str, value: float, step_s: float) -> float:
    assert isinstance(case.job, Recipe)
    return computed(replace(case, job=changed(case.job, {key: value}))).step_time_s / step_s
