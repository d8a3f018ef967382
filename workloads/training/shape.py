"""Shape of a transformer, with its parameters, arithmetic and activation sizes.

Sources: parameter and FLOP counts as in Narayanan et al., SC'21 (appendix), with grouped-query attention (Ainslie et
al., 2023) and gated MLPs (Shazeer, 2020); sequence-sharded activations as in Korthikanti et al., 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railyard.errors import ConfigError
from workloads.training.experts import Experts

BF16_BYTES = 2

OuterUnits = Literal["none", "vocabulary", "layer"]
"""How the embedding (first stage) and the head (last stage) count: not at all, by their own size, or each as one
layer."""


@dataclass(frozen=True)
class ModelShape:
    """Shape of a decoder-only transformer.

    ``kv_heads`` below ``heads`` is grouped-query attention; 0 stands for ``heads``. ``ffn_hidden`` 0 stands for 4 x
    hidden. ``vocabulary`` 0: no embedding and no head. All sizes in elements of ``dtype_bytes`` each. ``experts``: the
    experts of those layers that have them instead of the MLP.

    >>> ModelShape(32, 4096, 8192, ffn_hidden=14336, heads=32, kv_heads=8).parameters_per_layer
    218112000
    """

    layers: int
    hidden: int
    sequence: int
    ffn_hidden: int = 0
    heads: int = 32
    kv_heads: int = 0
    gated_mlp: bool = True
    vocabulary: int = 0
    outer_units: OuterUnits = "vocabulary"
    dtype_bytes: int = BF16_BYTES
    experts: Experts | None = None

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ConfigError(f"hidden {self.hidden} must be a multiple of heads {self.heads}", key="model.heads")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(
                f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}", key="model.kv_heads"
            )

    @property
    def attention_parameters(self) -> int:
        """Parameters of the query, key, value and output matrices of one layer."""
        kv_hidden = self.hidden // self.heads * (self.kv_heads or self.heads)
        return 2 * self.hidden * self.hidden + 2 * self.hidden * kv_hidden

    @property
    def mlp_parameters(self) -> int:
        """Parameters of the up and down (and gate) matrices of one layer without experts."""
        return self._mlp(self.ffn_hidden or 4 * self.hidden)

    @property
    def parameters_per_layer(self) -> int:
        """Parameters of one layer without experts: attention, MLP and two norms."""
        return self.attention_parameters + self.mlp_parameters + 2 * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts of a layer with experts."""
        return self.experts.count * self._mlp(self.experts.ffn_hidden) if self.experts else 0

    @property
    def beside_experts(self) -> int:
        """Other parameters of a layer with experts: attention, two norms, the router and the shared experts."""
        if self.experts is None:
            return self.parameters_per_layer
        router = self.hidden * self.experts.count
        shared = self.experts.shared * self._mlp(self.experts.ffn_hidden)
        return self.attention_parameters + 2 * self.hidden + router + shared

    @property
    def active_parameters(self) -> int:
        """Parameters of a layer with experts that one token uses: all but the routed experts that it does not take."""
        active = self.experts.top_k * self._mlp(self.experts.ffn_hidden) if self.experts else 0
        return self.beside_experts + active

    @property
    def outer_parameters(self) -> int:
        """Parameters of the embedding, or of the head, as counted for communication."""
        return self.parameters_per_layer if self.outer_units == "layer" else self.vocabulary * self.hidden

    def attention_flops(self, microbatch: int) -> float:
        """FLOPs of the attention of one layer's forward pass over a microbatch, all TP ranks together, causal.

        2 per parameter and token, and 2 x 2 x sequence^2 x hidden / 2 per sample for scores and values.
        """
        matrices = 2.0 * self.attention_parameters * microbatch * self.sequence
        return matrices + 2.0 * microbatch * self.sequence**2 * self.hidden

    def dense_flops(self, microbatch: int) -> float:
        """FLOPs of a layer without experts: its attention, and 2 per parameter of the MLP and token."""
        return self.attention_flops(microbatch) + 2.0 * self.mlp_parameters * microbatch * self.sequence

    def routed_flops(self, microbatch: int) -> float:
        """FLOPs of the experts that tokens choose, in a layer that has them."""
        if self.experts is None:
            return 0.0
        return 2.0 * self.experts.top_k * self._mlp(self.experts.ffn_hidden) * microbatch * self.sequence

    def layer_flops(self, microbatch: int) -> float:
        """FLOPs of the forward pass of the model's usual layer: the one with experts, if there are any."""
        if self.experts is None:
            return self.dense_flops(microbatch)
        always = self.hidden * self.experts.count + self.experts.shared * self._mlp(self.experts.ffn_hidden)
        beside = self.attention_flops(microbatch) + 2.0 * always * microbatch * self.sequence
        return beside + self.routed_flops(microbatch)

    def head_flops(self, microbatch: int) -> float:
        """FLOPs of the head's forward pass over a microbatch, all TP ranks together."""
        return 2.0 * self.vocabulary * self.hidden * microbatch * self.sequence

    def activation_bytes(self, microbatch: int) -> int:
        """Bytes that one layer passes to the next for a microbatch, all TP ranks together."""
        return microbatch * self.sequence * self.hidden * self.dtype_bytes

    def _mlp(self, ffn_hidden: int) -> int:
        return (3 if self.gated_mlp else 2) * self.hidden * ffn_hidden


@dataclass(frozen=True)
class Unit:
    """A unit that FSDP gathers and frees at once: a layer, the embedding or the head.

    ``layers`` is its forward arithmetic in units of one usual layer (``ModelShape.layer_flops``); ``tp`` whether it has
    a layer's TP collectives. ``expert_parameters`` (of all experts) come on top of ``parameters``; 0: no experts.
    """

    name: str
    parameters: int
    layers: float
    tp: bool
    expert_parameters: int = 0


def stage_units(shape: ModelShape, stage: int, stages: int, microbatch: int) -> tuple[Unit, ...]:
    """The units of a pipeline stage in forward order; ``ConfigError`` when the layers do not divide."""
    if shape.layers % stages:
        raise ConfigError(f"model.layers {shape.layers} must be a multiple of PP {stages}", key="parallelism.pp")
    each = shape.layers // stages
    units = [_layer(shape, f"u{i}", stage * each + i, microbatch) for i in range(each)]
    if shape.outer_units == "none" or (shape.outer_units == "vocabulary" and not shape.vocabulary):
        return tuple(units)
    as_layer = shape.outer_units == "layer"
    if stage == 0:
        units.insert(0, Unit("embedding", shape.outer_parameters, 1.0 if as_layer else 0.0, as_layer))
    if stage == stages - 1:
        work = 1.0 if as_layer else shape.head_flops(microbatch) / shape.layer_flops(microbatch)
        units.append(Unit("head", shape.outer_parameters, work, as_layer))
    return tuple(units)


def _layer(shape: ModelShape, name: str, layer: int, microbatch: int) -> Unit:
    if shape.experts is None:
        return Unit(name, shape.parameters_per_layer, 1.0, True)
    if shape.experts.in_layer(layer):
        return Unit(name, shape.beside_experts, 1.0, True, shape.expert_parameters)
    share = shape.dense_flops(microbatch) / shape.layer_flops(microbatch)
    return Unit(name, shape.parameters_per_layer, share, True)
