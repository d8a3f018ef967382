"""One training step with tensor, expert, pipeline and data parallelism, generated from a model's shape.

In each stage the passes follow 1F1B, with the sends and receives of the pipeline and the collectives of the
data-parallel group around them:

- ``fsdp``: each pass gathers its units one by one (they are freed after use), except the last backward pass, whose
  units are still gathered; the gradients are reduce-scattered once, for the last microbatch, and one scalar (the
  gradient norm) is all-reduced over the DP group. Without ``reshard_after_forward`` only the first pass gathers.
- ``ddp``: no gathering; one all-reduce of the gradients of each unit after the last backward pass.

With EP the tokens travel to their experts and back within every pass (``workloads.training.expert_parallel``), and
experts are data parallel over the DP index only. Where this needs other rings than the rest (``edp``), the gradients of
experts come after all others, so that the rings change once.

Source: Opus, arXiv 2602.12521 (the trace of a Llama-3 8B step), and PyTorch FSDP2.

The order of passes in a pipeline is PipeDream-Flush (1F1B) as in Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", SC'21, section 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from railyard.errors import ConfigError
from workloads.collectives.algorithms import ring, ring_name
from workloads.collectives.catalog import schedule
from workloads.program import Collective, Compute, Dimension, Group, Operation, Program, Recv, Send, check_size
from workloads.schedule import CollectiveKind, Schedule
from workloads.training.expert_parallel import (
    Block,
    Direction,
    blocks_of,
    exchange_algorithm,
    exchange_bytes,
    exchange_schedules,
)
from workloads.training.fold import Layout, layout_of
from workloads.training.ranks import WORLD_GROUP, Levels, group_name, groups, levels_of, parts_of
from workloads.training.recipe import Recipe
from workloads.training.shape import Unit, stage_units


@dataclass(frozen=True)
class Pass:
    """The forward or backward pass of one microbatch through one stage."""

    direction: Literal["forward", "backward"]
    microbatch: int

    def __str__(self) -> str:
        return f"{self.direction[0].upper()}{self.microbatch}"


def one_f_one_b(stage: int, stages: int, microbatches: int) -> tuple[Pass, ...]:
    """The passes of ``stage`` in order: fill, forward and backward passes alternately, drain.

    At most ``stages - stage`` microbatches are in flight. Raises ``ConfigError`` for fewer than one microbatch.

    >>> [str(p) for p in one_f_one_b(stage=0, stages=2, microbatches=2)]
    ['F0', 'F1', 'B0', 'B1']
    """
    if microbatches < 1:
        raise ConfigError(f"must be at least 1, not {microbatches}", key="microbatches")
    if not 0 <= stage < stages:
        raise ConfigError(f"stage {stage} is outside a pipeline of {stages}", key="parallelism.pp")
    fill = min(stages - stage - 1, microbatches)
    order = [Pass("forward", m) for m in range(fill)]
    for m in range(microbatches - fill):
        order += [Pass("forward", fill + m), Pass("backward", m)]
    order += [Pass("backward", m) for m in range(microbatches - fill, microbatches)]
    return tuple(order)


def training_groups(name: str, members: Sequence[int], tensor_parallel: int = 1) -> tuple[Group, ...]:
    """The groups of a training job on ``members`` in ring order: one data-parallel ring, named ``name``.

    With ``tensor_parallel`` above 1: rings of so many members that follow one another (dimension tp), and for each
    place in them a data-parallel group of the members there. Every second ring counts from its other end, as a ring
    through a block comes back beside its way out. ``ConfigError`` for members that do not fill two or more such rings.
    """
    members, size = tuple(members), tensor_parallel
    if size == 1:
        return (Group(name, "dp", members),)
    if size < 1 or len(members) % size or len(members) < 2 * size:
        raise ConfigError(
            f"must be 1 or divide the {len(members)} members of job {name} into two rings or more, not {size}",
            key="tensor_parallel",
        )
    rings = [members[first : first + size] for first in range(0, len(members), size)]
    aligned = [ring[:: -1 if number % 2 else 1] for number, ring in enumerate(rings)]
    tensor = [Group(f"{name}.tp{number}", "tp", ring) for number, ring in enumerate(rings)]
    data = [Group(f"{name}.dp{place}", "dp", at) for place, at in enumerate(zip(*aligned, strict=True))]
    return (*tensor, *data)


def training_job(
    members: Sequence[int],
    gradient_bytes: int,
    compute_s: float,
    lanes: int,
    ranks: int,
    *,
    group: str = "world",
    kind: CollectiveKind = "all_reduce",
    tensor_parallel: int = 1,
    tensor_lanes: int = 1,
) -> Program:
    """A program of ``ranks`` ranks in which ``members`` (in ring order) train and all others have nothing to do.

    ``gradient_bytes`` and ``compute_s`` are those of the real system. The collective of ``kind`` is over ``group``
    (dimension dp, scale-out) on a ring of ``lanes`` lanes, whose schedule is part of the program. With
    ``tensor_parallel`` (``training_groups``) a collective of as many bytes over ``tensor_lanes`` lanes of the
    tensor-parallel ring runs at the same time. Several jobs in one program need groups of different names. Members may
    change between incarnations: the contribution of a position stays the same. Raises ``ConfigError`` for members that
    do not exist or are named twice, or without a lane.
    """
    members = tuple(members)
    if not members or len(set(members)) != len(members) or not all(0 <= rank < ranks for rank in members):
        raise ConfigError(f"must be different ranks of 0 to {ranks - 1}, not {list(members)}", key="members")
    groups = training_groups(group, members, tensor_parallel)
    carried = {"dp": ("gradients", ring_name(lanes), lanes), "tp": ("activations", "tp", tensor_lanes)}
    operations: list[list[Operation]] = [
        [Compute(0, "compute", compute_s)] if rank in members else [] for rank in range(ranks)
    ]
    schedules: dict[str, Schedule] = {}
    for ring_group in groups:
        what, algorithm, count = carried[ring_group.dimension]
        schedules[algorithm] = ring(kind, len(ring_group.members), lanes=count)
        name = f"{kind.replace('_', '-')} {what}"
        for own in (operations[rank] for rank in ring_group.members):
            own.append(Collective(len(own), name, kind, ring_group.name, gradient_bytes, (0,), algorithm))
    return Program(
        name=f"training-{group}",
        operations=tuple(map(tuple, operations)),
        groups={ring_group.name: ring_group for ring_group in groups},
        schedules=schedules,
    )


def expecting(program: Program, group: str, straggler: int) -> Program:
    """``program`` with StragglAR as the all-reduce over ``group``, whose position ``straggler`` is expected late.

    Each pair that exchanges chunks becomes a group of its own (``parent``), so that a policy gives it a circuit.
    """
    members = program.groups[group].members
    chosen = schedule("all_reduce", len(members), "stragglar", straggler=straggler)
    joined = sorted({(min(t.src, t.dst), max(t.src, t.dst)) for t in chosen.transfers})
    pairs = [Group(f"{group}/{a}-{b}", "dp", (members[a], members[b]), parent=group) for a, b in joined]
    operations = tuple(
        tuple(
            replace(op, algorithm=chosen.algorithm) if isinstance(op, Collective) and op.group == group else op
            for op in ops
        )
        for ops in program.operations
    )
    groups = program.groups | {pair.name: pair for pair in pairs}
    return replace(program, operations=operations, groups=groups, schedules={chosen.algorithm: chosen})


SCALAR_BYTES = 4
"""Bytes of a loss or a norm: one float32, sent unscaled."""


def training_step(recipe: Recipe, *, folded: bool = False) -> Program:
    """Generate one step on the GPUs of the recipe's fabric, in real bytes and real seconds.

    ``folded``: only the ranks that stand for all others (``workloads.training.fold``). Raises ``ConfigError`` naming
    the keys when shape, sizes and fabric do not fit together.
    """
    across = recipe.training.tp_across_servers
    layout = layout_of(recipe, folded=folded)
    ranks = layout.parallelism.ranks
    units = recipe.model.layers * recipe.microbatches * ranks // recipe.parallelism.pp
    check_size(ranks, 2 * units, "model.layers, parallelism, batch")  # each is computed forward and backward
    groups_ = groups(layout.parallelism, layout.servers, layout.gpus_per_server, tp_across_servers=across)
    operations: list[tuple[Operation, ...]] = []
    count, stage_ranks = 0, ranks // layout.parallelism.pp
    for rank in range(ranks):
        operations.append(_RankStep(recipe, layout, rank, groups_).build())
        count += len(operations[-1])
        like_it = stage_ranks - 1 - rank % stage_ranks  # the other ranks of its stage do as much
        check_size(ranks, count + like_it * len(operations[-1]), "model.layers, parallelism, batch")
    names = {op.group for ops in operations for op in ops if not isinstance(op, Compute)}
    used = {name: group for name, group in groups_.items() if name in names}
    schedules: dict[str, Schedule] = {}
    for group in used.values():
        if group.dimension == "ep":
            schedules |= exchange_schedules(recipe, group)
    repeats = {name: layout.rounds(group) for name, group in used.items() if layout.rounds(group) != 1}
    return Program(recipe.name, tuple(operations), used, schedules, repeats=repeats)


class _RankStep:
    """Builds the step of one rank, operation by operation."""

    def __init__(self, recipe: Recipe, layout: Layout, rank: int, groups: dict[str, Group]) -> None:
        p, shape = layout.parallelism, recipe.model

        def levels(dimension: Dimension) -> Levels:
            return levels_of(rank, parts_of(dimension, p, rank, layout.gpus_per_server), groups)

        self.recipe, self.layout, self.groups = recipe, layout, groups
        self.fsdp = recipe.training.sharding == "fsdp"
        self.stage, self.stages = p.coordinates(rank).pp, p.pp
        self.units = stage_units(shape, self.stage, self.stages, recipe.batch.microbatch)
        self.tp = group_name("tp", p, rank)
        self.dp, self.ep, self.edp = levels("dp"), levels("ep"), levels("edp")
        self.apart = self.edp.along != "" and self.edp.along != self.dp.along
        self.load = shape.expert_loads(p.ep)[p.coordinates(rank).ep] if p.ep > 1 else 1.0
        stride = p.ranks // p.pp
        self.next = (group_name("pp", p, rank), rank + stride)
        self.previous = (group_name("pp", p, rank - stride), rank - stride) if self.stage else ("", -1)
        self.operations: list[Operation] = []
        self.computes: list[int] = []
        self.tails: dict[str, int] = {}
        self.dimension = ""
        self.in_phase: dict[str, int] = {}
        self.before_phase: tuple[int, ...] = ()
        self.position: tuple[int, ...] = ()
        """The last compute, and the transfers that were waited for since: what comes next in the step follows them."""
        self.whole_since: tuple[int, ...] = ()
        """Where the pass before began, if it gathered nothing: the host then posts the next gather at once."""
        self.batched: tuple[int, ...] = ()
        """The send that is waited for with the next receive, both being one batch: the direction turns."""
        self.late: tuple[int, ...] = ()
        """The send that is waited for after the next pass only: the pipeline fills or drains."""

    def build(self) -> tuple[Operation, ...]:
        order = one_f_one_b(self.stage, self.stages, self.recipe.microbatches)
        for before, step, after in zip((None, *order), order, (*order[1:], None), strict=False):
            self._pass(step, before, after)
        if self.fsdp:
            self._over(self.dp, "ar.gradient-norm", "all_reduce", SCALAR_BYTES, self._tails(self.dp, self.edp))
        if WORLD_GROUP in self.groups:
            for number in range(self.recipe.training.scalars):
                self._collective(f"ar.scalar{number}", "all_reduce", WORLD_GROUP, SCALAR_BYTES, self._all_tails())
        return tuple(self.operations)

    def _pass(self, step: Pass, before: Pass | None, after: Pass | None) -> None:
        """Add one microbatch's pass through the stage: receive, units, send; after the last pass the gradients."""
        forward = step.direction == "forward"
        source, target = (self.previous, self.next) if forward else (self.next, self.previous)
        has_source = self.stage > 0 if forward else self.stage < self.stages - 1
        has_target = self.stage < self.stages - 1 if forward else self.stage > 0
        settings = self.recipe.training
        whole = before is not None and not (settings.reshard_after_forward and before.direction == "forward")
        if has_source:
            received = self._pair(Recv, f"recv.{step}", *source, self.position)
            self.position = (*self.position, *self.batched, received)
            self.whole_since = ()
        late, self.batched, self.late = self.late, (), ()
        units = self.units if forward else self.units[::-1]
        bucketed = after is None and not self.fsdp and settings.overlap and not has_target
        self._units(step, units, gathers=self.fsdp and not whole, bucketed=bucketed)
        self.position = (*self.position, *late)
        if has_target:
            sent = (self._pair(Send, f"send.{step}", *target, self.position),)
            turns = after is not None and after.direction != step.direction
            self.batched, self.late = (sent, ()) if turns else ((), sent)
        if after is None:
            self._gradients(self.units if self.fsdp else units, bucketed=bucketed)

    def _units(self, step: Pass, units: Sequence[Unit], *, gathers: bool, bucketed: bool) -> None:
        """Add the compute of every unit; its parameters are gathered before (with overlap: one unit ahead).

        ``bucketed``: the gradients of a unit are reduced as soon as it is done.
        """
        ahead = int(self.recipe.training.overlap)
        gathered: list[tuple[int, ...]] = []
        start, before = self.whole_since or self.position, self.position
        self.whole_since = () if gathers else before
        for i, unit in enumerate(units):
            for following in units[len(gathered) : i + 1 + ahead] if gathers else ():
                gathered.append(self._gather(step, following, self.position if gathered else start))
            self.position = (self._unit(step, unit, (*self.position, *(gathered[i] if gathers else ()))),)
            if bucketed:
                self._reduce(unit)

    def _gather(self, step: Pass, unit: Unit, needs: tuple[int, ...]) -> tuple[int, ...]:
        """Add the gathers of a unit's parameters for one pass; returns their ids."""
        name, recipe = f"ag.{step}.{unit.name}", self.recipe
        experts = self._over(self.edp, f"{name}.experts", "all_gather", recipe.expert_bytes(unit), needs)
        return experts + self._over(self.dp, name, "all_gather", recipe.unit_bytes(unit), needs)

    def _gradients(self, units: Sequence[Unit], *, bucketed: bool) -> None:
        """Add the reductions of ``units``, unless they were ``bucketed``, and last those of experts on other rings."""
        for unit in () if bucketed else units:
            self._reduce(unit)
        for unit in units if self.apart else ():
            self._reduce_experts(unit)

    def _unit(self, step: Pass, unit: Unit, needs: tuple[int, ...]) -> int:
        """Add the compute of one unit, with its TP and expert communication; returns the last id.

        The unit is divided in halves where communication comes in between; a backward pass begins with the second half.
        """
        r = self.recipe
        name, whole = f"{step}.{unit.name}", unit.layers * r.layer_forward_s
        sweeps = [1.0] if step.direction == "forward" else [1.0, 2.0] if r.compute.recompute else [2.0]
        has_tp = unit.tp and r.parallelism.tp > 1
        if not (has_tp and r.training.tp_on_packets) and not unit.expert_parameters:
            tp_s = r.tp_layer_s * len(sweeps) if has_tp else 0.0
            return self._compute(name, sum(whole * sweep for sweep in sweeps) + tp_s, needs)
        last = -1
        blocks = blocks_of(r.model, unit, r.batch.microbatch, self.load)
        for number, sweep in enumerate(sweeps):
            back = step.direction == "backward" and number == len(sweeps) - 1
            for block in blocks[::-1] if back else blocks:
                part = f"{name}.{block.name}" + (f".{number}" if number else "")
                last = self._block(part, block, whole * sweep * block.share, (*needs, *self.computes[-1:]))
                needs = (last,)
        return last

    def _block(self, name: str, block: Block, seconds: float, needs: tuple[int, ...]) -> int:
        """Add half a layer in one direction: dispatch, TP collectives, compute, combine; returns the last id."""
        r = self.recipe
        if block.exchanged:
            needs = self._exchange("dispatch", name, needs) or needs
        has_tp = r.parallelism.tp > 1
        on_packets = has_tp and r.training.tp_on_packets
        size = round(block.activations * r.model.activation_bytes(r.batch.microbatch))
        if on_packets:
            needs = (self._collective(f"ag.{name}", "all_gather", self.tp, size, needs),)
        elif has_tp:
            seconds += r.tp_layer_s / 2 * block.activations
        last = self._compute(name, seconds, needs)
        if on_packets:
            last = self._collective(f"rs.{name}", "reduce_scatter", self.tp, size, (last,))
        combined = self._exchange("combine", name, (last,)) if block.exchanged else ()
        return (*combined, last)[0]

    def _exchange(self, direction: Direction, name: str, needs: tuple[int, ...]) -> tuple[int, ...]:
        """Add the all-to-all of tokens over the EP group, if there is one; returns the last id."""
        last: tuple[int, ...] = ()
        for group, kind, _ in self.ep.legs("all_to_all", 0, back=direction == "combine"):
            group_ = self.groups[group]
            size, algorithm = exchange_bytes(self.recipe, group_), exchange_algorithm(self.recipe, group_, direction)
            last = needs = (self._collective(f"{direction}.{name}", kind, group, size, needs, algorithm),)
        return last

    def _reduce(self, unit: Unit) -> None:
        """Add the reduction of a unit's gradients, including those of its experts unless their rings differ."""
        self._reduce_over(self.dp, unit.name, self.recipe.unit_bytes(unit))
        if not self.apart:
            self._reduce_experts(unit)

    def _reduce_experts(self, unit: Unit) -> None:
        self._reduce_over(self.edp, f"{unit.name}.experts", self.recipe.expert_bytes(unit))

    def _reduce_over(self, levels: Levels, name: str, size: int) -> None:
        after = self._last_of_pass()
        if self.fsdp:
            self._over(levels, f"rs.{name}", "reduce_scatter", size, after)
        else:
            self._over(levels, f"ar.{name}", "all_reduce", size, after)

    def _over(
        self, levels: Levels, name: str, kind: CollectiveKind, size: int, needs: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add a collective of ``size`` bytes over one network or two levels, if not empty; returns the last id."""
        last: tuple[int, ...] = ()
        for group, kind_of_leg, bytes_of_leg in levels.legs(kind, size) if size else ():
            last = needs = (self._collective(name, kind_of_leg, group, bytes_of_leg, needs),)
        return last

    def _compute(self, name: str, seconds: float, needs: tuple[int, ...]) -> int:
        id_ = len(self.operations)
        self.operations.append(Compute(id_, name, seconds, self._deps(needs)))
        self.computes.append(id_)
        return id_

    def _collective(
        self, name: str, kind: CollectiveKind, group: str, size: int, needs: tuple[int, ...], algorithm: str = ""
    ) -> int:
        deps, size = self._deps(needs, group), self.layout.part_bytes(self.groups[group], size)
        self.operations.append(Collective(self._communicated(group), name, kind, group, size, deps, algorithm))
        return self.tails[group]

    def _pair(self, kind: type[Send | Recv], name: str, group: str, peer: int, needs: tuple[int, ...] = ()) -> int:
        deps = self._deps(needs, group, pair=True)
        self.operations.append(kind(self._communicated(group), name, group, peer, self.recipe.activation_bytes, deps))
        return self.tails[group]

    def _deps(self, needs: tuple[int, ...], group: str | None = None, *, pair: bool = False) -> tuple[int, ...]:
        """Dependencies of an operation: those just before it, or with overlap its needs and the previous phase."""
        if not self.recipe.training.overlap:
            return self._just_before(pair)
        if group is not None and self.groups[group].domain == "scale-out":
            dimension = self.groups[group].dimension
            if dimension != self.dimension:
                self.before_phase = tuple(self.in_phase.values())
                self.dimension, self.in_phase = dimension, {}
            needs = (*needs, *self.before_phase)
        return tuple(sorted(set(needs)))

    def _just_before(self, pair: bool) -> tuple[int, ...]:
        """The operation before, or all sends and receives that end there; for one of those, what is before them."""
        end = len(self.operations)
        start = end
        while start and isinstance(self.operations[start - 1], Send | Recv):
            start -= 1
        if pair:
            return (start - 1,) if start else ()
        return tuple(range(start, end)) or ((end - 1,) if end else ())

    def _communicated(self, group: str) -> int:
        """Record that the operation about to be added is the last of its group; returns its id."""
        id_ = len(self.operations)
        self.tails[group] = id_
        if self.groups[group].domain == "scale-out":
            self.in_phase[group] = id_
        return id_

    def _last_of_pass(self) -> tuple[int, ...]:
        """The last operations of a pass itself: compute, TP collectives and the exchange of experts."""
        return (*self.computes[-1:], *self._tails(Levels(inside=self.tp), self.ep))

    def _tails(self, *levels: Levels) -> tuple[int, ...]:
        names = [name for level in levels for name in (level.inside, level.along)]
        return tuple(self.tails[name] for name in dict.fromkeys(names) if name in self.tails)

    def _all_tails(self) -> tuple[int, ...]:
        """The last compute operation and the last of every group."""
        return (*self.computes[-1:], *self.tails.values())
