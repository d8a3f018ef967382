"""Valid inputs of readers, and strategies that make inputs by the grammars of their formats."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from inspect import getmembers, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st

from controllers.northbound import bodies
from experiments.experiment import Experiment
from experiments.propius.control.servers import ControlServer, ManagerServer
from experiments.propius.control.trunk_server import TrunkActor
from experiments.propius.data import messages
from experiments.propius.data.server_process import LeafActor, RootActor
from experiments.settings import validated
from measure.live import packets
from measure.live.calibration import default_calibration
from measure.results.row import Row
from railyard.checkout import ROOT
from railyard.protocol import to_json
from railyard.scale import Scale
from railyard.timeline import Event
from tests.fuzz.strategies import changed_tree, changed_trees, json_bytes, json_lines, numbers, texts
from topos.kernel.fastpath import openflow
from topos.plan import FabricPlan
from workloads.agent.checkpoint import Checkpoint, Store
from workloads.agent.config import AgentConfig, configs_to_json
from workloads.catalog import CATALOG, job_keys
from workloads.collectives.catalog import schedule
from workloads.formats.layer_text import KINDS, PARALLELISMS
from workloads.formats.msccl_writer import write_msccl
from workloads.program import Collective, Compute, Group, Program

Bytes = st.SearchStrategy[bytes]
JOB = "job"
_DATA = ROOT / "tests" / "data"


def _contents(folder: Path, pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(pattern))]


# ---- workloads of other tools --------------------------------------------------------------------------------------

NEXT_RANK = b"--next rank--"
"""Between the trace files of two ranks in one input."""
LAYERS = [*_contents(_DATA / "astra-sim" / "text", "*.txt"), *_contents(_DATA / "aicb", "*.txt")]
MSCCL = [
    *(write_msccl(schedule(*made)).encode() for made in (("all_reduce", 2), ("all_gather", 4))),
    write_msccl(schedule("all_to_all", 3, "direct")).encode(),
    (_DATA / "msccl-scheduler" / "ag-1k-512k.xml").read_bytes(),
]
RECIPES = [keys for keys in map(job_keys, CATALOG) if "assumptions" not in keys]  # others are for the folding model


@st.composite
def layer_text(draw: st.DrawFn) -> bytes:
    """A layer file of a few layers whose header is not trusted to fit them."""
    parallelism, count = draw(st.sampled_from(PARALLELISMS)), draw(st.sampled_from((1, 2, 3, 5, 40, 400)))
    keys = ("all_gpus", "model_parallel_NPU_group", "pp", "ep", "vpp", "DLRM_LAST_BOTTOM_LAYER")
    header = [parallelism, *(f"{key}: {draw(numbers)}" for key in sorted(draw(st.sets(st.sampled_from(keys)))))]
    for key in sorted(draw(st.sets(st.sampled_from(("checkpoints", "checkpoint_initiates"))))):
        layers = draw(st.just(range(count)) | st.lists(st.integers(0, count - 1), max_size=3))
        header.append(f"{key}: {len(layers)} {' '.join(map(str, layers))}")
    kinds = st.sampled_from(["NONE", *KINDS, "ALLTOALL_EP", "ALLGATHER_DP_EP"])
    part = [f"{draw(st.integers(0, 99))} {draw(kinds)} {draw(numbers)}" for _ in range(3)]
    line = f"layer -1 {' '.join(part)} {draw(st.integers(0, 8))}"
    line += f" {draw(st.sampled_from(PARALLELISMS))}" if parallelism == "HYBRID_CUSTOMIZED" else ""
    return "\n".join([" ".join(header), str(count), *[line] * count]).encode()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(place: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(place << 3) + _varint(value % (1 << 64))
    return _varint(place << 3 | 2) + _varint(len(value)) + value


def _attribute(name: str, value: int, kind: int = 13) -> bytes:
    return _field(10, _field(1, name.encode()) + _field(kind, value))


def _trace(nodes: Sequence[bytes]) -> bytes:
    return b"".join(_varint(len(message)) + message for message in (_field(1, b"0.0.4"), *nodes))


@st.composite
def _node(draw: st.DrawFn, id_: int, ranks: int) -> bytes:
    kind = draw(st.sampled_from((1, 4, 4, 5, 6, 7, 7)))
    fields = _field(1, id_) + _field(2, b"n") + _field(3, kind)
    for _ in range(draw(st.integers(0, 2)) if id_ else 0):
        fields += _field(draw(st.sampled_from((4, 5))), draw(st.integers(0, id_ - 1)))
    fields += _field(7, draw(st.sampled_from((0, 5, 100))))
    attributes = {5: ("comm_dst", "comm_size", "comm_tag"), 6: ("comm_src", "comm_size", "comm_tag")}
    for name in attributes.get(kind, ("comm_size", "comm_type", "num_ops", "runtime", "root_rank")):
        if draw(st.integers(0, 6)):
            sizes = st.sampled_from((4, 1024, 1 << 20))
            value = draw(sizes if name == "comm_size" else st.integers(0, ranks - 1))
            fields += _attribute(name, value, draw(st.sampled_from((9, 13))))
    if kind == 7 and draw(st.integers(0, 2)) == 0:
        group = _field(1, draw(st.integers(0, ranks - 1))) * 2
        fields += _field(10, _field(1, b"comm_group") + _field(12, group))
    return fields


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """Chakra traces of two ranks, the second often like the first, so that collectives agree."""
    count = draw(st.sampled_from((1, 3, 10, 30)))
    first = [draw(_node(id_, 2)) for id_ in range(count)]
    second = first if draw(st.integers(0, 2)) else [draw(_node(id_, 2)) for id_ in range(count)]
    return NEXT_RANK.join((_trace(first), _trace(second)))


def _messages(peer: int) -> bytes:
    """The trace of a rank that sends a message to another and takes one from it."""
    send = _field(1, 1) + _field(3, 5) + _attribute("comm_dst", peer) + _attribute("comm_size", 1024)
    take = _field(1, 2) + _field(3, 6) + _attribute("comm_src", peer) + _attribute("comm_size", 1024) + _field(5, 1)
    return _trace([send, take])


TRACES = [
    NEXT_RANK.join(_contents(_DATA / "astra-sim" / "all_reduce_4npus_1MB", "*.et")),
    NEXT_RANK.join((_messages(1), _messages(0))),
]

# ---- what people type ----------------------------------------------------------------------------------------------

RAILS = (
    *("servers=4", "gpus=2", "ports=2", "rate_mbps=100", "fabric=ocs", "fabric=electrical", "fabric=one-shot"),
    *("scale_up=true", "front_end=1", "scale_up_mbps=50", "mtu=9000", "lane_rates=25/25", "slow=3:0.5/7:0.25"),
    *("mesh=7x3", "mesh=7x3@0/5/11/16/17/18/19/20", "mesh=3x3@choose", "gate_latency_us=3", "delay_ms=1", "loss=0.1"),
)
RACKS = (
    *("torus=4x4", "torus=4x4x4", "server=2x2", "fabric=photonic", "fabric=electrical-torus", "fabric=migrate"),
    *("spare_servers=2", "reserve=1x1@2,3/1x1@3,3", "tenants=2x2@0,0/1x1@2,0+1x1@3,0", "port_mbps=5", "jitter_ms=1"),
)
PREDICTED = {
    "collective": "ranks: 4\nsizes: [64K]\niterations: 1\n",
    "straggler": "ranks: [4]\nsizes: [64K]\niterations: 1\nalgorithms: [ring, stragglar]\ndelays_ms: [0, 3]\n",
    "all-to-all": "ranks: [4]\niterations: 1\nstudies: [grid]\n",
    "rails": "workload: smoke\nsteps: 1\nmodes: [electrical, on-demand]\ndelays_ms: [1]\n",
    "server-fabric": "studies: [epoch]\nshapes: [2x1x1]\n",
}
"""Experiment files of few points, which are predicted."""


@st.composite
def topology_options(draw: st.DrawFn, known: Sequence[str]) -> bytes:
    """Options of a topology, a line each, half of them with another value."""
    lines = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
    odd = numbers | texts
    return "\n".join(
        line if draw(st.booleans()) else f"{line.partition('=')[0]}={draw(odd)}" for line in lines
    ).encode("utf-8", "replace")  # fmt: skip


@st.composite
def prediction(draw: st.DrawFn) -> bytes:
    """A file of ``PREDICTED`` with a key changed, and a scale."""
    name = draw(st.sampled_from(sorted(PREDICTED)))
    tree = yaml.safe_load(PREDICTED[name])
    if draw(st.booleans()):
        tree[draw(st.sampled_from(sorted(tree)))] = draw(numbers)
    tree |= {"scale": {"time": draw(numbers)}} if draw(st.integers(0, 2)) == 0 else {}
    return yaml.safe_dump({"experiment": name, **tree}).encode()


def default_tree(kind: type[Experiment[Any]]) -> dict[str, Any]:
    """The default values of an experiment, as its file would have them."""
    tree: dict[str, Any] = json.loads(kind.Settings(**dict(kind.quick)).model_dump_json(exclude_none=True))
    return tree


@st.composite
def experiment_tree(draw: st.DrawFn, tree: dict[str, Any]) -> Any:
    """Some keys of an experiment, one to three of them with another value."""
    keys = st.sampled_from(sorted(tree))
    kept = {key: tree[key] for key in sorted(draw(st.sets(keys)))}
    return kept | {key: draw(changed_tree(tree[key])) for key in draw(st.lists(keys, min_size=1, max_size=3))}


@st.composite
def command_line(draw: st.DrawFn, options: dict[str, list[str]], words: Sequence[str]) -> bytes:
    """A name, if it is not empty, and up to four of its options with values, a line each."""
    name = draw(st.sampled_from(sorted(options)))
    line = [name] if name else []
    for option in draw(st.lists(st.sampled_from(options[name]), max_size=4)):
        values = draw(st.lists(numbers.map(str) | st.sampled_from(words), max_size=3))
        line += [option, ",".join(values)] if values else [option]
    return "\n".join(line).encode("utf-8", "surrogatepass")


CALIBRATION = asdict(default_calibration(("bpf", "ovs")))

# ---- what a run has left -------------------------------------------------------------------------------------------

NEXT_FILE = b"--next file--"
"""Between the manifest, the rows and the events of a folder in one input."""
MANIFEST: dict[str, Any] = {
    "railyard_results": 2,
    "written": "2026-01-31T12:00:00+0100",
    "experiment": {"experiment": "collective"},
    "seed": 1,
    "scale": {"rate": 1.0, "time": 1.0},
    "versions": {},
    "plans": {},
    "groups": [],
}
ROWS: list[Row] = [{"experiment": "collective", "algorithm": "ring", "n": 8, "size_bytes": 1024, "faithful": True}]
EVENTS = [
    json.loads(event.to_line())
    for event in (
        Event(1.0, "run", "point", 2.0, {"point": 0, "mode": "native"}),
        Event(1.5, "agent", "step", 1.9, {"rank": 0, "step": 1}),
    )
]


def folder_parts(kind: type[Experiment[Any]]) -> list[Any]:
    """Manifest, rows and events of a small experiment; the rows are predicted ones."""
    rows = [row.to_json() for row in kind(validated(kind.Settings, {"ranks": 4, "sizes": [1024]})).predict()]
    return [MANIFEST, rows, EVENTS]


def folder_bytes(parts: Sequence[Any]) -> bytes:
    """Manifest, rows and events as one input."""
    return NEXT_FILE.join((json_bytes(parts[0]), json_bytes(parts[1]), json_lines(parts[2])))


@st.composite
def changed_folder(draw: st.DrawFn, parts: Sequence[Any]) -> bytes:
    """A folder with one of its files changed."""
    place = draw(st.integers(0, 2))
    return folder_bytes([*parts[:place], draw(changed_tree(parts[place])), *parts[place + 1 :]])


# ---- what the controller takes -------------------------------------------------------------------------------------

_OWN_JOB = {"name": "j", "groups": [{"name": "dp", "dimension": "dp", "members": [0, 1]}], "mode": "x"}
REQUESTS: list[dict[str, Any]] = [
    {"id": 1, "op": "register", "job": _OWN_JOB, "policy": "opus"},
    {"id": 1, "op": "resume", "job": "j", "rank": 1, "acknowledged": {"dp": 3}, "held": [["dp", 3]]},
    {"id": 2, "op": "checkin", "job": "j", "rank": 1, "group": "dp"},
    {"id": 3, "op": "request", "job": "j", "rank": 1, "group": "dp", "index": 0},
    {"op": "moved", "job": "j", "rank": 1, "group": "dp", "index": 0, "slot": 4, "idle": True},
    {"op": "alive", "job": "j", "rank": 0},
    {"id": 4, "op": "watch", "job": "j", "seen": 0, "rank": 1},
    {"id": 5, "op": "rewire", "switch": "rail0", "circuits": [[1, 2], [3, 4]], "delay_s": 0.1},
    {"id": 6, "op": "gates", "switch": "rail0", "gates": ["bar", "cross"], "blocked": [3]},
    {"id": 7, "op": "fault", "switch": "rail0", "port": 3, "state": "failed"},
    {"id": 8, "op": "failed", "rank": 3, "job": "", "cause": "hot"},
    {"id": 9, "op": "circuits"},
]
BODIES: list[dict[str, Any]] = [
    {"circuits": [[1, 4]], "update": "update"},
    {"gates": ["bar", "cross"], "blocked": []},
    {"pair": [{"ingress": 1, "egress": 4}]},
    {bodies.CROSS_CONNECTS: {"pair": [{"ingress": 1, "egress": 4}]}},
    {"switch": "rail0", "port": 3, "state": "failed"},
    {"rank": 5, "cause": "overheated"},
]
_PORT = {
    "number": 1,
    "host": "g0",
    "rank": 0,
    "lane": 0,
    "interface": "g0-eth0",
    "mac": "02:00:00:00:00:01",
    "ip": "10.0.0.1/24",
    "rate_mbps": 100.0,
}
PLAN = {
    "fabric": "rails",
    "servers": 2,
    "gpus_per_server": 1,
    "ports_per_gpu": 2,
    "mtu": 9000,
    "switches": [
        {"name": f"rail{number}", "dpid": number, "kind": "ocs", "network": "rail", "ports": [_PORT]}
        for number in range(2)
    ],
}
EDGE_REQUESTS = [
    {"op": name} | {field: 1 for field in signature(method).parameters if field not in ("self", "payload")}
    for server in (ControlServer, ManagerServer, TrunkActor, RootActor, LeafActor)
    for name, method in getmembers(server, lambda member: hasattr(member, "is_operation"))
]
TOKEN = "s3cret"
HEADERS = (
    *("Host: localhost", f"Authorization: Bearer {TOKEN}", "Content-Type: application/json", "Connection: close"),
    *("Content-Length: 5", "Transfer-Encoding: chunked", "Expect: 100-continue", "Host: elsewhere", "Accept: */*"),
)
PATHS = (
    *("/jobs", "/switches", "/circuits", "/circuits/rail0", "/ocs/rail0/gates", "/faults", "/circuits/rail9", "/"),
    *(f"/ocs/rail0/api/data/{bodies.CROSS_CONNECTS}", f"/ocs/rail0/api/data/{bodies.CROSS_CONNECTS}/pair=1"),
)
VERBS = ("GET", "PUT", "PATCH", "POST", "DELETE", "HEAD", "OPTIONS", "TRACE")


def _call(verb: str, path: str, body: bytes = b"", headers: Sequence[str] = HEADERS[:3]) -> bytes:
    sized = (*headers, f"Content-Length: {len(body)}") if body else headers
    return "\r\n".join([f"{verb} {path} HTTP/1.1", *sized, "", ""]).encode() + body


CALLS = [
    *(_call("GET", path) for path in PATHS[:5]),
    *(
        _call(verb, path, json_bytes(body))
        for body in BODIES
        for verb, path in (("PUT", "/circuits/rail0"), ("POST", "/faults"), ("PUT", PATHS[4]), ("PATCH", PATHS[8]))
    ),
]


@st.composite
def rest_call(draw: st.DrawFn) -> bytes:
    """A call with mostly the headers that it needs, of a path that mostly exists."""
    body = json_bytes(draw(changed_trees(BODIES, 1))) if draw(st.booleans()) else b""
    path = draw(st.sampled_from(PATHS))
    if draw(st.integers(0, 4)) == 0:
        path = f"{path}/{draw(numbers | texts)}"
    needed = [header for header in HEADERS[:3] if draw(st.integers(0, 19))]
    more = draw(st.lists(st.sampled_from(HEADERS), max_size=2)) if draw(st.booleans()) else []
    return _call(draw(st.sampled_from(VERBS)), path.replace("\n", " ").replace("\0", ""), body, [*needed, *more])


_REQUEST = st.sampled_from(REQUESTS)
session = st.lists(_REQUEST | _REQUEST | _REQUEST.flatmap(changed_tree), min_size=1, max_size=8).map(json_lines)
"""Lines of one connection of the job channel, a third of them changed."""

# ---- what processes of a run tell each other -----------------------------------------------------------------------


def with_head(head: Any, words: bytes) -> bytes:
    """A checkpoint whose checksums are right."""
    line = json_bytes(head) + b"\n"
    return struct.pack("!8sII", b"RYCKPT1\n", len(line), zlib.crc32(line)) + line + words


@st.composite
def checkpoint(draw: st.DrawFn) -> bytes:
    """A checkpoint with a changed head, and words of their checksum."""
    words = bytes(draw(st.sampled_from((0, 4, 7, 400))))
    head = {"job": JOB, "step": 3, "checksum": 5, "bytes": len(words), "crc": zlib.crc32(words)}
    return with_head(draw(changed_tree(head)), words)


def saved_checkpoint() -> bytes:
    """A checkpoint as the project writes it."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder), JOB)
        store.write(Checkpoint(JOB, 3, 5, np.arange(4, dtype=np.uint32)))
        return store.path(3).read_bytes()


