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

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from railyard.errors import ConfigError
from workloads.formats.chakra_nodes import Node, NodeType, read_nodes
from workloads.formats.chakra_order import Key, channel, global_order, local_order, match_messages
from workloads.formats.reading import Reading
from workloads.formats.units import LONGEST_S, OPERATIONS_UNIT, UNITS, ComputeUnit, read_unit
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.schedule import CollectiveKind

FORMAT = "Chakra ET"
KINDS: dict[int, CollectiveKind] = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    3: "gather",
    4: "scatter",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
}
BARRIER = 9
BARRIER_BYTES = 4
MOST_MESSAGE_BYTES = 1 << 50
_MOST_SPLICED_DEPS = 32
"""A node without duration but with more dependencies than this stays, as a compute of 0 s: its edges would multiply."""
_NAME = re.compile(r"(?P<prefix>.*)\.(?P<rank>\d{1,6})\.et$", re.DOTALL)


def read_chakra(path: Path, *, compute_unit: str | None = None) -> Program:
    """The program in the files of ``path``: a folder, one ``NAME.RANK.et`` of the set, or ``NAME`` with its folder.

    Raises ``ConfigError`` naming the file and node: no trace, a missing rank, a cycle, a send without its receive, a
    peer that does not exist, different sizes, or a compute time without a unit.
    """
    return read_traces(path, compute_unit=compute_unit).program


def read_traces(path: Path, *, compute_unit: str | None = None) -> Reading:
    """Read traces like ``read_chakra``, with the notes on their interpretation."""
    unit = read_unit(compute_unit)
    files = rank_files(path)
    orders = [local_order(read_nodes(file)) for file in files]
    prefix = _NAME.fullmatch(files[0].name)
    assert prefix is not None
    builder = _Builder(prefix["prefix"], orders, unit)
    return Reading(FORMAT, builder.build(), tuple(builder.notes))


def rank_files(path: Path) -> list[Path]:
    """The files of rank 0, 1, ... n - 1; ``ConfigError`` names a missing one."""
    if path.is_dir():
        folder, wanted = path, None
    else:
        match = _NAME.fullmatch(path.name)
        folder, wanted = path.parent, match["prefix"] if match else path.name
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _NAME.fullmatch(file.name)
        if match and (wanted is None or match["prefix"] == wanted):
            found[match["prefix"]][int(match["rank"])] = file
    if not found:
        raise ConfigError("there are no files NAME.0.et, NAME.1.et, ... of a Chakra trace", source=str(path))
    if len(found) > 1:
        names = ", ".join(sorted(found)[:5])
        raise ConfigError(f"the folder holds several traces ({names}); name one with its folder", source=str(path))
    prefix, files = next(iter(found.items()))
    for rank in range(len(files)):
        if rank not in files:
            raise ConfigError(
                f"{prefix}.{rank}.et is missing; ranks must be 0 to {max(files)} without gaps", source=str(folder)
            )
    return [files[rank] for rank in range(len(files))]


