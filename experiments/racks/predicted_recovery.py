"""Prediction of a recovery, part by part, from data known before the fault.

Detection is by missing heartbeats: the last one was sent at a random moment within an interval before the death, so a
chip is detected between ``misses`` - 1 and ``misses`` intervals after its death. Copies are predicted from bytes and
link rates, given stages take their given time, and the step time is that of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.engine.jobs import Detection
from measure.model.simulated_control import Costs
from measure.model.wires import wire_bytes
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.agent.incarnation import STAGES


@dataclass(frozen=True)
class Bounds:
    """Bounds of a time that depends on the moment of the fault: shortest, mean and longest, in real seconds."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Restart:
    """Known parameters of a restart, in real seconds and real bytes.

    ``checkpoint_bytes`` are copied over the front-end network (0: no copy), ``copies`` times at once from the same
    host. ``stages`` are known durations of start-up stages; a duration of ``checkpoint`` overrides its bytes.
    ``launch_s`` is the time to end the survivors, fork agents and connect them. ``first_step_s``,
    ``step_time_before_s`` and ``step_time_after_s`` come from the model
    (``experiments.racks.job_prediction.predicted_jobs``).
    """

    reconfiguration_delay_s: float = 0.0
    link_recovery_s: float = 0.0
    checkpoint_bytes: float = 0.0
    copies: int = 1
    stages: Mapping[str, float] = field(default_factory=dict)
    launch_s: float = 0.0
    first_step_s: float = 0.0
    step_time_before_s: float | None = None
    step_time_after_s: float | None = None


@dataclass(frozen=True)
class PredictedRecovery:
    """The predicted parts of a ``Recovery``, in real seconds; ``detect_s`` is the mean."""

    detect: Bounds
    decide_s: float
    rewire_s: float
    launch_s: float
    stages: tuple[tuple[str, float], ...]
    first_step_s: float
    step_time_before_s: float | None
    step_time_after_s: float | None

    @property
    def detect_s(self) -> float:
        """Mean time to detection over all moments at which the chip may die, in real seconds."""
        return self.detect.mean

    @property
    def checkpoint_s(self) -> float | None:
        """Time to copy the checkpoint in real seconds; None without a copy."""
        return dict(self.stages).get("checkpoint")

    @property
    def restart_s(self) -> float:
        """Real seconds from the circuits being up to the start of the first step."""
        return self.launch_s + sum(seconds for _, seconds in self.stages)

    @property
    def outage(self) -> Bounds:
        """Real seconds from the fault to the end of the first step after it."""
        rest = self.decide_s + self.rewire_s + self.restart_s + self.first_step_s
        return Bounds(self.detect.low + rest, self.detect.mean + rest, self.detect.high + rest)

    @property
    def breakdown(self) -> tuple[tuple[str, float], ...]:
        """The parts in order, with the names of ``Recovery.breakdown``, in real seconds."""
        return (
            ("detect", self.detect_s),
            ("decide", self.decide_s),
            ("rewire", self.rewire_s),
            ("launch", self.launch_s),
            *self.stages,
            ("first step", self.first_step_s),
        )


def predict_recovery(
    restart: Restart, detection: Detection, plan: FabricPlan, scale: Scale, costs: Costs | None = None
) -> PredictedRecovery:
    """The predicted recovery of a job on ``plan``, whose rates are at ``scale``.

    ``costs`` are those of the machine (None: an ideal machine). ``ConfigError`` if no detection is on, and for a
    checkpoint on a fabric without a front-end network.
    """
    costs = costs or Costs()
    real = scale.real_s
    return PredictedRecovery(
        detect=detection_bounds(detection, scale, costs),
        decide_s=0.0,
        rewire_s=restart.reconfiguration_delay_s + restart.link_recovery_s + real(costs.settle_s),
        launch_s=real(costs.control_s / 2) + restart.launch_s,
        stages=_stages(restart, plan, scale),
        first_step_s=restart.first_step_s,
        step_time_before_s=restart.step_time_before_s,
        step_time_after_s=restart.step_time_after_s,
    )


def detection_bounds(detection: Detection, scale: Scale, costs: Costs | None = None) -> Bounds:
    """Bounds of the time to detection in real seconds; nearly 0 if ended agents or dark ports count."""
    told = scale.real_s((costs or Costs()).control_s / 2)
    if detection.exit or detection.port:
        return Bounds(0.0, told, 2 * told)
    if detection.heartbeat_s <= 0:
        raise ConfigError("must be above 0 unless detection exit or port is on", key="detection.heartbeat_s")
    beat = scale.real_s(detection.heartbeat_s)
    return Bounds((detection.misses - 1) * beat, (detection.misses - 0.5) * beat + told, detection.misses * beat + told)


def checkpoint_seconds(checkpoint_bytes: float, plan: FabricPlan, scale: Scale, copies: int = 1) -> float:
    """Real seconds for ``copies`` of a checkpoint from one host, at the rate of its front-end port.

    ``ConfigError`` on a fabric without a front-end network.
    """
    rates = [port.rate_mbps for switch in plan.network("front-end") for port in switch.ports]
    if not rates:
        raise ConfigError("the fabric has no front-end network to fetch a checkpoint over", key="fabric.front_end")
    on_wire = copies * wire_bytes(scale.emulated_bytes(checkpoint_bytes), plan.mtu)
    return scale.real_s(on_wire * 8 / (min(rates) * 1e6))


def _stages(restart: Restart, plan: FabricPlan, scale: Scale) -> tuple[tuple[str, float], ...]:
    """The start-up stages with a known duration, in order."""
    known = dict(restart.stages)
    if "checkpoint" not in known and restart.checkpoint_bytes > 0:
        known["checkpoint"] = checkpoint_seconds(restart.checkpoint_bytes, plan, scale, restart.copies)
    order = [*(name for name in STAGES if name in known), *(name for name in known if name not in STAGES)]
    return tuple((name, known[name]) for name in order)