def edge_frame(fields: Any, payload: bytes = b"") -> bytes:
    """A frame of edge learning."""
    return messages.header(to_json(fields)[: messages.MOST_FIELDS_BYTES], payload) + payload


PUSH = {"op": "push", "job": 0, "round": 1, "client": 5, "attempt": 0}
frames = st.builds(
    lambda fields, payload: edge_frame(json.loads(json_bytes(fields)), payload),
    changed_trees([{**PUSH, "op": op} for op in ("get", "push", "push_sum")], 1),
    st.binary(max_size=8),
)
RECORDS: list[Any] = [{"started": 1}, {"added": [0, 1, 0, 5]}, {"sealed": [0, 1, 0], "job": 0}, {"closed": [0, 1, 0]}]


def agent_configs() -> Any:
    """The configurations of two agents, as the launcher gets them."""
    step = (Compute(0, "c", 0.1), Collective(1, "a", "all_reduce", "world", 1024, (0,)))
    program = Program("own", (step, step), {"world": Group("world", "dp", (0, 1))})
    plan = FabricPlan("rails", 2, 1, 2, 9000, ())
    configs = [AgentConfig(rank, JOB, "native", program, Scale(0.01), plan, "/tmp/events") for rank in range(2)]
    return json.loads(configs_to_json(configs))


