"""Policies of the edge control plane: which jobs a client is offered, best first; what none may do; the catalog.

A policy is one class with one method, ``order``, which runs in a client manager at a check-in. A policy that needs the
population as a whole overrides ``plan`` too, which the scheduler runs every ``refresh_s`` seconds over the clients that
the client managers know; its result is plain JSON data and reaches each client manager. Here are those that order jobs
without a look at the clients, the baselines without scheduling, and IRS.
A package offers a policy as an entry point of the group ``railyard.edge_policies``; a user's own is named
``module:Class`` or ``path/to/file.py:Class``.
"""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
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


def plans(policy: EdgePolicy) -> bool:
    """Whether a policy makes plans, so that the scheduler has to know the clients."""
    return type(policy).plan is not EdgePolicy.plan


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


# ---- IRS -------------------------------------------------------------------------------------------------------------
#
# Scarce clients are kept for the jobs that can use no others, unless abundant groups wait much longer. Jobs with
# identical bounds are a group. A cell is the set of groups whose bounds a client meets, as a sorted tuple of their
# indices; clients of one cell are alike to every job. A region is the set of cells that a group owns. Each cell has one
# owner, so the regions are a partition of the clients that meet the bounds of any group.

Cell = tuple[int, ...]


def cells_of(clients: Sequence[Attributes], bounds: Sequence[Attributes]) -> Counter[Cell]:
    return Counter(cell_of(client, bounds) for client in clients)


def cell_of(client: Attributes, bounds: Sequence[Attributes]) -> Cell:
    """The groups whose bounds a client meets, by index."""
    return tuple(index for index, least in enumerate(bounds) if client.meets(least))


def shares(cells: Mapping[Cell, int], groups: int) -> list[float]:
    """For each group, the share of all clients that meet its bounds; 0 without clients."""
    known = max(1, sum(cells.values()))
    return [sum(count for cell, count in cells.items() if group in cell) / known for group in range(groups)]


def owners(cells: Mapping[Cell, int], demands: Sequence[Sequence[int]]) -> dict[Cell, int]:
    """The owner of each cell that has a group, by IRS (Venn, arXiv 2312.08298, as in the authors' public code).

    ``demands[g]`` has the round demands of group g's jobs in the order in which they are served. First, from the
    scarcest group on, each takes what it can use of the cells that are left. Then, from the most abundant group on,
    group g takes from the next scarcer group h the cells that both can use, while m / a_g > |J_h| / a_h, where a is the
    share of the clients in a group's region after the first step and m is the number of g's jobs that are served before
    h's demand is; where that no longer holds, g stops. The authors' code lets g claim cells of E_g and E_h that belong
    to a third group, too; here g takes only what h owns, so that a cell never has two owners.
    """
    eligible = shares(cells, len(demands))
    scarce = scarcest_first(eligible)
    owner = {cell: next(group for group in scarce if group in cell) for cell in cells if cell}
    known = max(1, sum(cells.values()))
    region = [sum(cells[cell] for cell, by in owner.items() if by == group) / known for group in range(len(demands))]
    abundant = scarce[::-1]
    for place, group in enumerate(abundant):
        for scarcer in abundant[place + 1 :]:
            waiting = jobs_before(demands[group], eligible[group], demands[scarcer], eligible[scarcer])
            if not _over(waiting, region[group]) > _over(len(demands[scarcer]), region[scarcer]):
                break
            owner.update({cell: group for cell, by in owner.items() if by == scarcer and group in cell})
    return owner


def scarcest_first(eligible: Sequence[float]) -> list[int]:
    """Groups by the share of clients that they can use, lowest first; of equals the later group first."""
    return sorted(range(len(eligible)), key=lambda group: (eligible[group], -group))


def jobs_before(mine: Sequence[int], my_share: float, others: Sequence[int], their_share: float) -> int:
    """How many of my jobs come to their turn before the others' demand is served, the last of them included.

    A demand D takes D / share of time, in units of one client's arrival.
    """
    until = _over(sum(others), their_share)
    time = 0.0
    for count, demand in enumerate(mine, start=1):
        time += _over(demand, my_share)
        if time > until:
            return count
    return len(mine)


