"""The collective experiment: algorithms over buffer sizes on one fabric, measured as nccl-tests does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator
from rich.console import Console

from experiments.collectives.experiment import TrialExperiment, TrialSettings
from experiments.collectives.row import TrialRow
from experiments.collectives.trial import CircuitKind, FabricKind, Trial, TrialFabric
from experiments.experiment import Action
from experiments.settings import Delay, Mtu, Option, Overhead, PortGbps, Sizes
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES
from railyard.validation import Section
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.formats.msccl_reader import read_msccl
from workloads.schedule import CollectiveKind, Schedule


class TrialFabricSection(Section):
    """The fabric of a collective. Ranks on an OCS have two ports: one sends, one receives."""

    kind: Annotated[FabricKind, Option("--fabric")] = Field(
        default="electrical", description="packet switches, or circuits that follow the schedule"
    )
    gpus_per_server: Annotated[int, Option("--gpus-per-server", "N")] = Field(
        default=1, ge=1, le=120, description="GPUs per server, joined by a scale-up switch"
    )
    ports: Annotated[int, Option("--ports-per-rank", "N")] = Field(
        default=1, ge=1, le=2, description="ports per rank on packet switches, 1 or 2"
    )
    port_gbps: PortGbps = 0.05
    scale_up_gbps: Annotated[float, Option("--scale-up-gbps", "GBPS")] = Field(
        default=0.1, gt=0, description="rate of a GPU inside its server, in Gb/s"
    )
    mtu: Mtu = ROCE_MTU_BYTES
    overhead: Overhead = 0
    reconfiguration_delay_ms: Annotated[tuple[Delay, ...], Option("--reconfiguration-delay", "MS,...")] = Field(
        default=(0.0,),
        min_length=1,
        description="reconfiguration delay of the optical switch, in ms (a point for each)",
    )
    circuits: Annotated[tuple[CircuitKind, ...], Option("--circuits")] = Field(
        default=("on-demand",),
        min_length=1,
        description="circuits of a round: set up when it begins, or in turn on two ports of half the rate, each while "
        "the round before is sent",
    )

    @field_validator("reconfiguration_delay_ms", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return value if isinstance(value, (list, tuple)) else [value]

    @model_validator(mode="after")
    def _circuits_are_optical(self) -> TrialFabricSection:
        if self.kind == "electrical" and ("provisioned" in self.circuits or len(self.reconfiguration_delay_ms) > 1):
            raise ValueError("of packet switches has no circuits; leave out circuits and delays, or use kind ocs")
        return self

    def fabric(self, ranks: int) -> TrialFabric:
        sizes = self.port_gbps, self.scale_up_gbps, self.mtu, self.overhead
        return TrialFabric(self.kind, ranks, self.gpus_per_server, self.ports, *sizes)


class CollectiveSettings(TrialSettings):
    """Settings of the collective experiment, in real units."""

    collective: Annotated[CollectiveKind | None, Option("--op", "KIND")] = Field(
        default=None,
        description="kind of the collective (default all_reduce, or that of the file)",
    )
    algorithms: Annotated[tuple[str, ...], Option("--algorithms", "NAME|FILE.xml,...")] = Field(
        default=("ring",), min_length=1, description="algorithms of the collective (see --list), or MSCCL XML files"
    )
    ranks: int | None = Field(
        default=None, ge=1, le=256, description="number of ranks (default 8, or that of the file)"
    )
    sizes: Sizes = Field(default=(1 << 20,), min_length=1, description="buffer sizes, in bytes or as 4K, 1M")
    straggler: Annotated[int | None, Option(metavar="RANK")] = Field(
        default=None, ge=0, description="the late rank (default the last), for straggler-aware algorithms"
    )
    lockstep: bool = Field(default=False, description="barrier after every round")
    fabric: TrialFabricSection = TrialFabricSection()

    @property
    def kind(self) -> CollectiveKind:
        """The collective of the algorithms that are given by name."""
        return self.collective or "all_reduce"

    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of all algorithms, proved correct; ``ConfigError`` for one that cannot be built or read."""
        found = tuple(map(self._schedule, self.algorithms))
        return tuple(replace(each, lockstep=True) for each in found) if self.lockstep else found

    def _schedule(self, name: str) -> Schedule:
        if not name.lower().endswith(".xml"):
            servers = self.fabric.gpus_per_server
            return schedule(self.kind, self.ranks or 8, name, straggler=self.straggler, gpus_per_server=servers)
        found = read_msccl(Path(name))
        if self.ranks not in (None, found.n):
            raise ConfigError(f"is made for {found.n} ranks, not {self.ranks}; leave --ranks out", key=name)
        if self.collective not in (None, found.kind):
            raise ConfigError(f"is a schedule of {found.kind}, not {self.collective}; leave --op out", key=name)
        return found

    def trials(self) -> Iterator[Trial]:
        for plan, size, delay_ms in product(self.schedules(), self.sizes, self.fabric.reconfiguration_delay_ms):
            yield from Trial(plan, size, self.fabric.fabric(plan.n), delay_ms / 1e3).with_circuits(self.fabric.circuits)


def list_algorithms(experiment: Collectives, console: Console) -> int:
    for name, algorithm in ALGORITHMS.items():
        print(f"{name:<27} {', '.join(algorithm.kinds)}")
    return 0


class Collectives(TrialExperiment[CollectiveSettings]):
    """Collectives on real packets, in the manner of nccl-tests, beside the model."""

    name = "collective"
    Settings = CollectiveSettings
    rows = (TrialRow,)
    quick: ClassVar = {"iterations": 1, "sizes": ["64K", "1M"]}
    examples = (
        "                          # ring all-reduce, 8 ranks, 1M",
        "--algorithms ring,stragglar,direct --sizes 4M --verify",
        "--algorithms my_schedule.xml                          # MSCCL XML",
        "--op all_to_all --algorithms pairwise --ranks 16",
        "--fabric ocs --algorithms stragglar --reconfiguration-delay 10",
        "--predict --sizes 1M,16M    # the model alone; needs no root",
    )
    actions: ClassVar = {"list": Action("list of the algorithms; nothing is measured", list_algorithms)}
