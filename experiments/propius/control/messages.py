"""The requests of clients, jobs and client managers to the control plane of edge learning. No I/O.

The numbers of jobs, rounds, managers and attempts count from 0. ``device`` is the number of a client in the run, by
which it is bound; ``client`` is the id that a client manager gave it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiments.propius.data.attributes import Attributes
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.wire import Message

MOST_JOBS = 64
MOST_KNOWN = 32768
"""Most clients that a manager reports; each is some float64 numbers of payload."""

Number = Annotated[int, Field(ge=0, le=2**31)]
Demand = Annotated[int, Field(ge=1, le=10**6)]
Text = Annotated[str, Field(min_length=1, max_length=64)]
Value = Annotated[float, Field(ge=-1e12, le=1e12)]
Values = Annotated[list[Value], Field(min_length=len(Attributes._fields), max_length=len(Attributes._fields))]
"""``Attributes`` of a client, or a job's bounds for them."""


# ---- to the control actor: jobs --------------------------------------------------------------------------------------


class RegisterRequest(Message):
    """Enter a job. The answer: job (its number)."""

    op: Literal["register"]
    name: Text
    demand: Demand
    bounds: Values
    private_bound: Value
    rounds: Demand
    over_selection: Annotated[float, Field(ge=1, le=100)] = 1.0

    @property
    def job(self) -> EdgeJob:
        """The job; its arrival is left out, since it is here."""
        bounds = Attributes(*self.bounds)
        return EdgeJob(
            self.name, self.demand, bounds, self.private_bound, self.rounds, over_selection=self.over_selection
        )


class ClientsRequest(Message):
    """Ask for ``demand`` clients for a round. The answer: known (whether there is such a job)."""

    op: Literal["request"]
    job: Number
    round: Number
    demand: Demand
    attempt: Number = 0


class EndRoundRequest(Message):
    """Close the job's round to more clients. The answer: bound (how many it has), null if there is no such job."""

    op: Literal["end_request"]
    job: Number


class BoundRequest(Message):
    """Ask how many clients the job's round has. The answer: bound, null if there is no such job.

    ``wait``: answered when the round takes no more clients, or after some seconds.
    """

    op: Literal["bound"]
    job: Number
    wait: bool = False


class FinishRequest(Message):
    """The job is complete. The answer: known."""

    op: Literal["finish"]
    job: Number


# ---- to the control actor: clients and client managers ---------------------------------------------------------------


class BalanceRequest(Message):
    """Ask the load balancer for a client manager. The answer: manager, port."""

    op: Literal["balance"]
    client: Number | None = None


class WatchRequest(Message):
    """Wait until jobs or plan are newer than version ``seen``, some seconds at most. The answer: version, jobs, plan.

    jobs is null if nothing is newer.
    """

    op: Literal["watch"]
    seen: Annotated[int, Field(ge=-1, le=2**53)]


class KnownReport(Message):
    """Report the attributes of all clients that a manager knows: the payload, float64 numbers of ``Attributes``."""

    op: Literal["known"]
    manager: Annotated[int, Field(ge=0, le=63)]


class BindRequest(Message):
    """Bind a client to the job's round. The answer: bound; if true also round and attempt."""

    op: Literal["bind"]
    job: Number
    device: Number


# ---- to a client manager ---------------------------------------------------------------------------------------------


class CheckInRequest(Message):
    """Check a client in. The answer: client (its id from now on), offers (lists of job, private bound, name)."""

    op: Literal["checkin"]
    client: Number | None = None
    attributes: Values


class AcceptRequest(Message):
    """Accept an offer. The answer is that of ``BindRequest``."""

    op: Literal["accept"]
    job: Number
    client: Number
    device: Number


class NackRequest(Message):
    """Tell that none of the offers fits; the answer is empty."""

    op: Literal["nack"]
    client: Number
    jobs: Annotated[list[Number], Field(max_length=20)]


ControlRequest = Annotated[
    RegisterRequest
    | ClientsRequest
    | EndRoundRequest
    | BoundRequest
    | FinishRequest
    | BalanceRequest
    | WatchRequest
    | KnownReport
    | BindRequest,
    Field(discriminator="op"),
]
ManagerRequest = Annotated[CheckInRequest | AcceptRequest | NackRequest, Field(discriminator="op")]
