"""The failover experiment: a chip of a job dies on a photonic rack, on electrical ones, or with migration.

The fabrics, after arXiv 2505.23105 (LUMION) and 2508.03674 (MORPHLUX):

- ``photonic``: LUMION. A spare server outside the torus; the dead chip's circuits are moved to one of its chips.
- ``fixed``: a photonic rack that splices in the same spare, and whose ports are fixed to the directions of the torus.
- ``e1``: an electrical torus whose spare is reached over links of other chips, which a second tenant uses.
- ``e2``: an electrical torus whose spare is next to the dead chip, over unused links. The slice uses one of the two
  dimensions of the torus, before and after the fault.
- ``migrate``: E0. The job moves to an idle rack; how long the OCS between racks needs is an input of ours.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from experiments.faults import Faults, Kill, check_kills, parse_kills, random_kill
from experiments.job_point import JobPoint
from experiments.racks.forecast import deaths, predicted_rows
from experiments.racks.row import NEIGHBOUR, FailoverRow, add_ratios
from experiments.racks.run import play_racks
from experiments.racks.setting import (
    GRADIENT_BYTES,
    MORPHLUX_STAGES,
    PORT_GBPS,
    TIMELINE,
    DetectionSection,
    InferenceSection,
    JobSection,
    RackSettings,
    Setting,
    TenantSection,
)
from experiments.rehearsal import try_policy
from experiments.repeats import Piece, RepeatedExperiment
from experiments.settings import Delay, Option, PortGbps, ScaleSection
from measure.published import published
from measure.results.row import MeasuredRow
from railyard.digits import alike
from railyard.errors import ConfigError
from topos.plan import FabricPlan
from workloads.agent.config import STAGES
from workloads.training.step import training_groups

if TYPE_CHECKING:
    from experiments.runner import Runner

FabricName = Literal["photonic", "fixed", "e1", "e2", "migrate"]
FABRICS: tuple[FabricName, ...] = get_args(FabricName)
SYSTEM_OF_POLICY: Mapping[str, str] = {"lumion": "LUMION", "morphlux": "MORPHLUX"}
MIGRATION_S = float(published("migration-rewiring").value)
"""Rewiring of the OCS between two racks, an input of ours."""
REPROGRAMMING_S = TIMELINE.values["rewire"]
"""Reprogramming of the mesh on MORPHLUX's testbed, in seconds. LUMION, by the same authors, gives no parts."""
PRESETS: Mapping[str, Mapping[str, float]] = {"real": {}, "lumion": {}, "morphlux": MORPHLUX_STAGES}
"""Names of ``--stages`` and the start-up stages they give; all but ``real`` also set the reconfiguration delay."""
SERVING = {"steps": 300, "kill": "1@150.5"}
"""Requests of an inference job, half of them before the kill."""
FEWEST_REQUESTS = 20
LIGHT_NEIGHBOUR = TenantSection(compute_s=2.0, gradient_bytes=GRADIENT_BYTES / 5, state_bytes=GRADIENT_BYTES / 5)
"""A tenant that mostly computes; one that sends as much as the job would take half of every shared link."""


class RackScaleSection(ScaleSection):
    """Scale of a rack: 10 Gb/s ports become 12.5 Mb/s, which one datapath thread can poll on the ports of two racks."""

    rate: Annotated[float | Literal["auto"], Option("--rate", "1/800")] = Field(
        default=1 / 800, description=ScaleSection.model_fields["rate"].description
    )


