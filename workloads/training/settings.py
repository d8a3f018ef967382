"""Settings of a generated training step: shape, parallelism, sizes and rates, and the quantities derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railyard.errors import ConfigError
from workloads.training.ranks import Parallelism
from workloads.training.shape import ModelShape, Unit

TP_COLLECTIVES_PER_LAYER = 4
"""Sequence parallelism: all-gather and reduce-scatter around attention and around the MLP, in each direction
(Korthikanti et al., 2022, section 4.2)."""


@dataclass(frozen=True)
class Training:
    """Settings of a training step to generate.

    ``local_batch`` and ``microbatch`` are samples per DP and EP rank. ``forward_s`` is the arithmetic of one layer's
    forward pass over one microbatch on one GPU (a layer with experts, where there are any, evenly chosen);
    alternatively, ``flops_per_s`` is the rate that a GPU reaches. A backward pass takes twice a forward pass, three
    times with ``recompute``.

    TP: with ``tp_on_packets`` every TP collective is an operation on the scale-up network. Otherwise its time is part
    of the compute time: per layer and direction (recomputation counts as one more direction) 4 x (TP - 1) / TP x
    activation bytes x 8 / ``scale_up_gbps``; around experts each activation counts ``top_k`` times (and once more for
    shared experts). All-to-alls of experts are always operations, inside a server too.

    ``overlap`` False: one linear sequence, collectives block compute; a send and a receive that follow one another run
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
            raise ConfigError(
                "give either the forward time of a layer (forward_ms) or the FLOP/s of a GPU (tflops)", key="compute"
            )
        if self.parallelism.cp > 1:
            raise ConfigError("generated steps do not support context parallelism; use 1", key="parallelism.cp")
        check_experts(self.shape, self.parallelism)
        if self.shape.heads % self.parallelism.tp:
            raise ConfigError(
                f"model.heads {self.shape.heads} must be a multiple of TP {self.parallelism.tp}", key="parallelism.tp"
            )
        if self.tp_on_packets and self.tp_across_servers:
            raise ConfigError("TP groups that cross servers cannot use packets; set tp_on_packets to false",
                              key="tp_on_packets")  # fmt: skip

    @property
    def microbatches(self) -> int:
        """Number of microbatches per step."""
        return self.local_batch // self.microbatch

    @property
    def layer_forward_s(self) -> float:
        """Seconds of arithmetic of one layer's forward pass over a microbatch on one GPU."""
        if self.forward_s is not None:
            return self.forward_s
        assert self.flops_per_s is not None
        return self.shape.layer_flops(self.microbatch) / self.parallelism.tp / self.flops_per_s

    @property
    def tp_layer_s(self) -> float:
        """Seconds of one layer's TP collectives in one direction (formula of ``Training``); 0 without TP."""
        tp = self.parallelism.tp
        moved = TP_COLLECTIVES_PER_LAYER * (tp - 1) / tp * self.shape.activation_bytes(self.microbatch)
        return moved * 8 / (self.scale_up_gbps * 1e9)

    @property
    def activation_bytes(self) -> int:
        """Bytes of a microbatch that a rank holds between layers: its share of the sequence."""
        return self.shape.activation_bytes(self.microbatch) // self.parallelism.tp

    def unit_bytes(self, unit: Unit) -> int:
        """Bytes of the parameters (or gradients) of a unit on one TP rank; without EP its experts are included."""
        experts = unit.expert_parameters if self.parallelism.ep == 1 else 0
        return (unit.parameters + experts) // self.parallelism.tp * self.shape.dtype_bytes

    def expert_bytes(self, unit: Unit) -> int:
        """Bytes of the parameters (or gradients) of a unit's experts on one rank of EP and TP; 0 without EP."""
        p = self.parallelism
        return unit.expert_parameters // (p.tp * p.ep) * self.shape.dtype_bytes if p.ep > 1 else 0


def check_experts(shape: ModelShape, parallelism: Parallelism) -> None:
    """Raise ``ConfigError`` naming the key where experts do not divide over the EP dimension."""
    if parallelism.ep == 1:
        return
    if shape.experts is None:
        raise ConfigError(
            f"EP {parallelism.ep} needs a model with experts; give model.experts, or EP 1", key="parallelism.ep"
        )
    if shape.experts.count % parallelism.ep:
        raise ConfigError(
            f"model.experts {shape.experts.count} must be a multiple of EP {parallelism.ep}", key="parallelism.ep"
        )
