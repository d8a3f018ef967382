"""The cluster state that a policy is given before each decision (``Policy.see``)."""

from __future__ import annotations

from controllers.engine.optical_state import OpticalState
from controllers.engine.registry import JobRegistry
from controllers.policies.policy import ClusterState


def cluster_state_for(job: str, optical: OpticalState, registry: JobRegistry) -> ClusterState:
    """The cluster state for the policy of ``job``, which is registered or about to be.

    ``circuits`` are those of other registered jobs; circuits that a finished job left are not among them.
    """
    others = [membership for name, membership in registry.jobs.items() if name != job]
    mine = registry.jobs[job].ever if job in registry.jobs else set()
    ranks = frozenset(rank for membership in others for rank in membership.ever) - mine
    circuits = frozenset(
        (name, circuit)
        for name, circuit in optical.circuits_and_reverts()
        if all(optical.rank_at(name, port) in ranks for port in circuit.ports)
    )
    return ClusterState(tuple(m.policy for m in others), ranks, circuits, frozenset(registry.dead))
