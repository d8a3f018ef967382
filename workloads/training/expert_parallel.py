"""Expert parallelism in a training step: what tokens travel to their experts and back, and between whom.

Before the experts of a layer each rank sends its tokens to the ranks that have the experts they chose (dispatch), and
afterwards gets the results back (combine): two all-to-alls over the EP group. A backward pass does the same with
gradients, and once more the forward ones if it recomputes. A rank has its share of the sequence (TP), each token goes
to ``top_k`` experts: tokens x top_k x hidden x bytes of an element per rank, its own experts' part included.

Sources: GShard, Lepikhin et al., ICLR 2021; DeepSpeed-MoE, Rajbhandari et al., ICML 2022; Megatron-LM (experts are
sharded by TP too: what arrives is gathered over the TP group and reduced over it afterwards).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from railyard.errors import ConfigError
from workloads.collectives.catalog import algorithm_for, schedule
from workloads.program import Collective, Group, Operation, Program
from workloads.schedule import Schedule
from workloads.training.settings import Training
from workloads.training.shape import ModelShape, Unit

Direction = Literal["dispatch", "combine"]
WEIGHT_OF_ONE = 1_000_000
"""What the weights of an uneven all-to-all count in: a position's input is about as many."""


@dataclass(frozen=True)
class Block:
    """A part of a layer: it has a pair of TP collectives, and may have a dispatch before and a combine after it.

    ``share`` of the layer's forward arithmetic; ``activations``: what each TP collective moves, in activations of the
    microbatch.
    """

    name: str
    share: float
    activations: float = 1.0
    exchanged: bool = False


def blocks_of(shape: ModelShape, unit: Unit, microbatch: int, load: float) -> tuple[Block, Block]:
    """The two halves of a layer, in forward order; ``load``: what its experts are given, beside the mean."""
    experts = shape.experts
    if experts is None or not unit.expert_parameters:
        return Block("attention", 0.5), Block("mlp", 0.5)
    whole = shape.layer_flops(microbatch)
    before, chosen = shape.attention_flops(microbatch) / whole, shape.routed_flops(microbatch) / whole
    gathered = experts.top_k * load + (1 if experts.shared else 0)
    return Block("attention", before), Block("experts", 1 - before - chosen + chosen * load, gathered, exchanged=True)


def ep_demand(training: Training, group: Group) -> tuple[tuple[float, ...], ...]:
    """Bytes from each member of an EP group of the step (row) to each other one in a dispatch; a combine is transposed.

    Of a group that is one level of two (``workloads.training.levels``): what that level moves.
    """
    to = _arriving(training, group)
    return tuple(tuple(0.0 if i == j else size for j, size in enumerate(to)) for i in range(len(to)))


def exchange_bytes(training: Training, group: Group) -> int:
    """``Collective.bytes`` of a dispatch or a combine over ``group``: what a member sends on average, itself included.

    Every member sends the same in a dispatch, and receives the same in a combine.
    """
    return round(sum(_arriving(training, group)))


def exchange_algorithm(training: Training, group: Group, direction: Direction) -> str:
    """``Collective.algorithm`` of it: one of the step's own where tokens choose unevenly."""
    if training.shape.experts is not None and training.shape.experts.skew:
        return f"{group.name}.{direction}"
    return "direct" if group.domain == "scale-up" else ""


def exchange_schedules(training: Training, group: Group) -> dict[str, Schedule]:
    """The schedules of the step's own for ``group``, by name; none where everybody gets the same."""
    found = {}
    for direction in ("dispatch", "combine"):
        name = exchange_algorithm(training, group, direction)
        if name.startswith(group.name):
            n, to = len(group.members), _arriving(training, group)
            share = [max(1, round(WEIGHT_OF_ONE * size / sum(to))) for size in to]
            weights = [share[j if direction == "dispatch" else i] for i in range(n) for j in range(n)]
            plain = "direct" if group.domain == "scale-up" else algorithm_for("all_to_all", group.domain)
            found[name] = _weighted(schedule("all_to_all", n, plain), weights)
    return found


def with_ep_algorithm(program: Program, name: str) -> Program:
    """``program`` with every all-to-all of experts on the rails carried out by ``name``, one of the catalog.

    ``ConfigError`` if the catalog has no such all-to-all.
    """
    schedules = dict(program.schedules)

    def changed(op: Operation) -> Operation:
        if not isinstance(op, Collective) or not on_rail(program, op):
            return op
        own = program.schedules.get(op.algorithm)
        plain = schedule("all_to_all", len(program.groups[op.group].members), name)
        if own is None or not own.weights:
            return replace(op, algorithm=name)
        schedules[op.algorithm] = _weighted(plain, own.weights[:: own.chunks // own.n**2])
        return op

    operations = tuple(tuple(changed(op) for op in ops) for ops in program.operations)
    return replace(program, operations=operations, schedules=schedules)


def on_rail(program: Program, op: Collective) -> bool:
    """Whether ``op`` is an all-to-all of experts on the rails."""
    group = program.groups[op.group]
    return (group.dimension, group.domain, op.kind) == ("ep", "scale-out", "all_to_all")


def hops_algorithm(program: Program) -> str:
    """How the all-to-alls of ``program``'s experts go hop by hop over data-parallel rings: ``bidirectional-ring`` where
    every EP group is such a ring, ``line`` where it is an arc of one.
    """
    rings = {g.members for g in program.groups.values() if (g.dimension, g.domain) == ("dp", "scale-out")}
    eps = {g.members for g in program.groups.values() if (g.dimension, g.domain) == ("ep", "scale-out")}
    return "bidirectional-ring" if eps <= rings else "line"


def _arriving(training: Training, group: Group) -> list[float]:
    """By member: what each member sends it in a dispatch, bytes, its own experts' part included."""
    experts, p = training.shape.experts, training.parallelism
    if experts is None or group.dimension != "ep":
        raise ConfigError(f"group {group.name} is none over which tokens go to experts; name an EP group", key="group")
    loads, n = experts.loads(p.ep), len(group.members)
    places = [p.coordinates(rank).ep for rank in group.members]
    each = training.activation_bytes * experts.top_k / p.ep
    if group.domain == "scale-up":  # what goes to any server along a member's rail
        return [each * sum(loads[place % n :: n]) for place in places]
    return [each * p.ep / n * loads[place] for place in places]  # what the server's members have for it


def _weighted(plain: Schedule, weights: list[int] | tuple[int, ...]) -> Schedule:
    """The all-to-all ``plain`` with these sizes of its n x n parts, beside each other."""
    pieces = plain.chunks // plain.n**2
    return replace(plain, weights=tuple(weight for weight in weights for _ in range(pieces)))
