"""Catalog of the collective algorithms by name; their schedules are verified once and cached.

An algorithm is a function (kind, n) -> Schedule with its capabilities; adding one is one entry in ``ALGORITHMS``. Rings
of more than two lanes are not included, since a rail has two ports for each GPU; a program carries its own
(``training_job``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from railyard.errors import ConfigError
from workloads.collectives.chain import CHAIN_KINDS, chain
from workloads.collectives.direct import DIRECT_KINDS, bidirectional_direct, direct
from workloads.collectives.double_binary_tree import DOUBLE_BINARY_TREE_KINDS, double_binary_tree
from workloads.collectives.halving_doubling import halving_doubling, recursive_doubling, recursive_halving
from workloads.collectives.hierarchical import HIERARCHICAL_KINDS, hierarchical
from workloads.collectives.hops import line_all_to_all, ring_all_to_all
from workloads.collectives.pairwise import PAIRWISE_KINDS, pairwise
from workloads.collectives.ring import RING_KINDS, ring
from workloads.collectives.stragglar import STRAGGLAR_KINDS, stragglar
from workloads.collectives.straggler_direct import STRAGGLER_DIRECT_KINDS, straggler_direct
from workloads.collectives.tree import TREE_KINDS, tree
from workloads.collectives.valiant import VALIANT_KINDS, valiant
from workloads.collectives.verify import verify
from workloads.program import Collective, Domain, Program
from workloads.schedule import CollectiveKind, Schedule


@dataclass(frozen=True)
class Algorithm:
    """A builder of schedules, with the kinds and the least number of positions that it supports.

    ``straggler``: ``build`` takes a keyword ``straggler``. ``servers``: it takes a keyword ``gpus_per_server``.
    """

    build: Callable[..., Schedule]
    kinds: tuple[CollectiveKind, ...]
    least: int = 1
    straggler: bool = False
    servers: bool = False

    def sizes(self, n: int) -> bool:
        """Whether the algorithm supports ``n`` positions."""
        return n >= self.least


def _on_ring(kind: CollectiveKind, n: int) -> Schedule:
    """Schedules for one ring: ring, chain and hop by hop."""
    if kind == "all_to_all":
        return ring_all_to_all(n)
    return chain(kind, n) if kind in CHAIN_KINDS else ring(kind, n)


def _on_two_rings(kind: CollectiveKind, n: int) -> Schedule:
    """Schedules for two rings, one in each direction."""
    return ring_all_to_all(n, bidirectional=True) if kind == "all_to_all" else ring(kind, n, lanes=2)


def _on_line(kind: CollectiveKind, n: int) -> Schedule:
    """Schedules for a ring without its last link."""
    return line_all_to_all(n)


ALGORITHMS: dict[str, Algorithm] = {
    "ring": Algorithm(_on_ring, (*RING_KINDS, "all_to_all", *CHAIN_KINDS)),
    "bidirectional-ring": Algorithm(_on_two_rings, (*RING_KINDS, "all_to_all")),
    "line": Algorithm(_on_line, ("all_to_all",)),
    "recursive-halving-doubling": Algorithm(halving_doubling, ("all_reduce",)),
    "recursive-doubling": Algorithm(recursive_doubling, ("all_reduce", "all_gather")),
    "recursive-halving": Algorithm(recursive_halving, ("reduce_scatter",)),
    "tree": Algorithm(tree, TREE_KINDS),
    "double-binary-tree": Algorithm(double_binary_tree, DOUBLE_BINARY_TREE_KINDS),
    "pairwise": Algorithm(pairwise, PAIRWISE_KINDS),
    "valiant": Algorithm(valiant, VALIANT_KINDS),
    "hierarchical": Algorithm(hierarchical, HIERARCHICAL_KINDS, servers=True),
    "direct": Algorithm(direct, DIRECT_KINDS),
    "bidirectional-direct": Algorithm(bidirectional_direct, ("all_to_all",)),
    "stragglar": Algorithm(stragglar, STRAGGLAR_KINDS, least=2, straggler=True),
    "straggler-direct": Algorithm(straggler_direct, STRAGGLER_DIRECT_KINDS, least=2, straggler=True),
}


def schedule(
    kind: CollectiveKind,
    n: int,
    algorithm: str = "ring",
    *,
    straggler: int | None = None,
    gpus_per_server: int = 1,
) -> Schedule:
    """The verified schedule of ``kind`` over ``n`` positions.

    ``straggler``: the position that comes late, for an algorithm with a straggler (default: the last).
    ``gpus_per_server``: number of consecutive positions in one server, for an algorithm that uses servers.

    Raises ``ConfigError`` for an unknown algorithm or unsupported values, naming supported ones.
    """
    known = ALGORITHMS.get(algorithm)
    if known is None:
        raise ConfigError(f"unknown algorithm {algorithm!r}; known: {', '.join(ALGORITHMS)}", key="algorithm")
    if kind not in known.kinds:
        able = [name for name, other in ALGORITHMS.items() if kind in other.kinds]
        raise ConfigError(
            f"algorithm {algorithm!r} does not support {kind}; "
            + (f"these do: {', '.join(able)}" if able else "none does"),
            key="algorithm",
        )
    if n < 1:
        raise ConfigError(f"a collective needs at least 1 member, not {n}", key="members")
    if not known.sizes(n):
        raise ConfigError(f"algorithm {algorithm!r} needs at least {known.least} members, not {n}", key="members")
    _check_straggler(algorithm, n, straggler)
    _check_servers(algorithm, n, gpus_per_server)
    return _verified(
        kind,
        n,
        algorithm,
        (n - 1 if straggler is None else straggler) if known.straggler else None,
        gpus_per_server if known.servers else 1,
    )


def _check_straggler(algorithm: str, n: int, straggler: int | None) -> None:
    if straggler is None:
        return
    if not ALGORITHMS[algorithm].straggler:
        able = [name for name, other in ALGORITHMS.items() if other.straggler]
        raise ConfigError(f"algorithm {algorithm!r} has no straggler; these do: {', '.join(able)}", key="straggler")
    if not 0 <= straggler < n:
        raise ConfigError(f"straggler {straggler} is not one of the {n} members, 0 to {n - 1}", key="straggler")


def _check_servers(algorithm: str, n: int, gpus_per_server: int) -> None:
    if gpus_per_server < 1 or (ALGORITHMS[algorithm].servers and n % gpus_per_server):
        fits = ", ".join(str(g) for g in range(1, n + 1) if n % g == 0)
        raise ConfigError(
            f"{gpus_per_server} GPUs per server do not divide {n} members; these do: {fits}", key="gpus_per_server"
        )


@lru_cache(maxsize=256)
def _verified(kind: CollectiveKind, n: int, algorithm: str, straggler: int | None, gpus_per_server: int) -> Schedule:
    known = ALGORITHMS[algorithm]
    options: dict[str, int | None] = {}
    if known.straggler:
        options["straggler"] = straggler
    if known.servers:
        options["gpus_per_server"] = gpus_per_server
    built = known.build(kind, n, **options)
    verify(built)
    return built


def schedule_of(program: Program, op: Collective) -> Schedule:
    """The schedule of ``op``: the program's own, or the catalog's."""
    group = program.groups[op.group]
    own = program.schedules.get(op.algorithm)
    return own or schedule(op.kind, len(group.members), op.algorithm or algorithm_for(op.kind, group.domain))


def algorithm_for(kind: CollectiveKind, domain: Domain) -> str:
    """The default algorithm of a group: trees for kinds with a root and for scalars on the front-end, else rings.

    Rings need only circuits that never change.
    """
    if kind in ("broadcast", "reduce", "gather", "scatter") or (kind == "all_reduce" and domain == "front-end"):
        return "tree"
    return "bidirectional-ring"
