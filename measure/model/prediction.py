"""The prediction for each measurement: the decisions of a live run over ideal links.

``predict`` simulates a program with the engine and policy of a live run (``measure.model.simulation``) and evaluates
the resulting timeline with the definitions for measured ones (``measure.metrics.metrics``), so that a difference
between the two is caused by the machine and not by the evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass

from controllers.circuits import torus_routes
from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from measure.metrics.metrics import PointMetrics, measure_point
from measure.metrics.point import Point
from measure.model.simulated_control import Costs
from measure.model.simulation import Simulation
from measure.model.wires import Routing
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Program

__all__ = ["Costs", "Prediction", "predict"]

DEFAULT_STEPS = 3


@dataclass(frozen=True)
class Prediction(PointMetrics):
    """The predicted metrics of a run; all times of the job in real seconds.

    ``step_times_s`` holds every step, the first included; the numbers per step are of the steps after it. ``events``
    are the whole predicted timeline on the emulator's clock (wall-clock seconds from 0), for figures.
    """

    step_time_s: float
    events: tuple[Event, ...]


def predict(
    program: Program,
    plan: FabricPlan,
    policy: Policy | None,
    mode: str,
    delay_s: float = 0.0,
    link_recovery_s: float = 0.0,
    scale: Scale | None = None,
    steps: int = DEFAULT_STEPS,
    costs: Costs | None = None,
    avoid: frozenset[int] = frozenset(),
    cycle: Cycle | None = None,
) -> Prediction:
    """Predict ``steps`` steps of ``program`` on ``plan``.

    - ``plan``: contains emulated rates, so ``scale`` (default 1) must be the one it was made with;
    - ``policy``: a new policy object for ``plan``; None for mode ``native``;
    - ``mode``: with ``provisioned``, ranks request circuits in advance, else on demand;
    - ``delay_s`` and ``link_recovery_s``: real seconds;
    - ``avoid``: dead chips, around which the routes over links between switches lead;
    - ``cycle``: the rotation of the job, in wall-clock seconds and emulated bytes.

    Several jobs on one fabric are one program with groups that have no rank in common; ranks in no group have no
    operations. Raises ``ConfigError`` if plan and program do not match, and ``ControlError`` if the control plane
    refuses a request, if no route is left, or if the run comes to a standstill.
    """
    if program.ranks != plan.ranks:
        raise ConfigError(f"program {program.name} has {program.ranks} ranks and the fabric {plan.ranks}; both must "
                          "be equal", key="workload")  # fmt: skip
    if (policy is None) != (mode == "native"):
        raise ConfigError("mode native has no policy, every other mode needs one", key="mode")
    scale = scale or Scale(1.0)
    job = Job(
        name=program.name,
        groups=tuple(program.groups.values()),
        mode=mode,
        reconfiguration_delay_s=scale.emulated_s(delay_s),
        link_recovery_s=scale.emulated_s(link_recovery_s),
        cycle=cycle,
    )
    run = Simulation(program, plan, policy, job, scale, steps, costs or Costs(), provisioned=mode == "provisioned",
                     routing=_routing(plan, avoid))  # fmt: skip
    events = run.run()
    point = Point(0, mode, plan, program.groups, scale, delay_s, link_recovery_s)
    metrics = vars(measure_point(point, events))
    return Prediction(**{**metrics, "step_time_s": metrics["step_time_s"] or 0.0, "events": events})


def _routing(plan: FabricPlan, avoid: frozenset[int]) -> Routing | None:
    """Routes over the links between the switches of ``plan``; None if it has no such links."""
    if not plan.links:
        return None
    tables = torus_routes.routes(plan, avoid)
    return lambda src, dst: torus_routes.path(plan, tables, src, dst)
