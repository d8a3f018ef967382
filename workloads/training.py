"""One training step with tensor, pipeline and data parallelism, generated from a model's shape.

Per stage the passes follow 1F1B; around them stand the sends and receives of the pipeline and the collectives of the
data-parallel group:

- ``fsdp``: each pass gathers its units one by one (they are freed after use), except the last backward pass, whose
  units are still gathered; the gradients are reduce-scattered once, for the last microbatch, and one scalar (the
  gradient norm) is all-reduced over the DP group. Without ``reshard_after_forward`` only the first pass gathers.
- ``ddp``: no gathering; one all-reduce of the gradients of each unit after the last backward pass.

Source: Opus, arXiv 2602.12521 (the trace of a Llama-3 8B step), and PyTorch FSDP2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from railyard.errors import ConfigError
from workloads.pipeline import Pass, one_f_one_b
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.ranks import WORLD_GROUP, Parallelism, dp_group, groups, pp_group, tp_group
from workloads.schedule import CollectiveKind
from workloads.shape import ModelShape, Unit, stage_units

SCALAR_BYTES = 4
"""A loss or a norm: one float32, sent as it is."""
TP_COLLECTIVES_PER_LAYER = 4
"""Sequence parallelism: all-gather and reduce-scatter around attention and around the MLP, in each direction
(Korthikanti et al., 2022, section 4.2)."""


@dataclass(frozen=True)
class Training:
    """A step to generate.

    ``local_batch`` and ``microbatch`` are samples per DP rank. ``forward_s`` is the arithmetic of one layer's forward
    pass over one microbatch on one GPU; or give ``flops_per_s``, what a GPU reaches. A backward pass takes twice a
    forward pass, three times with ``recompute``.

    TP: with ``tp_on_packets`` every TP collective is an operation on the scale-up network. Otherwise its time is part
    of the compute time: per layer and direction (recomputation counts as one more direction)
    4 x (TP - 1) / TP x activation bytes x 8 / ``scale_up_gbps``.

    ``overlap`` False: one linear sequence, collectives block compute; a send and a receive that follow one another go
    together (crossing in the pipeline, they would wait for each other). True: FSDP gathers one unit ahead, gradients
    are reduced while the backward pass goes on, and sends do not block. A stage that still has to send its last
    gradient upstream reduces after that send: a rail cannot hold the ring while the stage before waits on the chain.
    """

    name: str
    shape: ModelShape
    parallelism: Parallelism
    local_batch: int
    microbatch: int
    sharding: Literal["fsdp", "ddp"] = "fsdp"
    reshard_after_forward: bool = True
    recompute: bool = False
    forward_s: float | None = None
    flops_per_s: float | None = None
    overlap: bool = False
    tp_on_packets: bool = False
    tp_across_servers: bool = False
    scale_up_gbps: float = 2400.0
    scalars: int = 0

    def __post_init__(self) -> None:
        if self.microbatch < 1 or self.local_batch % self.microbatch:
            raise ConfigError(
                f"local_batch {self.local_batch} must be a multiple of microbatch {self.microbatch}",
                key="batch.microbatch",
            )
        if (self.forward_s is None) == (self.flops_per_s is None):
            raise ConfigError("give either the forward time of a layer or the FLOP/s of a GPU", key="compute")
        for dimension in ("cp", "ep"):
            if getattr(self.parallelism, dimension) > 1:
                raise ConfigError(
                    f"a generated step has no {dimension.upper()} yet; use 1", key=f"parallelism.{dimension}"
                )
        if self.shape.heads % self.parallelism.tp:
            raise ConfigError(
                f"model.heads {self.shape.heads} must be a multiple of TP {self.parallelism.tp}", key="parallelism.tp"
            )
        if self.tp_on_packets and self.tp_across_servers:
            raise ConfigError("TP groups that cross servers cannot be put on packets; set it to false",
                              key="tp_on_packets")  # fmt: skip

    @property
    def microbatches(self) -> int:
        """Microbatches per step."""
        return self.local_batch // self.microbatch

    @property
    def layer_forward_s(self) -> float:
        """Arithmetic of one layer's forward pass over a microbatch on one GPU."""
        if self.forward_s is not None:
            return self.forward_s
        assert self.flops_per_s is not None
        return self.shape.layer_flops(self.microbatch) / self.parallelism.tp / self.flops_per_s

    @property
    def tp_layer_s(self) -> float:
        """Time of one layer's TP collectives in one direction (the formula above); 0 without TP."""
        tp = self.parallelism.tp
        moved = TP_COLLECTIVES_PER_LAYER * (tp - 1) / tp * self.shape.activation_bytes(self.microbatch)
        return moved * 8 / (self.scale_up_gbps * 1e9)

    @property
    def activation_bytes(self) -> int:
        """What a rank sends to the next stage for a microbatch: its share of the sequence."""
        return self.shape.activation_bytes(self.microbatch) // self.parallelism.tp

    def unit_bytes(self, unit: Unit) -> int:
        """Parameters, or gradients, of a unit on one TP rank."""
        return unit.parameters // self.parallelism.tp * self.shape.dtype_bytes


