from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from checkout import CASES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railyard.errors import ConfigError
from workloads.check import check
from workloads.formats.chakra import read_nodes, read_traces
from workloads.program import Collective, Compute, Program, Recv, Send

ASTRA_SIM = CASES / "astra-sim"
METADATA, MEM_LOAD, COMP, SEND, RECV, COLL = 1, 2, 4, 5, 6, 7


@dataclass
class N:
    """A node to be written."""

    id: int
    type: int
    deps: Sequence[int] = ()
    micros: int = 0
    name: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict)
    ctrl: Sequence[int] = ()


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tagged(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: object) -> bytes:
    out = tagged(1, name.encode())
    if isinstance(value, bool):
        out += tagged(27, int(value))
    elif isinstance(value, int):
        out += tagged(9, value)
    elif isinstance(value, float):
        out += varint(3 << 3 | 1) + struct.pack("<d", value)
    elif isinstance(value, str):
        out += tagged(29, value.encode())
    else:
        assert isinstance(value, (list, tuple))
        out += tagged(10, tagged(1, b"".join(varint(item) for item in value)))
    return tagged(10, out)


def node(n: N) -> bytes:
    out = (tagged(1, n.id) if n.id else b"") + tagged(2, n.name.encode()) + tagged(3, n.type)
    out += tagged(4, b"".join(map(varint, n.ctrl))) if n.ctrl else b""
    out += b"".join(tagged(5, dep) for dep in n.deps)  # unpacked: a writer may do either
    out += tagged(7, n.micros) if n.micros else b""
    return out + b"".join(attribute(name, value) for name, value in n.attributes.items())


def trace(*nodes: N) -> bytes:
    messages = [tagged(1, b"0.0.4"), *map(node, nodes)]
    return b"".join(varint(len(message)) + message for message in messages)


def write(folder: Path, *ranks: Sequence[N], name: str = "t") -> Path:
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(trace(*nodes))
    return folder


def send(id_: int, dst: int, size: int = 64, tag: int = 0, deps: Sequence[int] = ()) -> N:
    return N(id_, SEND, deps, attributes={"comm_dst": dst, "comm_size": size, "comm_tag": tag, "comm_type": 5})


def recv(id_: int, src: int, size: int = 64, tag: int = 0, deps: Sequence[int] = ()) -> N:
    return N(id_, RECV, deps, attributes={"comm_src": src, "comm_size": size, "comm_tag": tag})


def coll(id_: int, kind: int = 0, size: int = 64, deps: Sequence[int] = (), **more: object) -> N:
    return N(id_, COLL, deps, attributes={"comm_type": kind, "comm_size": size, **more})


def read(folder: Path, unit: str | None = None) -> Program:
    program = read_traces(folder, compute_unit=unit).program
    check(program)
    return program


def test_a_message_and_computes(tmp_path: Path) -> None:
    program = read(write(tmp_path, [N(0, COMP, micros=5), send(1, 1, deps=[0])], [recv(0, 0), N(1, COMP, [0], 7)]))
    assert program.eager
    assert program.operations[0] == (Compute(0, "node0", 5e-6), Send(1, "node1", "p0-1", 1, 64, (0,)))
    assert program.operations[1] == (Recv(0, "node0", "p0-1", 0, 64), Compute(1, "node1", 7e-6, (0,)))
    assert program.groups["p0-1"].members == (0, 1)
    assert program.groups["p0-1"].dimension == "pp"
    assert program.groups["p0-1"].lanes is None


def test_nodes_in_any_order_and_without_time(tmp_path: Path) -> None:
    """Metadata and a compute of no time vanish; who waits for them waits for theirs."""
    nodes = [
        N(9, COMP, [4], 3),
        N(4, METADATA, [2], ctrl=[7]),
        N(2, COMP, micros=1),
        N(7, MEM_LOAD, [3], 2),
        N(3, COMP),
    ]
    program = read(write(tmp_path, nodes))
    assert [(op.name, op.deps) for op in program.operations[0]] == [("node2", ()), ("node7", ()), ("node9", (0, 1))]


