"""Policies of the edge control plane: which jobs a client is offered, best first; what none may do; the catalog.

A policy is one class with one method, ``order``, which runs in a client manager at a check-in. A policy that needs the
population as a whole overrides ``plan`` too, which the scheduler runs every ``refresh_s`` seconds over the clients that
the client managers know; its result is plain JSON data and reaches each client manager. Here are those that order jobs
without a look at the clients, and the baselines without scheduling; ``experiments.propius.control.irs`` has the others.
A package offers a policy as an entry point of the group ``railyard.edge_policies``; a user's own is named
``module:Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from experiments.propius.data.clients import ClientProfile, DeviceTimers
from experiments.propius.data.jobs import Attributes, EdgeJob
from railyard.errors import ConfigError, RailyardError
from railyard.plugin import code_failed, load_class


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


Sees = Literal["first", "all"]


class Scheduler:
    """Plans for a policy. ``sees`` is ``first`` for the authors' scheduler, which reads manager 0 only, or ``all``.

    It keeps no state that a restart would lose but what a policy remembers.
    """

    def __init__(self, policy: EdgePolicy, sees: Sees = "all") -> None:
        self._policy = policy
        self._sees = sees
        self._parts: list[Sequence[Attributes]] = []
        self._clients: Sequence[Attributes] = ()

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Sequence[Attributes]], now: float) -> Any:
        """The policy's plan; ``ConfigError`` if it is not JSON data, or if the policy's code raises an error.

        ``jobs`` are all registered jobs. ``clients`` has one sequence for each client manager; where each is the same
        object as before, the policy gets the same object as before, too.
        """
        parts = list(clients[:1] if self._sees == "first" else clients)
        if len(parts) != len(self._parts) or any(new is not old for new, old in zip(parts, self._parts, strict=True)):
            self._parts = parts
            self._clients = parts[0] if len(parts) == 1 else [client for part in parts for client in part]
        try:
            plan = self._policy.plan(jobs, self._clients, now)
        except RailyardError:
            raise
        except Exception as error:
            raise code_failed(type(self._policy).__name__, error, "policies") from error
        try:
            json.dumps(plan, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the plan of {type(self._policy).__name__} is not plain JSON data ({error}); "
                "use numbers, strings, lists and dictionaries with strings for keys",
                key="policies",
            ) from None
        return plan


MOST_REHEARSED = 500
"""Clients of a rehearsal: more would not show more."""


def checked_order(
    policy: EdgePolicy, client: Attributes, eligible: Sequence[OpenJob], jobs: Sequence[OpenJob], plan: Any
) -> list[OpenJob]:
    """The policy's order for a client; ``ConfigError`` if it breaks a rule.

    ``eligible`` are the open jobs whose bounds the client meets, ``jobs`` all registered jobs.
    """
    if policy.blind:
        return [job for job in _ordered(policy, client, jobs, plan) if client.meets(job.job.bounds)] if jobs else []
    if not eligible:
        return []
    ordered = _ordered(policy, client, eligible, plan)
    allowed = {job.number for job in eligible}
    seen: set[int] = set()
    for job in ordered:
        if job.number in seen:
            raise _refused(policy, job, "twice to one client, which would bind it twice; order each job once")
        if job.number not in allowed:
            known = any(other.number == job.number and other.open for other in jobs)
            why = "whose attributes do not meet the job's bounds" if known else "though the job takes no clients now"
            raise _refused(policy, job, f"to a client {why}; order only the jobs that it is given")
        seen.add(job.number)
    return ordered


def _ordered(policy: EdgePolicy, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> list[OpenJob]:
    """The policy's answer; ``ConfigError`` if its code raises an error, or answers something else than jobs."""
    try:
        ordered = list(policy.order(client, jobs, plan))
    except RailyardError:
        raise
    except Exception as error:
        raise code_failed(type(policy).__name__, error, "policies") from error
    if not all(isinstance(job, OpenJob) for job in ordered):
        raise ConfigError(
            f"order of {type(policy).__name__} must return jobs of the list that it is given, not {ordered[0]!r}",
            key="policies",
        )
    return ordered


