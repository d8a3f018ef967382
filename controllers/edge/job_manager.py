"""The job manager: it knows every job and its current round, and binds clients, never more than a round asks for."""

from __future__ import annotations

from controllers.edge.policy import OpenJob
from workloads.edge.device import Binding
from workloads.edge.job import EdgeJob

SILENT_S = 1800.0
"""A job that has sent nothing for so many real seconds is forgotten."""


class JobManager:
    """Jobs and bindings. ``version`` grows whenever the set of open jobs or a round's demand changes."""

    version: int

    def __init__(self, silent_s: float = SILENT_S) -> None:
        raise NotImplementedError

    def register(self, job: EdgeJob, now: float) -> int:
        """Enter a job; its number."""
        raise NotImplementedError

    def request(self, number: int, round: int, demand: int, now: float, attempt: int = 0) -> bool:
        """Open a round for ``demand`` clients; False if there is no such job (any more)."""
        raise NotImplementedError

    def end_request(self, number: int, now: float) -> int | None:
        """Close the round to more clients; how many it has, None if there is no such job (any more)."""
        raise NotImplementedError

    def finish(self, number: int, now: float) -> bool:
        """The job is complete and is forgotten; False if there is no such job (any more)."""
        raise NotImplementedError

    def accept(self, number: int, client: int, now: float) -> Binding | None:
        """Bind ``client`` to the open round, or None: no such job, round closed or full, client bound in it before."""
        raise NotImplementedError

    def bound(self, number: int) -> int | None:
        """How many clients the current round has, None if there is no such job (any more)."""
        raise NotImplementedError

    def heard(self, number: int, now: float) -> None:
        """The job has sent something at ``now``, so it is alive."""
        raise NotImplementedError

    def prune(self, now: float) -> list[int]:
        """Forget the jobs that have been silent for too long; their numbers."""
        raise NotImplementedError

    def open_jobs(self) -> tuple[OpenJob, ...]:
        """The jobs whose round takes more clients."""
        raise NotImplementedError

    def jobs(self) -> tuple[OpenJob, ...]:
        """All registered jobs."""
        raise NotImplementedError
