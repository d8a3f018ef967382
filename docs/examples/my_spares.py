"""A policy that decides who stands in for a dead chip: the spare with the highest number, and never the last one.

    sudo scripts/failover.py --fabric photonic --policy docs/examples/my_spares.py:FarthestSpare

``replace`` answers one question: a chip of this job is dead, these spares are free; who takes whose place? The engine
does the rest: it puts the new members where the old ones stood in every group, asks ``start`` for the circuits of the
new groups, changes only those that differ, and tells the job. Nobody ({}) means that the job stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.policies.lumion import LumionPolicy
from workloads.program import Group


class FarthestSpare(LumionPolicy):
    """The spare with the highest number; one is kept for a job that matters more."""

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """Old rank -> new rank."""
        return {dead: max(free)} if len(free) > 1 else {}
