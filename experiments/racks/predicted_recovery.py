"""Prediction of a recovery, part by part, from data known before the fault.

Detection is by missing heartbeats: the last one was sent at a random moment within an interval before the death, so a
chip is detected between ``misses`` - 1 and ``misses`` intervals after its death. Copies are predicted from bytes and
link rates, given stages take their given time, and the step time is that of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from controllers.engine.jobs import Detection
from measure.model.simulated_control import Costs
from measure.model.wires import wire_bytes
from railyard.errors import ConfigError
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.agent.config import STAGES


class Bounds(NamedTuple):
    """Bounds of a time that depends on the moment of the fault: shortest, mean and longest, in real seconds."""

    low: float
    mean: float
    high: float


def predicted_parts(
    stages: Mapping[str, float], scale: Scale, costs: Costs, *, rewire_s: float, launch_s: float, first_step_s: float
) -> dict[str, float]:
    """The parts of a recovery after the detection, by name and in order, in real seconds as the arguments.

    ``stages`` are the durations of start-up stages, ``costs`` those of the machine, ``rewire_s`` is the configured dark
    time, ``launch_s`` the time to end the survivors, fork agents and connect them. The policy decides at once.
    """
    return {
        "decide": 0.0,
        "rewire": rewire_s + scale.real_s(costs.settle_s),
        "launch": scale.real_s(costs.control_s / 2) + launch_s,
        **{name: stages[name] for name in dict.fromkeys((*STAGES, *stages)) if name in stages},
        "first step": first_step_s,
    }


def detection_bounds(detection: Detection, scale: Scale, costs: Costs) -> Bounds:
    """Bounds of the time to detection in real seconds; nearly 0 if ended agents or dark ports count.

    ``ConfigError`` if nothing is watched.
    """
    told = scale.real_s(costs.control_s / 2)
    if detection.exit or detection.port:
        return Bounds(0.0, told, 2 * told)
    if detection.heartbeat_s <= 0:
        raise ConfigError("must be above 0 unless detection exit or port is on", key="detection.heartbeat_s")
    beat = scale.real_s(detection.heartbeat_s)
    return Bounds((detection.misses - 1) * beat, (detection.misses - 0.5) * beat + told, detection.misses * beat + told)


def checkpoint_seconds(checkpoint_bytes: float, plan: FabricPlan, scale: Scale, copies: int = 1) -> float:
    """Real seconds for ``copies`` of a checkpoint from one host at once, at the rate of its front-end port.

    ``ConfigError`` on a fabric without a front-end network.
    """
    rates = [port.rate_mbps for switch in plan.network("front-end") for port in switch.ports]
    if not rates:
        raise ConfigError("the fabric has no front-end network to fetch a checkpoint over", key="fabric.front_end")
    on_wire = copies * wire_bytes(scale.emulated_bytes(checkpoint_bytes), plan.mtu)
    return scale.real_s(on_wire * 8 / (min(rates) * 1e6))
