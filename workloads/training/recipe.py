"""Workload files: YAML with the shape of a model, the parallelism, and the fabric that it runs on.

Unknown keys are rejected by name. All values are those of the real system::

    name: my-model
    description: one line for tables            # optional
    model:
      layers: 32
      hidden: 4096
      sequence: 8192                            # tokens per sample
      heads: 32
      kv_heads: 8                               # fewer than heads: grouped-query attention; default heads
      ffn_hidden: 14336                         # default 4 x hidden
      gated_mlp: true                           # three MLP matrices instead of two
      vocabulary: 128256                        # default 0: no embedding and no head
      outer_units: vocabulary                   # embedding and head count by vocabulary | as a layer | none
      dtype_bytes: 2
      experts: 8                                # default 0: none, and none of the keys below
      top_k: 2                                  # experts that a token takes; default 1
      expert_ffn_hidden: 7168                   # default ffn_hidden
      shared_experts: 1                         # experts of that size that every token takes; default 0
      dense_layers: 1                           # first layers, without experts; default 0
      moe_every: 1                              # after those, every n-th layer has experts
      expert_skew: 0                            # popularity of experts: Zipf's exponent; default 0, all the same
      expert_seed: 0                            # which experts are the popular ones
    parallelism: {tp: 4, pp: 2, dp: 2, ep: 1}   # tp x ep x dp x pp = servers x gpus_per_server, in rank order
    batch: {local_batch: 8, microbatch: 4}      # samples per DP and EP rank and step, and per microbatch
    compute:
      forward_ms: 37.0                          # one layer, one microbatch, one GPU, without TP communication
      # or tflops: 120                          # rate that one GPU reaches (TFLOP/s)
      recompute: true                           # backward takes 3 x forward instead of 2 x
      native_step_s: 10.178                     # optional: the measured step that forward_ms was fitted to
    training:
      sharding: fsdp                            # fsdp | ddp
      reshard_after_forward: true
      overlap: true                             # false: one operation after another
      tp_on_packets: false                      # true: TP collectives on the scale-up switch
      tp_across_servers: false                  # true: scale-up spans servers (only with TP modelled)
      scalars: 3                                # all-reduces of one number over all ranks at the end of a step
    fabric:
      servers: 4
      gpus_per_server: 4
      ports_per_gpu: 2
      port_gbps: 12.5
      scale_up_gbps: 2400                       # per GPU and direction
    assumptions:                                # optional: sizes that are not known, by their dotted keys
      compute.forward_ms: {why: a guess, least: 30, most: 50}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from railyard.errors import ConfigError
from railyard.validation import Section, config_error
from railyard.yaml_file import read_mapping
from workloads.program import MOST_RANKS
from workloads.training.ranks import Parallelism
from workloads.training.shape import ModelShape, Unit

TP_COLLECTIVES_PER_LAYER = 4
"""Sequence parallelism: all-gather and reduce-scatter around attention and around the MLP, in each direction
(Korthikanti et al., 2022, section 4.2)."""


class BatchSection(Section):
    """Section ``batch`` of a workload file: samples per DP and EP rank in a step and in a microbatch."""

    local_batch: int = Field(ge=1, le=10**6)
    microbatch: int = Field(ge=1, le=10**6)


class ComputeSection(Section):
    """Section ``compute`` of a workload file: how long the arithmetic takes.

    ``forward_ms`` is the arithmetic of one layer's forward pass over one microbatch on one GPU (a layer with experts,
    where there are any, evenly chosen); alternatively, ``tflops`` is the rate that a GPU reaches. A backward pass takes
    twice a forward pass, three times with ``recompute``. ``native_step_s`` is the measured step without a control plane
    that ``forward_ms`` was fitted to: on ports of another rate it is fitted to it again.
    """

    forward_ms: float | None = Field(default=None, gt=0, le=1e9)
    tflops: float | None = Field(default=None, ge=1e-6, le=1e9)
    recompute: bool = False
    native_step_s: float | None = Field(default=None, gt=0, le=1e9)


class TrainingSection(Section):
    """Section ``training`` of a workload file: how the step is executed.

    TP: with ``tp_on_packets`` every TP collective is an operation on the scale-up network. Otherwise its time is part
    of the compute time: per layer and direction (recomputation counts as one more direction) 4 x (TP - 1) / TP x
    activation bytes x 8 / ``scale_up_gbps``; around experts each activation counts ``top_k`` times (and once more for
    shared experts). All-to-alls of experts are always operations, inside a server too.

    ``overlap`` True: FSDP gathers one unit ahead of compute, and DDP reduces gradients while the last backward pass
    goes on; a stage that still has to send a gradient upstream reduces after that send: a rail cannot hold the ring
    while the stage before waits on the chain. False: one linear sequence, collectives block compute; a send and a
    receive that follow one another run together (crossing in the pipeline, they would wait for each other).
    """

    sharding: Literal["fsdp", "ddp"] = "fsdp"
    reshard_after_forward: bool = True
    overlap: bool = True
    tp_on_packets: bool = False
    tp_across_servers: bool = False
    scalars: int = Field(default=0, ge=0, le=100)


class FabricSection(Section):
    """Section ``fabric`` of a workload file: the fabric that the workload is made for."""

    servers: int = Field(ge=1, le=MOST_RANKS)
    gpus_per_server: int = Field(ge=1, le=MOST_RANKS)
    ports_per_gpu: int = Field(default=2, ge=1, le=16)
    port_gbps: float = Field(default=12.5, ge=1e-6, le=1e6)
    scale_up_gbps: float = Field(default=2400.0, ge=1e-6, le=1e6)


class Assumption(Section):
    """A size that is not known: why its value was taken, and the least and the most that it may be."""

    why: str = Field(min_length=1)
    least: float
    most: float


class Recipe(Section):
    """All keys of a workload file, validated, and the quantities of a training step that follow from them."""

    name: str = Field(min_length=1, max_length=100)
    description: str = ""
    model: ModelShape
    parallelism: Parallelism
    batch: BatchSection
    compute: ComputeSection
    training: TrainingSection = TrainingSection()
    fabric: FabricSection
    assumptions: dict[str, Assumption] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        """Raise ``ConfigError`` naming the key whose value does not fit the others."""
        batch, ep, tp = self.batch, self.parallelism.ep, self.parallelism.tp
        if batch.local_batch % batch.microbatch:
            raise ConfigError(
                f"local_batch {batch.local_batch} must be a multiple of microbatch {batch.microbatch}",
                key="batch.microbatch",
            )
        if (self.compute.forward_ms is None) == (self.compute.tflops is None):
            raise ConfigError(
                "give either the forward time of a layer (forward_ms) or the FLOP/s of a GPU (tflops)", key="compute"
            )
        if self.compute.native_step_s is not None and self.compute.forward_ms is None:
            raise ConfigError("needs compute.forward_ms, which is fitted to it", key="compute.native_step_s")
        for key in self.assumptions:
            section, _, name = key.partition(".")
            if name not in getattr(getattr(self, section, None), "model_fields_set", ()):
                raise ConfigError("an assumption names a key that the file gives", key=f"assumptions.{key}")
        if ep > 1 and not self.model.experts:
            raise ConfigError(f"EP {ep} needs a model with experts; give model.experts, or EP 1", key="parallelism.ep")
        if self.model.experts % ep:
            raise ConfigError(f"model.experts {self.model.experts} must be a multiple of EP {ep}", key="parallelism.ep")
        if self.model.heads % tp:
            raise ConfigError(f"model.heads {self.model.heads} must be a multiple of TP {tp}", key="parallelism.tp")
        if self.training.tp_on_packets and self.training.tp_across_servers:
            raise ConfigError(
                "TP groups that cross servers cannot use packets; set tp_on_packets to false", key="tp_on_packets"
            )
        return self

    @property
    def microbatches(self) -> int:
        return self.batch.local_batch // self.batch.microbatch

    @property
    def layer_forward_s(self) -> float:
        """Seconds of arithmetic of one layer's forward pass over a microbatch on one GPU."""
        if self.compute.forward_ms is not None:
            return self.compute.forward_ms / 1e3
        assert self.compute.tflops is not None
        return self.model.layer_flops(self.batch.microbatch) / self.parallelism.tp / (self.compute.tflops * 1e12)

    @property
    def tp_layer_s(self) -> float:
        """Seconds of one layer's TP collectives in one direction (formula of ``TrainingSection``); 0 without TP."""
        tp = self.parallelism.tp
        moved = TP_COLLECTIVES_PER_LAYER * (tp - 1) / tp * self.model.activation_bytes(self.batch.microbatch)
        return moved * 8 / (self.fabric.scale_up_gbps * 1e9)

    @property
    def activation_bytes(self) -> int:
        """Bytes of a microbatch that a rank holds between layers: its share of the sequence."""
        return self.model.activation_bytes(self.batch.microbatch) // self.parallelism.tp

    def unit_bytes(self, unit: Unit) -> int:
        """Bytes of the parameters (or gradients) of a unit on one TP rank; without EP its experts are included."""
        experts = unit.expert_parameters if self.parallelism.ep == 1 else 0
        return (unit.parameters + experts) // self.parallelism.tp * self.model.dtype_bytes

    def expert_bytes(self, unit: Unit) -> int:
        """Bytes of the parameters (or gradients) of a unit's experts on one rank of EP and TP; 0 without EP."""
        p = self.parallelism
        return unit.expert_parameters // (p.tp * p.ep) * self.model.dtype_bytes if p.ep > 1 else 0


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys of a workload file; ``ConfigError`` names the file, and the line where it is no YAML."""
    return read_mapping(path, "a workload file", "name, model, parallelism, batch")


def make_recipe(data: Mapping[str, Any], source: str | None = None) -> Recipe:
    try:
        return Recipe.model_validate(dict(data))
    except ValidationError as error:
        raise config_error(error, Recipe, "a workload", source=source) from None


def changed(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """``recipe`` with other values of the dotted keys of ``values``, checked again."""
    data = recipe.model_dump(exclude_unset=True)
    for key, value in values.items():
        section, _, name = key.partition(".")
        whole = isinstance(value, float) and value.is_integer()
        data.setdefault(section, {})[name] = int(value) if whole else value
    return make_recipe(data)
