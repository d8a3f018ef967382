"""What a policy of the edge control plane is: it orders the jobs that one client may serve, best first.

A policy is one class with one method, ``order``, which runs in a client manager at a check-in. A policy that needs the
population as a whole overrides ``plan`` too, which runs in the scheduler every ``refresh_s`` seconds; its result is
plain JSON data and reaches each client manager.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.propius.data.attributes import Attributes
from experiments.propius.data.job import EdgeJob


@dataclass(frozen=True)
class OpenJob:
    """A registered job as a policy sees it.

    ``demand`` is the number of clients that the current round asks for, over-selection included, ``bound`` how many of
    them it has; the job takes more clients while ``open``. ``served`` counts the clients bound since the job
    registered, all rounds together, and ``scheduling_s`` the seconds for which its rounds were open, except for the
    round that is open now, which it asked for at ``requested_s``.
    """

    number: int
    job: EdgeJob
    registered_s: float
    round: int
    demand: int
    bound: int
    served: int
    scheduling_s: float = 0.0
    open: bool = True
    requested_s: float = 0.0


class EdgePolicy(ABC):
    """Orders the jobs that a client may serve.

    ``seed`` is the same in all client managers, for what they have to agree on; ``self.random`` draws in each anew.

    ``per_client`` is True if two clients that are eligible for the same jobs may get different orders, or one client
    at two check-ins. Where it is False a client manager asks once per set of eligible jobs, until jobs or plan change;
    ``bound`` and ``served`` are those of that moment. ``batch`` is True if a client gets no offer at the check-in
    itself but from the next refresh on, as in the authors' IRS. ``blind`` is True for a baseline that knows nothing:
    it gets all registered jobs, open or not, and what it orders beyond the client's bounds is left out.
    """

    name: ClassVar[str] = "own"
    refresh_s: ClassVar[float] = 3.0
    per_client: ClassVar[bool] = False
    batch: ClassVar[bool] = False
    blind: ClassVar[bool] = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.random = random.Random(seed)

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> Any:
        """Plain JSON data for ``order``, from all registered jobs and all known clients; None unless overridden.

        The same object as ``clients`` means the same clients, so what was derived from it may be kept.
        """
        return None

    @abstractmethod
    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """The jobs to offer, best first, out of ``jobs``, which are open and whose bounds the client meets."""
