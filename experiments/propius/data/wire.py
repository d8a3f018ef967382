"""The frames between clients, servers and jobs of edge learning: bounds, encoding, decoding. No I/O.

A frame is a header of 12 bytes (``RYe1``, length of the fields, length of the payload; network byte order), the fields
as one JSON object, and the payload. A request has the field ``op``; an answer with the field ``error`` is a refusal.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from railyard.errors import AgentError
from railyard.protocol import from_json, to_json

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
    """What goes before ``payload`` on the wire: the header and the fields ``json``.

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
        return _adapter(kind).validate_json(frame.json)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"])) or "the request"
        raise EdgeRefused(f"{key}: {first['msg'][:200]}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
