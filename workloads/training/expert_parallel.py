"""Expert parallelism in a training step: how many tokens travel to their experts and back, and between which ranks.

Before the experts of a layer each rank sends its tokens to the ranks that hold the chosen experts (dispatch), and
afterwards receives the results (combine): two all-to-alls over the EP group. A backward pass does the same with
gradients, and repeats the forward ones if it recomputes. A rank has its share of the sequence (TP), each token goes to
``top_k`` experts: tokens x top_k x hidden x bytes of an element per rank, the part for its own experts included.

Sources: GShard, Lepikhin et al., ICLR 2021; DeepSpeed-MoE, Rajbhandari et al., ICML 2022; Megatron-LM (experts are
sharded by TP too: arriving tokens are gathered over the TP group and reduced over it afterwards).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from railyard.errors import ConfigError
from workloads.collectives.catalog import algorithm_for, schedule
from workloads.program import Collective, Group, Operation, Program
from workloads.schedule import Schedule
from workloads.training.recipe import Recipe
from workloads.training.shape import ModelShape, Unit

Direction = Literal["dispatch", "combine"]
WEIGHT_OF_ONE = 1_000_000
"""Resolution of the weights of an uneven all-to-all: the weights of a position's input add up to about this number."""


@dataclass(frozen=True)
class Block:
    """A part of a layer with one pair of TP collectives, and perhaps a dispatch before and a combine after it.

    ``share``: its share of the layer's forward arithmetic; ``activations``: the size of each TP collective, in
    activations of the microbatch.
    """

    name: str
    share: float
    activations: float = 1.0
    exchanged: bool = False


def blocks_of(shape: ModelShape, unit: Unit, microbatch: int, load: float) -> tuple[Block, Block]:
    """The two halves of a layer, in forward order; ``load`` is the load of its experts relative to the mean."""
    if not unit.expert_parameters:
        return Block("attention", 0.5), Block("mlp", 0.5)
    whole = shape.layer_flops(microbatch)
    before, chosen = shape.attention_flops(microbatch) / whole, shape.routed_flops(microbatch) / whole
    gathered = shape.top_k * load + (1 if shape.shared_experts else 0)
    return Block("attention", before), Block("experts", 1 - before - chosen + chosen * load, gathered, exchanged=True)


def ep_demand(recipe: Recipe, group: Group) -> tuple[tuple[float, ...], ...]:
    """Bytes from each member of an EP group (row) to each other member in a dispatch; a combine is transposed.

    For a group that is one of two levels (``workloads.training.ranks``), the bytes that this level moves.
    """
    to = _arriving(recipe, group)
    return tuple(tuple(0.0 if i == j else size for j, size in enumerate(to)) for i in range(len(to)))


def exchange_bytes(recipe: Recipe, group: Group) -> int:
    """``Collective.bytes`` of a dispatch or combine over ``group``: mean bytes sent by a member, itself included.

    Every member sends the same amount in a dispatch, and receives the same amount in a combine.
    """
    return round(sum(_arriving(recipe, group)))


def exchange_algorithm(recipe: Recipe, group: Group, direction: Direction) -> str:
    """``Collective.algorithm`` of a dispatch or combine; a schedule of the program where tokens choose unevenly."""
    if recipe.model.expert_skew:
        return f"{group.name}.{direction}"
    return "direct" if group.domain == "scale-up" else ""


def exchange_schedules(recipe: Recipe, group: Group) -> dict[str, Schedule]:
    """Schedules of the program for ``group``, by name; empty where all members receive the same amount."""
    schedules = {}
    for direction in ("dispatch", "combine"):
        name = exchange_algorithm(recipe, group, direction)
        if name.startswith(group.name):
            n, to = len(group.members), _arriving(recipe, group)
            share = [max(1, round(WEIGHT_OF_ONE * size / sum(to))) for size in to]
            weights = [share[j if direction == "dispatch" else i] for i in range(n) for j in range(n)]
            plain = "direct" if group.domain == "scale-up" else algorithm_for("all_to_all", group.domain)
            schedules[name] = weighted(schedule("all_to_all", n, plain), weights)
    return schedules


def with_ep_algorithm(program: Program, name: str) -> Program:
    """Replace the algorithm of every all-to-all of experts on the rails by ``name``, one of the catalog.

    Raises ``ConfigError`` if the catalog has no such all-to-all.
    """
    schedules = dict(program.schedules)

    def changed(op: Operation) -> Operation:
        if not isinstance(op, Collective) or not on_rail(program, op):
            return op
        own = program.schedules.get(op.algorithm)
        plain = schedule("all_to_all", len(program.groups[op.group].members), name)
        if own is None or not own.weights:
            return replace(op, algorithm=name)
        schedules[op.algorithm] = weighted(plain, own.weights[:: own.chunks // own.n**2])
        return op

    operations = tuple(tuple(changed(op) for op in ops) for ops in program.operations)
    return replace(program, operations=operations, schedules=schedules)


def on_rail(program: Program, op: Collective) -> bool:
    """Whether ``op`` is an all-to-all of experts on the rails."""
    group = program.groups[op.group]
    return (group.dimension, group.domain, op.kind) == ("ep", "scale-out", "all_to_all")


def hops_algorithm(program: Program) -> str:
    """Algorithm for the all-to-alls of ``program``'s experts hop by hop over data-parallel rings.

    ``bidirectional-ring`` where every EP group is such a ring, ``line`` where it is an arc of one.
    """
    rings = {g.members for g in program.groups.values() if (g.dimension, g.domain) == ("dp", "scale-out")}
    eps = {g.members for g in program.groups.values() if (g.dimension, g.domain) == ("ep", "scale-out")}
    return "bidirectional-ring" if eps <= rings else "line"


def _arriving(recipe: Recipe, group: Group) -> list[float]:
    """Bytes that each member receives from every member in a dispatch, the part for its own experts included."""
    shape, p = recipe.model, recipe.parallelism
    if group.dimension != "ep":
        raise ConfigError(f"group {group.name} has no experts; name an EP group", key="group")
    loads, n = shape.expert_loads(p.ep), len(group.members)
    places = [p.coordinates(rank).ep for rank in group.members]
    member_bytes = recipe.activation_bytes * shape.top_k / p.ep
    if group.domain == "scale-up":  # data for all servers along a member's rail
        return [member_bytes * sum(loads[place % n :: n]) for place in places]
    return [member_bytes * p.ep / n * loads[place] for place in places]  # data of the server's members for one member


def weighted(plain: Schedule, weights: list[int] | tuple[int, ...]) -> Schedule:
    """The all-to-all ``plain`` with these relative sizes of its n x n parts."""
    pieces = plain.chunks // plain.n**2
    return replace(plain, weights=tuple(weight for weight in weights for _ in range(pieces)))
