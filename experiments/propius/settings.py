"""Settings of the Propius experiment: jobs that share edge clients (arXiv 2510.19617), with every model byte moved.

Studies ``jct``, ``utilisation``, ``throughput`` and ``delays`` are four views of the same runs, policy by policy.
``tree`` measures the data plane, ``trouble`` faults, and ``trunk`` an optical switch in the place of the trunk.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator, model_validator

from experiments.job_point import Fabric
from experiments.propius.control.trunk import TrunkPolicy
from experiments.propius.data.jobs import FIVE_JOBS, EdgeJob, contending_jobs, scaled_jobs
from experiments.propius.data.messages import Mode
from experiments.settings import LEAST_SCALE, Delay, Option, PacketSettings, ScaleSection
from topos.edge import EdgeTopo
from topos.edge_plan import Trunk

Study = Literal["jct", "utilisation", "throughput", "delays", "tree", "trouble", "trunk"]
STUDIES: tuple[Study, ...] = get_args(Study)
POLICY_STUDIES: tuple[Study, ...] = ("jct", "utilisation", "throughput", "delays")
"""Four views of the same runs."""
TroubleCase = Literal["none", "leaf-killed", "manager-restarted", "client-vanishes", "trunk-loss", "background"]
CASES: tuple[TroubleCase, ...] = get_args(TroubleCase)

FIVE_JOBS_CLIENTS = 1536
"""The authors ran their five jobs with 1,200 to 1,800 clients."""
Clients = Annotated[int, Field(ge=2, le=128)]
Loss = Annotated[float, Field(ge=0, le=20)]
Rate = Annotated[float, Field(gt=0, le=10_000)]


class PropiusScale(ScaleSection):
    """Scale of the experiment: rates stay as they are; sizes, compute times, timers and link delays are divided."""

    rate: Annotated[float | Literal["auto"], Option("--rate", "1")] = Field(
        default=1.0, description=ScaleSection.model_fields["rate"].description
    )
    time: Annotated[float, Option("--time", "X")] = Field(
        default=0.1, ge=LEAST_SCALE, le=1000, description=ScaleSection.model_fields["time"].description
    )

    @field_validator("rate")
    @classmethod
    def _real(cls, value: float | str) -> float | str:
        if value != 1.0:
            raise ValueError("must be 1: the links of this experiment have real rates; scale with time alone")
        return value


class PropiusSettings(PacketSettings):
    """Settings of the Propius experiment, in real units."""

    studies: Annotated[tuple[Study, ...], Option("--study", "NAME,...")] = Field(
        default=STUDIES, min_length=1, description="studies to measure"
    )
    policies: Annotated[tuple[str, ...], Option(metavar="NAME,...")] = Field(
        default=("static", "random-client", "fifo", "irs"),
        min_length=1,
        description="policies to compare",
    )
    loads: Annotated[tuple[Clients, ...], Option(metavar="N,...")] = Field(
        default=(44, 66, 96), min_length=1, description="numbers of clients of the policy studies"
    )
    clients: Clients = Field(default=48, description="number of clients of the other studies")
    regions: int = Field(default=4, ge=1, le=32, description="number of regions, each with a leaf server")
    managers: int = Field(default=2, ge=1, le=8, description="number of client managers")
    rounds: int = Field(default=4, ge=1, le=1000, description="rounds of each job")
    demand: Annotated[int, Option("--round-demand", "N")] = Field(
        default=8, ge=1, le=128, description="updates of a round of each job of the policy studies"
    )
    longest_s: Annotated[float, Option("--longest", "S")] = Field(
        default=4000.0, gt=0, le=1e6, description="a run on packets ends after this time, in s of the real system"
    )
    seeds: int = Field(default=1, ge=1, le=100, description="runs of each point of the policy studies, each seed + 1")
    modes: Annotated[tuple[Mode, ...], Option("--server-modes", "NAME,...")] = Field(
        default=("authors", "fixed"), min_length=1, description="parameter servers of the studies tree and trouble"
    )
    cases: Annotated[tuple[TroubleCase, ...], Option(metavar="NAME,...")] = Field(
        default=CASES, min_length=1, description="cases of the study trouble"
    )
    kills: int = Field(default=50, ge=1, le=1000, description="leaf servers that are killed in study trouble")
    model_mb: Annotated[float, Option("--model-mb", "MB")] = Field(
        default=9.252, gt=0, le=1000, description="size of the model, in MB"
    )
    trunk_mbps: Annotated[Rate, Option("--trunk-mbps", "MBPS")] = Field(
        default=100.0, description="rate of the root's port and of each region's trunk link, in Mb/s"
    )
    access_delay_ms: Annotated[Delay, Option("--access-delay", "MS")] = Field(
        default=20.0, description="one-way delay of an access link, in ms"
    )
    trunk_delay_ms: Annotated[Delay, Option("--trunk-delay", "MS")] = Field(
        default=20.0, description="one-way delay of a trunk link, in ms"
    )
    access_loss: Annotated[Loss, Option(metavar="PERCENT")] = Field(
        default=0.0, description="random loss of access links, in percent"
    )
    trunk_loss: Annotated[Loss, Option(metavar="PERCENT")] = Field(
        default=0.0, description="random loss of trunk links, in percent"
    )
    losses: Annotated[tuple[Loss, ...], Option(metavar="PERCENT,...")] = Field(
        default=(0.1, 1.0), min_length=1, description="losses of the trunk in study trouble, in percent"
    )
    delays_ms: Annotated[tuple[Delay, ...], Option("--delays", "MS,...")] = Field(
        default=(0.0, 500.0, 1000.0, 2000.0, 3000.0),
        min_length=1,
        description="reconfiguration delays, in ms",
    )
    virtual_clients: Annotated[tuple[int, ...], Option("--virtual-clients", "N,...")] = Field(
        default=(6000, 10000), description="numbers of clients of the authors' runs repeated in virtual time"
    )
    virtual_online: Annotated[float | None, Option("--virtual-online", "SHARE")] = Field(
        default=None, gt=0, le=1, description="share of these clients that is switched on (default: as fitted)"
    )
    virtual_rounds: Annotated[int, Option("--virtual-rounds", "N")] = Field(
        default=150, ge=1, le=1000, description="rounds of each job in virtual time"
    )
    slow_trunk_mbps: Annotated[Rate, Option("--slow-trunk-mbps", "MBPS")] = Field(
        default=25.0, description="rate of the trunk links in study trunk, in Mb/s"
    )
    turns: Annotated[tuple[TrunkPolicy, ...], Option(metavar="NAME,...")] = Field(
        default=("phase", "demand", "rotor"), min_length=1, description="policies of the optical trunk"
    )
    scale: PropiusScale = PropiusScale()

    @field_validator("virtual_clients")
    @classmethod
    def _population(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        for count in value:
            if not 100 <= count <= 20_000:
                raise ValueError(f"each number of clients must be from 100 to 20000, not {count}")
        return value

    @model_validator(mode="after")
    def _regions_have_clients(self) -> PropiusSettings:
        if self.regions > min(self.clients, *self.loads):
            raise ValueError(f"{self.regions} regions need at least as many clients; use fewer regions")
        return self

    @property
    def object_bytes(self) -> int:
        """Bytes of the model in the real system, a whole number of float32 values."""
        return round(self.model_mb * 1e6) // 4 * 4

    def jobs(self) -> tuple[EdgeJob, ...]:
        """The jobs of the policy studies: five of the same demand on nested bounds, which contend for clients."""
        return contending_jobs(self.demand, self.rounds)

    def five_jobs(self) -> tuple[EdgeJob, ...]:
        """The authors' five jobs, of the study ``trouble``.

        Their demands are in proportion to the clients: 2, 3, 3, 6 and 12 for 48.
        """
        return scaled_jobs(FIVE_JOBS, self.clients / FIVE_JOBS_CLIENTS, self.rounds)


def edge_fabric(
    settings: PropiusSettings,
    clients: int,
    *,
    trunk: Trunk = "electrical",
    trunk_loss: float | None = None,
    trunk_mbps: float | None = None,
    client_mbps: float | None = None,
) -> Fabric:
    """The network for ``clients`` clients; what is not given is taken from the settings."""
    emulated = settings.scale.time
    options = {
        "clients": clients,
        "regions": settings.regions,
        "trunk": trunk,
        "trunk_mbps": settings.trunk_mbps if trunk_mbps is None else trunk_mbps,
        "client_mbps": client_mbps,
        "access_delay_ms": settings.access_delay_ms * emulated,
        "trunk_delay_ms": settings.trunk_delay_ms * emulated,
        "control_delay_ms": settings.trunk_delay_ms * emulated,
        "access_loss": settings.access_loss,
        "trunk_loss": settings.trunk_loss if trunk_loss is None else trunk_loss,
    }
    return Fabric(f"edge-{clients}-{trunk}", tuple(options.items()), lambda: EdgeTopo(**options))
