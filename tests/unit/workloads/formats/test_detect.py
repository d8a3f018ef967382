from __future__ import annotations

from pathlib import Path

from checkout import CASES
from msccl_texts import SWAP

from workloads.catalog import load_workload
from workloads.formats.detect import format_of, read_workload_file
from workloads.program import Collective

MICRO = "MICRO\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\n"
HYBRID = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n1\na -1 1 ALLREDUCE 64 1 NONE 0 1 ALLREDUCE 4096 1\n"


def written(folder: Path, name: str, content: str) -> Path:
    (folder / name).write_text(content)
    return folder / name


def test_formats_by_name_and_content(tmp_path: Path) -> None:
    assert format_of(tmp_path) == "chakra"
    assert format_of(written(tmp_path, "a.txt", MICRO)) == "layers"
    assert format_of(written(tmp_path, "a.workload", MICRO)) == "layers"
    assert format_of(written(tmp_path, "a.algo", "\n <algo>")) == "msccl"
    assert format_of(tmp_path / "any.yml") == "yaml"
    (tmp_path / "t.0.et").write_bytes(b"")
    assert format_of(tmp_path / "t") == "chakra"


def test_msccl_is_a_collective_with_its_own_schedule(tmp_path: Path) -> None:
    path = written(tmp_path, "pair.xml", SWAP)
    reading = read_workload_file(path)
    assert "1048576 bytes" in reading.notes[0]
    op = read_workload_file(path, size=4096).program.operations[1][0]
    assert isinstance(op, Collective)
    assert (op.kind, op.bytes) == ("all_reduce", 4096)
    assert set(reading.program.schedules) == {op.algorithm}


def test_files_are_workloads(tmp_path: Path) -> None:
    workload = load_workload(str(written(tmp_path, "a.txt", MICRO)), ranks=4)
    assert (workload.servers, workload.gpus_per_server, workload.ports_per_gpu) == (4, 1, 2)
    assert workload.port_gbps == 12.5
    assert workload.parallelism.ranks == 4
    assert not workload.uses_scale_up
    assert load_workload(str(written(tmp_path, "pair.xml", SWAP)), size=8).program.ranks == 2
    assert load_workload(str(CASES / "astra-sim/all_reduce_4npus_1MB/all_reduce")).program.ranks == 4


def test_gpus_per_server_put_groups_on_their_network(tmp_path: Path) -> None:
    path = str(written(tmp_path, "h.txt", HYBRID))
    workload = load_workload(path, ranks=4, gpus_per_server=2)
    assert workload.servers == 2
    domains = {group.name: group.domain for group in workload.program.groups.values()}
    assert domains == {"tp.0": "scale-up", "tp.2": "scale-up", "dp.0": "scale-out", "dp.1": "scale-out"}
