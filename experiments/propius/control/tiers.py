"""IRS with tiers: the next job of a group takes clients of one tier of speed only, where that pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from experiments.propius.control.irs import Irs
from experiments.propius.control.policy import OpenJob
from experiments.propius.control.regions import cell_of
from experiments.propius.control.simple import by_demand
from experiments.propius.data.attributes import Attributes

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
        """The plan of IRS, and the tier of each group's first job."""
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
        """The order of IRS without the jobs that want another tier."""
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
                owner = plan["owner"].get(".".join(map(str, cell_of(client, bounds))))
                if owner is not None:
                    found.setdefault(owner, []).append(client.speed_ms)
            self._sorted = (clients, key, found)
        return self._sorted[2]


def _within(speed_ms: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= speed_ms <= limits[1]
