"""The YAML of a record: what is written is read, and is short for thousands of ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pytorch_traces import mesh_traces, record

import workloads.inspection
import workloads.pytorch.record_file
from railyard.errors import ConfigError
from workloads.catalog import load_workload
from workloads.inspection import inspect_file
from workloads.pytorch.record_file import is_record, read_record, write_record


@pytest.mark.parametrize("shape", [(2, 2, 2), (1, 4, 1), (3, 1, 2)])
def test_what_is_written_is_read(shape: tuple[int, int, int], tmp_path: Path) -> None:
    path = tmp_path / "record.yaml"
    made = record(mesh_traces(*shape), shape[2])
    write_record(made, path)
    assert is_record(path) and read_record(path) == made
    workload = load_workload(str(path))
    assert workload.program == made.program()
    assert (workload.servers, workload.gpus_per_server) == (made.ranks // shape[2], shape[2])
    assert not workload.traced
    with pytest.raises(ConfigError, match=r"overlap: .* record"):
        load_workload(str(path), overlap=False)


def test_groups_in_any_order_and_uneven_bytes_are_kept(tmp_path: Path) -> None:
    made = record(mesh_traces(1, 4, 2))
    roles = {**made.roles, "dp": replace(made.roles["dp"], groups=((6, 0, 2, 4), (1, 5, 3, 7)))}
    made = replace(made, roles=roles, uneven={"uneven0": ((1, 0), (2, 3))})
    write_record(made, tmp_path / "record.yaml")
    assert read_record(tmp_path / "record.yaml") == made


def test_thousands_of_ranks_are_a_short_file(tmp_path: Path) -> None:
    path = tmp_path / "record.yaml"
    write_record(record(mesh_traces(8, 128, 8, micro=4, representatives=True), 8), path)
    assert path.stat().st_size < 30_000
    assert read_record(path).ranks == 8192


def test_the_example_in_the_docstring_is_one(tmp_path: Path) -> None:
    text = workloads.pytorch.record_file.__doc__
    assert text is not None
    example = text.split("::\n", 1)[1].split("\nThe second")[0]
    (tmp_path / "record.yaml").write_text("\n".join(line[4:] for line in example.splitlines()))
    made = read_record(tmp_path / "record.yaml")
    assert made.program().ranks == 8 and made.classes[0].calls[1].waits == (0,)


def test_many_ranks_are_counted_by_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.yaml"
    write_record(record(mesh_traces(2, 4, 2), 2), path)
    whole = inspect_file(str(path))
    monkeypatch.setattr(workloads.inspection, "MOST_OPERATIONS", 10)
    counted = inspect_file(str(path))
    assert (counted.operations, counted.collectives) == (whole.operations, whole.collectives)
    assert counted.compute_s == pytest.approx(whole.compute_s)
    assert counted.bytes_sent == pytest.approx(whole.bytes_sent, rel=1e-5)
    assert counted.workload is not None and counted.workload.program.ranks == 8
