"""A point to measure: one job on one fabric, with all that its run and its prediction need."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mininet.topo import Topo

from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Detection, Traffic
from controllers.openflow.datapaths import EXACT, OPEN_VSWITCH
from controllers.policies.catalog import load_policy
from experiments.script import UserScript
from measure.live.calibration import Calibration, this_machine
from measure.metrics.critical import OperationKey, critical_paths
from measure.metrics.point import Point, job_name
from measure.model.prediction import Costs, Prediction, predict
from railyard.digits import significant
from railyard.scale import Floors, Scale
from topos.describe import plan as describe
from topos.plan import FabricPlan
from workloads.agent.config import AgentMode
from workloads.program import OpenLoop, Program

CONTROL_S = 0.002
"""Seconds from request to acknowledgement without a change of circuits (``railyard bench --only barrier``)."""


@dataclass(frozen=True)
class Fabric:
    """A fabric by ``name``; points with an equal ``key`` share one bring-up."""

    name: str
    key: Hashable
    topology: Callable[[], Topo] = field(compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The options of the topology, where a person can bring it up (``railyard up``)."""

    def plan(self) -> FabricPlan:
        return describe(self.topology())

    def is_up(self, plan: FabricPlan) -> bool:
        """Whether ``plan`` is that of this fabric, as far as people type the digits of rates."""
        own, other = (as_typed(asdict(replace(each, burst=0))) for each in (self.plan(), plan))  # it follows from rates
        return bool(own == other)


def as_typed(plain: Any) -> Any:
    """Plain data with as many digits of fractions as a person types."""
    return json.loads(json.dumps(plain), parse_float=lambda text: float(significant(float(text))))


@dataclass(frozen=True)
class Training:
    """A job that outlives its members: how their failures are detected, and what it restarts from.

    ``program`` gives the program of any members. A checkpoint of ``state_bytes`` (real) is stored after every
    ``checkpoint_every`` steps (0: never). ``stages`` are given durations of start-up stages in real seconds.

    With ``arrivals`` the steps answer requests. The state of such a job are weights, which spares have if ``preloaded``
    and else copy, and it goes on with the first request that is not answered.
    """

    program: Callable[[Sequence[int]], Program]
    detection: Detection
    checkpoint_every: int
    state_bytes: float
    stages: tuple[tuple[str, float], ...] = ()
    arrivals: OpenLoop | None = None
    preloaded: bool = False


