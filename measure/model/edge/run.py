"""What a simulated edge run is given and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from controllers.edge.scheduler import Sees
from measure.metrics.edge.meter import EdgeMetrics
from measure.model.edge.plane import Network
from railyard.timeline import Event
from workloads.edge.device import DeviceTimers
from workloads.edge.job import EdgeJob
from workloads.edge.population import ClientProfile


@dataclass(frozen=True)
class VirtualRun:
    """What to simulate; all times are real seconds.

    ``policy`` is a name of ``controllers.edge.catalog`` or a user's own. ``until_s`` ends a run whose jobs do not all
    finish. ``poll_s`` is how often a job polls the root for its sum in a star or tree.
    """

    jobs: Sequence[EdgeJob]
    clients: Sequence[ClientProfile]
    policy: str = "irs"
    seed: int = 0
    managers: int = 1
    sees: Sees = "all"
    timers: DeviceTimers = field(default_factory=DeviceTimers)
    network: Network = field(default_factory=Network)
    poll_s: float = 5.0
    until_s: float = inf


@dataclass(frozen=True)
class VirtualOutcome:
    """What a simulated run gave: its metrics, and its events if they were asked for.

    ``skipped`` check-ins were left out, since nothing could come of them. ``root_down_bytes`` and ``root_up_bytes``
    are payload bytes on the root's link; 0 without a network.
    """

    metrics: EdgeMetrics
    events: tuple[Event, ...]
    skipped: int
    root_down_bytes: float
    root_up_bytes: float
