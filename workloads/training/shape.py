"""Shape of a transformer, with its parameters, arithmetic and activation sizes.

Sources: parameter and FLOP counts as in Narayanan et al., SC'21 (appendix), with grouped-query attention (Ainslie et
al., 2023) and gated MLPs (Shazeer, 2020); sequence-sharded activations as in Korthikanti et al., 2022; fine-grained and
shared experts and first layers without experts as in DeepSeek-MoE, arXiv 2401.06066, section 3.

How tokens divide among the experts of a mixture-of-experts layer: Shazeer et al., 2017 (top-k gating).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import Field, model_validator

from railyard.errors import ConfigError
from railyard.validation import Section


@lru_cache(maxsize=64)
def popularity(count: int, top_k: int, skew: float = 0.0, seed: int = 0) -> tuple[float, ...]:
    """Share of each of ``count`` experts in all choices (sum 1), if each token chooses ``top_k`` of them.

    ``skew`` 0: evenly; above 0, popularities follow Zipf's law with this exponent, in an order of experts drawn with
    ``seed``. A share is at most 1 / ``top_k``, since a token takes an expert once. No token is dropped.
    """
    order = list(range(count))
    random.Random(seed).shuffle(order)
    weights = [(place + 1.0) ** -skew for place in order]
    most = 1.0 / top_k
    full: set[int] = set()
    while True:
        left = 1.0 - most * len(full)
        whole = sum(w for e, w in enumerate(weights) if e not in full)
        shares = [most if e in full else left * w / whole for e, w in enumerate(weights)]
        over = {e for e, share in enumerate(shares) if e not in full and share > most * (1 + 1e-12)}
        if not over:
            return tuple(shares)
        full |= over


OuterUnits = Literal["none", "vocabulary", "layer"]
"""How the embedding (first stage) and the head (last stage) count: not at all, by their own size, or each as one
layer."""

_OF_EXPERTS = (
    "top_k", "expert_ffn_hidden", "shared_experts", "dense_layers", "moe_every", "expert_skew", "expert_seed"
)  # fmt: skip


_MOST_SIZE = 1 << 24


class ModelShape(Section):
    """Shape of a decoder-only transformer: section ``model`` of a workload file.

    ``kv_heads`` below ``heads`` is grouped-query attention; 0 stands for ``heads``. ``ffn_hidden`` 0 stands for 4 x
    hidden. ``vocabulary`` 0: no embedding and no head. All sizes in elements of ``dtype_bytes`` each.

    ``experts`` above 0: layers have that many routed experts with a hidden size of ``expert_ffn_hidden`` (0:
    ``ffn_hidden``) instead of the MLP; each token takes ``top_k`` of them, and all ``shared_experts`` (of the same
    size). The first ``dense_layers`` have a plain MLP; of the layers after them each ``moe_every``-th has experts, the
    first included. ``expert_skew`` and ``expert_seed``: how unevenly tokens choose (``popularity``).

    >>> ModelShape(layers=32, hidden=4096, sequence=8192, ffn_hidden=14336, heads=32, kv_heads=8).parameters_per_layer
    218112000
    """

    layers: int = Field(ge=1, le=10_000)
    hidden: int = Field(ge=1, le=_MOST_SIZE)
    sequence: int = Field(ge=1, le=_MOST_SIZE)
    heads: int = Field(ge=1, le=_MOST_SIZE)
    kv_heads: int = Field(default=0, ge=0, le=_MOST_SIZE)
    ffn_hidden: int = Field(default=0, ge=0, le=_MOST_SIZE)
    gated_mlp: bool = True
    vocabulary: int = Field(default=0, ge=0, le=_MOST_SIZE)
    outer_units: OuterUnits = "vocabulary"
    dtype_bytes: int = Field(default=2, ge=1, le=8)
    experts: int = Field(default=0, ge=0, le=1024)
    top_k: int = Field(default=1, ge=1, le=1024)
    expert_ffn_hidden: int = Field(default=0, ge=0, le=_MOST_SIZE)
    shared_experts: int = Field(default=0, ge=0, le=1024)
    dense_layers: int = Field(default=0, ge=0, le=10_000)
    moe_every: int = Field(default=1, ge=1, le=10_000)
    expert_skew: float = Field(default=0.0, ge=0, le=10)
    expert_seed: int = Field(default=0, ge=-(2**63), le=2**63 - 1)

    @model_validator(mode="after")
    def _check(self) -> ModelShape:
        given = self.model_fields_set.intersection(_OF_EXPERTS)
        if not self.experts and given:
            raise ConfigError(
                "needs a model with experts; give model.experts, or leave this key out", key=f"model.{min(given)}"
            )
        if self.experts and self.top_k > self.experts:
            raise ConfigError(
                f"a token takes {self.top_k} of {self.experts} experts; top_k must be 1 to model.experts",
                key="model.top_k",
            )
        if self.hidden % self.heads:
            raise ConfigError(f"hidden {self.hidden} must be a multiple of heads {self.heads}", key="model.heads")
        if self.kv_heads and self.heads % self.kv_heads:
            raise ConfigError(
                f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}", key="model.kv_heads"
            )
        return self

    @property
    def attention_parameters(self) -> int:
        kv_hidden = self.hidden // self.heads * (self.kv_heads or self.heads)
        return 2 * self.hidden * self.hidden + 2 * self.hidden * kv_hidden

    @property
    def mlp_parameters(self) -> int:
        """Parameters of the up and down (and gate) matrices of one layer without experts."""
        return self._mlp(self.ffn_hidden or 4 * self.hidden)

    @property
    def parameters_per_layer(self) -> int:
        return self.attention_parameters + self.mlp_parameters + 2 * self.hidden

    @property
    def parameters_per_expert(self) -> int:
        return self._mlp(self.expert_ffn_hidden or self.ffn_hidden or 4 * self.hidden)

    @property
    def expert_parameters(self) -> int:
        return self.experts * self.parameters_per_expert

    @property
    def beside_experts(self) -> int:
        """Other parameters of a layer with experts: attention, two norms, the router and the shared experts."""
        return self.attention_parameters + 2 * self.hidden + self._router_and_shared

    @property
    def _router_and_shared(self) -> int:
        return self.hidden * self.experts + self.shared_experts * self.parameters_per_expert

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
        return 2.0 * self.top_k * self.parameters_per_expert * microbatch * self.sequence if self.experts else 0.0

    def layer_flops(self, microbatch: int) -> float:
        """FLOPs of the forward pass of the model's usual layer: the one with experts, if there are any."""
        if not self.experts:
            return self.dense_flops(microbatch)
        beside = self.attention_flops(microbatch) + 2.0 * self._router_and_shared * microbatch * self.sequence
        return beside + self.routed_flops(microbatch)

    def head_flops(self, microbatch: int) -> float:
        """FLOPs of the head's forward pass over a microbatch, all TP ranks together."""
        return 2.0 * self.vocabulary * self.hidden * microbatch * self.sequence

    def activation_bytes(self, microbatch: int) -> int:
        """Bytes that one layer passes to the next for a microbatch, all TP ranks together."""
        return microbatch * self.sequence * self.hidden * self.dtype_bytes

    def has_experts(self, layer: int) -> bool:
        after = layer - self.dense_layers
        return self.experts > 0 and after >= 0 and after % self.moe_every == 0

    def expert_loads(self, ep: int) -> tuple[float, ...]:
        """Load of each EP index relative to the mean (1.0); each index holds an equal run of consecutive experts."""
        experts = self.experts // ep
        shares = popularity(self.experts, self.top_k, self.expert_skew, self.expert_seed)
        return tuple(ep * sum(shares[i * experts : (i + 1) * experts]) for i in range(ep))

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
    layers = shape.layers // stages
    units = [_layer(shape, f"u{i}", stage * layers + i, microbatch) for i in range(layers)]
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
    if shape.has_experts(layer):
        return Unit(name, shape.beside_experts, 1.0, True, shape.expert_parameters)
    share = shape.dense_flops(microbatch) / shape.layer_flops(microbatch) if shape.experts else 1.0
    return Unit(name, shape.parameters_per_layer, share, True)
