"""The requests of clients, jobs and leaf servers to the servers that hold models and sums. No I/O.

The payload of a request or an answer is a model, an update or a sum. Numbers of jobs, rounds and clients count from 0.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from experiments.propius.data.wire import Message

Mode = Literal["authors", "fixed"]
Number = Annotated[int, Field(ge=0, le=2**31)]
MOST_IN_A_SUM = 4096
"""Most updates in one sum of a leaf server."""


class Stage(NamedTuple):
    """An attempt of a round; later ones compare as greater."""

    round: int
    attempt: int


class UpdateId(NamedTuple):
    """One update: the same in every copy of it that a client sends."""

    job: int
    stage: Stage
    client: int


class SumId(NamedTuple):
    """One sum of a leaf server: the same in every copy of it that the server sends."""

    leaf: int
    incarnation: int
    number: int


class GetRequest(Message):
    """Ask for the model of a round. The answer: hit (whether the server had it) and the model, or absent (not yet)."""

    op: Literal["get"]
    job: Number
    round: Number


class _StageRequest(Message):
    """The fields of a request about an attempt of a round of a job."""

    job: Number
    round: Number
    attempt: Number = 0

    @property
    def stage(self) -> Stage:
        """The attempt of the round."""
        return Stage(self.round, self.attempt)


class PushRequest(_StageRequest):
    """Deliver a client's update, the payload. The answer: outcome (acknowledged, late, refused)."""

    op: Literal["push"]
    client: Number

    @property
    def update(self) -> UpdateId:
        """The identity of the update."""
        return UpdateId(self.job, self.stage, self.client)


class SumRequest(_StageRequest):
    """Deliver the sum of the updates of ``clients``, in the order of addition. The answer: outcome, as of a push."""

    op: Literal["push_sum"]
    leaf: Number
    incarnation: Number
    number: Number
    clients: Annotated[list[Number], Field(min_length=1, max_length=MOST_IN_A_SUM)]

    @property
    def sum_id(self) -> SumId:
        """The identity of the sum."""
        return SumId(self.leaf, self.incarnation, self.number)


class PutRequest(_StageRequest):
    """Deliver the model of a round, which ends the round before and clears its sum; ``demand``: updates it needs."""

    op: Literal["put"]
    demand: Annotated[int, Field(ge=1)]


class JobGetRequest(Message):
    """Ask for the sum of a round. The answer: count (of updates), ready (count is the demand), the sum if ready."""

    op: Literal["job_get"]
    job: Number
    round: Number


LeafRequest = Annotated[GetRequest | PushRequest, Field(discriminator="op")]
RootRequest = Annotated[
    GetRequest | PushRequest | SumRequest | PutRequest | JobGetRequest,
    Field(discriminator="op"),
]
