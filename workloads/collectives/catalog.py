"""The schedules that can be asked for by name, proved once and kept.

An algorithm is a function (kind, n) -> Schedule and the kinds that it can do; adding one is one line in ``ALGORITHMS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from railyard.errors import ConfigError
from workloads.collectives.ring import RING_KINDS, ring
from workloads.collectives.tree import TREE_KINDS, tree
from workloads.collectives.verify import verify
from workloads.program import Collective, Domain, Program
from workloads.schedule import CollectiveKind, Schedule


@dataclass(frozen=True)
class Algorithm:
    """A way to build schedules, and for which collectives."""

    build: Callable[[CollectiveKind, int], Schedule]
    kinds: tuple[CollectiveKind, ...]


ALGORITHMS: dict[str, Algorithm] = {
    "ring": Algorithm(ring, RING_KINDS),
    "bidirectional-ring": Algorithm(partial(ring, bidirectional=True), RING_KINDS),
    "tree": Algorithm(tree, TREE_KINDS),
}


@lru_cache(maxsize=256)
def schedule(kind: CollectiveKind, n: int, algorithm: str = "ring") -> Schedule:
    """The proved schedule of ``kind`` over ``n`` positions.

    Raises ``ConfigError`` for an unknown algorithm, or one that cannot do ``kind``, naming those that can.
    """
    known = ALGORITHMS.get(algorithm)
    if known is None:
        raise ConfigError(f"unknown algorithm {algorithm!r}; known: {', '.join(ALGORITHMS)}", key="algorithm")
    if kind not in known.kinds:
        able = [name for name, other in ALGORITHMS.items() if kind in other.kinds]
        raise ConfigError(
            f"algorithm {algorithm!r} cannot do {kind}; " + (f"these can: {', '.join(able)}" if able else "none can"),
            key="algorithm",
        )
    if n < 1:
        raise ConfigError(f"a collective needs at least 1 member, not {n}", key="members")
    built = known.build(kind, n)
    verify(built)
    return built


def schedule_of(program: Program, op: Collective) -> Schedule:
    """The schedule that carries out ``op``: the program's own, or the catalog's."""
    group = program.groups[op.group]
    own = program.schedules.get(op.algorithm)
    return own or schedule(op.kind, len(group.members), op.algorithm or algorithm_for(op.kind, group.domain))


def algorithm_for(kind: CollectiveKind, domain: Domain) -> str:
    """The algorithm a group uses unless told otherwise: trees for scalars on the front-end, rings elsewhere."""
    if kind == "broadcast" or (kind == "all_reduce" and domain == "front-end"):
        return "tree"
    return "bidirectional-ring"
