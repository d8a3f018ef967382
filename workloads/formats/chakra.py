"""Reads Chakra execution traces, one file per rank, as a Program.

COMP and MEM_* nodes occupy the accelerator for their ``duration_micros`` (microseconds, by the name of the field); a
COMP node without one may give its time in the attribute ``runtime`` or its arithmetic in ``num_ops``, which need the
unit that the caller names. SEND and RECV are messages of a pair (matched by source, destination and tag, in order;
sends are buffered). COLLECTIVE nodes run over ``comm_group`` (a list of ranks), over the ranks that name the same
``pg_name``, or over all. METADATA and nodes without duration are removed; their followers inherit their dependencies.

Sizes of an all-gather are those of ASTRA-sim and of the traces of PyTorch: the contribution of one rank. Sources:
MLCommons Chakra ``et_def.proto``; ASTRA-sim 2, ``Workload.cc`` and ``Ring.cc``.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from railyard.errors import ConfigError
from workloads.formats.chakra_nodes import Node, NodeType, read_nodes
from workloads.formats.chakra_order import MESSAGES, channel, global_order, local_order, match_messages
from workloads.formats.reading import MOST_MESSAGE_BYTES, Reading
from workloads.formats.units import LONGEST_S, OPERATIONS_UNIT, UNITS, ComputeUnit, read_unit
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send, check_size
from workloads.schedule import CollectiveKind

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
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()) if os.path.isdir(folder) else []:
        match = _NAME.fullmatch(file.name)
        if match and wanted in (None, match["prefix"]):
            found[match["prefix"]][int(match["rank"])] = file
    if not found:
        raise ConfigError("there are no files NAME.0.et, NAME.1.et, ... of a Chakra trace", source=str(path))
    check_size(max(map(len, found.values())), 0, "ranks", str(path))
    if len(found) > 1:
        names = ", ".join(sorted(found)[:5])
        raise ConfigError(f"the folder holds several traces ({names}); name one with its folder", source=str(path))
    prefix, files = found.popitem()
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
        """Order all nodes, then build the list of each rank."""
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
        """The operation of a node, None for a node without duration."""
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
        """Seconds that a node occupies the accelerator."""
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
        found: list[list[Node]] = []
        for name, lists in self._group_lists().items():
            members = self.groups[name].members
            for member in members:
                self._compare(lists[members[0]], lists[member], members, member)
            if len(members) == 1:
                del self.groups[name]
                self.notes.append(f"collectives of group {name} have one member and do nothing.")
                continue
            self.group_of.update((node, name) for nodes in lists.values() for node in nodes)
            found += map(list, zip(*lists.values(), strict=True))
        return found

    def _group_lists(self) -> dict[str, dict[int, list[Node]]]:
        """Collectives of every group by member, in local order; makes the groups."""
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
        for one, other in zip_longest(ours, theirs):
            if one is None or other is None:
                without = rank if other is None else members[0]
                raise (one or other).error(f"is a collective that rank {without} never joins")
            (kind, size), (its_kind, its_size) = _kind(one, len(members)), _kind(other, len(members))
            if (kind, size) != (its_kind, its_size):
                raise other.error(
                    f"is {its_kind} of {its_size} bytes where rank {members[0]} runs {kind} of {size} bytes "
                    f"(node {one.id}); the ranks of a group must run the same collectives"
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
    """Kind of a collective, and its bytes as a Program counts them."""
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
