"""Jobs that come and go on shared servers: on the clock of a run, and on that of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from controllers.allocation.leases import ServerLeases
from experiments.shared_rails.settings import SharedJob
from railyard.digits import spans
from topos.plan import FabricPlan


def members_on(job: SharedJob, servers: Sequence[int], gpus_per_server: int) -> tuple[int, ...]:
    """The ranks of the fabric that the ranks of ``job`` are, in their order: each keeps its rail."""
    gpus = range(job.workload.gpus_per_server)
    return tuple(server * gpus_per_server + local for server in servers for local in gpus)


class LeasedServers:
    """The jobs of a run (``experiments.job_group.Arrivals``), with servers from ``leases``.

    ``emulated_s`` gives the wall-clock seconds of real ones.
    """

    def __init__(
        self,
        jobs: Sequence[SharedJob],
        leases: ServerLeases,
        plan: FabricPlan,
        emulated_s: Callable[[float], float] = lambda seconds: seconds,
    ) -> None:
        self._leases, self._plan = leases, plan
        self._jobs = {job.name: job for job in jobs}
        self._changed = False
        """Whether a job has arrived, or servers are free again, since placements were asked."""
        self._coming = sorted(((emulated_s(job.request.arrival_s), job) for job in jobs), key=lambda one: one[0])

    @property
    def next_s(self) -> float:
        return self._coming[0][0] if self._coming else inf

    def start(self, elapsed_s: float, dead: Set[int]) -> list[tuple[str, tuple[int, ...]]]:
        gpus, leases = self._plan.gpus_per_server, self._leases
        while self.next_s <= elapsed_s:
            job = self._coming.pop(0)[1]
            leases.arrive(job.name, job.servers, job.placement)
            self._changed = True
        if not self._changed:
            return []
        self._changed = False
        leases.lose(rank // gpus for rank in dead)
        return [(name, members_on(self._jobs[name], servers, gpus)) for name, servers in leases.start()]

    def end(self, job: str) -> None:
        self._changed |= job in self._leases.held
        self._leases.end(job)

    def hopeless(self) -> list[tuple[str, str]]:
        if self._coming or self._leases.held:
            return []
        waiting, self._leases.waiting = self._leases.waiting, []
        free = sorted(self._leases.free)
        return [(each.job, f"it needs {each.count} servers; {free_ports(free, self._plan)}") for each in waiting]


def free_ports(servers: Sequence[int], plan: FabricPlan) -> str:
    """Which servers are free, and their ports on each rail, in words."""
    if not servers:
        return "none is free"
    ports = [server * plan.ports_per_gpu + lane + 1 for server in servers for lane in range(plan.ports_per_gpu)]
    return f"free are {spans(servers)}, with ports {spans(ports)} of each rail"


@dataclass(frozen=True)
class Stay:
    """The stay of a job by the model: its servers, and real seconds from the beginning of the run."""

    servers: tuple[int, ...]
    start_s: float
    end_s: float


def timetable(
    jobs: Sequence[SharedJob], leases: ServerLeases, plan: FabricPlan, stay_s: Callable[[str, tuple[int, ...]], float]
) -> dict[str, Stay]:
    """When each job has which servers, if job ``name`` on its ``members`` takes ``stay_s`` seconds from start to end.

    Jobs that never fit are left out.
    """
    arrivals, stays = LeasedServers(jobs, leases, plan), dict[str, Stay]()
    moments: list[tuple[float, str]] = [(job.request.arrival_s, "") for job in jobs]
    moments.sort()
    while moments:
        now, ended = heappop(moments)
        if ended:
            arrivals.end(ended)
        for name, members in arrivals.start(now, frozenset()):
            until = now + stay_s(name, members)
            stays[name] = Stay(leases.held[name], now, until)
            heappush(moments, (until, name))
    return stays