class _Builder:
    """Builds a Program from one set of traces."""

    def __init__(self, name: str, orders: Sequence[Sequence[Node]], unit: ComputeUnit | None) -> None:
        self.name = name
        self.orders = orders
        self.ranks = len(orders)
        self.unit = unit
        self.nodes: dict[Key, Node] = {(rank, n.id): n for rank, nodes in enumerate(orders) for n in nodes}
        self.groups: dict[str, Group] = {}
        self.listed: dict[tuple[int, ...], str] = {}
        self.notes: list[str] = []
        self.group_of: dict[Key, str] = {}

    def build(self) -> Program:
        """Order all nodes, then build the list of each rank."""
        messages = match_messages(self.orders)
        order = global_order(self.orders, messages, self._collectives())
        self._pairs(order, messages)
        lists: list[list[Operation]] = [[] for _ in range(self.ranks)]
        stands_for: dict[Key, tuple[int, ...]] = {}
        for rank, id_ in order:
            node = self.nodes[rank, id_]
            deps = tuple(sorted({op for dep in node.deps for op in stands_for[rank, dep]}))
            op = self._operation(rank, node, len(lists[rank]), deps)
            if op is None:
                stands_for[rank, id_] = deps
            else:
                stands_for[rank, id_] = (op.id,)
                lists[rank].append(op)
        if any("involved_dim" in node.attributes for node in self.nodes.values()):
            self.notes.append("involved_dim is ignored: a collective runs over all ranks of its group.")
        return Program(self.name, tuple(map(tuple, lists)), self.groups, eager=True)

    def _operation(self, rank: int, node: Node, id_: int, deps: tuple[int, ...]) -> Operation | None:
        """The operation of a node, None for a node without duration."""
        name = node.name or f"node{node.id}"
        group = self.group_of.get((rank, node.id), "")
        if node.type is NodeType.SEND:
            return Send(id_, name, group, node.need("comm_dst"), _size(node), deps)
        if node.type is NodeType.RECV:
            return Recv(id_, name, group, node.need("comm_src"), _size(node), deps)
        if node.type is NodeType.COLLECTIVE and group:
            kind, size = self._kind(node, len(self.groups[group].members))
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
            raise ConfigError(
                f"says its time only as {attribute} = {value:g}, whose unit the file does not name; give "
                f"compute_unit as {known}",
                key="compute_unit",
                source=node.source,
            )
        return 0.0

    # -- collectives -------------------------------------------------------------------------------

    def _collectives(self) -> list[list[Key]]:
        """The keys that make up each collective; also records the group of every key."""
        lists = self._group_lists()
        found: list[list[Key]] = []
        for name, members in lists.items():
            first = self.groups[name].members[0]
            for rank in self.groups[name].members:
                self._compare(name, first, rank, members[first], members[rank])
            if len(self.groups[name].members) == 1:
                del self.groups[name]
                self.notes.append(f"collectives of group {name} have one member and do nothing.")
                continue
            for k in range(len(members[first])):
                keys = [(rank, members[rank][k].id) for rank in self.groups[name].members]
                self.group_of.update(dict.fromkeys(keys, name))
                found.append(keys)
        return found

    def _group_lists(self) -> dict[str, dict[int, list[Node]]]:
        """Collectives of every group by rank, in local order; makes the groups."""
        named: dict[str, set[int]] = defaultdict(set)
        for rank, nodes in enumerate(self.orders):
            for node in nodes:
                if node.type is NodeType.COLLECTIVE and "pg_name" in node.attributes:
                    named[str(node.attributes["pg_name"])].add(rank)
        if named:
            self.notes.append("the members of a pg_name are the ranks that run a collective under it.")
        lists: dict[str, dict[int, list[Node]]] = {}
        for rank, nodes in enumerate(self.orders):
            for node in nodes:
                if node.type is NodeType.COLLECTIVE:
                    name, members = self._members(rank, node, named)
                    self.groups.setdefault(name, Group(name, "dp", members))
                    lists.setdefault(name, {member: [] for member in members})[rank].append(node)
        return lists

    def _members(self, rank: int, node: Node, named: Mapping[str, Iterable[int]]) -> tuple[str, tuple[int, ...]]:
        """Name and members of the group of a collective, its root first."""
        listed = node.attributes.get("comm_group")
        process_group = str(node.attributes.get("pg_name", ""))
        if isinstance(listed, tuple):
            members = tuple(dict.fromkeys(listed))
            name = self.listed.setdefault(members, f"group{len(self.listed)}")
        elif process_group:
            members, name = tuple(sorted(named[process_group])), f"pg.{process_group[:60]}"
        else:
            members, name = tuple(range(self.ranks)), "all"
        if rank not in members or not all(0 <= member < self.ranks for member in members):
            raise node.error(f"runs over ranks {str(members)[:80]}; they must be its own and others of 0 to "
                             f"{self.ranks - 1}")  # fmt: skip
        root = node.number("root_rank") or node.number("comm_root") or 0
        if node.attributes.keys().isdisjoint(("root_rank", "comm_root")) or root == members[0]:
            return name, members
        if root not in members:
            raise node.error(f"has rank {root} as its root; it must be one of its group")
        at = members.index(root)
        return f"{name}.root{root}", members[at:] + members[:at]

    def _compare(self, group: str, first: int, rank: int, ours: list[Node], theirs: list[Node]) -> None:
        """Check that members run the same collectives in the same order."""
        size = len(self.groups[group].members)
        for one, other in zip(ours, theirs, strict=False):
            if self._kind(one, size) != self._kind(other, size):
                kind, number = self._kind(one, size)
                raise other.error(
                    f"is {self._kind(other, size)[0]} of {self._kind(other, size)[1]} bytes where rank {first} runs "
                    f"{kind} of {number} bytes (node {one.id}); the ranks of a group must run the same collectives"
                )
        if len(ours) != len(theirs):
            short = min(len(ours), len(theirs))
            extra, without = (ours[short], rank) if len(ours) > short else (theirs[short], first)
            raise extra.error(f"is a collective that rank {without} never joins")

    def _kind(self, node: Node, members: int) -> tuple[CollectiveKind, int]:
        """Kind of a collective, and its bytes as a Program counts them."""
        number = node.need("comm_type")
        if number == BARRIER:
            return "all_reduce", BARRIER_BYTES
        kind = KINDS.get(number)
        if kind is None:
            raise node.error(f"has comm_type {number}; a collective has 0 (all-reduce) to {BARRIER} (barrier)")
        size = _size(node)
        return kind, size * members if kind in ("all_gather", "gather") else size

    # -- pairs -------------------------------------------------------------------------------------

    def _pairs(self, order: Sequence[Key], messages: Mapping[Key, Key]) -> None:
        """Make one group for each pair of ranks with messages, or one for each tag where tags overtake each other."""
        sent: dict[tuple[int, int], list[Key]] = defaultdict(list)
        taken: dict[tuple[int, int], list[Key]] = defaultdict(list)
        sender = {recv: send for send, recv in messages.items()}
        for key in order:
            if key in messages:
                sent[key[0], messages[key][0]].append(key)
            elif key in sender:
                taken[sender[key][0], key[0]].append(sender[key])
        overtaken = {(min(pair), max(pair)) for pair in sent if sent[pair] != taken[pair]}
        for key in order:
            node = self.nodes[key]
            if node.type not in (NodeType.SEND, NodeType.RECV):
                continue
            src, dst, tag = channel(node, key[0], self.ranks)
            pair = (min(src, dst), max(src, dst))
            name = f"p{pair[0]}-{pair[1]}" + (f".t{tag}" if pair in overtaken else "")
            self.groups.setdefault(name, Group(name, "pp", (src, dst)))  # upstream first: a ring fits two ports
            self.group_of[key] = name


def _size(node: Node) -> int:
    size = node.need("comm_size")
    if not 1 <= size <= MOST_MESSAGE_BYTES:
        raise node.error(f"has comm_size {size}; it must be 1 to {MOST_MESSAGE_BYTES} bytes")
    return size
