"""Predictions for the points of a rail experiment by the model; needs no root."""

from __future__ import annotations

from controllers.circuits.rotation import Cycle
from controllers.openflow.datapaths import REVALIDATION_GAP_S
from controllers.openflow.tuning import SETTLE_S
from controllers.policies.catalog import load_policy
from controllers.policies.policy import Policy
from experiments.rails.job import cycle_on, policy_name, program_on
from experiments.rails.layout import topology_options
from experiments.rails.settings import Experiment, Mode
from measure.live.calibration import Calibration, default_calibration
from measure.model.prediction import Costs, Prediction, predict
from railyard.scale import Scale
from topos.describe import plan as describe
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.catalog import Workload

CONTROL_S = 0.002
"""Seconds from request to acknowledgement without a change of circuits (``bench.py --only barrier``, small groups)."""


def costs(calibration: Calibration | None) -> Costs:
    """Costs that the model adds for this machine: message latency and delays of the control plane, in seconds."""
    alpha_s = (calibration or default_calibration()).alpha_s
    return Costs(alpha_s=alpha_s, control_s=CONTROL_S, settle_s=SETTLE_S, revalidation_s=REVALIDATION_GAP_S)


def fabric_plan(experiment: Experiment, workload: Workload, mode: Mode, scale: Scale) -> FabricPlan:
    """The plan of the fabric of ``mode``, without bringing the fabric up."""
    return describe(RailTopo(**topology_options(experiment, workload, experiment.fabric_of(mode), scale)))


def forecast(
    experiment: Experiment,
    workload: Workload,
    mode: Mode,
    delay_ms: float,
    scale: Scale,
    plan: FabricPlan | None = None,
    machine: Costs | None = None,
) -> Prediction:
    """The prediction for one point; ``machine`` None predicts for an ideal machine, without costs."""
    plan = plan or fabric_plan(experiment, workload, mode, scale)
    policy: Policy | None = None if mode == "native" else load_policy(policy_name(experiment, workload, mode), plan)
    return predict(
        program_on(experiment, workload, mode),
        plan,
        policy,
        mode,
        delay_s=delay_ms / 1e3,
        link_recovery_s=experiment.link_recovery_ms / 1e3,
        scale=scale,
        steps=max(2, min(experiment.steps, 3)),
        costs=machine or Costs(),
        cycle=emulated_cycle(experiment, workload, mode, scale),
    )


def emulated_cycle(experiment: Experiment, workload: Workload, mode: Mode, scale: Scale) -> Cycle | None:
    """The slot cycle of ``mode`` in wall-clock seconds and emulated bytes; None in modes without slots."""
    cycle = cycle_on(experiment, workload, mode)
    return cycle and cycle.scaled(scale.time, scale.rate * scale.time)
