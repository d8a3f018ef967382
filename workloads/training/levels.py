"""Collectives over a group with several GPUs per server: one level inside the servers, one along the rails.

The GPUs of a server share its scale-up network; GPUs of one local rank share a rail. A collective over such a group
consists of two or three, each on one network, so that each byte crosses its rail once. Sums as in Goyal et al.,
"Accurate, large minibatch SGD", 2017 (a rail carries one part for each GPU of a server); an all-to-all first collects,
inside the server, the data for one local rank of other servers, then sends it along that rail (NCCL's PXN; hierarchical
all-to-all of DeepSpeed-MoE, Rajbhandari et al., ICML 2022), and takes the reverse path back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from railyard.errors import ConfigError
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
    rails = [sorted(rank % gpus_per_server for rank in found) for found in by_server.values()]
    if any(other != rails[0] for other in rails):
        raise ConfigError(
            f"group {name} (ranks {some_ranks(members)}) does not have the same rails in each of its servers of "
            f"{gpus_per_server} GPUs; choose sizes so that TP x EP divides fabric.gpus_per_server = {gpus_per_server}, "
            "or is a multiple of it with a TP that divides it",
            key=f"parallelism.{'dp' if dimension == 'edp' else dimension}",
        )
    inside = [
        Group(f"{name}.server{server}", dimension, tuple(found), "scale-up", stage)
        for server, found in by_server.items()
    ]
    along = [
        Group(
            f"{name}.rail{rail}",
            dimension,
            tuple(rank for found in by_server.values() for rank in found if rank % gpus_per_server == rail),
            "scale-out",
            stage,
        )
        for rail in rails[0]
    ]
    return (*inside, *along)


def levels_of(rank: int, parts: Iterable[Group], found: Mapping[str, Group]) -> Levels:
    """The levels of ``rank`` among the ``parts`` of its group (``spread``).

    A part that is not among the program's groups ``found`` is represented by the data-parallel group of the same
    members.
    """
    mine = {part.domain: part for part in parts if rank in part.members}
    names = {domain: part.name if part.name in found else _same(part, found) for domain, part in mine.items()}
    gpus = len(mine["scale-up"].members) if "scale-up" in mine else 1
    return Levels(names.get("scale-up", ""), names.get("scale-out", ""), gpus)


def _same(part: Group, found: Mapping[str, Group]) -> str:
    """Name of the data-parallel group with the members of ``part``."""
    return next(g.name for g in found.values() if (g.members, g.dimension) == (part.members, "dp"))
