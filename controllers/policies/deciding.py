"""The deciding policy: it changes circuits where that is worth the delay, and lets them stand where it is not.

A GPU has four ports, two pairs of lanes. Each pair is in the ring of a stage or in its chain, so a stage has three
wirings: ``RING`` and ``CHAIN`` with all four, and ``SPLIT`` with lanes 0 and 1 in the ring and 2 and 3 in the chain, as
one-shot circuits are. ``SPLIT`` carries every phase, at a part of the rate, so it never has to change.

Which wiring G_i each phase i of a stage gets is the choice with the least

    T = sum of t_i(G_i) + sum of the delays that show,  t_i(G) = rest_i + bytes_i / rate(G),

over the cyclic sequence of the phases of a step, where a change before phase i shows max(0, delay - window_i). Dynamic
programming over the wiring that stands finds it exactly (``cheapest``): T up to phase i depends on the choices before
it only by the wiring that stands. Phases, bytes and windows are those that the job is registered with.

T counts each stage alone. What the stages of a pipeline hide from one another is not in it, so a job may also tell how
long a step was when this plan and the two that need no weighing (never change, always change) were tried. The shortest
is then taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Literal, NamedTuple, get_args

from controllers.circuits.circuits import Matching
from controllers.engine.jobs import Job, PhaseTraffic, Plan, Traffic
from controllers.policies import opus
from controllers.policies.opus import NO_CIRCUITS, RailGroups, read_states, wire
from controllers.policies.policy import Policy, Wiring
from controllers.policies.wiring import group_paths, paths_in, rail_of_group
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Dimension, Group

Choice = Literal["RING", "CHAIN", "SPLIT"]
STATES: Mapping[Choice, tuple[int, int]] = {
    "SPLIT": (opus.RING, opus.CHAIN),
    "RING": (opus.RING, opus.RING),
    "CHAIN": (opus.CHAIN, opus.CHAIN),
}
"""Each wiring, as the states of both pairs of lanes."""
PAIRS = ((0, 1), (2, 3))
PLANS = get_args(Plan)
WHOLE: Mapping[Dimension, Choice] = {"dp": "RING", "pp": "CHAIN"}


class PhaseOption(NamedTuple):
    """The duration of a phase on one wiring, in seconds."""

    wiring: Choice
    seconds: float


def cheapest(phases: Sequence[Sequence[PhaseOption]], shows: Sequence[float]) -> tuple[float, tuple[Choice, ...]]:
    """The least T of a cyclic sequence of phases, and the wiring of each.

    ``phases``: the options of each phase. ``shows``: seconds of the delay that show if the wiring changes before it.
    Among equals the first option counts, so that nothing changes without a gain.
    """
    best: tuple[float, tuple[Choice, ...]] = inf, ()
    for last in phases[-1] if phases else ():
        # wiring that stands -> least T so far, and the choices that lead there
        stands: dict[Choice, tuple[float, tuple[Choice, ...]]] = {last.wiring: (0.0, ())}
        for options, delay_s in zip(phases, shows, strict=True):
            before, stands = stands, {}
            for wiring, seconds in options:
                ways = ((t + (wiring != stood) * delay_s, path) for stood, (t, path) in before.items())
                t, path = min(ways, key=lambda way: way[0])
                stands[wiring] = t + seconds, (*path, wiring)
        if stands[last.wiring][0] < best[0]:
            best = stands[last.wiring]
    return best


class DecidingPolicy(Policy):
    """Wires each stage for each of its phases, by the plan whose step was shortest when tried, else as ``cheapest``.

    It needs optical rails with four ports a GPU, and groups of dimensions dp and pp. Without traffic it never changes.
    """

    def __init__(self, plan: FabricPlan) -> None:
        super().__init__(plan)
        self._traffic: Traffic | None = None
        self._delay_s = 0.0

    def prepare(self, job: Job) -> None:
        self._traffic, self._delay_s = job.traffic, job.dark_s

    def start(self, groups: Sequence[Group]) -> Wiring:
        """Every stage in the wiring that its last phase leaves, so that the first step is as all others.

        ``ConfigError`` for a fabric or groups that it cannot wire, or traffic that is not that of the groups.
        """
        groups = [group for group in groups if group.domain == "scale-out"]
        self._both_ways = len({group.stage for group in groups if group.dimension == "pp"}) == 1
        self._rails: dict[str, tuple[RailGroups, ...]] = {}
        for group in groups:
            self._add(group)
        uses: dict[int, set[tuple[Dimension, int]]] = {}
        for group in groups:
            for stage in stages_of(group):
                uses.setdefault(stage, set()).add((group.dimension, group.stage))
        told = dict(enumerate(self._traffic.stages)) if self._traffic is not None else dict.fromkeys(uses, ())
        if self._traffic is not None and uses != {s: {u for phase in told[s] for u in phase.uses} for s in told}:
            raise ConfigError("must have the phases of every stage, and no other use than its groups", key="traffic")
        self.choices = {stage: self._choices(phases) for stage, phases in told.items()}
        """The wiring of each phase, by stage; one alone where it never changes."""
        return {
            name: _joined(
                wire(pair, {stage: STATES[self.choices[stage][-1]][i] for stage in pair.stages})
                for i, pair in enumerate(pairs)
            )
            for name, pairs in self._rails.items()
        }

    def asks(self, group: Group) -> bool:
        """Whether the wiring of a stage that ``group`` uses ever changes."""
        return group.domain == "scale-out" and any(len(set(self.choices[stage])) > 1 for stage in stages_of(group))

    def wanted(self, group: Group, current: Wiring) -> Wiring:
        """The circuits of the rail with the stages of ``group`` in the wiring of its phase; all other circuits stay."""
        name = rail_of_group(self.plan, group).name
        here, pairs = current.get(name, NO_CIRCUITS), self._rails[name]
        chosen = {stage: STATES[self._chosen(stage, group)] for stage in stages_of(group)}
        wired = [
            wire(pair, read_states(pair, here) | {stage: states[i] for stage, states in chosen.items()}, here)
            for i, pair in enumerate(pairs)
        ]
        ports = frozenset[int]().union(*(pair.ports() for pair in pairs))
        return {name: _joined((here.without_ports(ports), *wired))}

    def paths(self, group: Group, current: Wiring) -> tuple[Hop, ...]:
        rail = rail_of_group(self.plan, group)
        return paths_in(rail, [path for pair in self._rails[rail.name] for path in pair.paths(group)], current)

    def _chosen(self, stage: int, group: Group) -> Choice:
        assert self._traffic is not None
        use = group.dimension, group.stage
        own = [number for number, phase in enumerate(self._traffic.stages[stage]) if use in phase.uses]
        return self.choices[stage][own[group.turn % len(own)]]

    def _choices(self, phases: Sequence[PhaseTraffic]) -> tuple[Choice, ...]:
        tried_s = self._traffic.tried_s if self._traffic is not None else {}
        plan = min(tried_s, key=lambda plan: (tried_s[plan], PLANS.index(plan)), default="weigh")
        if plan == "stand" or not phases:
            return ("SPLIT",)
        if plan == "change":
            return tuple(WHOLE[phase.uses[0][0]] for phase in phases)
        shows = [max(0.0, self._delay_s - phase.window_s) for phase in phases]
        return cheapest([self._options(phase) for phase in phases], shows)[1]

    def _options(self, phase: PhaseTraffic) -> tuple[PhaseOption, PhaseOption]:
        dimension, rates = phase.uses[0][0], lane_bytes_per_s(self.plan)
        part = sum(rates[2:] if dimension == "pp" else rates[:2])
        return (
            PhaseOption("SPLIT", phase.rest_s + phase.bytes / part),
            PhaseOption(WHOLE[dimension], phase.rest_s + phase.bytes / sum(rates)),
        )

    def _add(self, group: Group) -> None:
        switch = rail_of_group(self.plan, group)
        if switch.kind != "ocs" or self.plan.ports_per_gpu != 4:
            raise ConfigError(
                f"policy deciding needs optical rails with 4 ports a GPU (mode deciding), not {switch.name}"
            )
        if group.dimension not in WHOLE:
            raise ConfigError(
                f"group {group.name} has dimension {group.dimension} on the rails; the deciding policy wires dp and pp",
            )
        if switch.name not in self._rails:
            self._rails[switch.name] = tuple(RailGroups(switch, self._paths_on(*lanes)) for lanes in PAIRS)
        for pair in self._rails[switch.name]:
            try:
                pair.add(group)
            except CircuitError as error:
                raise ConfigError(f"the groups of stage {group.stage} do not fit on {switch.name}: {error}") from None

    def _paths_on(self, low: int, high: int) -> Callable[[Group], tuple[Hop, ...]]:
        """The paths of a group on a pair of lanes: those of Opus, and of two stages both lanes in the chain."""

        def paths(group: Group) -> tuple[Hop, ...]:
            other = group_paths(group, high, low) if self._both_ways and group.dimension == "pp" else ()
            return (*group_paths(group, low, high), *other)

        return paths


def lane_bytes_per_s(plan: FabricPlan) -> list[float]:
    """The rate of each lane of a GPU, headers included; that of the first GPU, which stands for all."""
    return [port.rate_mbps * 1e6 / 8 for port in plan.network("rail")[0].ports[: plan.ports_per_gpu]]


def stages_of(group: Group) -> Sequence[int]:
    """The stage of a ring, or those of the two members of a pair."""
    return (group.stage, group.stage + 1) if group.dimension == "pp" else (group.stage,)


def _joined(matchings: Iterable[Matching]) -> Matching:
    return Matching([circuit for matching in matchings for circuit in matching])