@dataclass(frozen=True)
class JobPoint:
    """One job on one fabric. Delays are real seconds, ``cycle`` is in wall-clock seconds and emulated bytes.

    - ``name``: of the point, in rows and figures; ``mode``: of the job, for the controller; ``native`` has no policy;
    - ``members``: the ranks that get an agent, those of a training job in ring order (none: all of the fabric);
    - ``script``: a PyTorch script whose ranks drive the agents, until it ends (None: agents run ``steps`` steps);
    - ``training``: a job that outlives its members (None: the end of an agent is an error);
    - ``expected_step_s``: of a step in wall-clock seconds, for kills in the middle of the first one;
    - ``slots``: the dimension whose collectives move in slots (empty: none);
    - ``follows``: circuits follow the rounds of each collective, so the critical path includes their changes;
    - ``steps``, ``model_steps``: number of steps of the run and of the model, the warm-up included;
    - ``predicted_on``: the plan that the model and the verdict take, if not that of the fabric;
    - ``each_step``: steps differ on purpose, so each is compared with its own prediction (``model_steps`` = ``steps``);
    - ``profile_steps``: first steps in which mode provisioned learns the order of the phases; they are the warm-up;
    - ``stale_step``: the step in which mode provisioned has a stale profile (0: none); per-step numbers leave it out;
    - ``traffic``: for policies that weigh changes, in wall-clock seconds and emulated bytes;
    - ``background``: a rank and the share of its port's rate that other traffic takes.
    """

    name: str
    fabric: Fabric
    program: Program
    mode: str
    policy: str
    steps: int
    model_steps: int
    reconfiguration_delay_s: float = 0.0
    link_recovery_s: float = 0.0
    cycle: Cycle | None = None
    slots: str = ""
    follows: bool = False
    operations_s: Mapping[OperationKey, float] = field(default_factory=dict)
    predicted_on: FabricPlan | None = None
    background: tuple[int, float] | None = None
    profile_steps: int = 0
    stale_step: int = 0
    traffic: Traffic | None = None
    each_step: bool = False
    members: tuple[int, ...] = ()
    script: UserScript | None = None
    training: Training | None = None
    expected_step_s: float = 1.0

    @property
    def job_name(self) -> str:
        return self.name if self.training is not None else job_name(self.name, self.reconfiguration_delay_s)

    @property
    def arrivals(self) -> OpenLoop | None:
        """The requests of an inference job; None for any other job."""
        return None if self.training is None else self.training.arrivals

    def program_of(self, members: Sequence[int]) -> Program:
        """The program for other ``members`` of a training job; that of any other job never changes."""
        return self.program if self.training is None else self.training.program(members)

    def holders(self, members: Sequence[int]) -> tuple[int, ...]:
        """The ranks of ``members`` that have the state of the job: all but the client of an inference job."""
        group = self.program_of(members).groups.get(self.name)
        return tuple(members) if group is None else group.members

    @property
    def agent_mode(self) -> AgentMode:
        """The mode of the agents: on-demand in slots, in advance where the policy decides, else that of the job."""
        if self.mode == "deciding":
            return "provisioned"
        return "on-demand" if self.slots else self.mode  # type: ignore[return-value]

    def prediction(self, plan: FabricPlan, scale: Scale, costs: Costs | None = None) -> Prediction:
        """The model's prediction on ``plan``; without ``costs`` for an ideal machine."""
        return predict(
            self.program,
            plan,
            None if self.mode == "native" else load_policy(self.policy, plan),
            self.agent_mode,
            delay_s=self.reconfiguration_delay_s,
            link_recovery_s=self.link_recovery_s,
            scale=scale,
            steps=self.model_steps,
            costs=costs,
            cycle=self.cycle,
            profile_steps=self.profile_steps,
            stale_step=self.stale_step,
            traffic=self.traffic,
        )

    def check_floors(self, scale: Scale, floors: Floors) -> None:
        """Raise ``ConfigError`` for a delay or a slot that is too short for this machine."""
        floors.check_delay(self.reconfiguration_delay_s, f"the reconfiguration delay of {self.name}", scale)
        floors.check_delay(self.link_recovery_s, f"the link recovery of {self.name}", scale)
        slot_s = self.cycle.slot_s if self.cycle is not None else None
        floors.check_slot(scale.real_s(slot_s or 0.0), f"the slot of {self.name}", scale)

    def predicted(self, scale: Scale) -> Prediction:
        """The model's prediction for this machine, without bringing the fabric up."""
        return self.prediction(
            self.predicted_on or self.fabric.plan(), scale, machine_costs(self.program.ranks_at_work)
        )

    def point(self, number: int, plan: FabricPlan, scale: Scale, prediction: Prediction) -> Point:
        return Point(
            number,
            self.name,
            plan,
            self.program.groups,
            scale,
            self.reconfiguration_delay_s,
            self.link_recovery_s,
            prediction.step_time_s,
            warmup_steps=self.profile_steps or None,
            stale_step=self.stale_step or None,
            critical=critical_paths(
                self.program, scale, plan.ports_per_gpu, circuits=self.follows, rotating=self.slots
            ),
            predicted_step_times_s=prediction.step_times_s if self.each_step else (),
            operations_s=self.operations_s,
            controlled=self.mode != "native",
        )


def machine_floors(datapath: str = "auto") -> Floors:
    return this_machine().floors(datapath)


def with_guard(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of settings, with the guard time of slots that this machine needs unless they have one."""
    guard_s = machine_floors(str(values.get("datapath", "auto"))).guard_s
    return {"guard_ms": round(guard_s * 1e3, 3), **values}


def machine_costs(hosts: int, calibration: Calibration | None = None, datapath: str = "auto") -> Costs:
    """Costs that the model adds for this machine with ``hosts`` at work: of messages and of the control plane.

    Where the kernel forwards, no cache has to follow a change of circuits.
    """
    machine = calibration or this_machine()
    found = machine.of(datapath)
    caches = OPEN_VSWITCH if machine.takes(datapath) == "ovs" else EXACT
    settle_s = caches.settle_s or max(0.0, found.control.swap_s - CONTROL_S)
    return Costs(found.hop_s(hosts), CONTROL_S, settle_s, caches.revalidation_s)
