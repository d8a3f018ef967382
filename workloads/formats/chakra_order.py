"""Orders the nodes of all ranks: every send before its receive, the members of a collective together.

The order of the lists in a Program is binding (computes of a rank, messages of a pair), so the lists follow one order
that all ranks share; then no list can cause a deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeVar

from workloads.formats.chakra_nodes import Node, NodeType

Key = tuple[int, int]
"""(rank, node id)."""
K = TypeVar("K", int, tuple[int, int])
Channel = tuple[int, int, int]
"""(source rank, destination rank, tag): messages of one channel arrive in the order in which they were sent."""


def local_order(nodes: Sequence[Node]) -> list[Node]:
    """The nodes of one rank, each after its dependencies, otherwise by id.

    Raises ``ConfigError`` for a node that depends on a missing one, or on itself through others.
    """
    by_id = {node.id: node for node in nodes}
    for node in nodes:
        for dep in node.deps:
            if dep not in by_id:
                raise node.error(f"depends on node {dep}, which is not in the file")
    before = {node.id: set(node.deps) for node in nodes}
    order = _sorted(before, {id_: (id_,) for id_ in before})
    if len(order) < len(before):
        cycle = _cycle(before, set(order))
        around = f" (by way of node {', '.join(map(str, cycle[1:6]))})" if len(cycle) > 1 else ""
        raise by_id[cycle[0]].error(f"waits for itself{around}; a trace must have no cycle")
    return [by_id[id_] for id_ in order]


def match_messages(orders: Sequence[Sequence[Node]]) -> dict[Key, Key]:
    """The receive of every send: on each channel, the k-th send goes with the k-th receive.

    Raises ``ConfigError`` for a message without its other end, a rank that does not exist, or different sizes.
    """
    sends: dict[Channel, list[Node]] = defaultdict(list)
    recvs: dict[Channel, list[Node]] = defaultdict(list)
    for rank, nodes in enumerate(orders):
        for node in nodes:
            if node.type in (NodeType.SEND, NodeType.RECV):
                (sends if node.type is NodeType.SEND else recvs)[channel(node, rank, len(orders))].append(node)
    found: dict[Key, Key] = {}
    for src, dst, tag in sorted(sends.keys() | recvs.keys()):
        out, back = sends[src, dst, tag], recvs[src, dst, tag]
        if len(out) > len(back):
            raise out[len(back)].error(f"sends to rank {dst} with tag {tag}, where no receive takes it")
        if len(back) > len(out):
            raise back[len(out)].error(f"receives from rank {src} with tag {tag}, which sends nothing for it")
        for send, recv in zip(out, back, strict=True):
            if send.need("comm_size") != recv.need("comm_size"):
                raise recv.error(
                    f"receives {recv.need('comm_size')} bytes where node {send.id} of rank {src} sends "
                    f"{send.need('comm_size')}; both must be equal"
                )
            found[src, send.id] = (dst, recv.id)
    return found


def channel(node: Node, rank: int, ranks: int) -> Channel:
    """The channel of a send or receive of ``rank``; raises ``ConfigError`` for a peer that does not exist."""
    sends = node.type is NodeType.SEND
    peer = node.need("comm_dst" if sends else "comm_src")
    if not 0 <= peer < ranks:
        raise node.error(f"names rank {peer} as its peer; the ranks are 0 to {ranks - 1}")
    if peer == rank:
        raise node.error(f"names its own rank {rank} as its peer; it must be another one")
    tag = node.number("comm_tag") or 0
    return (rank, peer, tag) if sends else (peer, rank, tag)


def global_order(
    orders: Sequence[Sequence[Node]], messages: Mapping[Key, Key], collectives: Sequence[Sequence[Key]]
) -> list[Key]:
    """All nodes of all ranks in one order that respects all dependencies; members of a collective are adjacent.

    Raises ``ConfigError`` for a node that waits for itself through other ranks.
    """
    joint = {key: members[0] for members in collectives for key in members}
    before: dict[Key, set[Key]] = {}
    place_of: dict[Key, tuple[int, ...]] = {}
    last: dict[tuple[Channel, bool], Key] = {}
    sender = {recv: send for send, recv in messages.items()}
    for rank, nodes in enumerate(orders):
        for place, node in enumerate(nodes):
            key = (rank, node.id)
            own = joint.get(key, key)
            needs = before.setdefault(own, set())
            place_of.setdefault(own, (place, rank))
            needs.update(joint.get((rank, dep), (rank, dep)) for dep in node.deps)
            if key in sender:
                needs.add(sender[key])
            if node.type in (NodeType.SEND, NodeType.RECV):
                line = (channel(node, rank, len(orders)), node.type is NodeType.SEND)
                if line in last:
                    needs.add(last[line])
                last[line] = key
    order = _sorted(before, place_of)
    if len(order) < len(before):
        rank, id_ = _cycle(before, set(order))[0]
        stuck = next(node for node in orders[rank] if node.id == id_)
        raise stuck.error("can never run: it waits for other ranks that wait for it")
    members = {group[0]: list(group) for group in collectives}
    return [key for first in order for key in members.get(first, [first])]


def _sorted(before: Mapping[K, set[K]], place: Mapping[K, tuple[int, ...]]) -> list[K]:
    """Topological order, smallest place first; shorter than ``before`` where there is a cycle."""
    left = {key: len(needs) for key, needs in before.items()}
    after: dict[K, list[K]] = defaultdict(list)
    for key, needs in before.items():
        for need in needs:
            after[need].append(key)
    free: list[tuple[tuple[int, ...], K]] = []
    for key, count in left.items():
        if count == 0:
            heappush(free, (place[key], key))
    order: list[K] = []
    while free:
        _, key = heappop(free)
        order.append(key)
        for follower in after[key]:
            left[follower] -= 1
            if left[follower] == 0:
                heappush(free, (place[follower], follower))
    return order


def _cycle(before: Mapping[K, set[K]], done: set[K]) -> list[K]:
    """The keys of one cycle among those that are not done."""
    key = min(key for key in before if key not in done)
    seen: dict[K, int] = {}
    path: list[K] = []
    while key not in seen:
        seen[key] = len(path)
        path.append(key)
        key = min(need for need in before[key] if need not in done)
    return path[seen[key] :]
