"""Ranks and groups of a training job in Megatron's rank order ``tp-ep-dp-pp`` (leftmost fastest).

Source: Megatron-LM ``parallel_state.RankGenerator``, default order; Opus, arXiv 2602.12521, section 2.

A group may have several GPUs per server. The GPUs of a server share its scale-up network; GPUs of one local rank share
a rail. A collective over such a group consists of two or three, each on one network, so that each byte crosses its rail
once. Sums as in Goyal et al., "Accurate, large minibatch SGD", 2017 (a rail carries one part for each GPU of a server);
an all-to-all first collects, inside the server, the data for one local rank of other servers, then sends it along that
rail (NCCL's PXN; hierarchical all-to-all of DeepSpeed-MoE, Rajbhandari et al., ICML 2022), and takes the reverse path
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy
from pydantic import Field

from railyard.errors import ConfigError
from railyard.validation import Section
from workloads.program import Dimension, Domain, Group
from workloads.schedule import CollectiveKind

ELEMENT_BYTES = 4
"""Size of a float32. A buffer with fewer elements than a server has GPUs is summed whole at both levels."""

Leg = tuple[str, CollectiveKind, int]
"""Part of a collective on one network: (group, kind, bytes as in ``Collective.bytes``)."""


@dataclass(frozen=True)
class Levels:
    """The groups of one rank, by name: ``inside`` its server and ``along`` its rail ("" where there is none).

    ``gpus``: number of members per server.
    """

    inside: str = ""
    along: str = ""
    gpus: int = 1

    def __bool__(self) -> bool:
        return bool(self.inside or self.along)

    def legs(self, kind: CollectiveKind, size: int, *, back: bool = False) -> tuple[Leg, ...]:
        """The legs of a collective of ``size`` bytes, one after another; none without a group.

        ``back``: the way back of an all-to-all, along the rail first. Raises ``ValueError`` for a kind that cannot be
        divided.
        """
        if not (self.inside and self.along):
            name = self.inside or self.along
            return ((name, kind, size),) if name else ()
        part = -(-size // self.gpus)
        if kind == "all_gather":
            return (self.along, kind, part), (self.inside, kind, size)
        if kind == "reduce_scatter":
            return (self.inside, kind, size), (self.along, kind, part)
        if kind == "all_reduce":
            if size < self.gpus * ELEMENT_BYTES:
                return (self.inside, kind, size), (self.along, kind, size)
            return (self.inside, "reduce_scatter", size), (self.along, kind, part), (self.inside, "all_gather", size)
        if kind == "all_to_all":
            there: tuple[Leg, Leg] = (self.inside, kind, size), (self.along, kind, size)
            return there[::-1] if back else there
        raise ValueError(f"a collective of kind {kind} cannot be divided into two levels")


def network_of(members: Sequence[int], gpus_per_server: int) -> Domain | None:
    """The network that joins all members: that of their server, or one rail; None where there is none."""
    if len({rank // gpus_per_server for rank in members}) == 1:
        return "scale-up"
    return "scale-out" if len({rank % gpus_per_server for rank in members}) == 1 else None


def on_its_network(group: Group, gpus_per_server: int) -> Group:
    """``group`` on the network that joins its members, unless that is the front end; ``ConfigError`` if none does."""
    if group.domain == "front-end":
        return group
    network = network_of(group.members, gpus_per_server)
    if network is None:
        raise ConfigError(
            f"group {group.name} (ranks {some_ranks(group.members)}) lies neither in one server of {gpus_per_server} "
            "GPUs nor on one rail; choose 1 GPU per server",
            key="gpus_per_server",
        )
    return replace(group, domain="scale-up") if network == "scale-up" and gpus_per_server > 1 else group


def some_ranks(members: Sequence[int]) -> str:
    return ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")


def spread(
    name: str, dimension: Dimension, members: Sequence[int], stage: int, gpus_per_server: int
) -> tuple[Group, ...]:
    """The groups that carry the collectives of ``members`` (in ring order).

    One group ``name`` where one network is enough, else ``name.server3`` for each server and ``name.rail0`` for each
    rail. Raises ``ConfigError`` if the servers do not have members on the same rails.
    """
    network = network_of(members, gpus_per_server)
    if network is not None:
        return (Group(name, dimension, tuple(members), network, stage),)
    by_server: dict[int, list[int]] = {}
    for rank in members:
        by_server.setdefault(rank // gpus_per_server, []).append(rank)
    rails = [sorted(rank % gpus_per_server for rank in local) for local in by_server.values()]
    if any(other != rails[0] for other in rails):
        raise ConfigError(
            f"group {name} (ranks {some_ranks(members)}) does not have the same rails in each of its servers of "
            f"{gpus_per_server} GPUs; choose sizes so that TP x EP divides fabric.gpus_per_server = {gpus_per_server}, "
            "or is a multiple of it with a TP that divides it",
            key=f"parallelism.{'dp' if dimension == 'edp' else dimension}",
        )
    inside = [
        Group(f"{name}.server{server}", dimension, tuple(local), "scale-up", stage)
        for server, local in by_server.items()
    ]
    along = [
        Group(
            f"{name}.rail{rail}",
            dimension,
            tuple(rank for local in by_server.values() for rank in local if rank % gpus_per_server == rail),
            "scale-out",
            stage,
        )
        for rail in rails[0]
    ]
    return (*inside, *along)


def levels_of(rank: int, parts: Iterable[Group], groups: Mapping[str, Group]) -> Levels:
    """The levels of ``rank`` among the ``parts`` of its group (``spread``).

    A part that is not among the program's ``groups`` is represented by the data-parallel group of the same
    members.
    """
    mine = {part.domain: part for part in parts if rank in part.members}
    names = {domain: part.name if part.name in groups else _same(part, groups) for domain, part in mine.items()}
    gpus = len(mine["scale-up"].members) if "scale-up" in mine else 1
    return Levels(names.get("scale-up", ""), names.get("scale-out", ""), gpus)


def _same(part: Group, groups: Mapping[str, Group]) -> str:
    """Name of the data-parallel group with the members of ``part``."""
    return next(g.name for g in groups.values() if (g.members, g.dimension) == (part.members, "dp"))


WORLD_GROUP = "world"


class Coordinates(NamedTuple):
    """Index of a rank in each dimension of parallelism, in rank order."""

    tp: int = 0
    ep: int = 0
    dp: int = 0
    pp: int = 0


class Parallelism(Section):
    """The size of each dimension; their product is the number of GPUs. Section ``parallelism`` of a workload file.

    >>> p = Parallelism(tp=4, pp=2, dp=2)
    >>> p.coordinates(13)
    Coordinates(tp=1, ep=0, dp=1, pp=1)
    """

    tp: int = Field(default=1, ge=1, le=10**6)
    pp: int = Field(default=1, ge=1, le=10**6)
    dp: int = Field(default=1, ge=1, le=10**6)
    ep: int = Field(default=1, ge=1, le=10**6)

    @property
    def sizes(self) -> Coordinates:
        """Sizes of the dimensions in the order of ranks, the fastest first."""
        return Coordinates(self.tp, self.ep, self.dp, self.pp)

    @property
    def ranks(self) -> int:
        """Number of ranks (GPUs): the product of all sizes."""
        return prod(self.sizes)

    def rank(self, at: Coordinates) -> int:
        """The rank with the coordinates ``at``; raises ``ValueError`` outside the sizes."""
        return int(numpy.ravel_multi_index(at, self.sizes, order="F"))

    def coordinates(self, rank: int) -> Coordinates:
        """The coordinates of ``rank``; raises ``ValueError`` for a rank that does not exist."""
        return Coordinates(*map(int, numpy.unravel_index(rank, self.sizes, order="F")))

    def check_gpus(self, servers: int, gpus_per_server: int) -> None:
        """Raise ``ConfigError`` naming the keys when the dimensions do not fill the fabric exactly."""
        gpus = servers * gpus_per_server
        if self.ranks != gpus:
            more = f" x EP {self.ep}" if self.ep > 1 else ""
            raise ConfigError(
                f"TP {self.tp} x PP {self.pp} x DP {self.dp}{more} = {self.ranks} GPUs, but fabric.servers x "
                f"fabric.gpus_per_server = {servers} x {gpus_per_server} = {gpus}; the two must be equal",
                key="parallelism.tp, parallelism.pp, parallelism.dp" + (", parallelism.ep" if self.ep > 1 else ""),
            )


_VARIES: dict[Dimension, tuple[str, ...]] = {"tp": ("tp",), "dp": ("ep", "dp"), "ep": ("ep",), "edp": ("dp",)}
"""By dimension: the coordinates in which the members of a group differ, fastest first."""
_NAMED: dict[Dimension, str] = {"tp": "des", "dp": "ts", "edp": "tes", "ep": "tds", "pp": "tdes"}
"""By dimension: the coordinates in which the members agree, by first letter (s: the stage)."""


def groups(
    parallelism: Parallelism, servers: int, gpus_per_server: int, *, tp_across_servers: bool = False
) -> dict[str, Group]:
    """All groups of more than one member, by name, in the order tp, dp, ep, edp, pp, world.

    ======================= ======================= ==============================================================
    name                    members, in ring order  domain
    ======================= ======================= ==============================================================
    ``tp.d0.s0``            a TP group              scale-up; a group that crosses servers is a ``ConfigError``
                                                    unless ``tp_across_servers`` says that scale-up spans servers
    ``dp.t0.s0``            DP index inside a stage scale-out (scale-up when all members share one server)
    ``ep.t0.d0.s0``         EP index                as dp
    ``edp.t0.e0.s0``        DP, for one EP index    as dp
    ``pp.t0.d0.s0``         stage 0 and stage 1     scale-out (scale-up when both share one server)
    ``world``               every rank              front-end: scalars only, never a rail
    ======================= ======================= ==============================================================

    With EP above 1, all parameters but the experts are data parallel over EP x DP: ``dp`` has the members of both, the
    EP index fastest, and experts have groups of their own, ``edp`` (Megatron-LM: expert data parallel), unless a ``dp``
    group joins the same members on the rails. A group of dp, edp or ep with several GPUs in each of several servers is
    one of each server and one of each rail (``dp.t0.s0.server0``, ``dp.t0.s0.rail0``: ``workloads.training.ranks``).

    Names carry EP where it is above 1 (``tp.d0.e0.s0``). Raises ``ConfigError`` when the sizes do not
    fill the fabric, or when a group would need to leave its rail.
    """
    parallelism.check_gpus(servers, gpus_per_server)
    all_groups: dict[str, Group] = {}
    on_rails: set[tuple[int, ...]] = set()
    for dimension, axes in _VARIES.items():
        if dimension == "edp" and parallelism.ep == 1:
            continue
        for rank in range(parallelism.ranks):
            if any(getattr(parallelism.coordinates(rank), axis) for axis in axes):
                continue
            for group in parts_of(dimension, parallelism, rank, gpus_per_server, tp_across_servers=tp_across_servers):
                if dimension == "edp" and group.members in on_rails:
                    continue
                all_groups[group.name] = group
                if dimension == "dp" and group.domain == "scale-out":
                    on_rails.add(group.members)
    stride = parallelism.ranks // parallelism.pp
    for rank in range(parallelism.ranks - stride):
        name, stage = group_name("pp", parallelism, rank), parallelism.coordinates(rank).pp
        all_groups[name] = _on_one_network(name, "pp", (rank, rank + stride), stage, gpus_per_server)
    if parallelism.ranks > 1:
        all_groups[WORLD_GROUP] = Group(WORLD_GROUP, "world", tuple(range(parallelism.ranks)), "front-end")
    return all_groups


def parts_of(
    dimension: Dimension, parallelism: Parallelism, rank: int, gpus_per_server: int, *, tp_across_servers: bool = False
) -> tuple[Group, ...]:
    """The parts of the tp, dp, edp or ep group of ``rank``: the group or its levels; none for a single member.

    Raises ``ConfigError`` as ``groups`` does.
    """
    at = parallelism.coordinates(rank)
    members = [at]
    for axis in reversed(_VARIES[dimension]):
        members = [m._replace(**{axis: i}) for m in members for i in range(getattr(parallelism, axis))]
    if len(members) == 1:
        return ()
    ranks = tuple(parallelism.rank(m) for m in members)
    name = group_name(dimension, parallelism, rank)
    if dimension != "tp" and parallelism.ep > 1:
        return spread(name, dimension, ranks, at.pp, gpus_per_server)
    return (_on_one_network(name, dimension, ranks, at.pp, gpus_per_server, tp_across_servers),)


def group_name(dimension: Dimension, parallelism: Parallelism, rank: int) -> str:
    """Name such as ``dp.t0.s1`` of a rank's group, made of the coordinates that are fixed inside the group.

    ``pp``: the pair of ``rank`` and its peer in the next stage.
    """
    at = parallelism.coordinates(rank)
    place = {"t": at.tp, "d": at.dp, "s": at.pp} | ({"e": at.ep} if parallelism.ep > 1 else {})
    return ".".join([dimension, *(f"{letter}{place[letter]}" for letter in _NAMED[dimension] if letter in place)])


def _on_one_network(
    name: str,
    dimension: Dimension,
    members: Sequence[int],
    stage: int,
    gpus_per_server: int,
    tp_across_servers: bool = False,
) -> Group:
    """A group that lies on one network; raises ``ConfigError`` where none can carry it."""
    network = network_of(members, gpus_per_server)
    if dimension == "tp" and network != "scale-up":
        if not tp_across_servers:
            raise ConfigError(
                f"group {name} of {len(members)} GPUs crosses servers of {gpus_per_server} GPUs; choose a TP that "
                "divides fabric.gpus_per_server, or set tp_across_servers where scale-up spans servers",
                key="parallelism.tp",
            )
        network = "scale-up"
    if network is None:
        raise ConfigError(
            f"group {name} (ranks {', '.join(map(str, members))}) does not lie on one rail with one GPU per server; "
            f"choose sizes whose product below {dimension.upper()} is a multiple, or a divisor that keeps the group "
            f"in one server, of fabric.gpus_per_server = {gpus_per_server}",
            key=f"parallelism.{dimension}",
        )
    return Group(name, dimension, tuple(members), network, stage)
