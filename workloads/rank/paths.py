"""Chooses the pair of ports that a transfer takes.

A path is (rank, lane, peer rank, peer lane). A group that requests circuits is told its paths with each
acknowledgement, any other group when it checks in. Without a control plane (mode native) packet forwarding joins the
ports that the OCS would join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from railyard.protocol import Hop, SlotWindow
from topos.plan import Network
from workloads.program import Domain, Group

PeerKey = tuple[Domain, int, int, int]
"""A path as seen from one of its ends: (domain, own lane, peer rank, peer lane)."""

NETWORK_OF_DOMAIN: dict[Domain, Network] = {"scale-out": "rail", "scale-up": "scale-up", "front-end": "front-end"}


def wired_paths(group: Group, ports_per_gpu: int = 2) -> tuple[Hop, ...]:
    """The paths that ``group`` has on its rail without a request.

    As Opus wires it: a pipeline pair by lane 1 of the upstream and lane 0 of the downstream member, all other groups in
    a ring, member i lane 1 to member i + 1 lane 0 (two members: two paths). With one port per GPU (packet switches
    only) all traffic leaves and enters by lane 0.
    """
    members = group.members
    if len(members) < 2:
        return ()
    out = min(1, ports_per_gpu - 1)
    if group.dimension == "pp" and len(members) == 2:
        return (Hop(members[0], out, members[1], 0),)
    return tuple(Hop(a, out, b, 0) for a, b in zip(members, members[1:] + members[:1], strict=True))


def paths_by_rank(paths: Iterable[Hop]) -> dict[int, list[Hop]]:
    """The paths that begin or end at each rank."""
    own: dict[int, list[Hop]] = {}
    for path in paths:
        for rank in {path.rank, path.peer}:
            own.setdefault(rank, []).append(path)
    return own


def slot_window_in(answer: Mapping[str, Any]) -> SlotWindow | None:
    """The slot in an answer of the controller; None where circuits do not come in slots."""
    told = answer.get("slot_window")
    return None if told is None else SlotWindow(*told)


def path_at_peer(path: PeerKey, rank: int) -> PeerKey:
    domain, lane, _, peer_lane = path
    return domain, peer_lane, rank, lane


def keys_at(rank: int, paths: Iterable[Hop]) -> list[PeerKey]:
    return [("scale-out", lane, peer, far) for r, lane, peer, far in _both_ways(paths) if r == rank]


def choose_path(
    paths: Iterable[Hop], src: int, dst: int, lane: int, *, forwarded: bool = False, ports_per_gpu: int = 2
) -> Hop | None:
    """The path from ``src`` to ``dst`` (seen from ``src``) for a transfer of ``lane``; both ends compute the same path.

    With several paths, in the order of the sender's port lanes, lane 2k takes the k-th from the top and lane 2k + 1 the
    k-th from the bottom, modulo their number. ``forwarded``: without a path, a packet switch carries the transfer
    between the ports that the lane would leave and reach on a ring with a pair of ports for every two lanes (with one
    port per GPU, between those).
    """
    pair, counter = divmod(lane, 2)
    between = [p for p in paths if (p[0] == src and p[2] == dst) or (p[0] == dst and p[2] == src)]
    direct = sorted({p for p in _both_ways(between) if p[0] == src}, key=lambda p: (p[1], p[3]))
    if direct:
        pair %= len(direct)
        return direct[pair] if counter else direct[-1 - pair]
    if not forwarded:
        return None
    low = 2 * (pair % max(1, ports_per_gpu // 2))
    high = min(low + 1, ports_per_gpu - 1)
    return Hop(src, low, dst, high) if counter else Hop(src, high, dst, low)


def _both_ways(paths: Iterable[Hop]) -> Iterable[Hop]:
    for rank, lane, peer, peer_lane in paths:
        yield Hop(rank, lane, peer, peer_lane)
        yield Hop(peer, peer_lane, rank, lane)


class Paths:
    """The paths of the groups of one rank.

    ``forwarding``: packet switches carry what has no path of its own on the rails (``choose_path``).
    """

    def __init__(self, ports_per_gpu: int, *, forwarding: bool) -> None:
        self._ports_per_gpu = ports_per_gpu
        self._forwarding = forwarding
        self._of_group: dict[str, tuple[Hop, ...]] = {}
        self._places: dict[tuple[str, int, int, bool], tuple[int, int] | None] = {}
        """Chosen ports by group, peer, lane and direction."""
        self._switched: set[str] = set()
        """Groups of which a packet switch joins every pair of members, by lane 0 of both."""

    def set(self, group: str, paths: tuple[Hop, ...]) -> None:
        if self._of_group.get(group) != paths or group in self._switched:
            self._of_group[group] = paths
            self._switched.discard(group)
            self._forget(group)

    def set_wired(self, group: Group) -> None:
        """Give ``group`` the paths that it has without a request; beside the rails, its members share a switch."""
        if group.domain == "scale-out":
            self.set(group.name, wired_paths(group, self._ports_per_gpu))
        else:
            self._switched.add(group.name)
            self._forget(group.name)

    def _forget(self, group: str) -> None:
        for key in [key for key in self._places if key[0] == group]:
            del self._places[key]

    def place(self, group: Group, rank: int, peer: int, lane: int, *, incoming: bool) -> tuple[int, int] | None:
        """The ports (of ``rank``, of ``peer``) that a transfer of ``lane`` takes; None where no path is known."""
        key = group.name, peer, lane, incoming
        if key not in self._places:
            self._places[key] = self._choose(group, rank, peer, lane, incoming=incoming)
        return self._places[key]

    def _choose(self, group: Group, rank: int, peer: int, lane: int, *, incoming: bool) -> tuple[int, int] | None:
        if group.name in self._switched:
            return 0, 0
        source, target = (peer, rank) if incoming else (rank, peer)
        forwarded = self._forwarding and group.domain == "scale-out"
        ports, paths = self._ports_per_gpu, self._of_group.get(group.name, ())
        path = choose_path(paths, source, target, lane, forwarded=forwarded, ports_per_gpu=ports)
        if path is None:
            return None
        return (path[3], path[1]) if incoming else (path[1], path[3])
