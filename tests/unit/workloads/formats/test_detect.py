from __future__ import annotations

from pathlib import Path

import pytest
from checkout import CASES

from railyard.errors import ConfigError
from workloads.catalog import load_workload
from workloads.formats.detect import format_of, read_workload_file
from workloads.program import Collective

MICRO = "MICRO\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\n"
HYBRID = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n1\na -1 1 ALLREDUCE 64 1 NONE 0 1 ALLREDUCE 4096 1\n"
XML = """<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1">
  <gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""


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


def test_what_is_no_format_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Chakra traces .*, MSCCL XML, layer files .*YAML"):
        format_of(written(tmp_path, "a.md", "# A letter"))
    with pytest.raises(ConfigError, match="does not exist"):
        format_of(tmp_path / "none.txt")
    with pytest.raises(ConfigError, match="starts with nothing"):
        read_workload_file(written(tmp_path, "e.txt", ""))


def test_msccl_is_a_collective_with_its_own_schedule(tmp_path: Path) -> None:
    path = written(tmp_path, "pair.xml", XML)
    reading = read_workload_file(path)
    assert "1048576 bytes" in reading.notes[0]
    op = read_workload_file(path, size=4096).program.operations[1][0]
    assert isinstance(op, Collective)
    assert (op.kind, op.bytes) == ("all_gather", 4096)
    assert set(reading.program.schedules) == {op.algorithm}
    with pytest.raises(ConfigError, match="is for 2 ranks and cannot run on 8"):
        read_workload_file(path, ranks=8)


def test_options_that_a_format_has_no_use_for(tmp_path: Path) -> None:
    layers, xml = written(tmp_path, "a.txt", MICRO), written(tmp_path, "pair.xml", XML)
    with pytest.raises(ConfigError, match="size: does not apply to a layer file"):
        read_workload_file(layers, size=4096, ranks=2)
    with pytest.raises(ConfigError, match="compute_unit: does not apply to an MSCCL algorithm"):
        read_workload_file(xml, compute_unit="ns")
    with pytest.raises(ConfigError, match="is a workload recipe"):
        read_workload_file(tmp_path / "a.yaml")


def test_files_are_workloads(tmp_path: Path) -> None:
    workload = load_workload(str(written(tmp_path, "a.txt", MICRO)), ranks=4)
    assert (workload.servers, workload.gpus_per_server, workload.ports_per_gpu) == (4, 1, 2)
    assert workload.port_gbps == 12.5
    assert workload.parallelism.ranks == 4
    assert not workload.uses_scale_up
    assert load_workload(str(written(tmp_path, "pair.xml", XML)), size=8).program.ranks == 2


def test_gpus_per_server_put_groups_on_their_network(tmp_path: Path) -> None:
    path = str(written(tmp_path, "h.txt", HYBRID))
    workload = load_workload(path, ranks=4, gpus_per_server=2)
    assert workload.servers == 2
    domains = {group.name: group.domain for group in workload.program.groups.values()}
    assert domains == {"tp.0": "scale-up", "tp.2": "scale-up", "dp.0": "scale-out", "dp.1": "scale-out"}
    with pytest.raises(ConfigError, match="3 GPUs per server do not divide"):
        load_workload(path, ranks=4, gpus_per_server=3)
    with pytest.raises(ConfigError, match="lies neither in one server of 2 GPUs nor on one rail"):
        load_workload(str(written(tmp_path, "a.txt", MICRO)), ranks=4, gpus_per_server=2)


def test_options_of_the_other_sort_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ranks: applies only to files of other tools"):
        load_workload("smoke", ranks=4)
    with pytest.raises(ConfigError, match="overlap: applies only to the catalog and YAML recipes"):
        load_workload(str(written(tmp_path, "a.txt", MICRO)), ranks=4, overlap=True)
    with pytest.raises(ConfigError, match=r"neither in the catalog \(llama3-8b-16, smoke"):
        load_workload("smok")


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("astra-sim/custom_ring_allreduce_8npus_1MB", 8),
        ("astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml", 8),
        ("astra-sim/all_reduce_4npus_1MB/all_reduce", 4),
        ("msccl-scheduler/ag-1k-512k.xml", 8),
    ],
)
def test_real_files_are_workloads(name: str, ranks: int) -> None:
    assert load_workload(str(CASES / name)).program.ranks == ranks
