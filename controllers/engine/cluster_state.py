"""What is there beside a job: told to its policy before each decision (``Policy.see``)."""

from __future__ import annotations

from controllers.engine.optical_state import OpticalState
from controllers.engine.registry import JobRegistry
from controllers.policies.policy import ClusterState


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
