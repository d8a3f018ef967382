"""The frames between clients, servers and jobs of edge learning, and the operations that they ask for. No I/O.

A frame is a header of 12 bytes (``RYe1``, length of the fields, length of the payload; network byte order), the fields
as one JSON object, and the payload: a model, an update or a sum. A request has the field ``op``, which names an
operation of the server (a method); an answer with the field ``error`` is a refusal. The numbers of jobs, rounds,
attempts, clients and managers count from 0. ``device`` is the number of a client in the run, by which it is bound; at
the control plane ``client`` is the id that a client manager gave it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import ConfigDict, Field, ValidationError, validate_call

from experiments.propius.data.jobs import Attributes
from railyard.errors import AgentError
from railyard.protocol import from_json, to_json
from railyard.validation import shown

Payload = bytes | bytearray | memoryview

MAGIC = b"RYe1"
HEADER = struct.Struct("!4sII")
MOST_FIELDS_BYTES = 64 << 10
"""Longest JSON object of a frame."""

_F = TypeVar("_F", bound=Callable[..., Any])


class EdgeError(AgentError):
    """The other side of a connection is gone, is too slow, or sent something that is no frame."""


class EdgeRefused(EdgeError):
    """The other side refused a request and said why; the connection can still be used."""


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


class Reply(NamedTuple):
    """An answer: its fields and its payload."""

    fields: Mapping[str, Any]
    payload: Payload = b""


def operation(method: _F) -> _F:
    """Let frames ask for a method by its name.

    The fields of the frame are its keyword arguments, checked by their annotations, and ``payload`` is the payload. It
    returns the fields of the answer, or a ``Reply``, or what can be awaited and gives one of them.
    """
    checked: Any = validate_call(config=ConfigDict(strict=True, allow_inf_nan=False))(method)
    checked.is_operation = True
    return checked  # type: ignore[no-any-return]


async def perform(server: object, frame: Frame) -> Reply:
    """The answer of the operation of ``server`` that a frame asks for.

    Raises ``EdgeRefused``, in one sentence that names the first wrong field.
    """
    fields = frame.fields
    op = fields.pop("op", None)
    method = getattr(type(server), op, None) if isinstance(op, str) else None
    if not getattr(method, "is_operation", False):
        raise EdgeRefused(f"the request: there is no operation {shown(op)}")
    if frame.payload or "payload" in fields:
        fields["payload"] = frame.payload
    try:
        answer = method(server, **fields)  # type: ignore[misc]  # an operation can be called
        answer = await answer if isawaitable(answer) else answer
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise EdgeRefused(f"{op}.{'.'.join(map(str, first['loc']))}: {first['msg'][:200]}") from None
    return answer if isinstance(answer, Reply) else Reply(answer)


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


MOST_KNOWN = 32768
"""Most clients that a manager reports; each is some float64 numbers of payload."""
Demand = Annotated[int, Field(ge=1, le=10**6)]
Text = Annotated[str, Field(min_length=1, max_length=64)]
Value = Annotated[float, Field(ge=-1e12, le=1e12)]
Values = Annotated[list[Value], Field(min_length=len(Attributes._fields), max_length=len(Attributes._fields))]
"""``Attributes`` of a client, or a job's bounds for them."""
