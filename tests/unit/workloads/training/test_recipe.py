from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

import workloads.training.recipe
from railyard.errors import ConfigError
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


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(SMALL)
    at = data
    *way, last = path.split(".")
    for key in way:
        at = at.setdefault(key, {})
    at[last] = value
    return data


def test_a_file_is_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    workload = load_workload(str(file))
    assert (workload.name, workload.servers, workload.gpus_per_server) == ("small", 4, 1)
    assert workload.program.ranks == 4
    linear = [op.deps for op in workload.program.operations[0]]
    assert [op.deps for op in load_workload(str(file), overlap=True).program.operations[0]] != linear


def test_the_example_in_the_docstring_is_one() -> None:
    text = workloads.training.recipe.__doc__
    assert text is not None
    recipe = make_recipe(yaml.safe_load(text.split("::\n", 1)[1]))
    assert recipe.model.kv_heads == 8
    assert recipe.parallelism.ranks == 16


@pytest.mark.parametrize("name", CATALOG)
def test_the_catalog_fits_its_fabric(name: str) -> None:
    workload = load_workload(name)
    assert workload.program.ranks == workload.servers * workload.gpus_per_server
    assert (workload.port_gbps, workload.ports_per_gpu) == (12.5, 2)
    assert workload.uses_front_end == (name == "llama3-8b-16")


@pytest.mark.parametrize(
    ("data", "key", "sentence"),
    [
        (changed("modle", {}), "modle", 'there is no such key; did you mean "model"'),
        (
            changed("model.layer", 3),
            "model.layer",
            r"there is no such key; did you mean \"layers\"\?",
        ),
        (changed("model", "large"), "model", "must be a mapping of keys, not 'large'"),
        (changed("model.layers", 0), "model.layers", "at least 1, not 0"),
        (changed("parallelism.tp", "two"), "parallelism.tp", "whole number, not 'two'"),
        (changed("training.sharding", "zero"), "training.sharding", "one of fsdp, ddp, not 'zero'"),
        ({k: v for k, v in SMALL.items() if k != "fabric"}, "fabric", "is missing"),
    ],
)
def test_a_wrong_key_is_named(data: dict[str, Any], key: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        make_recipe(data, "my.yaml")
    assert error.value.key == key
    assert str(error.value).startswith("my.yaml: ")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither in the catalog"):
        load_workload("llama4")
    with pytest.raises(ConfigError, match='did you mean "llama3-8b-16"'):
        load_workload("llama3-8b")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_workload(str(tmp_path / "absent.yaml"))
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    with pytest.raises(ConfigError, match=r"broken\.yaml:\d+: is not YAML"):
        load_workload(str(broken))
    broken.write_text("- a list")
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_workload(str(broken))
    with pytest.raises(ConfigError, match=r"training\.tp_in_space"):
        load_workload("smoke", tp_in_space=True)


def test_sizes_that_do_not_fill_the_fabric() -> None:
    with pytest.raises(ConfigError, match=r"PP 2 x DP 2 = 4 GPUs.*= 8"):
        data = changed("fabric.gpus_per_server", 2)
        from workloads.catalog import make_workload

        make_workload(make_recipe(data))
