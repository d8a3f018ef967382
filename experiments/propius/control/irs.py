"""IRS: scarce clients are kept for the jobs that can use no others, unless abundant groups wait much longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.control.regions import Cell, cell_of, cells_of, owners, scarcest_first, shares
from experiments.propius.control.simple import by_demand
from experiments.propius.data.attributes import Attributes


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
        """Who owns which clients, from all registered jobs and all known clients."""
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
