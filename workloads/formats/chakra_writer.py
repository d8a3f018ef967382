"""Writes a Program as Chakra execution traces, one file per rank, as ``workloads.formats.chakra`` reads them.

A compute is a COMP node of whole microseconds (rounded so that their sum is that of the rank) and follows the one
before it. The size of an all-gather is the contribution of one rank, as in the traces of PyTorch and ASTRA-sim;
``comm_group`` lists the ranks of the group, and ``pg_name`` is its name. Such a file knows no networks, and no sizes
by pair: an all-to-all is even.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.proto import serialize_length_prefixed

from railyard.ownership import open_binary
from workloads.collectives.catalog import schedule_of
from workloads.formats.chakra import KINDS, METADATA_CLASS, NODE_CLASS, NodeType
from workloads.program import Collective, Compute, Operation, Program, Send

SCHEMA = b"0.0.4"
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def write_traces(program: Program, folder: Path, ranks: Iterable[int] | None = None) -> list[Path]:
    """Write ``NAME.RANK.et`` in ``folder`` for ``ranks`` (all of the program if None); returns the files."""
    files = []
    for rank in range(program.ranks) if ranks is None else ranks:
        files.append(folder / f"{program.name}.{rank}.et")
        with open_binary(files[-1], "wb", links=True) as file:
            serialize_length_prefixed(METADATA_CLASS(version=SCHEMA), file)
            for node in _nodes(program, rank):
                serialize_length_prefixed(node, file)
    return files


def _nodes(program: Program, rank: int) -> Iterator[Any]:
    before: tuple[int, ...] = ()
    seconds = 0.0
    for op in program.operations[rank]:
        node = NODE_CLASS(id=op.id, name=op.name.encode(), data_deps=op.deps)
        node.attr.add(name=b"is_cpu_op", bool_val=0)
        if isinstance(op, Compute):
            node.type, node.ctrl_deps[:] = NodeType.COMP, before
            node.duration_micros = round((seconds + op.seconds) * 1e6) - round(seconds * 1e6)
            before, seconds = (op.id,), seconds + op.seconds
        else:
            node.type = NodeType.COLLECTIVE if isinstance(op, Collective) else NodeType[type(op).__name__.upper()]
            _describe(node, program, op)
        yield node


def _describe(node: Any, program: Program, op: Operation) -> None:
    """Add the attributes of a communication to its node."""
    assert not isinstance(op, Compute)
    group, size = program.groups[op.group], op.bytes
    numbers = {}
    if isinstance(op, Collective):
        numbers["comm_type"] = KINDS.index(op.kind)
        size = -(-size // len(group.members)) if op.kind in ("all_gather", "gather") else size
        if op.kind in _ROOTED:
            numbers["root_rank"] = group.members[schedule_of(program, op).root]
        node.attr.add(name=b"comm_group").int64_list.values.extend(group.members)
    else:
        numbers["comm_dst" if isinstance(op, Send) else "comm_src"] = op.peer
        numbers["comm_tag"] = 0
    for name, number in {**numbers, "comm_size": size}.items():
        node.attr.add(name=name.encode(), int64_val=number)
    node.attr.add(name=b"pg_name", string_val=group.name.encode())
