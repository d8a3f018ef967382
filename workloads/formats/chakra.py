"""Reads Chakra execution traces, one file per rank, as a Program.

COMP and MEM_* nodes occupy the accelerator for their ``duration_micros`` (microseconds, by the name of the field); a
COMP node without one may give its time in the attribute ``runtime`` or its arithmetic in ``num_ops``, which need the
unit that the caller names. SEND and RECV are messages of a pair (matched by source, destination and tag, in order;
sends are buffered). COLLECTIVE nodes run over ``comm_group`` (a list of ranks), over the ranks that name the same
``pg_name``, or over all. METADATA and nodes without duration are removed; their followers inherit their dependencies.

Sizes of an all-gather are those of ASTRA-sim and of the traces of PyTorch: the contribution of one rank. Sources:
MLCommons Chakra ``et_def.proto``; ASTRA-sim 2, ``Workload.cc`` and ``Ring.cc``.

A file (``NAME.RANK.et``) is a sequence of length-prefixed protobuf messages: one GlobalMetadata, then one Node per
operation of the rank. Source: MLCommons Chakra, ``et_def.proto`` (schema 0.0.4); the field numbers are those of that
file.

The order of the lists in a Program is binding (computes of a rank, messages of a pair), so the lists follow one order
that all ranks share, every send before its receive and the members of a collective together; then no list can cause a
deadlock.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.proto import parse_length_prefixed
from google.protobuf.unknown_fields import UnknownFieldSet

from railyard.errors import ConfigError
from railyard.reading import read_bytes
from workloads.formats.reading import (
    LONGEST_S,
    MOST_MESSAGE_BYTES,
    OPERATIONS_UNIT,
    UNITS,
    ComputeUnit,
    Reading,
    read_unit,
)
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send, check_size
from workloads.schedule import CollectiveKind

Value = int | float | str | bytes | tuple[int, ...]
MOST_BYTES = 32 << 20
"""Largest trace file that is read: one rank's trace of a step is some megabytes."""
MOST_NODES = 50_000
MOST_DEPS = 500_000
"""Most nodes, and dependencies between them, of the traces of all ranks together."""
_MOST_LIST = 1 << 16
"""Most values of a list in an attribute: the members of a group are the longest."""

_SCHEMA = """
message GlobalMetadata { bytes version = 1; repeated bytes attr = 2; }
message Node {
    uint64 id = 1; bytes name = 2; uint64 type = 3; repeated uint64 ctrl_deps = 4; repeated uint64 data_deps = 5;
    uint64 duration_micros = 7; repeated Attribute attr = 10;
}
message Attribute {
    bytes name = 1; double double_val = 3; float float_val = 5; int32 int32_val = 7; Int32List int32_list = 8;
    int64 int64_val = 9; Int64List int64_list = 10; uint32 uint32_val = 11; Uint32List uint32_list = 12;
    uint64 uint64_val = 13; Uint64List uint64_list = 14; sint32 sint32_val = 15; sint64 sint64_val = 17;
    fixed32 fixed32_val = 19; fixed64 fixed64_val = 21; sfixed32 sfixed32_val = 23; sfixed64 sfixed64_val = 25;
    uint64 bool_val = 27; bytes string_val = 29; bytes bytes_val = 31;
}
message Int32List { repeated int32 values = 1; }
message Int64List { repeated int64 values = 1; }
message Uint32List { repeated uint32 values = 1; }
message Uint64List { repeated uint64 values = 1; }
"""
"""The fields that are read; protobuf skips all others. Text is declared as bytes, because what is not UTF-8 is replaced
here and refused by protobuf; truth values are numbers. An attribute has one of its values."""


