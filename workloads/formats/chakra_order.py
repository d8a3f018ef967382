"""Orders the nodes of all ranks: every send before its receive, the members of a collective together.

The order of the lists in a Program is binding (computes of a rank, messages of a pair), so the lists follow one order
that all ranks share; then no list can cause a deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import TypeVar

from workloads.formats.chakra_nodes import Node, NodeType

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
    found: dict[Node, Node] = {}
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
            found[send] = recv
    return found


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
