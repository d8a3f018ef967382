"""A measured point (one mode at one delay) with all data needed to evaluate its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from measure.metrics.critical import Critical, OperationKey
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan, SwitchPlan
from workloads.program import Group

_T = TypeVar("_T")


def job_name(mode: str, reconfiguration_delay_s: float) -> str:
    """The name of a point, which is that of its job at the controller."""
    return f"{mode}-{reconfiguration_delay_s * 1e3:g}ms"


@dataclass(frozen=True)
class Point:
    """One point of a run: several steps of a program in one mode at one delay. Delays and predictions are real seconds.

    - ``number``: counts the points of a run from 0;
    - ``warmup_steps``: left out of every per-step number (the first step starts from the starting circuits and from
      cold sockets); None means one if there is more than one step, else none;
    - ``stale_step``: left out as well, since circuits are requested by a stale profile in it;
    - ``critical``: critical paths of the operations, where known (``measure.metrics.critical``);
    - ``predicted_step_times_s``: of every step, the warm-up included, for a program whose steps differ on purpose;
    - ``operations_s``: times of operations by the model (wall-clock seconds), where links between switches are the
      bottleneck and not the ports of the hosts;
    - ``cut_short``: the agents did more than is judged here, or ended before reporting their sockets' counters;
    - ``controlled``: Railyard's controller serves the job, so that its events must be there;
    - ``part``: the events are a part of those of a run, whose agents and controller are judged as a whole;
    - ``switch_losses``: what switches lost between the readings of their counters was lost in this point;
    - ``contended``: other jobs use the same links between switches from time to time.
    """

    number: int
    mode: str
    plan: FabricPlan
    groups: Mapping[str, Group]
    scale: Scale
    reconfiguration_delay_s: float = 0.0
    link_recovery_s: float = 0.0
    predicted_step_time_s: float | None = None
    warmup_steps: int | None = None
    stale_step: int | None = None
    critical: Mapping[OperationKey, Critical] = field(default_factory=dict)
    predicted_step_times_s: tuple[float, ...] = ()
    operations_s: Mapping[OperationKey, float] = field(default_factory=dict)
    cut_short: bool = False
    contended: bool = False
    controlled: bool = True
    part: bool = False
    switch_losses: bool = True

    @property
    def name(self) -> str:
        return job_name(self.mode, self.reconfiguration_delay_s)

    @property
    def title(self) -> str:
        """Name of the point in titles of figures: ``on-demand, reconfiguration delay 50 ms``."""
        return self.mode + (f", reconfiguration delay {self.reconfiguration_delay_s * 1e3:g} ms" if self.dark_s else "")

    @property
    def dark_s(self) -> float:
        """Configured dark time of a port: reconfiguration delay plus link recovery (wall-clock seconds)."""
        return self.scale.emulated_s(self.reconfiguration_delay_s + self.link_recovery_s)

    def warmup(self, steps: int) -> int:
        if self.warmup_steps is not None:
            return min(self.warmup_steps, max(steps - 1, 0))
        return 1 if steps > 1 else 0

    def counted(self, of_steps: Sequence[_T], disturbed: Set[int] = frozenset()) -> list[_T]:
        """The entries of the steps that count in per-step numbers, of those of all steps from the first.

        Steps ``disturbed`` by what the run did to its controller do not.
        """
        left_out = {*range(self.warmup(len(of_steps))), self.stale_step, *disturbed}
        return [each for step, each in enumerate(of_steps) if step not in left_out]

    def switch(self, rail: str | int) -> SwitchPlan | None:
        """The switch that the field ``rail`` of an event names or numbers; None if there is none."""
        name = rail if isinstance(rail, str) else f"rail{rail}"
        return next((s for s in self.plan.switches if s.name == name), None)

    def event(self, t: float, end: float, *, stopped: bool = False) -> Event:
        """The ``run point`` event of this point; ``delay_s`` and ``link_recovery_s`` in wall-clock seconds.

        ``stopped``: the point did not end by itself.
        """
        delays = {"delay_s": self.reconfiguration_delay_s, "link_recovery_s": self.link_recovery_s}
        wall_s = {name: self.scale.emulated_s(delay) for name, delay in delays.items()}
        return point_event(self.number, self.mode, self.plan.fabric, t, end, stopped=stopped, **wall_s)


def point_event(number: int, mode: str, fabric: str, t: float, end: float, *, stopped: bool, **more: float) -> Event:
    """The ``run point`` event of a measured point; ``stopped``: it did not end by itself."""
    fields = {"point": number, "mode": mode, "fabric": fabric, **more}
    return Event(t, "run", "point", end, fields | ({"stopped": True} if stopped else {}))


def within(events: Iterable[Event], start: float, end: float) -> list[Event]:
    return [e for e in events if start <= e.t <= end and e.kind != "point"]
