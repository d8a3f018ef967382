"""The wire format between agents and the controller, and the values that both sides share.

A message is one line of newline-delimited JSON. A request carries an ``id``, and the answer repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
to_json = _ANYTHING.dump_json
"""Encodes plain data, dataclasses and named tuples as bytes of JSON."""
from_json = _ANYTHING.validate_json
"""Decodes JSON into plain data; ``ValueError`` for anything else."""


class Hop(NamedTuple):
    """A connection between the ports of two ranks, in both directions: an up circuit or a forwarding path.

    ``lane`` of ``rank`` is connected to ``peer_lane`` of ``peer``; lanes number the ports of a rank from 0.
    """

    rank: int
    lane: int
    peer: int
    peer_lane: int


def hops_from(entries: Iterable[Iterable[int]]) -> tuple[Hop, ...]:
    """Decode the hops of a message, each a list [rank, lane, peer, peer lane]."""
    return tuple(Hop(*map(int, entry)) for entry in entries)


class SlotWindow(NamedTuple):
    """The time window in which the circuits of one slot of a rotation are up, in monotonic seconds.

    ``number`` counts slots since the rotation began. The circuits are up from ``began`` (shortly after the members are
    told, so that the message reaches all of them in time) to ``until`` (None: until every member has sent its part).
    Packets must have arrived ``guard_s`` seconds before ``until``.
    """

    number: int
    began: float
    until: float | None = None
    guard_s: float = 0.0


def encode(request_id: int | None, op: str, /, **fields: Any) -> bytes:
    """Encode one request (``controllers.northbound.messages``) as a line of JSON; ``fields`` may be dataclasses.

    ``request_id`` None: no answer is expected.
    """
    head = {} if request_id is None else {"id": request_id}
    return to_json({**head, "op": op, **fields} | {"op": op}) + b"\n"  # no field replaces the operation


class Decoder:
    """Splits received bytes into messages and keeps an incomplete last line for the next call."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Add received bytes and yield every message that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from_json(line)
