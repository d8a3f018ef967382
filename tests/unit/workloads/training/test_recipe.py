from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import workloads.training.recipe
from workloads.catalog import CATALOG, load_workload
from workloads.training.recipe import make_recipe

SMALL: dict[str, Any] = {
    "name": "small",
    "model": {"layers": 2, "hidden": 64, "sequence": 32, "heads": 4},
    "parallelism": {"pp": 2, "dp": 2},
    "batch": {"local_batch": 2, "microbatch": 1},
    "compute": {"tflops": 100},
    "fabric": {"servers": 4, "gpus_per_server": 1},
}


def test_a_file_is_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    workload = load_workload(str(file))
    assert (workload.name, workload.servers, workload.gpus_per_server) == ("small", 4, 1)
    assert workload.program.ranks == 4
    ahead = [op.deps for op in workload.program.operations[0]]
    assert [op.deps for op in load_workload(str(file), overlap=False).program.operations[0]] != ahead


def test_the_example_in_the_docstring_is_one() -> None:
    text = workloads.training.recipe.__doc__
    assert text is not None
    recipe = make_recipe(yaml.safe_load(text.split("::\n", 1)[1]))
    assert recipe.model.kv_heads == 8
    assert recipe.parallelism.ranks == 16


@pytest.mark.parametrize("name", CATALOG)
def test_the_catalog_fits_its_fabric(name: str) -> None:
    workload = load_workload(name, folded=True)
    recipe = workload.training
    assert recipe is not None and recipe.name == name
    assert workload.program.ranks == workload.servers * workload.gpus_per_server
    assert (workload.port_gbps, workload.ports_per_gpu) == (recipe.fabric.port_gbps, 2)
    assert workload.uses_front_end == (recipe.training.scalars > 0)
    for key, assumed in recipe.assumptions.items():
        section, name = key.split(".")
        assert assumed.least <= getattr(getattr(recipe, section), name) <= assumed.most
