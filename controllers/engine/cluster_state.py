"""What is there beside a job: told to its policy before each decision (``Policy.see``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controllers.circuits.circuits import Circuit

if TYPE_CHECKING:  # each of them needs policies
    from controllers.engine.optical_state import OpticalState
    from controllers.engine.registry import JobRegistry
    from controllers.policies.policy import Policy

Light = tuple[str, Circuit]
"""(switch, circuit)."""


@dataclass(frozen=True)
class ClusterState:
    """``policies`` are those of the other jobs, in order of registration, and ``ranks`` all who are or were in these.

    ``circuits`` are those between ``ranks`` that stand, are being tuned, or come back if what is being tuned fails.
    ``dead`` are all chips that have failed.
    """

    policies: tuple[Policy, ...] = ()
    ranks: frozenset[int] = frozenset()
    circuits: frozenset[Light] = frozenset()
    dead: frozenset[int] = frozenset()


def cluster_state_beside(job: str, fabric: OpticalState, registry: JobRegistry) -> ClusterState:
    """What is there beside ``job``, registered or about to be. Circuits that a finished job left are nobody's."""
    others = [membership for name, membership in registry.jobs.items() if name != job]
    mine = registry.jobs[job].ever if job in registry.jobs else set()
    ranks = frozenset(rank for membership in others for rank in membership.ever) - mine
    circuits = frozenset(
        (name, circuit)
        for name, circuit in fabric.standing()
        if all(fabric.rank_at(name, port) in ranks for port in circuit.ports)
    )
    return ClusterState(tuple(m.policy for m in others), ranks, circuits, frozenset(registry.dead))
