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
    training:
      sharding: fsdp                            # fsdp | ddp
      reshard_after_forward: true
      overlap: false                            # true: prefetch and reduce while computing
      tp_on_packets: false                      # true: TP collectives on the scale-up switch
      tp_across_servers: false                  # true: scale-up spans servers (only with TP modelled)
      scalars: 3                                # all-reduces of one number over all ranks at the end of a step
    fabric:
      servers: 4
      gpus_per_server: 4
      ports_per_gpu: 2
      port_gbps: 12.5
      scale_up_gbps: 2400                       # per GPU and direction
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from railyard.errors import ConfigError
from railyard.validation import config_error
from workloads.training.experts import Experts
from workloads.training.ranks import Parallelism
from workloads.training.settings import Training
from workloads.training.shape import ModelShape, OuterUnits

GBPS = 1e9


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSection(_Section):
    """Section ``model`` of a workload file: the shape of the model."""

    layers: int = Field(ge=1, le=10_000)
    hidden: int = Field(ge=1)
    sequence: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(default=0, ge=0)
    ffn_hidden: int = Field(default=0, ge=0)
    gated_mlp: bool = True
    vocabulary: int = Field(default=0, ge=0)
    outer_units: OuterUnits = "vocabulary"
    dtype_bytes: int = Field(default=2, ge=1, le=8)
    experts: int = Field(default=0, ge=0, le=10_000)
    top_k: int = Field(default=1, ge=1)
    expert_ffn_hidden: int = Field(default=0, ge=0)
    shared_experts: int = Field(default=0, ge=0)
    dense_layers: int = Field(default=0, ge=0)
    moe_every: int = Field(default=1, ge=1)
    expert_skew: float = Field(default=0.0, ge=0, le=10)
    expert_seed: int = 0

    def to_shape(self) -> ModelShape:
        """The model's shape; ``ConfigError`` for expert keys without experts and for inconsistent values."""
        given = self.model_fields_set.intersection(_OF_EXPERTS)
        if not self.experts and given:
            raise ConfigError(
                "needs a model with experts; give model.experts, or leave this key out", key=f"model.{min(given)}"
            )
        values = self.model_dump(exclude={"experts", *_OF_EXPERTS})
        experts = Experts(
            count=self.experts,
            top_k=self.top_k,
            ffn_hidden=self.expert_ffn_hidden or self.ffn_hidden or 4 * self.hidden,
            shared=self.shared_experts,
            dense_layers=self.dense_layers,
            every=self.moe_every,
            skew=self.expert_skew,
            seed=self.expert_seed,
        ) if self.experts else None  # fmt: skip
        return ModelShape(**values, experts=experts)


_OF_EXPERTS = (
    "top_k", "expert_ffn_hidden", "shared_experts", "dense_layers", "moe_every", "expert_skew", "expert_seed"
)  # fmt: skip


class ParallelismSection(_Section):
    """Section ``parallelism`` of a workload file: GPUs per dimension."""

    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    dp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)


class BatchSection(_Section):
    """Section ``batch`` of a workload file: samples per DP rank in a step and in a microbatch."""

    local_batch: int = Field(ge=1)
    microbatch: int = Field(ge=1)


class ComputeSection(_Section):
    """Section ``compute`` of a workload file: the forward time of a layer, or the FLOP/s that a GPU reaches."""

    forward_ms: float | None = Field(default=None, gt=0)
    tflops: float | None = Field(default=None, gt=0)
    recompute: bool = False


class TrainingSection(_Section):
    """Section ``training`` of a workload file: how the step is executed."""

    sharding: Literal["fsdp", "ddp"] = "fsdp"
    reshard_after_forward: bool = True
    overlap: bool = False
    tp_on_packets: bool = False
    tp_across_servers: bool = False
    scalars: int = Field(default=0, ge=0, le=100)


class WorkloadFabricSection(_Section):
    """Section ``fabric`` of a workload file: the fabric that the workload is made for."""

    servers: int = Field(ge=1)
    gpus_per_server: int = Field(ge=1)
    ports_per_gpu: int = Field(default=2, ge=1, le=16)
    port_gbps: float = Field(default=12.5, gt=0)
    scale_up_gbps: float = Field(default=2400.0, gt=0)


class Recipe(_Section):
    """All keys of a workload file, validated."""

    name: str = Field(min_length=1, max_length=100)
    description: str = ""
    model: ModelSection
    parallelism: ParallelismSection
    batch: BatchSection
    compute: ComputeSection
    training: TrainingSection = TrainingSection()
    fabric: WorkloadFabricSection

    def to_training(self) -> Training:
        """The step to generate; ``ConfigError`` names the key whose value does not fit the others."""
        forward, tflops = self.compute.forward_ms, self.compute.tflops
        return Training(
            name=self.name,
            shape=self.model.to_shape(),
            parallelism=Parallelism(**self.parallelism.model_dump()),
            local_batch=self.batch.local_batch,
            microbatch=self.batch.microbatch,
            recompute=self.compute.recompute,
            forward_s=None if forward is None else forward / 1e3,
            flops_per_s=None if tflops is None else tflops * 1e12,
            scale_up_gbps=self.fabric.scale_up_gbps,
            **self.training.model_dump(),
        )


def read_recipe(path: Path) -> Recipe:
    """Read the recipe in a YAML file; ``ConfigError`` names the file and the key."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot be read ({reason}); name a workload file", source=str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"is not YAML: {getattr(error, 'problem', error)}", source=place) from None
    if not isinstance(data, dict):
        raise ConfigError("must be a mapping of keys such as name, model, parallelism, batch", source=str(path))
    return make_recipe(data, str(path))


def make_recipe(data: Mapping[str, Any], source: str | None = None) -> Recipe:
    """Validate ``data`` as a recipe; ``ConfigError`` names the first wrong key."""
    try:
        return Recipe.model_validate(dict(data))
    except ValidationError as error:
        raise config_error(error, Recipe, "a workload", source=source) from None
