"""What a simulated edge run is given and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from experiments.propius.control.scheduler import Sees
from experiments.propius.data.device import DeviceTimers
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.population import ClientProfile
from experiments.propius.metrics.meter import EdgeMetrics
from experiments.propius.model.plane import Network
from railyard.timeline import Event


@dataclass(frozen=True)
class VirtualRun:
    """What to simulate; all times are real seconds.

    ``policy`` is a name of ``experiments.propius.control.catalog`` or a user's own. ``until_s`` ends a run
    whose jobs do not all finish. ``poll_s`` is how often a job polls the root for its sum in a star or tree.
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
