"""Policies that order jobs without a look at the clients: by arrival, at random, and by demand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.data.attributes import Attributes


class Fifo(EdgePolicy):
    """The job that registered first comes first."""

    name: ClassVar[str] = "fifo"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """Earlier registered jobs first."""
        return sorted(jobs, key=lambda job: (job.registered_s, job.number))


class RandomJobs(EdgePolicy):
    """One draw for each job, as the authors do it: all clients prefer the jobs in one random order.

    The draw depends on the seed and the job's number alone, so that all client managers agree.
    """

    name: ClassVar[str] = "random"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """Jobs by their draw, highest first."""
        return sorted(jobs, key=lambda job: random.Random(f"{self.seed} {job.number}").random(), reverse=True)


class RandomClients(EdgePolicy):
    """A random order for each check-in, as in Venn (arXiv 2312.08298)."""

    name: ClassVar[str] = "random-client"
    per_client: ClassVar[bool] = True

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """A shuffle of the jobs."""
        return self.random.sample(jobs, len(jobs))


class SmallestRound(EdgePolicy):
    """Smallest round demand first (SRSF), and among equals the job that registered first."""

    name: ClassVar[str] = "srsf"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """Jobs by the demand of their round."""
        return sorted(jobs, key=by_demand)


def by_demand(job: OpenJob) -> tuple[int, float, int]:
    """Key of an order by round demand, then by arrival."""
    return job.demand, job.registered_s, job.number