class FailoverSettings(RackSettings):
    """The failover experiment, in real units; ``scale`` converts them for this machine.

    The job and its ``neighbour`` rent ``slice`` and ``neighbour_slice``, a server each. On an electrical torus
    ``reserve`` is the spare server of E1 (the nearest chip replaces the dead one; among equally near chips the first)
    and ``adjacent_reserve`` the spare server of E2, beside the job; there the neighbour's slice is
    ``neighbour_beside_adjacent``.
    """

    fabrics: Annotated[tuple[FabricName, ...], Option(metavar="NAME,...")] = Field(
        default=FABRICS, min_length=1, description="fabrics to measure"
    )
    policy: Annotated[str, Option(metavar="NAME|FILE.py:Class")] = Field(
        default="lumion", description="policy of the circuits: lumion, morphlux, or a class of your own"
    )
    torus: str = Field(default="4x4", description="torus of chips of a rack")
    server: str = Field(default="2x2", description="block of chips of a server")
    slice: str = Field(default="2x2@0,0", description="slice of the job, as extents@place")
    neighbour_slice: str = Field(default="2x2@2,0", description="slice of the neighbour")
    reserve: str = Field(default="1x1@2,3/1x1@3,3/1x1@2,2/1x1@3,2", description="spare chips of fabric e1")
    adjacent_reserve: str = Field(default="2x2@2,0", description="spare chips of fabric e2")
    neighbour_beside_adjacent: str = Field(default="2x2@0,2", description="slice of the neighbour on fabric e2")
    spares: Annotated[tuple[Literal["corner", "nearest", "spread"], ...], Option(metavar="NAME,...")] = Field(
        default=(),
        description="places of spares inside the torus, each a run of its own on photonic, fixed and e1: the server "
        "across (corner), the one beside the job (nearest), a chip of each free server (spread)",
    )
    spare_servers: int = Field(default=1, ge=1, le=8, description="spare servers outside the torus, fabric photonic")
    port_gbps: PortGbps = PORT_GBPS
    front_end_gbps: Annotated[float, Option("--front-end-gbps", "GBPS")] = Field(
        default=PORT_GBPS, gt=0, le=3200, description="rate of a management port, in Gb/s"
    )
    reconfiguration_delay_ms: Delay = Field(
        default=10.0, description="reconfiguration delay of the optical switch, in ms"
    )
    migration_delay_ms: float = Field(
        default=MIGRATION_S * 1e3, ge=0, le=3_600_000, description="time to rewire the OCS between racks, in ms"
    )
    job: JobSection = JobSection()
    inference: InferenceSection | None = None
    neighbour: Annotated[TenantSection | None, Option("--alone", const=None)] = Field(
        default=LIGHT_NEIGHBOUR, description="no second tenant"
    )
    steps: int = Field(default=10, ge=2, le=10_000, description="steps of the job")
    kill: Annotated[str, Option(metavar="RANK@STEP,...")] = Field(
        default="1@4.5",
        description="chips to kill, after a number of steps or, as RANK@+SECONDS, after the kill before",
    )
    random_kills: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="runs with the kill of a random member at a random moment each, not --kill",
    )
    detection: DetectionSection = DetectionSection()
    stages: Annotated[dict[str, Annotated[float, Field(ge=0, le=86_400)]], Option(metavar="NAME")] = Field(
        default_factory=dict,
        description=f"restart as measured here (real, the default), with {REPROGRAMMING_S:g} s to reprogram the mesh "
        "(lumion), or also with start-up stages of MORPHLUX's times (morphlux)",
    )
    controller_dies_after_ms: float | None = Field(
        default=None, ge=0, le=3_600_000, description="time from the first kill to one of the controller, in ms"
    )
    scale: RackScaleSection = RackScaleSection()

    @field_validator("fabrics", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        """Replace the name of a preset by its stages, and by its reconfiguration delay unless one is given."""
        name = values.get("stages") if isinstance(values, Mapping) else None
        if not isinstance(name, str):
            return values
        if name not in PRESETS:
            raise ConfigError(f"must be {', '.join(PRESETS)} or seconds by stage, not {name!r}", key="stages")
        delay = {} if name == "real" else {"reconfiguration_delay_ms": REPROGRAMMING_S * 1e3}
        if name == "lumion" and "reconfiguration_delay_ms" in values:
            raise ConfigError("lumion sets the reconfiguration delay; leave out one of the two", key="stages")
        return {**delay, **values, "stages": dict(PRESETS[name])}

    @field_validator("slice", "neighbour_slice", "neighbour_beside_adjacent")
    @classmethod
    def _one_tenant(cls, value: str) -> str:
        if "/" in value:
            raise ValueError(f"is the slice of one job (pieces are joined by +), not {value}")
        return value

    @model_validator(mode="after")
    def _check(self) -> FailoverSettings:
        unknown = [name for name in self.stages if name not in STAGES]
        if unknown:
            raise ConfigError(f"is no stage of a restart; those are {', '.join(STAGES)}", key=f"stages.{unknown[0]}")
        if self.inference is not None and self.steps < FEWEST_REQUESTS:
            raise ConfigError(f"must be at least {FEWEST_REQUESTS} requests for an inference job", key="steps")
        for key in ("tensor_parallel", "algorithm", "late") if self.inference is not None else ():
            if getattr(self.job, key) != JobSection.model_fields[key].default:
                raise ConfigError("is for a job that trains; leave it out, or inference", key=f"job.{key}")
        for name in set(self.fabrics) - {"photonic", "fixed", "e1"} if self.spares else ():
            raise ConfigError(f"are for the fabrics photonic, fixed and e1; leave out {name}", key="spares")
        if self.random_kills and self.kill and "kill" in self.model_fields_set:
            both = f"{self.kill} and {self.random_kills} random kills"
            raise ConfigError(f"{both} exclude each other; give one", key="kill")
        return self

    @property
    def racks(self) -> list[Setting]:
        """Every fabric with every place of its spares."""
        return [self.setting(name, place) for name in self.fabrics for place in self.spares or ("",)]

    def setting(self, name: FabricName, place: str = "") -> Setting:
        """The rack of a fabric whose spares stand at ``place`` (empty: where the fabric has them)."""
        beside, reserve = "neighbour_slice", "reserve"
        if name == "e2":
            beside, reserve = "neighbour_beside_adjacent", "adjacent_reserve"
        rented = ["slice"] if self.neighbour is None else ["slice", beside]
        keys = {"tenants": " or ".join(rented), "reserve": reserve}
        tenants = "/".join(getattr(self, key) for key in rented)
        electrical = {"fabric": "electrical-torus", "reserve": place or getattr(self, reserve)}
        if name in ("e1", "e2"):
            keys["tenants"] += f" or {reserve}"
        inside = {"reserve": place} if place else {"spare_servers": self.spare_servers}
        photonic = {"fabric": "photonic", **inside}
        system = SYSTEM_OF_POLICY.get(self.policy, self.policy)
        kinds: dict[str, tuple[str, str, float, dict[str, Any]]] = {
            "photonic": (system, self.policy, self.reconfiguration_delay_ms, photonic),
            "fixed": ("fixed ports", "fixed-ports", self.reconfiguration_delay_ms, photonic),
            "e1": ("E1 electrical", "torus", 0.0, electrical),
            "e2": ("E2 electrical", "torus", 0.0, electrical),
            "migrate": ("E0 migration", "migrate", self.migration_delay_ms, {"fabric": "migrate"}),
        }
        system, policy, delay_ms, options = kinds[name]
        return Setting(
            name=f"{name} {place}".strip(),
            system=system,
            policy=policy,
            mode="one-shot" if options["fabric"] == "photonic" else "electrical",
            delay_s=delay_ms / 1e3,
            options={"torus": self.torus, "server": self.server, "mtu": self.mtu, "tenants": tenants, **options},
            scale=self.scale.scale(),
            port_gbps=self.port_gbps,
            front_end_gbps=self.front_end_gbps,
            keys=keys,
        )

    def jobs(self, setting: Setting) -> list[JobPoint]:
        """The jobs on one fabric: the one that loses a chip, and its neighbour."""
        detection, tenants = self.detection.detection(setting.scale), (self.inference or self.job, self.neighbour)
        return setting.jobs(tenants, steps=self.steps, detection=detection, stages=self.stages, seed=self.seed)

    def kills(self, plan: FabricPlan) -> tuple[Kill, ...]:
        """The kills of the ``kill`` key, checked against ``plan``; empty if kills are random."""
        assert plan.rack is not None
        kills = () if self.random_kills else parse_kills(self.kill, plan)
        members = [rank for tenant in plan.rack.tenants for rank in tenant.ranks]
        check_kills(kills, plan, self.steps, [*members, *plan.rack.spares], port="port" in self.detection.detect)
        for kill in kills:
            dying = kill.ranks(plan)
            hit = [tenant for tenant in plan.rack.tenants if not set(dying).isdisjoint(tenant.ranks)]
            if len(hit) > 1:
                names = " and ".join(tenant.name for tenant in hit)
                raise ConfigError(f"{kill} hits jobs {names}; name a server that one job rents", key="kill")
            if len(dying) > 1 and any(set(dying).issuperset(tenant.ranks) for tenant in hit):
                raise ConfigError(
                    f"{kill} takes all chips of job {hit[0].name}, and with them every copy of its checkpoint; rent a "
                    "slice on two servers, such as 4x2@0,0",
                    key="kill",
                )
        if not kills and not self.random_kills:
            raise ConfigError("names no chip; give RANK@STEP such as 1@4.5", key="kill")
        return kills

    def kills_by_run(self, plan: FabricPlan) -> list[tuple[Kill, ...]]:
        """The kills of each run on a fabric; the same random ones for the same seed."""
        if not self.random_kills:
            return [self.kills(plan)]
        assert plan.rack is not None
        members, seeds = plan.rack.tenants[0].ranks, range(self.seed * 1000, self.seed * 1000 + self.random_kills)
        return [(random_kill(seed, members, self.steps),) for seed in seeds]


class Failover(RepeatedExperiment[FailoverSettings]):
    """Cost of a dead accelerator for a job: kills on a photonic rack, on electrical racks, and with migration."""

    name = "failover"
    Settings = FailoverSettings
    rows = (FailoverRow,)
    quick: ClassVar = {"fabrics": ["photonic", "e1"], "steps": 6, "kill": "1@3.5", "job": {"checkpoint_every": 2}}
    examples = (
        "                                                # five fabrics, with a second tenant",
        "--quick                                         # photonic and E1, fewer steps",
        "--fabrics photonic --kill 1@4.5,16@+0.5         # the spare, too",
        "--fabrics photonic,fixed,e1                     # steering and splice apart",
        "--fabrics photonic --stages lumion              # 1.1 s to reprogram the mesh",
        "--fabrics photonic --stages morphlux            # start-up stages with MORPHLUX's times",
        "--fabrics photonic --random-kills 20 --time 0.2",
        "--fabrics photonic --controller-dies-after 300",
        "--fabrics photonic --request-rate 3 --preloaded # an inference job",
        "--predict                                       # the model alone; no root",
    )

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """``--kill`` and ``--random-kills`` replace each other; options of the neighbour keep the others' defaults."""
        if values.get("inference") is not None:
            values |= {key: value for key, value in SERVING.items() if key not in given}
        kills = [key for key in ("kill", "random_kills") if key in given]
        if len(kills) == 1:
            values.pop("random_kills" if kills == ["kill"] else "kill", None)
        elif not kills and values.get("random_kills"):  # of the file, which has no kill beside: this one is of --quick
            values.pop("kill", None)
        if isinstance(given.get("neighbour"), Mapping):
            values["neighbour"] = {**LIGHT_NEIGHBOUR.model_dump(), **values["neighbour"]}
        return values

    def check(self) -> None:
        for setting in self.settings.racks:
            self.settings.kills(setting.plan)
            self.settings.acts(setting.plan, self.settings.steps)
            assert setting.plan.rack is not None
            jobs = zip(setting.plan.rack.tenants, (self.settings.job, self.settings.neighbour), strict=False)
            sizes = [(tenant, job.tensor_parallel) for tenant, job in jobs if job is not None]
            rings = [group for tenant, size in sizes for group in training_groups(tenant.name, tenant.ranks, size)]
            try_policy(setting.policy, setting.plan, rings)
            self._check_spares(setting)

    def _check_spares(self, setting: Setting) -> None:
        """``ConfigError`` for a kill after one that leaves the first job without a spare, which ends the run."""
        jobs, kills = self.settings.jobs(setting), self.settings.kills(setting.plan)
        start = {job.name: job.members for job in jobs}
        before = list(deaths(setting, jobs, start, [kill.ranks(setting.plan) for kill in kills]))
        last = kills[len(before) - 1 : len(before)]
        if len(before) < len(kills) and {*last[0].ranks(setting.plan)}.intersection(before[-1][0][jobs[0].name]):
            raise ConfigError(
                f"{kills[len(before)]} is after {last[0]}, which ends job {jobs[0].name}, as no spare is left; leave "
                "it out, or add spares",
                key="kill",
            )

    def predict(self) -> list[FailoverRow]:
        """A row of the model for every fabric and every kill that hits a job; of random kills the first."""
        rows: list[FailoverRow] = []
        for setting in self.settings.racks:
            kills = self.settings.kills_by_run(setting.plan)[0]
            rows += predicted_rows(setting, self.settings.jobs(setting), kills, self.settings.seed)
        add_ratios(rows)
        return rows

    def points(self) -> int | None:
        """A row for every job of every run; None if a run has more than one kill, or one of a spare.

        A first kill may replace members by spares or move the whole job, and a later one may come after the job's end.
        """
        rows = 0
        for setting in self.settings.racks:
            members, plan = [job.members for job in self.settings.jobs(setting)], setting.plan
            for kills in self.settings.kills_by_run(setting.plan):
                if len(kills) > 1 or all({*kills[0].ranks(plan)}.isdisjoint(ranks) for ranks in members):
                    return None
                rows += len(members)
        return rows

    def pieces(self) -> list[Piece]:
        return [
            Piece(f"{setting.name}, kill {','.join(map(str, kills))}", (setting, kills))
            for setting in self.settings.racks
            for kills in self.settings.kills_by_run(setting.plan)
        ]

    def measure(self, runner: Runner, piece: Piece) -> list[FailoverRow]:
        setting, kills = piece.of
        after_ms = self.settings.controller_dies_after_ms
        faults = Faults(kills, None if after_ms is None else after_ms / 1e3)
        rows = play_racks(runner, setting, self.settings.jobs(setting), faults).rows()
        for row in rows:
            if row.event != NEIGHBOUR:
                runner.progress.result(_outcome(row))
        return rows

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        add_ratios(rows)

    def same(self, row: MeasuredRow) -> Hashable:
        """The job and what happened to it: a run may end before its last kill."""
        return (row.tenant, row.event) if isinstance(row, FailoverRow) else None


def _outcome(row: FailoverRow) -> str:
    if row.outage_s is None:
        return f"{row.tenant}: {row.state}" + (f" ({row.reason})" if row.reason else "")
    form = alike((row.step_time_before_s, row.step_time_after_s))
    return (
        f"{row.tenant}: circuits up after {row.circuits_s:.3f} s, out for {row.outage_s:.2f} s, step "
        f"{form(row.step_time_before_s or 0)} s before and {form(row.step_time_after_s or 0)} s after; {row.verdict}"
    )