def test_tags_that_overtake_each_other_have_groups_of_their_own(tmp_path: Path) -> None:
    first = [send(0, 1, 10, tag=1), send(1, 1, 20, tag=2)]
    second = [recv(0, 0, 20, tag=2), recv(1, 0, 10, tag=1, deps=[0])]
    program = read(write(tmp_path, first, second))
    assert sorted(program.groups) == ["p0-1.t1", "p0-1.t2"]
    assert {(op.group, op.bytes) for op in program.communications(1)} == {("p0-1.t1", 10), ("p0-1.t2", 20)}


def test_crossing_buffered_sends_are_no_cycle(tmp_path: Path) -> None:
    ranks = [[send(0, 1 - rank), recv(1, 1 - rank, deps=[0])] for rank in (0, 1)]
    assert read(write(tmp_path, *ranks)).ranks == 2


@pytest.mark.parametrize(
    ("kind", "expected", "size"),
    [
        (0, "all_reduce", 64),
        (1, "reduce", 64),
        (2, "all_gather", 192),
        (3, "gather", 192),
        (4, "scatter", 64),
        (5, "broadcast", 64),
        (6, "all_to_all", 64),
        (7, "reduce_scatter", 64),
        (8, "reduce_scatter", 64),
        (9, "all_reduce", 4),
    ],
)
def test_collectives(tmp_path: Path, kind: int, expected: str, size: int) -> None:
    program = read(write(tmp_path, *[[coll(0, kind)]] * 3))
    op = program.operations[2][0]
    assert isinstance(op, Collective)
    assert (op.kind, op.bytes, op.group) == (expected, size, "all")
    assert program.groups["all"].members == (0, 1, 2)


def test_groups_of_collectives(tmp_path: Path) -> None:
    ranks = [
        [coll(0, comm_group=[0, 1]), coll(1, pg_name="even", deps=[0])],
        [coll(0, comm_group=[0, 1]), coll(1, 5, deps=[0], comm_group=[1, 2, 0], root_rank=2)],
        [coll(0, pg_name="even"), coll(1, 5, deps=[0], comm_group=[1, 2, 0], root_rank=2)],
    ]
    ranks[0].append(coll(2, 5, deps=[1], comm_group=[1, 2, 0], root_rank=2))
    reading = read_traces(write(tmp_path, *ranks))
    check(reading.program)
    members = {group.name: group.members for group in reading.program.groups.values()}
    assert members == {"group0": (0, 1), "pg.even": (0, 2), "group1.root2": (2, 0, 1)}
    assert any("pg_name" in note for note in reading.notes)


def test_involved_dim_is_noted(tmp_path: Path) -> None:
    assert any(
        "involved_dim" in note for note in read_traces(write(tmp_path, *[[coll(0, involved_dim=[1])]] * 2)).notes
    )


def test_arithmetic_needs_a_rate(tmp_path: Path) -> None:
    write(tmp_path, [N(0, COMP, attributes={"num_ops": 3_000_000})])
    with pytest.raises(ConfigError, match=r"t\.0\.et: node 0: compute_unit: .*num_ops = 3e\+06.*tflops") as error:
        read(tmp_path)
    assert error.value.key == "compute_unit"
    assert read(tmp_path, "tflops:3").operations[0] == (Compute(0, "node0", 1e-6),)
    assert read(tmp_path, "ignore").operations[0] == ()
    with pytest.raises(ConfigError, match="tflops"):
        read(tmp_path, "ns")


def test_runtime_needs_a_unit(tmp_path: Path) -> None:
    write(tmp_path, [N(0, COMP, attributes={"runtime": 2.5})])
    with pytest.raises(ConfigError, match=r"runtime = 2\.5"):
        read(tmp_path)
    assert read(tmp_path, "us").operations[0] == (Compute(0, "node0", 2.5e-6),)
    with pytest.raises(ConfigError, match=r"'fortnights' is not a unit; the units are ns, us"):
        read(tmp_path, "fortnights")


