"""IRS: scarce clients are kept for the jobs that can use no others, unless abundant groups wait much longer.

Jobs with identical bounds are a group. A *cell* is the set of groups whose bounds a client meets, as a sorted tuple of
their indices; clients of one cell are alike to every job. A *region* is the set of cells that a group owns. Each cell
has one owner, so the regions are a partition of the clients that meet the bounds of any group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from experiments.propius.control.policies import EdgePolicy, OpenJob, by_demand
from experiments.propius.data.jobs import Attributes

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
        """The owners of the clients, from all registered jobs and all known clients."""
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
        always = (client.speed_ms, client.speed_ms)
        return [job for job in ordered if _within(client.speed_ms, wanted.get(job.number, always))]

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


def _within(speed_ms: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= speed_ms <= limits[1]