def training_step(training: Training, servers: int, gpus_per_server: int) -> Program:
    """The program of one step on ``servers`` x ``gpus_per_server`` GPUs, in real bytes and real seconds.

    Raises ``ConfigError`` naming the keys when shape, sizes and fabric do not fit together.
    """
    found = groups(training.parallelism, servers, gpus_per_server, tp_across_servers=training.tp_across_servers)
    operations = tuple(_RankStep(training, rank, found).build() for rank in range(training.parallelism.ranks))
    used = {op.group for ops in operations for op in ops if not isinstance(op, Compute)}
    return Program(training.name, operations, {name: group for name, group in found.items() if name in used})


class _RankStep:
    """Writes down the step of one rank, operation by operation."""

    def __init__(self, training: Training, rank: int, found: dict[str, Group]) -> None:
        p = training.parallelism
        self.training, self.groups = training, found
        self.stage, self.stages = p.coordinates(rank).pp, p.pp
        self.units = stage_units(training.shape, self.stage, self.stages, training.microbatch)
        self.dp, self.tp = dp_group(p, rank), tp_group(p, rank)
        stride = p.ranks // p.pp
        self.next = (pp_group(p, rank), rank + stride)
        self.previous = (pp_group(p, rank - stride), rank - stride) if self.stage else ("", -1)
        self.operations: list[Operation] = []
        self.computes: list[int] = []
        self.tails: dict[str, int] = {}
        self.dimension = ""
        self.in_phase: dict[str, int] = {}
        self.before_phase: tuple[int, ...] = ()

    def build(self) -> tuple[Operation, ...]:
        """All operations of the step."""
        order = one_f_one_b(self.stage, self.stages, self.training.microbatches)
        for place, step in enumerate(order):
            self._pass(step, first=place == 0, last=place == len(order) - 1)
        if self.training.sharding == "fsdp" and self.dp in self.groups:
            self._collective("ar.gradient-norm", "all_reduce", self.dp, SCALAR_BYTES, (self.tails[self.dp],))
        if WORLD_GROUP in self.groups:
            for number in range(self.training.scalars):
                self._collective(f"ar.scalar{number}", "all_reduce", WORLD_GROUP, SCALAR_BYTES, self._all_tails())
        return tuple(self.operations)

    def _pass(self, step: Pass, first: bool, last: bool) -> None:
        """One microbatch through the stage: receive, units, send; after the last one the gradients."""
        forward = step.direction == "forward"
        source, target = (self.previous, self.next) if forward else (self.next, self.previous)
        has_source = self.stage > 0 if forward else self.stage < self.stages - 1
        has_target = self.stage < self.stages - 1 if forward else self.stage > 0
        needs = (self._recv(f"recv.{step}", *source),) if has_source else ()
        fsdp = self.training.sharding == "fsdp"
        gathers = fsdp and (first if not self.training.reshard_after_forward else not last)
        reduce_now = last and self.training.overlap and not has_target
        units = self.units if forward else self.units[::-1]
        self._units(step, units, needs, gathers, reduce_now)
        if has_target:
            self._send(f"send.{step}", *target)
        if last and not reduce_now:
            for unit in units:
                self._reduce(unit)

    def _units(
        self, step: Pass, units: Sequence[Unit], needs: tuple[int, ...], gathers: bool, reduce_now: bool
    ) -> None:
        """Compute every unit; its parameters are gathered before (with overlap: one unit ahead)."""
        overlap = self.training.overlap
        gathered: list[tuple[int, ...]] = [()] * len(units)
        done: list[tuple[int, ...]] = []

        def gather(i: int) -> None:
            if gathers and i < len(units):
                after = done[i - 2] if i >= 2 else tuple(self.computes[-1:]) if i == 0 else ()
                gathered[i] = self._dp("ag", f"{step}.{units[i].name}", "all_gather", units[i], after)

        gather(0)
        for i, unit in enumerate(units):
            if overlap:
                gather(i + 1)
            done.append((self._unit(step, unit, (*needs, *gathered[i])),))
            if not overlap:
                gather(i + 1)
            if reduce_now:
                self._reduce(unit)

    def _unit(self, step: Pass, unit: Unit, needs: tuple[int, ...]) -> int:
        """The compute of one unit, its TP time or TP collectives included; returns its last operation."""
        t = self.training
        name = f"{step}.{unit.name}"
        sweeps = [1.0] if step.direction == "forward" else [1.0, 2.0] if t.recompute else [2.0]
        arithmetic = [unit.layers * t.layer_forward_s * sweep for sweep in sweeps]
        has_tp = unit.tp and t.parallelism.tp > 1
        if not (has_tp and t.tp_on_packets):
            return self._compute(name, sum(arithmetic) + (t.tp_layer_s * len(sweeps) if has_tp else 0.0), needs)
        last = -1
        for sweep, seconds in enumerate(arithmetic):
            for block in ("attention", "mlp"):
                part = f"{name}.{block}" + (f".{sweep}" if sweep else "")
                size = t.shape.activation_bytes(t.microbatch)
                ready = self._collective(f"ag.{part}", "all_gather", self.tp, size, (*needs, *self.computes[-1:]))
                last = self._compute(part, seconds / 2, (ready,))
                last = self._collective(f"rs.{part}", "reduce_scatter", self.tp, size, (last,))
                needs = (last,)
        return last

    def _reduce(self, unit: Unit) -> None:
        """The gradients of a unit over the DP group."""
        after = (*self.computes[-1:], *(self.tails[g] for g in [self.tp] if g in self.tails))
        if self.training.sharding == "fsdp":
            self._dp("rs", unit.name, "reduce_scatter", unit, after)
        else:
            self._dp("ar", unit.name, "all_reduce", unit, after)

    def _dp(self, verb: str, name: str, kind: CollectiveKind, unit: Unit, needs: tuple[int, ...]) -> tuple[int, ...]:
        """A collective over the DP group, if there is one."""
        if self.dp not in self.groups:
            return ()
        return (self._collective(f"{verb}.{name}", kind, self.dp, self.training.unit_bytes(unit), needs),)

    def _compute(self, name: str, seconds: float, needs: tuple[int, ...]) -> int:
        id_ = len(self.operations)
        self.operations.append(Compute(id_, name, seconds, self._deps(needs)))
        self.computes.append(id_)
        return id_

    def _collective(self, name: str, kind: CollectiveKind, group: str, size: int, needs: tuple[int, ...]) -> int:
        deps = self._deps(needs, group)
        self.operations.append(Collective(self._communicated(group), name, kind, group, size, deps))
        return self.tails[group]

    def _send(self, name: str, group: str, peer: int) -> int:
        needs = (*self.computes[-1:], *(self.tails[g] for g in [self.tp] if g in self.tails))
        deps = self._deps(needs, group, pair=True)
        self.operations.append(Send(self._communicated(group), name, group, peer, self.training.activation_bytes, deps))
        return self.tails[group]

    def _recv(self, name: str, group: str, peer: int) -> int:
        deps = self._deps((), group, pair=True)
        self.operations.append(Recv(self._communicated(group), name, group, peer, self.training.activation_bytes, deps))
        return self.tails[group]

    def _deps(self, needs: tuple[int, ...], group: str | None = None, *, pair: bool = False) -> tuple[int, ...]:
        """What an operation waits for: those just before it, or with overlap its needs and the phase before its own."""
        if not self.training.overlap:
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
        """Note that the operation about to be added is the last of its group; returns its id."""
        id_ = len(self.operations)
        self.tails[group] = id_
        if self.groups[group].domain == "scale-out":
            self.in_phase[group] = id_
        return id_

    def _all_tails(self) -> tuple[int, ...]:
        """The last compute operation and the last of every group."""
        return (*self.computes[-1:], *self.tails.values())