BAD: dict[str, tuple[list[list[N]], str]] = {
    "cycle": ([[N(0, COMP, [1], 1), N(1, COMP, [0], 1)]], r"t\.0\.et: node 0: waits for itself \(by way of node 1\)"),
    "self": ([[N(3, COMP, [3], 1)]], "node 3: waits for itself; a trace must have no cycle"),
    "missing dep": ([[N(0, COMP, [8], 1)]], "node 0: depends on node 8, which is not in the file"),
    "twice": ([[N(1, COMP), N(1, COMP)]], "node 1: appears twice"),
    "no receive": ([[send(0, 1)], []], r"t\.0\.et: node 0: sends to rank 1 with tag 0, where no receive"),
    "no send": ([[], [recv(4, 0)]], r"t\.1\.et: node 4: receives from rank 0 with tag 0, which sends nothing"),
    "other tag": ([[send(0, 1, tag=1)], [recv(0, 0, tag=2)]], "sends to rank 1 with tag 1"),
    "no peer": ([[send(0, 7)], []], "names rank 7 as its peer; the ranks are 0 to 1"),
    "itself": ([[send(0, 0)]], "names its own rank 0"),
    "sizes": ([[send(0, 1, 64)], [recv(0, 0, 65)]], "receives 65 bytes where node 0 of rank 0 sends 64"),
    "no dst": ([[N(0, SEND, attributes={"comm_size": 4})]], "has no comm_dst"),
    "no size": ([[N(0, SEND, attributes={"comm_dst": 1})], [recv(0, 0)]], "has no comm_size"),
    "zero": ([[send(0, 1, 0)], [recv(0, 0, 0)]], "has comm_size 0; it must be 1"),
    "type": ([[N(0, 12)]], "has type 12; types are 1"),
    "kind": ([[coll(0, 77)]] * 2, "has comm_type 77"),
    "other kind": ([[coll(0, 0)], [coll(0, 2)]], "is all_gather of 128 bytes where rank 0 runs all_reduce of 64"),
    "alone": ([[coll(0)], []], "is a collective that rank 1 never joins"),
    "members": ([[coll(0, comm_group=[0, 5])]], "runs over ranks"),
    "root": ([[coll(0, 5, comm_group=[0, 1], root_rank=3)]] * 2, "has rank 3 as its root"),
    "text": ([[send(0, 1)], [N(0, RECV, attributes={"comm_src": "zero", "comm_size": 64})]], "comm_src is 'zero'"),
    "round the ranks": (
        [[recv(0, 1), send(1, 1, deps=[0])], [recv(0, 0), send(1, 0, deps=[0])]],
        "can never run: it waits for other ranks",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_trace_is_refused_by_file_and_node(tmp_path: Path, name: str) -> None:
    ranks, reason = BAD[name]
    with pytest.raises(ConfigError, match=reason) as error:
        read(write(tmp_path, *ranks))
    assert "\n" not in str(error.value)


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    write(tmp_path, [], [], [])
    (tmp_path / "t.1.et").unlink()
    with pytest.raises(ConfigError, match=r"t\.1\.et is missing; ranks must be 0 to 2 without gaps"):
        read(tmp_path)


def test_a_folder_a_file_or_a_name(tmp_path: Path) -> None:
    write(tmp_path, [N(0, COMP, micros=1)], [])
    for path in (tmp_path, tmp_path / "t.1.et", tmp_path / "t"):
        assert read_traces(path).program.ranks == 2
    write(tmp_path, [], name="other")
    assert read_traces(tmp_path / "other").program.ranks == 1
    with pytest.raises(ConfigError, match=r"several traces \(other, t\)"):
        read_traces(tmp_path)
    with pytest.raises(ConfigError, match="there are no files"):
        read_traces(tmp_path / "none")


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"<algo/>", b"\x05hello", b"\x03\x08\x01\x00"])
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.0.et").write_bytes(data)
    with pytest.raises(ConfigError, match=r"t\.0\.et: is not a Chakra trace"):
        read(tmp_path)