def _over(number: float, share: float) -> float:
    return number / share if share else math.inf if number else 0.0


class Irs(EdgePolicy):
    """Intersection resource scheduling, the policy of Venn (arXiv 2312.08298) as Propius runs it.

    The plan is ``{"bounds": [Attributes, ...], "scarce": [index, ...], "owner": {cell:
    index}}``: the bounds of each group of jobs, the groups from the scarcest on, and which group owns the cell of
    eligibility whose groups are joined by dots, as in ``"0.2"``. A client gets the jobs of its cell's owner by (round
    demand, arrival), and after them the other jobs that it may serve, from the scarcest group on: so a client whose
    private data no job of its own group accepts, or whose own group has no open job, is not idle. Only open jobs count
    when groups are weighed against each other: a job whose round is under way waits for nobody. In both the authors'
    code differs (``IrsStrict``).
    """

    name: ClassVar[str] = "irs"
    strict: ClassVar[bool] = False

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._counted: tuple[Sequence[Attributes], list[Attributes], Counter[Cell]] | None = None

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> dict[str, Any]:
        bounds = sorted({job.job.bounds for job in jobs})
        groups = [sorted((job for job in jobs if job.job.bounds == least), key=by_demand) for least in bounds]
        cells = self._cells(clients, bounds)
        owner = owners(cells, [[job.demand for job in group if job.open or self.strict] for group in groups])
        return {
            "bounds": [list(least) for least in bounds],
            "scarce": scarcest_first(shares(cells, len(bounds))),
            "owner": {_key(cell): group for cell, group in owner.items()},
        }

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """The jobs of the client's owner first; before the first plan all jobs by demand."""
        if plan is None:
            return sorted(jobs, key=by_demand)
        bounds = [Attributes(*least) for least in plan["bounds"]]
        cell = cell_of(client, bounds)
        scarce = [group for group in plan["scarce"] if group in cell]
        owner = plan["owner"].get(_key(cell), scarce[0] if scarce else None)
        turn = {bounds[group]: place for place, group in enumerate(scarce, start=1)}
        if owner is not None:
            turn[bounds[owner]] = 0
        last = len(turn) + 1  # a group that registered after the plan was made
        ordered = sorted(jobs, key=lambda job: (turn.get(job.job.bounds, last), by_demand(job)))
        return [job for job in ordered if turn.get(job.job.bounds, 0) == 0] if self.strict else ordered

    def _cells(self, clients: Sequence[Attributes], bounds: list[Attributes]) -> Counter[Cell]:
        if self._counted is None or self._counted[0] is not clients or self._counted[1] != bounds:
            self._counted = (clients, bounds, cells_of(clients, bounds))
        return self._counted[2]


class IrsStrict(Irs):
    """IRS as the authors' code runs it.

    A client is offered only the jobs of its cell's owner, from the first refresh after its check-in on, and a group
    weighs as many jobs as are registered, open or not.
    """

    name: ClassVar[str] = "irs-strict"
    strict: ClassVar[bool] = True
    batch: ClassVar[bool] = True


class IrsScore(Irs):
    """IRS as the authors' result files were made, before their code had regions: each job has a score.

    That is (jobs of its group - its place in the group) / share of the known clients that meet the group's bounds; a
    group is in the order of the jobs' total demand, then of arrival. A client is offered all jobs that it may serve.
    """

    name: ClassVar[str] = "irs-score"

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> dict[str, float]:
        bounds, score = sorted({job.job.bounds for job in jobs}), dict[str, float]()
        for least, share in zip(bounds, shares(self._cells(clients, bounds), len(bounds)), strict=True):
            group = sorted((job for job in jobs if job.job.bounds == least), key=by_total_demand)
            scores = ((len(group) - place) / share if share else 0.0 for place in range(len(group)))
            score |= {str(job.number): of_job for job, of_job in zip(group, scores, strict=True)}
        return score

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        """The highest score first; a job without one, which registered after the plan was made, comes last."""
        return sorted(jobs, key=lambda job: (-(plan or {}).get(str(job.number), 0.0), by_total_demand(job)))


