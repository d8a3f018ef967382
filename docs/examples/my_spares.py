"""A policy that chooses the spare for a dead chip: the one with the highest number, and never the last one.

    sudo scripts/failover.py --fabrics photonic --policy docs/examples/my_spares.py:FarthestSpare

The engine calls ``replace`` when a chip of the job is dead: ``free`` are the spares, and the answer says which new rank
takes the place of which old one. The engine does the rest: it gives the new members the positions of the old ones in
every group, asks ``start`` for the circuits of the new groups, changes only those that differ, and tells the job. An
empty answer means that the job stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.policies.lumion import LumionPolicy
from workloads.program import Group


class FarthestSpare(LumionPolicy):
    """Chooses the spare with the highest number; keeps one for another job."""

    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        """The spare in place of the dead chip, as old rank -> new rank; nothing if it is the last one."""
        return {dead: max(free)} if len(free) > 1 else {}
