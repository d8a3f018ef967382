"""Settings of runs in which jobs share rails: the jobs as text, their fabric, and the faults that hit them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from controllers.allocation.leases import JobPlacement, Order, load_placement
from experiments.racks.setting import PORT_GBPS, DetectionSection
from experiments.rails.job import load_job, port_gbps
from experiments.rails.settings import RailSettings, RailsSection, make_settings
from experiments.settings import Delay, Option, SpreadSettings
from railyard.errors import ConfigError
from workloads.catalog import Workload, with_all_ranks

MOST_JOBS = 256
_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_JOB = re.compile(
    rf"(?:(?P<count>\d{{1,3}})x)?(?P<workload>[^*@:,]+?)(?:\*(?P<steps>\d{{1,5}}))?"
    rf"(?:@(?P<at>{_NUMBER})(?:\+(?P<every>{_NUMBER}))?)?(?::(?P<placement>.+))?"
)


@dataclass(frozen=True)
class JobRequest:
    """A job as somebody asks for it: it arrives ``arrival_s`` real seconds after the run begins, and does ``steps``."""

    name: str
    workload: str
    steps: int
    arrival_s: float
    placement: str


def parse_jobs(words: Iterator[str], steps: int) -> Iterator[JobRequest]:
    """The jobs that ``words`` such as ``4xsmoke*5@0+2:spread`` ask for, ``steps`` each unless a word says otherwise.

    ``ConfigError`` (key ``jobs``) for a word of another form.
    """
    number = 0
    for word in words:
        found = _JOB.fullmatch(word.strip())
        if found is None or found["count"] == "0" or found["steps"] == "0":
            raise ConfigError(
                "must be WORKLOAD, with COUNTx before it and *STEPS, @SECONDS (its arrival, +SECONDS to the next) and "
                f":PLACEMENT after it, as in 4xsmoke*5@0+2:spread, not {word[:60]}",
                key="jobs",
            )
        for copy in range(int(found["count"] or 1)):
            number += 1
            arrival_s = float(found["at"] or 0) + copy * float(found["every"] or 0)
            yield JobRequest(
                f"job{number}",
                found["workload"],
                int(found["steps"] or steps),
                arrival_s,
                found["placement"] or "packed",
            )


@dataclass(frozen=True)
class SharedJob:
    """A job that was asked for, with what it is: as the model computes it by itself, and with all its ranks.

    ``alone`` are the settings of the rail experiment for it, on a fabric of its own.
    """

    request: JobRequest
    alone: RailSettings
    modelled: Workload
    workload: Workload
    placement: JobPlacement

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def servers(self) -> int:
        return self.workload.servers


class SharedRailsSettings(SpreadSettings):
    """Jobs that share rails, in units of the real system."""

    jobs: Annotated[tuple[str, ...], Option(metavar="JOB,...")] = Field(
        default=("smoke", "smoke@3", "smoke@3:spread"),
        min_length=1,
        description="jobs, each WORKLOAD, with COUNTx before and *STEPS, @ARRIVAL (+INTERVAL, both in seconds) and "
        ":PLACEMENT after it; a placement is packed, spread, servers such as 0+1+4, or FILE.py:Class",
    )
    servers: int | None = Field(
        default=None, ge=1, le=4096, description="servers for jobs (default as many as all jobs need at once)"
    )
    spare_servers: int = Field(default=0, ge=0, le=64, description="servers that replace failed ones")
    order: Order = Field(
        default="fifo",
        description="whether a job that fits may go before one that waits for more servers (backfill, eight times at "
        "most), or not (fifo)",
    )
    mode: Literal["electrical", "on-demand", "provisioned"] = Field(
        default="on-demand", description="mode of all jobs, as that of the rail experiment"
    )
    policy: Annotated[str, Option(metavar="NAME|FILE.py:Class")] = Field(
        default="opus", description="policy of the circuits (in modes on-demand and provisioned)"
    )
    delay_ms: Delay = Field(default=100.0, description="reconfiguration delay, in ms")
    link_recovery_ms: Delay = Field(default=0.0, description="link recovery after a reconfiguration, in ms")
    steps: int = Field(default=5, ge=2, le=10_000, description="steps of the job (of each that does not say otherwise)")
    overlap: bool | None = Field(
        default=None, description="communication during compute, as FSDP prefetches (default as the workload says: yes)"
    )
    baseline: bool = Field(default=True, description="each kind of job measured with the fabric to itself, too")
    kill: Annotated[str, Option(metavar="PLACE@STEP,...")] = Field(
        default="",
        description="chips to kill, after a number of steps or, as RANK@+SECONDS, after the kill before; a server is "
        "server1@2.5, and a port rail0:3@2.5",
    )
    controller_dies_after_ms: float | None = Field(
        default=None, ge=0, le=3_600_000, description="time from the first kill to one of the controller, in ms"
    )
    checkpoint_every: int = Field(
        default=1, ge=1, le=10_000, description="steps between two checkpoints; without a kill none is stored"
    )
    state_bytes: float = Field(default=1e9, ge=1, le=1e15, description="a checkpoint of a GPU, in bytes")
    front_end_gbps: float = Field(default=PORT_GBPS, gt=0, le=3200, description="rate of a management port, in Gb/s")
    detection: DetectionSection = DetectionSection()
    fabric: RailsSection = RailsSection()

    @field_validator("jobs")
    @classmethod
    def _jobs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(list(parse_jobs(iter(value), 1))) > MOST_JOBS:
            raise ValueError(f"are more than {MOST_JOBS}; give fewer")
        return value

    @model_validator(mode="after")
    def _possible(self) -> SharedRailsSettings:
        if self.controller == "remote":
            raise ConfigError("must be ryu or os-ken: only policies of Railyard serve several jobs", key="controller")
        if self.pcap:
            raise ConfigError("must be off: packets of several jobs are not captured", key="pcap")
        if self.controller_dies_after_ms is not None and not self.kill:
            raise ConfigError("counts from the first kill, and there is none; add kill", key="controller_dies_after_ms")
        return self

    @cached_property
    def shared_jobs(self) -> tuple[SharedJob, ...]:
        """The jobs in order; ``ConfigError`` for one that cannot be loaded, or whose ports differ from the others'."""
        loaded: dict[tuple[str, int], tuple[RailSettings, Workload, Workload]] = {}
        found = []
        for request in parse_jobs(iter(self.jobs), self.steps):
            key = request.workload, request.steps
            if key not in loaded:
                alone = self._alone(request)
                try:
                    modelled = load_job(alone)
                except ConfigError as error:
                    if error.key != "workload":
                        raise
                    raise ConfigError(error.message, key="jobs") from None
                loaded[key] = alone, modelled, with_all_ranks(modelled)
            found.append(SharedJob(request, *loaded[key], load_placement(request.placement)))
        rates = {port_gbps(job.alone, job.workload) for job in found}
        if len(rates) > 1:
            raise ConfigError(
                f"must be given: the ports of these jobs have {', '.join(f'{rate:g}' for rate in sorted(rates))} Gb/s",
                key="fabric.rate_gbps",
            )
        return tuple(found)

    def _alone(self, request: JobRequest) -> RailSettings:
        values: Mapping[str, Any] = {
            "workload": request.workload,
            "modes": [self.mode],
            "delays_ms": [self.delay_ms],
            "steps": request.steps,
            "policy": None if self.mode == "electrical" or self.policy == "opus" else self.policy,
            "fabric": self.fabric.model_dump(exclude_unset=True),
            **{key: getattr(self, key) for key in ("link_recovery_ms", "overlap", "datapath", "scale")},
        }
        return make_settings(values)
