"""A policy of your own for jobs that share edge clients: the job that is furthest behind comes first.

The first job to arrive wins under ``fifo``, the smallest under ``srsf``. This policy asks how much of its work each job
has been given: it divides the clients bound so far by those that all its rounds need. Name it

    --policies docs/examples/my_edge_policy.py:FurthestBehind

A policy is one class with one method, ``order``. It gets the open jobs whose bounds the client meets and returns them,
best first; it may leave some out. A client manager calls it when jobs or plan have changed, or with ``per_client =
True`` at each check-in. It uses no clock and no socket. A policy that must know all clients overrides ``plan`` too, as
``experiments/propius/control/policies.py`` does. Before a run starts it is rehearsed: one that orders a job
twice, or a job that it was not given, is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.propius.control.policies import EdgePolicy, OpenJob
from experiments.propius.data.jobs import Attributes


class FurthestBehind(EdgePolicy):
    """Orders jobs by the share of their work that has been given to clients, least first."""

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """The jobs, the one with the smallest share first; of equals the one with the lower number."""
        return sorted(jobs, key=lambda job: (job.served / (job.job.selected * job.job.rounds), job.number))
