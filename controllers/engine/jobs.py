"""A job as the control plane knows it: its groups and its delays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from controllers.circuits.rotation import Cycle
from railyard.validation import Name, Seconds
from workloads.program import Dimension, Group


@dataclass(frozen=True)
class Detection:
    """The events that count as the failure of a chip of a job.

    ``heartbeat_s``: interval of the heartbeats of its agent, in wall-clock seconds (0: none); the chip has failed when
    ``misses`` heartbeats in a row are missing. ``exit``: the connection of its agent ended. ``port``: one of its ports
    is down. A chip that is reported over REST or the job channel has failed in any case.
    """

    heartbeat_s: Seconds = 0.0
    misses: Annotated[int, Field(ge=1, le=10_000)] = 3
    exit: bool = False
    port: bool = False


@dataclass(frozen=True)
class PhaseTraffic:
    """The traffic of one phase of a stage, and how much of a change of circuits before it hides.

    ``uses``: dimension and stage of the groups that communicate in it. ``bytes``: what all ports of a GPU together send
    while nothing hides it (emulated). ``rest_s``: how long the phase and the time before it last otherwise, at any
    rate; ``window_s``: the time in which its circuits are asked for and not needed yet (both wall-clock seconds).
    """

    uses: Annotated[tuple[tuple[Dimension, int], ...], Field(min_length=1)]
    bytes: Annotated[float, Field(ge=0)] = 0.0
    rest_s: float = 0.0
    window_s: Seconds = 0.0


Plan = Literal["stand", "weigh", "change"]
"""A way to wire phases: no change ever, the changes that are worth their delay, or a change between any two phases."""


@dataclass(frozen=True)
class Traffic:
    """The traffic of a job: the phases of each stage in the order of a step, for policies that weigh changes.

    ``tried_s``: wall-clock seconds of a step under each plan that was tried.
    """

    stages: tuple[tuple[PhaseTraffic, ...], ...]
    tried_s: Mapping[Plan, Seconds] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A job as it is registered: its groups, its delays, and how failures of its chips are detected.

    ``reconfiguration_delay_s`` is the time of the switch, ``link_recovery_s`` the time of transceivers and NICs after
    it, both in wall-clock (emulated) seconds. ``mode`` is the run's name of the mode; the engine does not read it.
    ``detection`` None: failures are not detected, only reported. ``cycle``: parameters of rotations, for policies that
    rotate circuits. ``traffic``: for policies that weigh changes.
    """

    name: Name
    groups: tuple[Group, ...]
    mode: str
    reconfiguration_delay_s: Seconds = 0.0
    link_recovery_s: Seconds = 0.0
    detection: Detection | None = None
    cycle: Cycle | None = None
    traffic: Traffic | None = None

    @property
    def dark_s(self) -> float:
        return self.reconfiguration_delay_s + self.link_recovery_s
