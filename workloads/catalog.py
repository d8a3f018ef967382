"""Catalog of workloads by name, and loading of workload files.

``llama3-8b-16``
    Llama-3 8B on 16 GPUs as traced in Opus (arXiv 2602.12521): TP4 PP2 FSDP2, sequence 8192, 2 microbatches of 4, full
    recompute. Per stage 17 units (16 layers and the embedding or the head, each counted as a layer: 218.1 M
    parameters), so 51 all-gathers, 17 reduce-scatters, 4 all-reduces, 4 PP operations and 6 phase changes a step.

    Its forward time is derived from the published native step of 10.178 s: the critical path holds, in units of a
    layer's forward time f, (microbatches + PP - 1) x 17 x (1 + 3) = 204 f, TP included. On 2 x 12.5 Gb/s ports the
    68 collectives and the transfers of the critical path leave f = LLAMA_LAYER_S, of which 2.7 ms are TP
    (``Training.tp_layer_s``). It amounts to about 105 TFLOP/s a GPU, a third of an A100's peak.

``smoke``
    DP2 PP2 TP2 on 8 GPUs with DDP: all PP operations, then the gradients, so 2 phase changes a step. About 1 s of
    compute. Every transfer is at least 24 jumbo packets at rate x time = 1/250.

``pp-only``
    Modelled on DeepSeek-V3-16B in Opus: PP4 TP4 on 16 GPUs and no DP, so one phase and no reconfiguration in a
    steady step. The published native step of 7.279 s sets the forward time. (28 layers for the model's 27, so that
    they divide by 4; the experts do not matter without DP.)

``moe-smoke``
    EP8 on 8 servers of one GPU: all traffic of experts is on the rail (EP+DP of Opus). Two layers of 16 experts, top 2
    and one shared, one microbatch: 8 all-to-alls a step, of 33.6 MB for each pair, then the other gradients over all
    8 ranks, so 2 phase changes a step. A shape of our own, large enough that every transfer is at least 24
    packets on two cores without stretching time.

``moe-ep-tp``
    TP2 EP2 DP2 on 2 servers of 4 GPUs: experts talk inside the server, and only gradients take the rails (EP+TP+DP of
    Opus), so one phase. DeepSeekMoE 16B (arXiv 2401.06066, section 5.1: hidden 2048, 16 heads, 64 experts, top 6 and 2
    shared, the first layer dense; MLPs of 1408 and 10944 as in the published model) with 4 of its 28 layers.
    Scale-up has nine times the rails' rate, as NVLink of an H100 (450 GB/s each way) beside 400 Gb/s.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from railyard.errors import ConfigError, in_file, nearest
from railyard.validation import shown
from workloads.check import check
from workloads.formats.detect import read_workload_file
from workloads.formats.reading import Reading
from workloads.program import Group, Program
from workloads.training.ranks import Parallelism, network_of, some_ranks
from workloads.training.recipe import FabricSection, Recipe, make_recipe, read_yaml
from workloads.training.step import training_step

LLAMA_LAYER_S = 0.0426
"""Forward time of one layer and microbatch with its TP time (derivation above)."""
LLAMA_TP_S = 0.002684
PP_ONLY_FORWARD_MS = 18.95
SMOKE_FORWARD_MS = 55.0
MOE_TFLOPS = 105.0
"""Rate that a GPU reaches, the same as in ``llama3-8b-16``."""
MOE_FORWARD_MS = 61.4
"""Forward time of a layer of ``moe-smoke`` at that rate: 6.4 TFLOP for four samples."""
DEFAULT_PORT_GBPS = FabricSection(servers=1, gpus_per_server=1).port_gbps
"""Rate of a port of a workload whose file names none."""

CATALOG: dict[str, dict[str, Any]] = {
    "llama3-8b-16": {
        "description": "Llama-3 8B, TP4 PP2 FSDP2, 16 GPUs, 2 microbatches, full recompute (Opus)",
        "model": {
            "layers": 32,
            "hidden": 4096,
            "sequence": 8192,
            "heads": 32,
            "kv_heads": 8,
            "ffn_hidden": 14336,
            "vocabulary": 128256,
            "outer_units": "layer",
        },
        "parallelism": {"tp": 4, "pp": 2, "dp": 2},
        "batch": {"local_batch": 8, "microbatch": 4},
        "compute": {"forward_ms": (LLAMA_LAYER_S - LLAMA_TP_S) * 1e3, "recompute": True},
        "training": {"sharding": "fsdp", "scalars": 3},
        "fabric": {"servers": 4, "gpus_per_server": 4},
    },
    "smoke": {
        "description": "small DDP job, DP2 PP2 TP2, 8 GPUs, 2 microbatches: 2 phase changes a step (Opus)",
        "model": {"layers": 4, "hidden": 4096, "sequence": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336},
        "parallelism": {"tp": 2, "pp": 2, "dp": 2},
        "batch": {"local_batch": 8, "microbatch": 4},
        "compute": {"forward_ms": SMOKE_FORWARD_MS},
        "training": {"sharding": "ddp"},
        "fabric": {"servers": 4, "gpus_per_server": 2},
    },
    "pp-only": {
        "description": "DeepSeek-V3-16B style, PP4 TP4 without DP, 16 GPUs: nothing to reconfigure (Opus)",
        "model": {"layers": 28, "hidden": 2048, "sequence": 8192, "heads": 16, "ffn_hidden": 10944},
        "parallelism": {"tp": 4, "pp": 4, "dp": 1},
        "batch": {"local_batch": 64, "microbatch": 8},
        "compute": {"forward_ms": PP_ONLY_FORWARD_MS, "recompute": True},
        "fabric": {"servers": 4, "gpus_per_server": 4},
    },
    "moe-smoke": {
        "description": "small mixture of experts, EP8 on 8 GPUs, all of it on the rail: 2 phase changes a step",
        "model": {
            "layers": 2,
            "hidden": 4096,
            "sequence": 4096,
            "heads": 32,
            "experts": 16,
            "top_k": 2,
            "expert_ffn_hidden": 3072,
            "shared_experts": 1,
        },
        "parallelism": {"ep": 8},
        "batch": {"local_batch": 4, "microbatch": 4},
        "compute": {"forward_ms": MOE_FORWARD_MS},
        "training": {"sharding": "ddp"},
        "fabric": {"servers": 8, "gpus_per_server": 1},
    },
    "moe-ep-tp": {
        "description": "DeepSeekMoE 16B with 4 layers, TP2 EP2 DP2 on 8 GPUs: experts inside servers, DP on the rails",
        "model": {
            "layers": 4,
            "hidden": 2048,
            "sequence": 4096,
            "heads": 16,
            "ffn_hidden": 10944,
            "experts": 64,
            "top_k": 6,
            "expert_ffn_hidden": 1408,
            "shared_experts": 2,
            "dense_layers": 1,
        },
        "parallelism": {"tp": 2, "ep": 2, "dp": 2},
        "batch": {"local_batch": 4, "microbatch": 1},
        "compute": {"tflops": MOE_TFLOPS},
        "training": {"sharding": "ddp"},
        "fabric": {"servers": 2, "gpus_per_server": 4, "scale_up_gbps": 225},
    },
}


@dataclass(frozen=True)
class Workload:
    """A checked program and the fabric it is made for.

    Rates are those of the real system; ``port_gbps`` is the rate of one of a GPU's ports.
    """

    name: str
    description: str
    program: Program
    parallelism: Parallelism
    servers: int
    gpus_per_server: int
    ports_per_gpu: int
    port_gbps: float
    scale_up_gbps: float
    traced: bool = False
    """Whether the program comes from a file of another tool, with arbitrary groups."""
    training: Recipe | None = None
    """Recipe from which the step was generated, if it was generated."""

    @property
    def uses_scale_up(self) -> bool:
        return any(group.domain == "scale-up" for group in self.program.groups.values())

    @property
    def uses_front_end(self) -> bool:
        return any(group.domain == "front-end" for group in self.program.groups.values())


def load_workload(
    name_or_path: str,
    *,
    compute_unit: str | None = None,
    ranks: int | None = None,
    size: int | None = None,
    model_parallel: int | None = None,
    gpus_per_server: int | None = None,
    **training: Any,
) -> Workload:
    """Load a workload of the catalog, of a YAML file (keys: ``workloads.training.recipe``), or of another tool's file.

    ``training`` overrides keys of a recipe's ``training`` section (``overlap=True``, ``tp_on_packets=True``). The other
    options are those of ``workloads.formats.detect.read_workload_file``, for files that it reads; such a workload has
    one GPU per server, so that all ranks share one rail, unless ``gpus_per_server`` says otherwise. Raises
    ``ConfigError`` naming the cause: the name, the file and place, the key, or the operation of the program.
    """
    options: dict[str, Any] = {
        "compute_unit": compute_unit, "ranks": ranks, "size": size, "model_parallel": model_parallel
    }  # fmt: skip
    recipe = is_recipe(name_or_path)
    with in_file(None if name_or_path in CATALOG else name_or_path):
        if recipe:
            for key, value in {**options, "gpus_per_server": gpus_per_server}.items():
                if value is not None:
                    raise ConfigError(f"applies only to files of other tools, not to {name_or_path}", key=key)
            return make_workload(_recipe(name_or_path, training))
        for key in training:
            raise ConfigError(f"applies only to the catalog and YAML recipes, not to {name_or_path}", key=key)
        return workload_of(
            read_workload_file(Path(name_or_path), **options), 1 if gpus_per_server is None else gpus_per_server
        )


def is_recipe(name_or_path: str) -> bool:
    """Whether this is a workload of the catalog or a YAML file, and not a file of another tool.

    ``ConfigError`` for a bare name that is neither a workload nor a file.
    """
    path = Path(name_or_path)
    if name_or_path in CATALOG or path.suffix in (".yaml", ".yml"):
        return True
    if not (path.suffix or os.path.exists(path) or path.parent != Path()):
        raise ConfigError(
            f"{shown(name_or_path)} is neither in the catalog ({', '.join(CATALOG)}) nor a YAML file or a trace"
            f"{nearest(name_or_path, CATALOG)}",
            key="workload",
        )
    return False


def workload_of(reading: Reading, gpus_per_server: int = 1) -> Workload:
    """The checked workload of a file that was read, on a fabric with one rail for each GPU of a server."""
    program = reading.program
    if gpus_per_server < 1 or program.ranks % gpus_per_server:
        raise ConfigError(
            f"{gpus_per_server} GPUs per server do not divide the {program.ranks} ranks of {program.name}",
            key="gpus_per_server",
        )
    groups = {name: _placed(group, gpus_per_server) for name, group in program.groups.items()}
    program = replace(program, groups=groups)
    check(program)
    fabric = FabricSection(servers=program.ranks // gpus_per_server, gpus_per_server=gpus_per_server)
    return Workload(
        name=program.name,
        description=f"{program.name}: {reading.format}, {program.ranks} ranks",
        program=program,
        parallelism=Parallelism(dp=program.ranks),
        **fabric.model_dump(),
        traced=True,
    )


def _placed(group: Group, gpus_per_server: int) -> Group:
    network = network_of(group.members, gpus_per_server)
    if network is None:
        raise ConfigError(
            f"group {group.name} (ranks {some_ranks(group.members)}) lies neither in one server of {gpus_per_server} "
            "GPUs nor on one rail; choose 1 GPU per server",
            key="gpus_per_server",
        )
    return replace(group, domain="scale-up") if network == "scale-up" and gpus_per_server > 1 else group


def make_workload(recipe: Recipe) -> Workload:
    program = training_step(recipe)
    check(program)
    return Workload(
        name=recipe.name,
        description=recipe.description,
        program=program,
        parallelism=recipe.parallelism,
        **recipe.fabric.model_dump(),
        training=recipe,
    )


def _recipe(name_or_path: str, training: dict[str, Any]) -> Recipe:
    entry, path = CATALOG.get(name_or_path), Path(name_or_path)
    data = {"name": name_or_path, **entry} if entry else read_yaml(path)
    given = data.get("training", {})
    if training and isinstance(given, dict):
        data = {**data, "training": {**given, **training}}
    return make_recipe(data, None if entry else str(path))