class NodeType(IntEnum):
    """Type of a node, as numbered in the schema."""

    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLLECTIVE = 7


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the trace of ``rank``, equal only to itself.

    ``deps`` are ids in the same file, control and data together; ``file`` is for errors.
    """

    file: str
    rank: int
    id: int
    name: str
    type: NodeType
    deps: tuple[int, ...] = ()
    duration_us: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"{self.file}: node {self.id}" + (f" ({self.name})" if self.name else "")

    def error(self, message: str) -> ConfigError:
        return ConfigError(message, source=self.source)

    def number(self, name: str) -> int | None:
        value = self.attributes.get(name)
        if value is None or isinstance(value, int):
            return value
        raise self.error(f"{name} is {str(value)[:40]!r}; it must be a whole number")

    def need(self, name: str) -> int:
        value = self.number(name)
        if value is None:
            raise self.error(f"has no {name}; a {self.type.name} node needs it")
        return value


def read_nodes(path: Path, rank: int, others: int = 0, others_deps: int = 0) -> list[Node]:
    """The nodes of the file of ``rank``, in file order.

    The files of other ranks have ``others`` nodes with ``others_deps`` dependencies, which count towards the bounds.
    Raises ``ConfigError`` naming the file and the byte or node that is not valid in a Chakra trace.
    """
    stream = BytesIO(read_bytes(path, MOST_BYTES, "a Chakra trace"))
    metadata = _next(stream, METADATA_CLASS, path)
    if metadata is None:
        raise _not_chakra(path, "it is empty")
    for unknown in UnknownFieldSet(metadata):
        raise _not_chakra(path, f"its first message has a field {unknown.field_number} that metadata does not have")
    nodes: dict[int, Node] = {}
    while (message := _next(stream, NODE_CLASS, path)) is not None:
        others_deps += len(message.ctrl_deps) + len(message.data_deps)
        for count, most, what in ((others + len(nodes) + 1, MOST_NODES, "nodes"), (others_deps, MOST_DEPS, "deps")):
            if count > most:
                raise ConfigError(f"more than {most} {what} in the traces of all ranks, the most that are read",
                                  source=str(path))  # fmt: skip
        node = _node(path, rank, message)
        if node.id in nodes:
            raise node.error("appears twice in the file; every node needs its own id")
        nodes[node.id] = node
    return list(nodes.values())


def _next(stream: BytesIO, message_class: Any, path: Path) -> Any:
    """The next message of the file, None at its end; raises ``ConfigError`` for bytes that are none."""
    start = stream.tell()
    try:
        message = parse_length_prefixed(message_class, stream)
    except (DecodeError, ValueError, OverflowError):
        raise _not_chakra(path, f"the message at byte {start} is cut off or malformed") from None
    if message is not None:
        for unknown in UnknownFieldSet(message):
            if unknown.field_number in message_class.DESCRIPTOR.fields_by_number:
                reason = f"field {unknown.field_number} of the message at byte {start} has a value of another type"
                raise _not_chakra(path, reason)
    return message


def _not_chakra(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"is not a Chakra trace (messages behind their lengths, the metadata and then the nodes): {reason}",
        source=str(path),
    )


def _node(path: Path, rank: int, message: Any) -> Node:
    source, name = str(path), _decode(message.name)
    if not 1 <= message.type <= len(NodeType):
        wrong = Node(source, rank, message.id, name, NodeType.METADATA)
        raise wrong.error(f"has type {message.type}; types are 1 (metadata) to {len(NodeType)} (collective)")
    deps = tuple(dict.fromkeys((*message.ctrl_deps, *message.data_deps)))
    attributes: dict[str, Value] = {}
    for attribute in message.attr:
        for field_, value in attribute.ListFields():
            if field_.name != "name":
                if field_.name.endswith("_list") and len(value.values) > _MOST_LIST:
                    wrong = Node(source, rank, message.id, name, NodeType(message.type))
                    raise wrong.error(f"has a list of {len(value.values)} values; at most {_MOST_LIST} are read")
                attributes[_decode(attribute.name)] = _value(field_.name, value)
    return Node(source, rank, message.id, name, NodeType(message.type), deps, message.duration_micros, attributes)


def _value(field_name: str, value: Any) -> Value:
    if field_name == "string_val":
        return _decode(value)
    content: Value = tuple(value.values) if field_name.endswith("_list") else value
    return content


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _message_classes() -> tuple[Any, Any]:
    schema = FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto2")
    for message_name, body in re.findall(r"message (\w+) \{(.*?)\}", _SCHEMA, re.DOTALL):
        message = schema.message_type.add(name=message_name)
        for repeated, kind, name, number in re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", body):
            field_ = message.field.add(name=name, number=int(number))
            field_.label = field_.LABEL_REPEATED if repeated else field_.LABEL_OPTIONAL
            if kind[0].isupper():
                field_.type_name = f".chakra.{kind}"
            else:
                field_.type = field_.Type.Value(f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.Add(schema)
    return tuple(GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}")) for name in ("GlobalMetadata", "Node"))


METADATA_CLASS, NODE_CLASS = _message_classes()


K = TypeVar("K", bound=Hashable)
Channel = tuple[int, int, int]
"""(source rank, destination rank, tag): messages of one channel arrive in the order in which they were sent."""
MESSAGES = (NodeType.SEND, NodeType.RECV)


def local_order(nodes: Sequence[Node]) -> list[Node]:
    """The nodes of one rank, each after its dependencies, otherwise by id.

    Raises ``ConfigError`` for a node that depends on a missing one, or on itself through others.
    """
    by_id = {node.id: node for node in nodes}
    for node in nodes:
        for dep in node.deps:
            if dep not in by_id:
                raise node.error(f"depends on node {dep}, which is not in the file")
    try:
        order = _sorted({node.id: node.deps for node in nodes}, {id_: (id_,) for id_ in by_id})
    except CycleError as error:
        waits = error.args[1][:0:-1]  # each waits for the next
        first = waits.index(min(waits))
        others = ", ".join(map(str, (waits[first + 1 :] + waits[:first])[:5]))
        around = f" (by way of node {others})" if others else ""
        raise by_id[waits[first]].error(f"waits for itself{around}; a trace must have no cycle") from None
    return [by_id[id_] for id_ in order]


def match_messages(orders: Sequence[Sequence[Node]]) -> dict[Node, Node]:
    """The receive of every send: on each channel, the k-th send goes with the k-th receive.

    Raises ``ConfigError`` for a message without its other end, a rank that does not exist, or different sizes.
    """
    ends: dict[Channel, dict[NodeType, list[Node]]] = defaultdict(lambda: {type_: [] for type_ in MESSAGES})
    for nodes in orders:
        for node in nodes:
            if node.type in MESSAGES:
                ends[channel(node, len(orders))][node.type].append(node)
    receive_of: dict[Node, Node] = {}
    for (src, dst, tag), lists in sorted(ends.items(), key=lambda end: end[0]):
        out, back = lists[NodeType.SEND], lists[NodeType.RECV]
        if len(out) > len(back):
            raise out[len(back)].error(f"sends to rank {dst} with tag {tag}, where no receive takes it")
        if len(back) > len(out):
            raise back[len(out)].error(f"receives from rank {src} with tag {tag}, which sends nothing for it")
        for send, recv in zip(out, back, strict=True):
            sent, received = send.need("comm_size"), recv.need("comm_size")
            if sent != received:
                raise recv.error(
                    f"receives {received} bytes where node {send.id} of rank {src} sends {sent}; both must be equal"
                )
            receive_of[send] = recv
    return receive_of


def channel(node: Node, ranks: int) -> Channel:
    """The channel of a send or receive; raises ``ConfigError`` for a peer that does not exist."""
    sends = node.type is NodeType.SEND
    peer = node.need("comm_dst" if sends else "comm_src")
    if not 0 <= peer < ranks:
        raise node.error(f"names rank {peer} as its peer; the ranks are 0 to {ranks - 1}")
    if peer == node.rank:
        raise node.error(f"names its own rank {peer} as its peer; it must be another one")
    tag = node.number("comm_tag") or 0
    return (node.rank, peer, tag) if sends else (peer, node.rank, tag)


def global_order(
    orders: Sequence[Sequence[Node]], messages: Mapping[Node, Node], collectives: Sequence[Sequence[Node]]
) -> list[Node]:
    """All nodes of all ranks in one order that respects all dependencies; members of a collective are adjacent.

    Raises ``ConfigError`` for a node that waits for itself through other ranks.
    """
    members = {group[0]: group for group in collectives}
    first = {member: group[0] for group in collectives for member in group}
    sender = {recv: send for send, recv in messages.items()}
    before: dict[Node, set[Node]] = {}
    place: dict[Node, tuple[int, ...]] = {}
    last: dict[tuple[Channel, NodeType], Node] = {}
    for rank, nodes in enumerate(orders):
        by_id = {node.id: first.get(node, node) for node in nodes}
        for position, node in enumerate(nodes):
            own = by_id[node.id]
            place.setdefault(own, (position, rank))
            needs = before.setdefault(own, set())
            needs.update(by_id[dep] for dep in node.deps)
            if node in sender:
                needs.add(sender[node])
            if node.type in MESSAGES:
                line = channel(node, len(orders)), node.type
                if line in last:
                    needs.add(last[line])
                last[line] = node
    try:
        order = _sorted(before, place)
    except CycleError as error:
        stuck: Node = min(error.args[1], key=lambda node: (node.rank, node.id))
        raise stuck.error("can never run: it waits for other ranks that wait for it") from None
    return [node for own in order for node in members.get(own, (own,))]


def _sorted(before: Mapping[K, set[K] | tuple[K, ...]], place: Mapping[K, tuple[int, ...]]) -> list[K]:
    """Topological order, of those that are free the one with the smallest place; raises ``CycleError``."""
    sorter = TopologicalSorter(before)
    sorter.prepare()
    free: list[tuple[tuple[int, ...], K]] = []
    order: list[K] = []
    while sorter.is_active():
        for key in sorter.get_ready():
            heappush(free, (place[key], key))
        order.append(heappop(free)[1])
        sorter.done(order[-1])
    return order


KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
)
"""Collectives by ``comm_type``."""
BARRIER = 9
BARRIER_BYTES = 4
_MOST_SPLICED_DEPS = 32
"""A node without duration but with more dependencies than this stays, as a compute of 0 s: its edges would multiply."""
_NAME = re.compile(r"(?P<prefix>.*)\.(?P<rank>\d{1,6})\.et$", re.DOTALL)


def read_traces(path: Path, *, compute_unit: str | None = None) -> Reading:
    """The program in the files of ``path``: a folder, one ``NAME.RANK.et`` of the set, or ``NAME`` with its folder.

    Raises ``ConfigError`` naming the file and node: no trace, a missing rank, a cycle, a send without its receive, a
    peer that does not exist, different sizes, or a compute time without a unit.
    """
    unit = read_unit(compute_unit)
    name, files = rank_files(path)
    orders: list[list[Node]] = []
    count = deps = 0
    for rank, file in enumerate(files):
        orders.append(local_order(read_nodes(file, rank, count, deps)))
        count, deps = count + len(orders[-1]), deps + sum(len(node.deps) for node in orders[-1])
    builder = _Builder(name, orders, unit)
    return Reading("Chakra ET", builder.build(), tuple(builder.notes))


def rank_files(path: Path) -> tuple[str, list[Path]]:
    """The name of a set of traces and its files of rank 0, 1, ... n - 1; ``ConfigError`` names a missing one."""
    if os.path.isdir(path):
        folder, wanted = path, None
    else:
        match = _NAME.fullmatch(path.name)
        folder, wanted = path.parent, match["prefix"] if match else path.name
    sets: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()) if os.path.isdir(folder) else []:
        match = _NAME.fullmatch(file.name)
        if match and wanted in (None, match["prefix"]):
            sets[match["prefix"]][int(match["rank"])] = file
    if not sets:
        raise ConfigError("there are no files NAME.0.et, NAME.1.et, ... of a Chakra trace", source=str(path))
    check_size(max(map(len, sets.values())), 0, "ranks", str(path))
    if len(sets) > 1:
        names = ", ".join(sorted(sets)[:5])
        raise ConfigError(f"the folder holds several traces ({names}); name one with its folder", source=str(path))
    prefix, files = sets.popitem()
    for rank in range(len(files)):
        if rank not in files:
            raise ConfigError(
                f"{prefix}.{rank}.et is missing; ranks must be 0 to {max(files)} without gaps", source=str(folder)
            )
    return prefix, [files[rank] for rank in range(len(files))]


class _Builder:
    """Builds a Program from one set of traces."""

    def __init__(self, name: str, orders: Sequence[Sequence[Node]], unit: ComputeUnit | None) -> None:
        self.name = name
        self.orders = orders
        self.ranks = len(orders)
        self.unit = unit
        self.groups: dict[str, Group] = {}
        self.group_of: dict[Node, str] = {}
        self.notes: list[str] = []

    def build(self) -> Program:
        messages = match_messages(self.orders)
        order = global_order(self.orders, messages, self._collectives())
        self._pairs(order, messages)
        lists: list[list[Operation]] = [[] for _ in self.orders]
        stands_for: list[dict[int, tuple[int, ...]]] = [{} for _ in self.orders]
        for node in order:
            ops, ids = lists[node.rank], stands_for[node.rank]
            deps = tuple(sorted({op for dep in node.deps for op in ids[dep]}))
            op = self._operation(node, len(ops), deps)
            ids[node.id] = deps if op is None else (op.id,)
            if op is not None:
                ops.append(op)
        if any("involved_dim" in node.attributes for node in order):
            self.notes.append("involved_dim is ignored: a collective runs over all ranks of its group.")
        return Program(self.name, tuple(map(tuple, lists)), self.groups, eager=True)

    def _operation(self, node: Node, id_: int, deps: tuple[int, ...]) -> Operation | None:
        name = node.name or f"node{node.id}"
        group = self.group_of.get(node, "")
        if node.type is NodeType.SEND:
            return Send(id_, name, group, node.need("comm_dst"), _size(node), deps)
        if node.type is NodeType.RECV:
            return Recv(id_, name, group, node.need("comm_src"), _size(node), deps)
        if node.type is NodeType.COLLECTIVE and group:
            kind, size = _kind(node, len(self.groups[group].members))
            return Collective(id_, name, kind, group, size, deps)
        seconds = self._seconds(node)
        return Compute(id_, name, seconds, deps) if seconds > 0 or len(deps) > _MOST_SPLICED_DEPS else None

    def _seconds(self, node: Node) -> float:
        unit = self.unit
        if node.type in (NodeType.METADATA, NodeType.COLLECTIVE) or (unit is not None and unit.name == "ignore"):
            return 0.0
        if node.duration_us:
            seconds = node.duration_us / 1e6
            if seconds > LONGEST_S:
                raise node.error(f"lasts {node.duration_us} microseconds; that is more than {LONGEST_S:g} s")
            return seconds
        for attribute, operations in (("runtime", False), ("num_ops", True)):
            value = node.attributes.get(attribute)
            if node.type is not NodeType.COMP or not isinstance(value, (int, float)) or value == 0:
                continue
            if unit is not None and unit.operations == operations:
                return unit.of(value, node.source)
            known = OPERATIONS_UNIT if operations else UNITS
            example = "tflops:100" if operations else "ns"
            raise ConfigError(
                f"says its time only as {attribute} = {value:g}, whose unit the file does not name; give it, such "
                f"as --compute-unit {example}: {known}",
                key="compute_unit",
                source=node.source,
            )
        return 0.0

    # -- collectives -------------------------------------------------------------------------------

    def _collectives(self) -> list[list[Node]]:
        """The nodes that make up each collective; also records the group of every node."""
        matched: list[list[Node]] = []
        for name, lists in self._group_lists().items():
            members = self.groups[name].members
            for member in members:
                self._compare(lists[members[0]], lists[member], members, member)
            if len(members) == 1:
                del self.groups[name]
                self.notes.append(f"collectives of group {name} have one member and do nothing.")
                continue
            self.group_of.update((node, name) for nodes in lists.values() for node in nodes)
            matched += map(list, zip(*lists.values(), strict=True))
        return matched

    def _group_lists(self) -> dict[str, dict[int, list[Node]]]:
        nodes = [node for nodes in self.orders for node in nodes if node.type is NodeType.COLLECTIVE]
        named: dict[str, set[int]] = defaultdict(set)
        for node in nodes:
            if "pg_name" in node.attributes:
                named[str(node.attributes["pg_name"])].add(node.rank)
        if named:
            self.notes.append("the members of a pg_name are the ranks that run a collective under it.")
        listed: dict[tuple[int, ...], str] = {}
        lists: dict[str, dict[int, list[Node]]] = {}
        for node in nodes:
            name, members = self._members(node, named, listed)
            self.groups.setdefault(name, Group(name, "dp", members))
            lists.setdefault(name, {member: [] for member in members})[node.rank].append(node)
        return lists

    def _members(
        self, node: Node, named: Mapping[str, set[int]], listed: dict[tuple[int, ...], str]
    ) -> tuple[str, tuple[int, ...]]:
        """Name and members of the group of a collective, its root first; ``listed`` names groups without a name."""
        group = node.attributes.get("comm_group")
        process_group = str(node.attributes.get("pg_name", ""))
        if isinstance(group, tuple):
            members = tuple(dict.fromkeys(group))
            name = listed.setdefault(members, f"group{len(listed)}")
        elif process_group:
            members, name = tuple(sorted(named[process_group])), f"pg.{process_group[:60]}"
        else:
            members, name = tuple(range(self.ranks)), "all"
        if node.rank not in members or not all(0 <= member < self.ranks for member in members):
            raise node.error(f"runs over ranks {str(members)[:80]}; they must be its own and others of 0 to "
                             f"{self.ranks - 1}")  # fmt: skip
        root = node.number("root_rank") or node.number("comm_root") or 0
        if node.attributes.keys().isdisjoint(("root_rank", "comm_root")) or root == members[0]:
            return name, members
        if root not in members:
            raise node.error(f"has rank {root} as its root; it must be one of its group")
        at = members.index(root)
        return f"{name}.root{root}", members[at:] + members[:at]

    def _compare(self, ours: list[Node], theirs: list[Node], members: Sequence[int], rank: int) -> None:
        """Check that ``rank`` runs the same collectives in the same order as the first member."""
        for mine, other in zip_longest(ours, theirs):
            if mine is None or other is None:
                without = rank if other is None else members[0]
                raise (mine or other).error(f"is a collective that rank {without} never joins")
            (kind, size), (its_kind, its_size) = _kind(mine, len(members)), _kind(other, len(members))
            if (kind, size) != (its_kind, its_size):
                raise other.error(
                    f"is {its_kind} of {its_size} bytes where rank {members[0]} runs {kind} of {size} bytes "
                    f"(node {mine.id}); the ranks of a group must run the same collectives"
                )

    # -- pairs -------------------------------------------------------------------------------------

    def _pairs(self, order: Sequence[Node], messages: Mapping[Node, Node]) -> None:
        """Make one group for each pair of ranks with messages, or one for each tag where tags overtake each other."""
        sent: dict[tuple[int, int], list[Node]] = defaultdict(list)
        taken: dict[tuple[int, int], list[Node]] = defaultdict(list)
        sender = {recv: send for send, recv in messages.items()}
        both_ends = [node for node in order if node.type in MESSAGES]
        for node in both_ends:
            if node in messages:
                sent[node.rank, messages[node].rank].append(node)
            else:
                taken[sender[node].rank, node.rank].append(sender[node])
        overtaken = {frozenset(pair) for pair in sent if sent[pair] != taken[pair]}
        for node in both_ends:
            src, dst, tag = channel(node, self.ranks)
            tagged = f".t{tag}" if frozenset((src, dst)) in overtaken else ""
            name = f"p{min(src, dst)}-{max(src, dst)}{tagged}"
            self.groups.setdefault(name, Group(name, "pp", (src, dst)))  # upstream first: a ring fits two ports
            self.group_of[node] = name


def _kind(node: Node, members: int) -> tuple[CollectiveKind, int]:
    number = node.need("comm_type")
    if number == BARRIER:
        return "all_reduce", BARRIER_BYTES
    if not 0 <= number < len(KINDS):
        raise node.error(f"has comm_type {number}; a collective has 0 (all-reduce) to {BARRIER} (barrier)")
    size = _size(node)
    return KINDS[number], size * members if KINDS[number] in ("all_gather", "gather") else size


def _size(node: Node) -> int:
    size = node.need("comm_size")
    if not 1 <= size <= MOST_MESSAGE_BYTES:
        raise node.error(f"has comm_size {size}; it must be 1 to {MOST_MESSAGE_BYTES} bytes")
    return size
