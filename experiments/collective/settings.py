"""Settings of the collective experiment: algorithms over buffer sizes on one fabric, as in nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from experiments.settings import ScaleSection, Section, Settings
from experiments.trials.trial import FabricKind, Trial, TrialFabric
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES
from railyard.size import read_sizes
from workloads.collectives.catalog import schedule
from workloads.formats.msccl_reader import read_msccl
from workloads.schedule import CollectiveKind, Schedule


class UnscaledSection(ScaleSection):
    """Scale whose default is 1: rates and sizes are those on the emulated wire."""

    rate: float | Literal["auto"] = 1.0


class TrialFabricSection(Section):
    """The fabric of a collective.

    ``ports`` is the number of ports per rank on packet switches. Ranks on an OCS have two: one sends, one receives.
    """

    kind: FabricKind = "electrical"
    gpus_per_server: int = Field(default=1, ge=1, le=120)
    ports: int = Field(default=1, ge=1, le=2)
    port_gbps: float = Field(default=0.05, gt=0, le=3200)
    scale_up_gbps: float = Field(default=0.1, gt=0)
    mtu: int = Field(default=ROCE_MTU_BYTES, ge=1500, le=9000)
    reconfiguration_delay_ms: float = Field(default=0.0, ge=0, le=600_000)

    def fabric(self, ranks: int) -> TrialFabric:
        """The fabric for ``ranks`` ranks."""
        return TrialFabric(
            self.kind, ranks, self.gpus_per_server, self.ports, self.port_gbps, self.scale_up_gbps, self.mtu
        )


class CollectiveExperiment(Settings):
    """Settings of the collective experiment, in real units.

    ``algorithms`` are names or MSCCL XML files. ``ranks`` None takes the number of the file, or 8 for a name.
    """

    experiment: Literal["collective"] = "collective"
    collective: CollectiveKind | None = None
    algorithms: tuple[str, ...] = Field(default=("ring",), min_length=1)
    ranks: int | None = Field(default=None, ge=1, le=1024)
    sizes: tuple[int, ...] = Field(default=(1 << 20,), min_length=1)
    straggler: int | None = Field(default=None, ge=0)
    lockstep: bool = False
    iterations: int = Field(default=3, ge=1, le=10_000)
    fabric: TrialFabricSection = TrialFabricSection()
    scale: UnscaledSection = UnscaledSection()

    @field_validator("sizes", mode="before")
    @classmethod
    def _sizes(cls, value: Any) -> Any:
        return read_sizes(value)

    @property
    def kind(self) -> CollectiveKind:
        """The collective of the algorithms that are given by name."""
        return self.collective or "all_reduce"

    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of all algorithms, proved correct; ``ConfigError`` for one that cannot be built or read."""
        return tuple(self._schedule(name) for name in self.algorithms)

    def _schedule(self, name: str) -> Schedule:
        if not name.lower().endswith(".xml"):
            return with_lockstep(
                schedule(
                    self.kind,
                    self.ranks or 8,
                    name,
                    straggler=self.straggler,
                    gpus_per_server=self.fabric.gpus_per_server,
                ),
                self.lockstep,
            )
        found = read_msccl(Path(name))
        if self.ranks not in (None, found.n):
            raise ConfigError(f"is made for {found.n} ranks, not {self.ranks}; leave --ranks out", key=name)
        if self.collective not in (None, found.kind):
            raise ConfigError(f"is a schedule of {found.kind}, not {self.collective}; leave --op out", key=name)
        return with_lockstep(found, self.lockstep)

    def trials(self) -> Iterator[Trial]:
        """The trials of the experiment: every algorithm at every size."""
        delay_s = self.fabric.reconfiguration_delay_ms / 1e3
        for plan in self.schedules():
            for size in self.sizes:
                yield Trial(plan, size, self.fabric.fabric(plan.n), delay_s)


def with_lockstep(schedule: Schedule, lockstep: bool) -> Schedule:
    """``schedule``, with a barrier after every round if ``lockstep``."""
    return replace(schedule, lockstep=True) if lockstep else schedule
