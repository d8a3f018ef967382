"""Small files that describe much: refused, or read, within 2 s of processor time, before it is built."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest
import yaml

from railyard.errors import ConfigError
from railyard.size import parse_size
from workloads.catalog import job_keys, load_workload
from workloads.inspection import inspect_file

LAYER = "layer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 1\n"


def layers(header: str, count: int) -> str:
    return f"{header}\n{count}\n{LAYER * count}"


def within_limits(path: Path, text: str) -> str:
    """The sentence with which a workload file is refused, empty for one that is read, within 2 s."""
    path.write_text(text)
    began = process_time()
    try:
        load_workload(str(path), compute_unit=None if path.suffix == ".yaml" else "ns")
    except ConfigError as error:
        assert process_time() - began < 2
        return str(error)
    assert process_time() - began < 2
    return ""


ALL = " ".join(map(str, range(2000)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (layers("DATA all_gpus: 1000000", 1), "ranks: 1000000 ranks are too many for a program; at most 4096"),
        (layers("DATA all_gpus: 4000", 200), "ranks: 3996000 or more operations of 4000 ranks are too many"),
        (layers("DATA all_gpus: 99999999999", 1), "ranks: must be 1 to 1000000"),
        (
            layers(f"HYBRID_TRANSFORMER all_gpus: 8 model_parallel_NPU_group: 2 checkpoints: 1 0 "
                   f"checkpoint_initiates: 2000 {ALL}", 2000),
            "checkpoint_initiates repeats 200644 or more layers of the forward pass",
        ),
        ("DATA all_gpus: 2\n10001\n" + LAYER * 10_001, "says 10001 layers; it must be 1 to 10000"),
        ("DATA all_gpus: 2\n1\n" + LAYER * 100_000, "is larger than 4 MiB"),
    ],
)  # fmt: skip
def test_layer_files(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in within_limits(tmp_path / "layers.txt", text)


def test_a_layer_file_for_many_ranks_is_shown_by_its_factors(tmp_path: Path) -> None:
    for ranks in (1000, 20_000, 1_000_000):
        (tmp_path / "layers.txt").write_text(layers(f"DATA all_gpus: {ranks}", 1))
        began = process_time()
        contents = inspect_file(str(tmp_path / "layers.txt"))
        assert process_time() - began < 2
        assert (contents.ranks, contents.traffic) == (ranks, ())
        assert contents.bytes_sent[0] == round(2 * (ranks - 1) / ranks * 1024)
        assert "bus factor" in contents.notes[-1] or "bus factor" in contents.notes[-2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch": {"local_batch": 1_000_000, "microbatch": 1}}, "model.layers, parallelism, batch: "),
        ({"batch": {"local_batch": 10**9, "microbatch": 1}}, "batch.local_batch: must be at most 1e+06"),
        ({"parallelism": {"tp": 1, "dp": 10**9}}, "parallelism.dp: must be at most"),
        (
            {"parallelism": {"tp": 32, "dp": 4096}, "fabric": {"servers": 4096, "gpus_per_server": 32}},
            "131072 ranks are too",
        ),
        ({"model": {**job_keys("smoke")["model"], "hidden": 10**400}}, "model.hidden: must be a"),
        ({"compute": {"forward_ms": float("inf")}}, "compute.forward_ms: must be a finite number"),
        ({"training": {"scalars": True}}, "training.scalars: must not be true or false"),
        ({"name": "x" * 101}, "name: "),
    ],
)
def test_recipes(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    text = yaml.safe_dump({**job_keys("smoke"), "name": "own", **change})
    assert sentence in within_limits(tmp_path / "own.yaml", text)


@pytest.mark.parametrize("text", ["1e400", "9" * 400 + "G", "0." + "0" * 400 + "1", "9" * 5000, "1" * 15 + "G"])
def test_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="sizes: must be a size of at least 1 byte") as refused:
        parse_size(text)
    assert len(str(refused.value)) < 250