# ---- messages of switches and of the kernel ------------------------------------------------------------------------

LINK, STATISTICS = 16, 92
_ANY = 0xFFFFFFFF
_FIELDS = struct.pack("!HBBIHBB6s", 0x8000, 0, 4, 3, 0x8000, 6, 6, b"\x02\0\0\0\0\1")
MATCH = struct.pack("!HH", 1, 4 + len(_FIELDS)) + _FIELDS + bytes(-(4 + len(_FIELDS)) % 8)
INSTRUCTIONS = struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, 7, 65535)
_UPDATE = openflow._UPDATE.pack(32 + len(MATCH) + 24, 0, 0, 0, 0, 100, len(MATCH), 7)[4:24] + MATCH + INSTRUCTIONS
_SWITCH_PORT = struct.pack("!IH2x6s2x16sII", 3, 40, b"\x02\0\0\0\0\1", b"g0-eth0", 0, 0)


def _reply(kind: int, body: bytes) -> bytes:
    return openflow.message(19, 1, struct.pack("!HH4x", kind, 0) + body)


REPLIES = [
    _reply(openflow.MULTIPART_MONITOR, (struct.pack("!HH", 4 + len(_UPDATE), 0) + _UPDATE) * 2),
    _reply(openflow.MULTIPART_PORTS, _SWITCH_PORT * 3),
    openflow.message(12, 3, struct.pack("!B7x", 2) + _SWITCH_PORT),
]
FLOW_MOD = openflow.message(
    14, 9, struct.pack("!QQBBHHHIIIH2x", 1, 0, 0, 0, 0, 0, 100, _ANY, _ANY, _ANY, 4) + MATCH + INSTRUCTIONS
)
BUNDLE = openflow.message(34, 10, struct.pack("!I2xH", 1, 0) + FLOW_MOD) + openflow.message(
    33, 11, struct.pack("!IHH", 1, 4, 0)
)
FLOW_MOD_10 = b"\1" + openflow.message(14, 12, bytes(40) + struct.pack("!QHHHHIHH", 1, 0, 0, 0, 100, _ANY, 1, 0))[1:]
AGGREGATE = openflow.message(18, 13, struct.pack("!HH4xB3xII4xQQ", 2, 0, 0, _ANY, _ANY, 0, 0) + MATCH)
COUNTED = [  # replies of statistics of flows, of ports and of a table, and a flow that was removed
    _reply(1, struct.pack("!HBxIIHHH6xQQQ", 48 + len(MATCH), 0, 0, 0, 100, 0, 0, 7, 1, 2) + MATCH),
    _reply(4, (struct.pack("!I4x", 1) + bytes(104)) * 2),
    _reply(3, struct.pack("!B3xIQQ", 0, 1, 2, 3)),
    openflow.message(11, 2, struct.pack("!QHBBIIHHQQ", 7, 100, 0, 0, 0, 0, 0, 0, 1, 2) + MATCH),
]


def _from_kernel(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


_LINKS = [
    _from_kernel(LINK, struct.pack("=BxHiIIHHB3xHHI", 0, 1, 5, 1, 0, 5, 33, 1, 8, 4, 9000)),
    _from_kernel(STATISTICS, struct.pack("=BxxxiIHH", 0, 5, 1, 196, 1) + bytes(192)),
]
NETLINK = [*_LINKS, b"".join(_LINKS)]
_FRAME = bytes(12) + b"\x08\0" + b"\x45\0\0\x2c" + bytes(5) + b"\x06" + bytes(12) + b"\x50" + bytes(23)
SPOOL = packets.pack_record(5, 0, True, 60, len(_FRAME)) + _FRAME
OVSDB = [
    b'{"id":1,"result":[{}],"error":null}',
    b'{"method":"echo","params":[],"id":"echo"}{"id":1,"result":[{"error":"no","details":"such"}],"error":null}',
    b'{"id":1,"result":null,"error":"not allowed"}',
]
