"""The frames between clients, servers and jobs of edge learning, and the requests in them: bounds and readers. No I/O.

A frame is a header of 12 bytes (``RYe1``, length of the fields, length of the payload; network byte order), the fields
as one JSON object, and the payload: a model, an update or a sum. A request has the field ``op``; an answer with the
field ``error`` is a refusal. The numbers of jobs, rounds, attempts, clients and managers count from 0. ``device`` is
the number of a client in the run, by which it is bound; at the control plane ``client`` is the id that a client manager
gave it.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.propius.data.jobs import Attributes, EdgeJob
from railyard.errors import AgentError
from railyard.protocol import from_json, to_json
from railyard.validation import adapter_of

Payload = bytes | bytearray | memoryview

MAGIC = b"RYe1"
HEADER = struct.Struct("!4sII")
MOST_FIELDS_BYTES = 64 << 10
"""Longest JSON object of a frame."""

_T = TypeVar("_T")


class EdgeError(AgentError):
    """The other side of a connection is gone, is too slow, or sent something that is no frame."""


class EdgeRefused(EdgeError):
    """The other side refused a request and said why; the connection can still be used."""


class Message(BaseModel):
    """The base of a request of a client, a job or a server; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Frame(NamedTuple):
    """A received frame: its fields as ``json``, and its payload (not copied, so it must not be changed)."""

    json: bytes
    payload: Payload = b""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as plain data. ``EdgeError`` for JSON that is no object."""
        try:
            fields = from_json(self.json)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise EdgeError("a frame came whose fields are no JSON object")
        return fields


def header(json: bytes, payload: Payload = b"") -> bytes:
    """The header and the fields ``json``, which go before ``payload`` on the wire.

    ``EdgeError`` if the fields are longer than ``MOST_FIELDS_BYTES``.
    """
    if len(json) > MOST_FIELDS_BYTES:
        raise EdgeError(f"the fields of a frame are {len(json)} bytes long; at most {MOST_FIELDS_BYTES} are allowed")
    return HEADER.pack(MAGIC, len(json), len(payload)) + json


def encode(payload: Payload = b"", /, **fields: Any) -> bytes:
    """``header`` of a frame with these fields, plain data or dataclasses, and ``payload``, which is not included."""
    return header(to_json(fields), payload)


def lengths(head: bytes | bytearray, most_payload: int) -> tuple[int, int]:
    """(bytes of the fields, bytes of the payload) that the header ``head`` of 12 bytes announces.

    Raises ``EdgeError`` for another protocol, or for more than ``most_payload`` bytes of payload.
    """
    magic, fields, payload = HEADER.unpack(head)
    if magic != MAGIC:
        raise EdgeError(f"something came that is no frame of edge learning: it begins with {bytes(magic)!r}")
    if fields > MOST_FIELDS_BYTES:
        raise EdgeError(f"a frame announces {fields} bytes of fields; at most {MOST_FIELDS_BYTES} are allowed")
    if payload > most_payload:
        raise EdgeError(f"a frame announces {payload} bytes of payload; at most {most_payload} are allowed")
    return fields, payload


def read(kind: Any, frame: Frame) -> Any:
    """The request in ``frame``: a ``Message``, or one of a union of them that ``op`` tells apart.

    Raises ``EdgeRefused``, in one sentence that names the first wrong key.
    """
    try:
        return adapter_of(kind).validate_json(frame.json)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"])) or "the request"
        raise EdgeRefused(f"{key}: {first['msg'][:200]}") from None


Mode = Literal["authors", "fixed"]
Number = Annotated[int, Field(ge=0, le=2**31)]
MOST_IN_A_SUM = 4096
"""Most updates in one sum of a leaf server."""


class RoundAttempt(NamedTuple):
    """An attempt of a round; later ones compare as greater."""

    round: int
    attempt: int


class UpdateId(NamedTuple):
    """One update: the same in every copy of it that a client sends."""

    job: int
    stage: RoundAttempt
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
    def stage(self) -> RoundAttempt:
        return RoundAttempt(self.round, self.attempt)


class PushRequest(_StageRequest):
    """Deliver a client's update, the payload. The answer: outcome (acknowledged, late, refused)."""

    op: Literal["push"]
    client: Number

    @property
    def update(self) -> UpdateId:
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


MOST_JOBS = 64
MOST_KNOWN = 32768
"""Most clients that a manager reports; each is some float64 numbers of payload."""

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
    """Wait until the job's round takes no more clients, some seconds at most.

    The answer: bound (how many clients it has, null if there is no such job), open (whether it takes more).
    """

    op: Literal["bound"]
    job: Number


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