def test_values_of_every_type_and_text_that_is_not_utf8(tmp_path: Path) -> None:
    """A value of each wire type: varint, zigzag, 32 and 64 bits; a packed list; a name that is not UTF-8."""
    attributes = {
        "negative": varint(7 << 3) + varint(-5),
        "zigzag": varint(17 << 3) + varint(9),
        "float": varint(5 << 3 | 5) + struct.pack("<f", -1.5),
        "fixed": varint(25 << 3 | 1) + struct.pack("<q", -7),
        "bool": tagged(27, 1),
        "list": tagged(14, tagged(1, varint(3) + varint(300))),
        "later": tagged(32, b"a kind that is not read"),
    }
    message = tagged(1, 4) + tagged(2, b"a\xff") + tagged(3, COMP) + tagged(8, b"inputs") + tagged(99, 7)
    message += b"".join(tagged(10, tagged(1, name.encode()) + value) for name, value in attributes.items())
    path = tmp_path / "t.0.et"
    path.write_bytes(trace() + varint(len(message)) + message)
    [found] = read_nodes(path, 0)
    assert (found.id, found.name, found.rank) == (4, "a\ufffd", 0)
    assert found.attributes == {"negative": -5, "zigzag": -5, "float": -1.5, "fixed": -7, "bool": 1, "list": (3, 300)}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x08", "the message at byte 8 is cut off or malformed"),
        (tagged(1, b"text"), "field 1 of the message at byte 8 has a value of another type"),
        (tagged(7, b"text"), "field 7 of the message at byte 8 has a value of another type"),
        (b"\x00\x00", "the message at byte 8 is cut off or malformed"),
    ],
)
def test_a_wrong_message_is_named_by_its_place(tmp_path: Path, message: bytes, reason: str) -> None:
    (tmp_path / "t.0.et").write_bytes(trace() + varint(len(message)) + message)
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path)


def test_a_node_in_place_of_the_metadata_and_a_length_without_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.0.et"
    first = node(N(1, COMP))
    path.write_bytes(varint(len(first)) + first)
    with pytest.raises(ConfigError, match="field 1 of the message at byte 0 has a value of another type"):
        read(tmp_path)
    first = tagged(3, COMP)
    path.write_bytes(varint(len(first)) + first)
    with pytest.raises(ConfigError, match="its first message has a field 3 that metadata does not have"):
        read(tmp_path)
    for length in (1 << 20, 1 << 62, (1 << 64) - 1):
        path.write_bytes(trace() + varint(length) + b"abc")
        with pytest.raises(ConfigError, match="the message at byte 8 is cut off"):
            read(tmp_path)


# -- properties ------------------------------------------------------------------------------------


@st.composite
def schedules(draw: st.DrawFn) -> list[list[N]]:
    """Ranks whose nodes follow one global order: always a run that comes to its end."""
    ranks = draw(st.integers(2, 4))
    lists: list[list[N]] = [[] for _ in range(ranks)]
    for _ in range(draw(st.integers(0, 12))):
        src = draw(st.integers(0, ranks - 1))
        dst = draw(st.sampled_from([rank for rank in range(ranks) if rank != src]))
        tag, size = draw(st.integers(0, 2)), draw(st.integers(1, 100))
        for rank, make, peer in ((src, send, dst), (dst, recv, src)):
            place = len(lists[rank])
            deps = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
            lists[rank].append(make(place, peer, size, tag, sorted(deps)))
        if draw(st.booleans()):
            for own in lists:
                own.append(coll(len(own), deps=[len(own) - 1] if own else []))
    return [draw(st.permutations(own)) for own in lists]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(ranks=schedules())
def test_whatever_can_run_is_read_and_proved(tmp_path: Path, ranks: list[list[N]]) -> None:
    """No choice of groups and lists may lock what could run; every byte is there."""
    for old in tmp_path.glob("*.et"):
        old.unlink()
    program = read(write(tmp_path, *ranks))
    for rank, nodes in enumerate(ranks):
        sent = sum(int(str(n.attributes["comm_size"])) for n in nodes if n.type == SEND)
        assert sent == sum(op.bytes for op in program.communications(rank) if isinstance(op, Send))
        assert len(program.operations[rank]) == len(nodes)


# -- files of others -------------------------------------------------------------------------------


class TestRealFiles:
    def test_ring_all_reduce(self) -> None:
        program = read(ASTRA_SIM / "custom_ring_allreduce_8npus_1MB")
        assert [len(ops) for ops in program.operations] == [35] * 8
        for rank in range(8):
            sent = [op for op in program.communications(rank) if isinstance(op, Send)]
            back = [op for op in program.communications(rank) if isinstance(op, Recv)]
            assert sum(op.bytes for op in sent) == sum(op.bytes for op in back) == 1_835_008
            assert {op.peer for op in sent} == {(rank + 1) % 8}
            assert {op.peer for op in back} == {(rank - 1) % 8}

    def test_one_collective_per_rank(self) -> None:
        program = read(ASTRA_SIM / "all_reduce_4npus_1MB" / "all_reduce.0.et")
        assert [ops[0].bytes for ops in map(list, map(program.communications, range(4)))] == [1 << 20] * 4
