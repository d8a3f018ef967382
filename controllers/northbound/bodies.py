"""Bodies of REST calls: how one is read from a stream, and the typed request that its bytes describe.

A body is a JSON object, nested at most 200 deep, in which no key is given twice and
numbers are finite. Whatever the bytes are, a function
here returns a request or raises ``ConfigError``.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, BinaryIO

from controllers.northbound.messages import AnyRequest, read_request, too_deep
from railyard.errors import ConfigError, shortened
from railyard.protocol import encode, from_json

CROSS_CONNECTS = "optical-switch:cross-connects"
"""Name of the container of the pairs of a switch."""
BODY_BYTES = 1 << 20
_MOST_CHUNK_HEAD = 256


class BodyTooLong(ConfigError):
    """A body of more than ``BODY_BYTES`` bytes."""

    def __init__(self) -> None:
        super().__init__(f"the body is longer than {BODY_BYTES} bytes")


def read_body(stream: BinaryIO, length: str | None, encoding: str | None) -> bytes:
    """The body of a call from ``stream``, by its headers Content-Length and Transfer-Encoding.

    ``BodyTooLong`` as soon as it is known to be, ``ConfigError`` for headers or a body that are wrong.
    """
    if encoding is not None:
        if encoding.strip().lower() != "chunked":
            raise ConfigError("must be chunked, or be left out", key="Transfer-Encoding")
        return _read_chunks(stream)
    if length is None:
        return b""
    if not re.fullmatch("[0-9]{1,18}", length.strip()):
        raise ConfigError("must be a number of bytes", key="Content-Length")
    if int(length) > BODY_BYTES:
        raise BodyTooLong
    return _read_exactly(stream, int(length))


def _read_chunks(stream: BinaryIO) -> bytes:
    """A body in chunks (RFC 9112, section 7.1)."""
    body = bytearray()
    while True:
        head = stream.readline(_MOST_CHUNK_HEAD)
        size = head.partition(b";")[0].strip()
        if not head.endswith(b"\n") or not re.fullmatch(rb"[0-9a-fA-F]{1,15}", size):
            raise ConfigError("a chunk of the body must begin with a line that has its size in hexadecimal digits")
        if not int(size, 16):
            return bytes(body)
        if len(body) + int(size, 16) > BODY_BYTES:
            raise BodyTooLong
        body += _read_exactly(stream, int(size, 16))
        if stream.readline(2).strip(b"\r\n"):
            raise ConfigError("a chunk of the body is longer than its size")


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConfigError(f"the body ends after {len(data)} of {size} bytes")
    return data


def rewire_request(body: bytes, switch: str) -> AnyRequest:
    return _request("rewire", {**read_object(body), "switch": switch})


def gates_request(body: bytes, switch: str) -> AnyRequest:
    return _request("gates", {**read_object(body), "switch": switch})


def pairs_request(body: bytes, switch: str, update: str) -> AnyRequest:
    """The request behind ``PUT`` (``update`` is "overwrite") and ``PATCH`` ("update") of the pairs of a switch.

    The pairs, ``{"pair": [{"ingress": 1, "egress": 4}]}``, may have the container ``CROSS_CONNECTS`` around them.
    """
    outer = read_object(body)
    inner = outer[CROSS_CONNECTS] if outer.keys() == {CROSS_CONNECTS} else outer
    pairs = inner["pair"] if isinstance(inner, dict) and inner.keys() == {"pair"} else None
    if not isinstance(pairs, list) or not all(isinstance(p, dict) and p.keys() == {"ingress", "egress"} for p in pairs):
        raise ConfigError('the body must be {"pair": [{"ingress": PORT, "egress": PORT}, ...]}')
    circuits = [[pair["ingress"], pair["egress"]] for pair in pairs]
    return _request("rewire", {"switch": switch, "circuits": circuits, "update": update})


def fault_request(body: bytes) -> AnyRequest:
    """The request behind ``POST /faults``: about a chip if the body has a rank, about a port otherwise."""
    fields = read_object(body)
    if "rank" in fields:
        return _request("failed", {"cause": "reported over REST", **fields})
    return _request("fault", fields)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; ``ConfigError`` for anything else, and for the keys ``id`` and ``op``."""
    try:
        from_json(body)
        value = _STRICT.decode(body.decode())
    except ValueError as error:
        raise ConfigError(f"the body must be JSON{too_deep(error)}") from None
    if not isinstance(value, dict):
        raise ConfigError("the body must be a JSON object")
    for key in ("id", "op"):
        if key in value:
            raise ConfigError(f"{key} is not a key of a body")
    return value


def _request(op: str, fields: dict[str, Any]) -> AnyRequest:
    return read_request(encode(None, op, **fields))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ConfigError("is given twice; give it once", key=shortened(twice))
    return found


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ConfigError(f"{shortened(text)} is too large for a number")
    return value


def _no_constant(name: str) -> None:
    raise ConfigError(f"{name} is not a number of JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
