"""Baselines without scheduling: a fixed partition of the clients, and clients that pick jobs at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.control.simple import Fifo
from experiments.propius.data.attributes import Attributes
from experiments.propius.data.device import DeviceTimers
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.population import ClientProfile


class Static(Fifo):
    """A fixed partition: each client serves one job for the whole run (``partition``) and declines all others.

    The control plane offers a client its jobs by arrival, and the client takes its own (``Device.assigned``).
    """

    name: ClassVar[str] = "static"


class RandomSelection(EdgePolicy):
    """No control plane: a client draws one of all registered jobs, blind to bounds, demand and state.

    What the client may not serve is left out of its offers, so that it pauses at once; what takes no more clients
    refuses it. ``random_selection_timers`` has the pauses. A client manager answers in place of a public list of jobs.
    """

    name: ClassVar[str] = "random-selection"
    per_client: ClassVar[bool] = True
    blind: ClassVar[bool] = True

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """One of the jobs."""
        return [self.random.choice(jobs)]


def random_selection_timers(timers: DeviceTimers) -> DeviceTimers:
    """Timers of clients under ``RandomSelection``: 20 s if not eligible, 3 s after a refusal, in real seconds."""
    return replace(timers, asks=0, pause_s=20.0, refused_s=3.0)


def partition(clients: Sequence[ClientProfile], jobs: Sequence[EdgeJob], seed: int) -> dict[int, str]:
    """The job of each client that may serve any: number of the client -> name of the job.

    A job's quota is the number of clients that a round of it asks for. The clients come in a random order. Each walks
    the jobs that it may serve, by public and private bounds, from the last to the first and takes the first with quota
    left; if none has, it takes one of them at random.
    """
    chance = random.Random(seed)
    quota = {job.name: job.selected for job in jobs}
    chosen: dict[int, str] = {}
    for client in chance.sample(clients, len(clients)):
        names = [
            job.name for job in jobs if client.attributes.meets(job.bounds) and client.private_size >= job.private_bound
        ]
        if names:
            name = next((name for name in reversed(names) if quota[name] > 0), None) or chance.choice(names)
            quota[name] -= 1
            chosen[client.number] = name
    return chosen
