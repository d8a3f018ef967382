"""Configuration of one agent, as data. An incarnation is a job from a checkpoint on, until the next failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.validation import from_plain
from topos.plan import FabricPlan
from workloads.program import Compute, Program

STAGES = ("checkpoint", "library", "data", "load")
"""Start-up stages of a rank before the first step of an incarnation, in order: fetch the checkpoint (a spare; the
others have it), synchronise the collective library, prepare the data, read the checkpoint into memory. Order of
MORPHLUX (arXiv 2508.03674, recovery timeline)."""


@dataclass(frozen=True)
class Incarnation:
    """Parameters of one incarnation of a job, for one rank.

    ``number`` counts the incarnations of the job from 0; ``first_step`` is the first step of this one (earlier steps
    are in the checkpoint). The state is made of the reduced values of all collectives over ``group``; with no group
    (empty) checkpoints have their size alone. A checkpoint is stored in ``store`` (the folder that stands for this
    host's disk) after every ``checkpoint_every`` steps (0: never); it holds ``state_bytes`` (real bytes, scaled as all
    bytes are). ``copy_from``: fetch the checkpoint from this rank
    over the front-end network first (None: it is in ``store``, or the job begins). ``copy_to``: the ranks that fetch it
    from this one. ``given``: the durations (real seconds) of stages that are given instead of executed. ``heartbeat_s``
    is the heartbeat interval in wall-clock seconds (0: none). ``serves``: the state are weights, which steps do not
    change; every first member has them on its disk. ``epoch``: when the first step of incarnation 0 began, in monotonic
    seconds (None: this is it).
    """

    number: int = 0
    first_step: int = 0
    group: str = "world"
    checkpoint_every: int = 0
    state_bytes: int = 0
    store: str = ""
    copy_from: int | None = None
    copy_to: tuple[int, ...] = ()
    given: tuple[tuple[str, float], ...] = ()
    heartbeat_s: float = 0.0
    serves: bool = False
    epoch: float | None = None

    @property
    def state_step(self) -> int:
        """The step of the checkpoint that this incarnation loads."""
        return 0 if self.serves else self.first_step

    def given_s(self, stage: str) -> float | None:
        """The duration given for ``stage`` (real seconds); None if the stage is executed."""
        return dict(self.given).get(stage)


AgentMode = Literal["native", "electrical", "one-shot", "on-demand", "provisioned"]

_HEARTBEATS_S = 0.4, 2.0
"""Shortest and longest interval of heartbeats: on a busy machine they may be late by tenths of a second."""


@dataclass(frozen=True)
class AgentConfig:
    """Configuration of the agent of one rank.

    ``channel`` is the path of the controller's job channel (None: no control plane, mode native only); ``events`` the
    file to which the agent appends its events. ``ack_timeout_s`` bounds every wait for the controller or a peer, in
    wall-clock seconds; the time in which another rank may compute is added (``peer_timeout_s``). ``incarnation`` makes
    the program a training job with a state and checkpoints (None: a plain repetition of its step). ``profile_steps``:
    first steps in which mode provisioned requests on demand, as it learns the order of the phases; ``stale_step``: the
    step in which it has a stale profile (0: none). ``outlives_controller``: the agent goes on without a controller, and
    with another when the launcher says so. ``script``: path of the Unix socket at which the agent listens for the
    user's script that drives it (``workloads.agent.script``; empty: none). The script then says when a step is over and
    which is the last, up to ``steps``; its tensors move in their real size, whatever the scale. ``script_pause_s``:
    longest wall-clock time in which a rank's script may ask for nothing, as where one evaluates and the others wait.
    ``agents_per_process``: how many ranks share an agent process (0: as many as use all processors).
    """

    rank: int
    job: str
    mode: AgentMode
    program: Program
    scale: Scale
    plan: FabricPlan
    events: str
    channel: str | None = None
    steps: int = 1
    seed: int = 1
    verify: bool = False
    ack_timeout_s: float = 30.0
    profile_steps: int = 0
    stale_step: int = 0
    outlives_controller: bool = False
    agents_per_process: int = 0
    incarnation: Incarnation | None = None
    script: str = ""
    script_pause_s: float = 0.0

    @property
    def real_payload(self) -> bool:
        """Whether messages carry real values, to be verified or for the state of a training job."""
        return self.verify or self.incarnation is not None

    @property
    def heartbeat_s(self) -> float:
        """Interval of heartbeats to the launcher, in wall-clock seconds, so short that it finds an agent that hangs
        before the peers of that agent give up (where these wait for some seconds).
        """
        shortest, longest = _HEARTBEATS_S
        return min(longest, max(shortest, self.ack_timeout_s / 8))

    @property
    def peer_timeout_s(self) -> float:
        """Wall-clock seconds without a byte from a peer, or without an acknowledgement, after which it counts as lost.

        A peer, or a member of the group, may compute for its whole step first, so the compute time of the busiest rank
        is added, and ``script_pause_s``.
        """
        computes = ((op for op in ops if isinstance(op, Compute)) for ops in self.program.operations)
        busiest = max((sum(op.seconds + max(op.late, default=0.0) for op in ops) for ops in computes), default=0.0)
        return self.ack_timeout_s + self.script_pause_s + self.scale.emulated_s(busiest)


_SHARED = ("program", "plan")


@dataclass(frozen=True)
class _Shared:
    """Configurations as JSON: ``agents`` name their program and their plan by number."""

    program: tuple[Program, ...]
    plan: tuple[FabricPlan, ...]
    agents: tuple[dict[str, Any], ...]


def configs_to_json(configs: Sequence[AgentConfig]) -> bytes:
    """The configurations as JSON; a program or plan that several agents share is written once."""
    shared: dict[str, list[Any]] = {name: [] for name in _SHARED}
    place: dict[int, int] = {}
    agents = []
    for config in configs:
        entry = dict(vars(config))
        for name in _SHARED:
            value = entry[name]
            if id(value) not in place:
                place[id(value)] = len(shared[name])
                shared[name].append(value)
            entry[name] = place[id(value)]
        agents.append(entry)
    return TypeAdapter(dict[str, Any]).dump_json({**shared, "agents": agents})


def configs_from_json(text: bytes) -> list[AgentConfig]:
    """Read the configurations that ``configs_to_json`` wrote; ``ConfigError`` for anything else."""
    data = from_plain(_Shared, text, "the configurations of agents")
    try:
        entries = [
            {**entry, "program": data.program[entry["program"]], "plan": data.plan[entry["plan"]]}
            for entry in data.agents
        ]
    except (LookupError, TypeError):
        raise ConfigError("must name a program and a plan by their numbers", key="agents") from None
    return [from_plain(AgentConfig, entry, "an agent") for entry in entries]
