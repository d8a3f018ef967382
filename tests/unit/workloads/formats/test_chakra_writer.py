"""Chakra traces that are written are read as the same program, here and by the reader that Chakra publishes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pytorch_traces import LARGE, Script, mesh_traces, record

from workloads.catalog import load_workload
from workloads.check import check
from workloads.collectives.catalog import schedule_of
from workloads.formats.chakra import read_traces
from workloads.formats.chakra_writer import write_traces
from workloads.program import Collective, Compute, Program

Told = dict[str, tuple[object, ...]]


def step_of(program: Program, rank: int) -> tuple[Told, dict[str, float]]:
    """The operations of a rank by name, each compute after the one before it, and the seconds of each compute."""
    operations, told, seconds = program.operations[rank], Told(), dict[str, float]()
    for op in operations:
        deps = {operations[dep].name for dep in op.deps}
        if isinstance(op, Compute):
            told[op.name] = (deps | set([*seconds][-1:]),)
            seconds[op.name] = op.seconds
        else:
            members, other = program.groups[op.group].members, getattr(op, "peer", -1)
            if isinstance(op, Collective) and op.kind == "broadcast":
                other = members[schedule_of(program, op).root]
            told[op.name] = (type(op), getattr(op, "kind", ""), other, set(members), op.bytes, deps)
    return told, seconds


def unique(program: Program) -> Program:
    """The program with a name for every operation."""
    return replace(
        program,
        operations=tuple(tuple(replace(op, name=f"{op.name}.{op.id}") for op in ops) for ops in program.operations),
    )


def rooted() -> Program:
    traces = {}
    for rank in range(3):
        script = Script(rank, 3)
        for _ in range(3):
            script.call("broadcast", range(3), LARGE, root=1)
            script.call("reduce", range(3), LARGE, root=0)
            script.end()
        traces[rank] = script.trace
    return record(traces).program()


@pytest.mark.parametrize(
    "program",
    [record(mesh_traces(2, 2, 2)).program(), load_workload("smoke").program, rooted()],
    ids=["record", "smoke", "rooted"],
)
def test_what_is_written_is_read(program: Program, tmp_path: Path) -> None:
    program = unique(program)
    assert len(write_traces(program, tmp_path)) == program.ranks
    found = read_traces(tmp_path).program
    check(found)
    assert found.ranks == program.ranks
    for rank in range(program.ranks):
        (ours, seconds), (theirs, micros) = step_of(program, rank), step_of(found, rank)
        assert theirs == ours
        assert [*micros] == [*seconds] and micros == pytest.approx(seconds, abs=1.01e-6)


def test_the_published_reader_takes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonizer = pytest.importorskip("chakra.src.jsonizer.jsonizer", reason="needs the package mlc-chakra")
    made = record(mesh_traces(2, 2, 2))
    program = made.program()
    files = write_traces(program, tmp_path, (0, 4))
    assert [file.name for file in files] == ["job.0.et", "job.4.et"]
    for file, rank in zip(files, (0, 4), strict=True):
        out = tmp_path / "out.json"
        monkeypatch.setattr("sys.argv", ["jsonizer", "--input_filename", str(file), "--output_filename", str(out)])
        jsonizer.main()
        head, *nodes = [json.loads(text) for text in re.split(r"(?<=\})(?=\{)", out.read_text())]
        assert head == {"version": "0.0.4"}
        operations = program.operations[rank]
        assert [node["name"] for node in nodes] == [op.name for op in operations]
        kinds = [node["type"] for node in nodes if node["type"] != "COMP_NODE"]
        expected = {"Collective": "COMM_COLL_NODE", "Send": "COMM_SEND_NODE", "Recv": "COMM_RECV_NODE"}
        assert kinds == [expected[type(op).__name__] for op in program.communications(rank)]
        micros = sum(int(node.get("durationMicros", 0)) for node in nodes)
        assert micros == round(1e6 * sum(op.seconds for op in operations if isinstance(op, Compute)))
