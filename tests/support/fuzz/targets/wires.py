"""What processes of a run tell each other: messages between agents, checkpoints, edge learning, configurations."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz.mutation import mutated_tree
from fuzz.target import Target
from railyard.errors import AgentError, ConfigError, MachineError, VerifyError
from railyard.protocol import Decoder, to_json
from railyard.scale import Scale
from topos.plan import FabricPlan
from workloads.agent.checkpoint import Checkpoint, Store
from workloads.agent.config import AgentConfig, configs_from_json, configs_to_json
from workloads.agent.transport.message import HEADER_BYTES, Header
from workloads.edge import wire
from workloads.edge.data_requests import GetRequest, PushRequest, SumRequest
from workloads.edge.journal import Journal
from workloads.program import Collective, Compute, Group, Program
from workloads.rank.flows import Flow

_JOB = "job"
_MOST_PAYLOAD = 1 << 20


def _header(data: bytes, folder: Path) -> None:
    if len(data) >= HEADER_BYTES:
        header = Header.unpack(data[:HEADER_BYTES])
        if header.pack() != data[:HEADER_BYTES]:
            raise AssertionError(f"{header} is packed differently")


def _checkpoint(data: bytes, folder: Path) -> None:
    store = Store(folder, _JOB)
    store.path(3).write_bytes(data)
    store.steps()
    store.load(3)


def _frame(data: bytes, folder: Path) -> None:
    """A frame of edge learning, as an endpoint receives it."""
    head, rest = data[: wire.HEADER.size], data[wire.HEADER.size :]
    if len(head) < wire.HEADER.size:
        return
    fields, payload = wire.lengths(head, _MOST_PAYLOAD)
    frame = wire.Frame(rest[:fields], rest[fields : fields + payload])
    for kind in (GetRequest, PushRequest, SumRequest):
        try:
            wire.read(kind, frame)
        except wire.EdgeRefused:
            continue
    _ = frame.fields


def _journal(data: bytes, folder: Path) -> None:
    (folder / "records.log").write_bytes(data)
    (folder / "0.update").write_bytes(b"1234")
    journal = Journal(folder)
    try:
        journal.read()
    finally:
        journal.close()


def _configs(data: bytes, folder: Path) -> None:
    configs_from_json(data)


def _lines(data: bytes, folder: Path) -> None:
    """Answers of the controller as an agent receives them, in two pieces."""
    decoder = Decoder()
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        for _ in decoder.feed(piece):
            pass


# ---- inputs by the grammars ----------------------------------------------------------------------------------------


def with_head(head: Any, words: bytes) -> bytes:
    """A checkpoint whose checksums are right."""
    line = json.dumps(head).encode() + b"\n"
    return struct.pack("!8sII", b"RYCKPT1\n", len(line), zlib.crc32(line)) + line + words


def _checkpoint_text(chance: Random) -> bytes:
    words = chance.randbytes(chance.choice((0, 4, 7, 400)))
    head = {"job": _JOB, "step": 3, "checksum": 5, "bytes": len(words), "crc": zlib.crc32(words)}
    return with_head(mutated_tree(chance, head), words)


def _frame_of(fields: Any, payload: bytes = b"") -> bytes:
    return wire.header(to_json(fields)[: wire.MOST_FIELDS_BYTES], payload) + payload


def _frame_text(chance: Random) -> bytes:
    fields: Any = {"op": chance.choice(("get", "push", "push_sum")), "job": 0, "round": 1, "client": 5, "attempt": 0}
    return _frame_of(json.loads(json.dumps(mutated_tree(chance, fields))), chance.randbytes(chance.randrange(9)))


_RECORDS: list[Any] = [{"started": 1}, {"added": [0, 1, 0, 5]}, {"sealed": [0, 1, 0], "job": 0}, {"closed": [0, 1, 0]}]


def _journal_text(chance: Random) -> bytes:
    records = mutated_tree(chance, _RECORDS)
    return b"".join(json.dumps(each).encode() + b"\n" for each in (records if isinstance(records, list) else [records]))


def _configs_tree() -> Any:
    step = (Compute(0, "c", 0.1), Collective(1, "a", "all_reduce", "world", 1024, (0,)))
    program = Program("own", (step, step), {"world": Group("world", "dp", (0, 1))})
    plan = FabricPlan("rails", 2, 1, 2, 9000, ())
    configs = [AgentConfig(rank, _JOB, "native", program, Scale(0.01), plan, "/tmp/events") for rank in range(2)]
    return json.loads(configs_to_json(configs))


def targets() -> list[Target]:
    """The targets of this module."""
    header = Header("data", Flow(1, 2, 3, False), 4, 100).pack()
    ready = Header("ready", Flow(1, 2, 3, True), 4, 100).pack()
    frames = [_frame_of({"op": "get", "job": 0, "round": 1}), _frame_of({"op": "push", "job": 0, "round": 1}, b"12")]
    records = b"".join(json.dumps(each).encode() + b"\n" for each in _RECORDS)
    configs = _configs_tree()

    def configs_text(chance: Random) -> bytes:
        return json.dumps(mutated_tree(chance, configs)).encode()

    return [
        Target("agent-header", _header, [header, ready], (VerifyError,), weight=0.5),
        Target("checkpoint", _checkpoint, [_saved()], (AgentError,), make=_checkpoint_text),
        Target("edge-frame", _frame, frames, (wire.EdgeError,), make=_frame_text),
        Target("edge-journal", _journal, [records], (MachineError,), make=_journal_text),
        Target("agent-configs", _configs, [json.dumps(configs).encode()], (ConfigError,), make=configs_text),
        Target(
            "answers", _lines, [b'{"id":1,"ok":true}\n{"id":2,"ok":false,"error":"x"}\n'], (ValueError,), weight=0.5
        ),
    ]


def _saved() -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        store = Store(folder, _JOB)
        store.write(Checkpoint(_JOB, 3, 5, np.arange(4, dtype=np.uint32)))
        return store.path(3).read_bytes()
