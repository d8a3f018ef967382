"""What agents and the controller say to each other: lines of JSON, and the values that both sides know.

A message is one line of newline-delimited JSON. A request carries an ``id``, and its answer the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Hop(NamedTuple):
    """A way between two ports that packets may take, in both directions: an up circuit or a forwarding path.

    Lanes number the ports of a rank from 0.
    """

    rank: int
    lane: int
    peer: int
    peer_lane: int


def hops_from(entries: Iterable[Iterable[int]]) -> tuple[Hop, ...]:
    """The hops that a message lists as [rank, lane, peer, peer lane]."""
    return tuple(Hop(*map(int, entry)) for entry in entries)


class SlotWindow(NamedTuple):
    """When a slot of a rotation has its circuits up, in monotonic seconds.

    ``number`` counts slots since the rotation began. The circuits are up from ``began`` (a little after the members
    are told, so that all of them know in time) to ``until`` (None: until every member has sent its part). Packets must
    have arrived ``guard_s`` seconds before ``until``.
    """

    number: int
    began: float
    until: float | None = None
    guard_s: float = 0.0


def encode(request_id: int, op: str, **fields: Any) -> bytes:
    """One request as a line."""
    return json.dumps({"id": request_id, "op": op, **fields}, separators=(",", ":")).encode() + b"\n"


class Decoder:
    """Turns received bytes into messages; keeps an incomplete last line for the next call."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Every message that is complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)
