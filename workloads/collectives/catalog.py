"""Catalog of the collective algorithms by name; their schedules are verified once and cached.

An algorithm is a function (kind, n) -> Schedule with its capabilities; adding one is one entry in ``ALGORITHMS``. Rings
of more than two lanes are not included, since a rail has two ports for each GPU; a program carries its own
(``training_job``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from railyard.errors import ConfigError, nearest
from workloads.collectives.algorithms import (
    allpairs,
    bidirectional_direct_all_to_all,
    chain,
    direct,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    line_all_to_all,
    pairwise_all_to_all,
    recursive_doubling,
    recursive_halving,
    ring,
    ring_all_to_all,
    tree,
    valiant_all_to_all,
)
from workloads.collectives.stragglar import MOST_SEARCHED, eager, stragglar, straggler_direct
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


def _on_ring(kind: CollectiveKind, n: int) -> Schedule:
    if kind == "all_to_all":
        return ring_all_to_all(n)
    return chain(kind, n) if kind in ("broadcast", "reduce") else ring(kind, n)


def _on_two_rings(kind: CollectiveKind, n: int) -> Schedule:
    return ring_all_to_all(n, bidirectional=True) if kind == "all_to_all" else ring(kind, n, lanes=2)


def _only_all_to_all(build: Callable[[int], Schedule]) -> Algorithm:
    return Algorithm(lambda kind, n: build(n), ("all_to_all",))


_SUMS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
_ROOTED: tuple[CollectiveKind, ...] = ("broadcast", "reduce", "gather", "scatter")

MOST_MEMBERS = 512
"""Most members of a collective whose schedule is built."""
_FORWARDING: dict[str, int] = {"ring": 64, "bidirectional-ring": 64, "line": 64, "valiant": 40}
"""Most members of an all-to-all that forwards chunks: its transfers grow with the third power of the members."""

ALGORITHMS: dict[str, Algorithm] = {
    "ring": Algorithm(_on_ring, (*_SUMS, "all_to_all", "broadcast", "reduce")),
    "bidirectional-ring": Algorithm(_on_two_rings, (*_SUMS, "all_to_all")),
    "line": _only_all_to_all(line_all_to_all),
    "recursive-halving-doubling": Algorithm(halving_doubling, ("all_reduce",)),
    "recursive-doubling": Algorithm(recursive_doubling, ("all_reduce", "all_gather")),
    "recursive-halving": Algorithm(recursive_halving, ("reduce_scatter",)),
    "tree": Algorithm(tree, ("all_reduce", *_ROOTED)),
    "double-binary-tree": Algorithm(double_binary_tree, ("all_reduce",)),
    "pairwise": _only_all_to_all(pairwise_all_to_all),
    "valiant": _only_all_to_all(valiant_all_to_all),
    "hierarchical": Algorithm(hierarchical, ("all_reduce",), servers=True),
    "direct": Algorithm(direct, (*_SUMS, "all_to_all", *_ROOTED)),
    "allpairs": Algorithm(allpairs, ("all_reduce",)),
    "bidirectional-direct": _only_all_to_all(bidirectional_direct_all_to_all),
    "stragglar": Algorithm(stragglar, ("all_reduce",), least=2, straggler=True),
    "stragglar-eager": Algorithm(eager, ("all_reduce",), least=4),
    "straggler-direct": Algorithm(straggler_direct, ("all_reduce",), least=2, straggler=True),
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
        names = ", ".join(ALGORITHMS)
        raise ConfigError(
            f"unknown algorithm {algorithm!r}; known: {names}{nearest(algorithm, ALGORITHMS)}", key="algorithm"
        )
    if kind not in known.kinds:
        able = [name for name, other in ALGORITHMS.items() if kind in other.kinds]
        raise ConfigError(
            f"algorithm {algorithm!r} does not support {kind}; "
            + (f"these do: {', '.join(able)}" if able else f"none does{nearest(kind, get_args(CollectiveKind))}"),
            key="algorithm",
        )
    check_members(kind, algorithm, n)
    if n < 1:
        raise ConfigError(f"a collective needs at least 1 member, not {n}", key="members")
    if n < known.least:
        raise ConfigError(f"algorithm {algorithm!r} needs at least {known.least} members, not {n}", key="members")
    _check_straggler(algorithm, n, straggler)
    _check_servers(algorithm, n, gpus_per_server)
    options: tuple[tuple[str, int], ...] = ()
    if known.straggler:
        options = (("straggler", n - 1 if straggler is None else straggler),)
    if known.servers:
        options = (("gpus_per_server", gpus_per_server),)
    return _verified(kind, n, algorithm, options)


def check_members(kind: CollectiveKind, algorithm: str, n: int) -> None:
    """``ConfigError`` for more members than those whose schedule is built and proved in a few seconds."""
    most, else_ = MOST_MEMBERS, ""
    if kind == "all_to_all" and algorithm in _FORWARDING:
        most = _FORWARDING[algorithm]
    elif algorithm in ("stragglar", "stragglar-eager") and n & (n - 1):
        most, else_ = MOST_SEARCHED, f", or a power of two up to {MOST_MEMBERS}"
    if n > most:
        raise ConfigError(
            f"algorithm {algorithm!r} of {kind} takes at most {most} members{else_}, not {n}", key="members"
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
def _verified(kind: CollectiveKind, n: int, algorithm: str, options: tuple[tuple[str, int], ...]) -> Schedule:
    built = ALGORITHMS[algorithm].build(kind, n, **dict(options))
    verify(built)
    return built


def schedule_of(program: Program, op: Collective) -> Schedule:
    group = program.groups[op.group]
    own = program.schedules.get(op.algorithm)
    return own or schedule(op.kind, len(group.members), op.algorithm or algorithm_for(op.kind, group.domain))


def algorithm_for(kind: CollectiveKind, domain: Domain) -> str:
    """The default algorithm of a group: trees for kinds with a root and for scalars on the front-end, else rings.

    Rings need only circuits that never change.
    """
    if kind in _ROOTED or (kind == "all_reduce" and domain == "front-end"):
        return "tree"
    return "bidirectional-ring"