def rehearse(policy: EdgePolicy, jobs: Sequence[EdgeJob], clients: Sequence[Attributes]) -> None:
    """Let ``policy`` plan and order once with all jobs open, before a run; ``ConfigError`` if it breaks a rule.

    Use an instance of its own for this, since a policy may remember what it did.
    """
    opened = [OpenJob(number, job, job.arrival_s, 0, job.selected, 0, 0) for number, job in enumerate(jobs)]
    now = max((job.arrival_s for job in jobs), default=0.0)
    if not policy.refresh_s > 0:
        raise ConfigError(
            f"the refresh_s of {type(policy).__name__} is {policy.refresh_s}; make it above 0", key="policies"
        )
    plan = Scheduler(policy).plan(opened, [clients], now)
    for client in clients[:MOST_REHEARSED]:
        checked_order(policy, client, [job for job in opened if client.meets(job.job.bounds)], opened, plan)


def _refused(policy: EdgePolicy, job: OpenJob, why: str) -> ConfigError:
    return ConfigError(f"{type(policy).__name__} offers job {job.job.name} {why}", key="policies")


class Fifo(EdgePolicy):
    """The job that registered first comes first."""

    name: ClassVar[str] = "fifo"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        return sorted(jobs, key=lambda job: (job.registered_s, job.number))


class RandomJobs(EdgePolicy):
    """One draw for each job, as the authors do it: all clients prefer the jobs in one random order.

    The draw depends on the seed and the job's number alone, so that all client managers agree.
    """

    name: ClassVar[str] = "random"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        return sorted(jobs, key=lambda job: random.Random(f"{self.seed} {job.number}").random(), reverse=True)


class RandomClients(EdgePolicy):
    """A random order for each check-in, as in Venn (arXiv 2312.08298)."""

    name: ClassVar[str] = "random-client"
    per_client: ClassVar[bool] = True

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        return self.random.sample(jobs, len(jobs))


class SmallestRound(EdgePolicy):
    """Smallest round demand first (SRSF), and among equals the job that registered first."""

    name: ClassVar[str] = "srsf"

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        return sorted(jobs, key=by_demand)


def by_demand(job: OpenJob) -> tuple[int, float, int]:
    """Key of an order by round demand, then by arrival."""
    return job.demand, job.registered_s, job.number


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


EDGE_POLICIES = {
    "fifo": "experiments.propius.control.policies:Fifo",
    "random": "experiments.propius.control.policies:RandomJobs",
    "random-client": "experiments.propius.control.policies:RandomClients",
    "srsf": "experiments.propius.control.policies:SmallestRound",
    "irs": "experiments.propius.control.irs:Irs",
    "irs-strict": "experiments.propius.control.irs:IrsStrict",
    "irs-tiers": "experiments.propius.control.irs:IrsTiers",
    "static": "experiments.propius.control.policies:Static",
    "random-selection": "experiments.propius.control.policies:RandomSelection",
}
"""The policies and baselines of Railyard: name -> ``module:Class``."""

GROUP = "railyard.edge_policies"
"""The group of entry points by which installed packages offer policies."""


def load_edge_policy(name: str, seed: int = 0, manager: int = 0) -> EdgePolicy:
    """A policy ``name`` whose randomness starts from ``seed``; ``ConfigError`` if it cannot be loaded.

    All client managers have the same ``seed``, and each, by its number ``manager``, draws of its own from ``random``.
    """
    found = EDGE_POLICIES.get(name, name)
    kind = load_class(found, EdgePolicy, GROUP, "an edge policy", "policies", EDGE_POLICIES)  # type: ignore[type-abstract]
    try:
        policy = kind(seed)
    except Exception as error:
        said = " ".join(str(error).split())
        raise ConfigError(
            f"{name} cannot be created ({said}); it needs a method order, and takes the seed", key="policies"
        ) from error
    if manager:
        policy.random = random.Random(seed + manager)
    return policy