def by_total_demand(job: OpenJob) -> tuple[int, float, int]:
    """Key of an order by the demand of all rounds together, then by arrival."""
    return job.job.selected * job.job.rounds, job.registered_s, job.number


def _key(cell: Cell) -> str:
    return ".".join(map(str, cell))


TIERS = 3


class IrsTiers(Irs):
    """IRS whose plan has ``"tier": {bounds index: [job number, least speed_ms, most speed_ms]}`` besides.

    For the first open job of each group a tier u of the group's clients is drawn at each refresh, all tiers of equal
    size. It is used if tiers + g × c < 1 + c, where c is the job's response time / scheduling time before its open
    round, and g the slowest client of the tier / the slowest of all, in milliseconds per sample: the job then waits for
    clients longer by the number of tiers, but no longer for the slowest clients. Clients of other tiers are not offered
    that job.
    The rule is Venn's (arXiv 2312.08298); tiers are those of the known clients of the region, where the authors' code
    takes the clients that wait.
    """

    name: ClassVar[str] = "irs-tiers"
    per_client: ClassVar[bool] = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._sorted: tuple[Sequence[Attributes], Any, dict[int, list[float]]] | None = None

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> dict[str, Any]:
        plan = super().plan(jobs, clients, now)
        speeds = self._speeds(clients, plan)
        plan["tier"] = {}
        for group, least in enumerate(plan["bounds"]):
            mine = [job for job in jobs if job.open and list(job.job.bounds) == least]
            if mine and len(speeds.get(group, ())) >= TIERS:
                first = min(mine, key=by_demand)
                if tier := self._tier(first, speeds[group]):
                    plan["tier"][str(group)] = [first.number, *tier]
        return plan

    def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
        ordered = super().order(client, jobs, plan)
        wanted = {number: (least, most) for number, least, most in plan["tier"].values()} if plan else {}
        limits = [wanted.get(job.number, (0.0, math.inf)) for job in ordered]
        return [job for job, (least, most) in zip(ordered, limits, strict=True) if least <= client.speed_ms <= most]

    def _tier(self, job: OpenJob, speeds: list[float]) -> tuple[float, float] | None:
        size = len(speeds) // TIERS
        chosen = self.random.randrange(TIERS)
        least = speeds[chosen * size]
        most = speeds[-1] if chosen == TIERS - 1 else speeds[(chosen + 1) * size - 1]
        if not (job.scheduling_s > 0 and speeds[-1] > 0):
            return None
        ratio = (job.requested_s - job.registered_s - job.scheduling_s) / job.scheduling_s
        return (least, most) if TIERS + most / speeds[-1] * ratio < 1 + ratio else None

    def _speeds(self, clients: Sequence[Attributes], plan: dict[str, Any]) -> dict[int, list[float]]:
        key = (plan["bounds"], plan["owner"])
        if self._sorted is None or self._sorted[0] is not clients or self._sorted[1] != key:
            bounds = [Attributes(*least) for least in plan["bounds"]]
            found: dict[int, list[float]] = {}
            for client in sorted(clients, key=lambda client: client.speed_ms):
                owner = plan["owner"].get(_key(cell_of(client, bounds)))
                if owner is not None:
                    found.setdefault(owner, []).append(client.speed_ms)
            self._sorted = (clients, key, found)
        return self._sorted[2]


EDGE_POLICIES = {
    "fifo": "experiments.propius.control.policies:Fifo",
    "random": "experiments.propius.control.policies:RandomJobs",
    "random-client": "experiments.propius.control.policies:RandomClients",
    "srsf": "experiments.propius.control.policies:SmallestRound",
    "irs": "experiments.propius.control.policies:Irs",
    "irs-score": "experiments.propius.control.policies:IrsScore",
    "irs-strict": "experiments.propius.control.policies:IrsStrict",
    "irs-tiers": "experiments.propius.control.policies:IrsTiers",
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
