"""Catalog of workloads by name, ``workloads/jobs/NAME.yaml``, and loading of workload files."""

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
from workloads.program import Program
from workloads.pytorch.fold import folded as fold
from workloads.pytorch.record import Record, fits_opus
from workloads.pytorch.record_file import is_record, read_record
from workloads.training.fold import layout_of
from workloads.training.ranks import Parallelism, on_its_network
from workloads.training.recipe import FabricSection, Recipe, make_recipe, read_yaml
from workloads.training.step import training_step

DEFAULT_PORT_GBPS = FabricSection(servers=1, gpus_per_server=1).port_gbps
"""Rate of a port of a workload whose file names none."""

_JOBS = Path(__file__).parent / "jobs"
CATALOG = sorted(path.stem for path in _JOBS.glob("*.yaml"))
"""The names of the workloads of the catalog."""


def job_keys(name: str) -> dict[str, Any]:
    """The keys of the workload ``name`` of the catalog (``workloads.training.recipe``)."""
    return read_yaml(_JOBS / f"{name}.yaml")


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
    """Whether the program comes from a file of another tool or a script, with groups that Opus does not know."""
    training: Recipe | None = None
    """Recipe from which the step was generated, if it was generated."""
    record: Record | None = None
    """Record of a PyTorch script that the step is, if it is one."""
    front_end_gbps: float | None = None
    """Rate of a port of the front-end network, which the fabric then has; None leaves both to the groups."""

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
    folded: bool = False,
    **training: Any,
) -> Workload:
    """Load a workload of the catalog, of a YAML file (keys: ``workloads.training.recipe``), or of another tool's file.

    ``training`` overrides keys of a recipe's ``training`` section (``overlap=True``, ``tp_on_packets=True``). The other
    options are those of ``workloads.formats.detect.read_workload_file``, for files that it reads; such a workload has
    one GPU per server, so that all ranks share one rail, unless ``gpus_per_server`` says otherwise. ``folded``: of a
    recipe whose ranks cannot be told apart, only those that stand for all others. Raises
    ``ConfigError`` naming the cause: the name, the file and place, the key, or the operation of the program.
    """
    options: dict[str, Any] = {
        "compute_unit": compute_unit, "ranks": ranks, "size": size, "model_parallel": model_parallel
    }  # fmt: skip
    recipe = is_recipe(name_or_path)
    with in_file(None if name_or_path in CATALOG else name_or_path):
        if recipe and _is_record(name_or_path):
            given = {**options, "gpus_per_server": gpus_per_server, **training}
            for key in [key for key, value in given.items() if value is not None]:
                raise ConfigError("does not apply to the record of a PyTorch step; change its file", key=key)
            return recorded_workload(read_record(Path(name_or_path)), folded=folded)
        if recipe:
            for key, value in {**options, "gpus_per_server": gpus_per_server}.items():
                if value is not None:
                    raise ConfigError(f"applies only to files of other tools, not to {name_or_path}", key=key)
            return make_workload(_recipe(name_or_path, training), folded=folded)
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
    groups = {name: on_its_network(group, gpus_per_server) for name, group in program.groups.items()}
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


def recorded_workload(record: Record, *, folded: bool = False) -> Workload:
    """The checked workload of the record of a PyTorch step; ``folded``: of the ranks that stand for all others.

    Circuits follow its collectives if its groups are not those that Opus knows.
    """
    built = fold(record) if folded else record
    workload = workload_of(Reading(f"step {record.step} of a script", built.program()), built.gpus_per_server)
    stages = max(built.stages) + 1
    return replace(
        workload,
        description=f"{record.name}: step {record.step} of a PyTorch script, {record.ranks} ranks",
        parallelism=Parallelism(pp=stages, dp=max(1, built.ranks // stages)),
        port_gbps=record.port_gbps,
        scale_up_gbps=record.scale_up_gbps,
        traced=not fits_opus(built, workload.program),
        record=record,
    )


def make_workload(recipe: Recipe, *, folded: bool = False) -> Workload:
    """The checked workload of ``recipe``; ``folded``: of the ranks that stand for all others, if they are known."""
    program = training_step(recipe, folded=folded)
    check(program)
    layout = layout_of(recipe, folded=folded)
    fabric = {**recipe.fabric.model_dump(), "servers": layout.servers, "gpus_per_server": layout.gpus_per_server}
    return Workload(
        name=recipe.name,
        description=recipe.description,
        program=program,
        parallelism=recipe.parallelism,
        **fabric,
        training=recipe,
    )


def with_all_ranks(workload: Workload) -> Workload:
    """A workload that was loaded ``folded`` with all its ranks, for a run."""
    if workload.record is not None:
        return recorded_workload(workload.record)
    return workload if workload.training is None else make_workload(workload.training)


def recipe_of(name_or_path: str) -> Recipe:
    """The recipe of a workload of the catalog, or of a YAML file; ``ConfigError`` for others."""
    if not is_recipe(name_or_path) or _is_record(name_or_path):
        raise ConfigError(f"{name_or_path} is a trace, whose sizes are fixed; name a job of the catalog or a YAML file")
    return _recipe(name_or_path, {})


def recipe_or_record(name_or_path: str) -> Recipe | Record:
    """The record in a file, or the recipe (``recipe_of``)."""
    return read_record(Path(name_or_path)) if _is_record(name_or_path) else recipe_of(name_or_path)


def _is_record(name_or_path: str) -> bool:
    return name_or_path not in CATALOG and is_record(Path(name_or_path))


def _recipe(name_or_path: str, training: dict[str, Any]) -> Recipe:
    listed, path = name_or_path in CATALOG, Path(name_or_path)
    data = job_keys(name_or_path) if listed else read_yaml(path)
    given = data.get("training", {})
    if training and isinstance(given, dict):
        data = {**data, "training": {**given, **training}}
    return make_recipe(data, None if listed else str(path))
