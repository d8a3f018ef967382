"""Flow-mods that set the counts of a flow to zero, among the messages of a client.

A flow that is added in place of an equal one begins at zero in OpenFlow 1.0 and 1.1. Since 1.2 it keeps the counts of
the other one, as a modified flow does, unless the flow-mod has the flag OFPFF_RESET_COUNTS. The changes that a flow
monitor reports do not tell the two apart.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from topos.kernel.fastpath.simple_match import NICIRA, V10, V12, Match, from_10, from_11, from_fields

_VENDOR, _FLOW_MOD, _BUNDLE_ADD = 4, 14, 34
_NX_FLOW_MOD, _ONF, _ONF_BUNDLE_ADD = 13, 0x4F4E4600, 2301
_ADD, _MODIFY, _MODIFY_STRICT = 0, 1, 2
_RESET_COUNTS = 1 << 2


class Reset(NamedTuple):
    """Flows whose counts a flow-mod sets to zero.

    ``added``: a flow is added, in place of one with the same priority and match if there is one; otherwise the flows
    that fit ``match`` are modified. ``priority`` is None for every priority.
    """

    added: bool
    table: int
    priority: int | None
    match: Match


def resets(message: bytes, at: int = 0) -> Iterator[Reset]:
    """What the message at ``at``, alone or in a bundle, sets to zero; ``struct.error`` if it is cut short."""
    version, kind = struct.unpack_from("!BB", message, at)
    if kind == _BUNDLE_ADD and at == 0:
        yield from resets(message, 16)
    elif kind == _FLOW_MOD and version == V10:  # match, cookie, table and command, 2 time-outs, priority
        table, command, priority = struct.unpack_from("!BB4xH", message, at + 56)
        yield from _reset(command, command == _ADD, table, priority, from_10(message, at + 8))
    elif kind == _FLOW_MOD:  # cookie, mask, table, command, 2 time-outs, priority, 12 bytes, flags, 2 bytes, match
        table, command, priority, flags = struct.unpack_from("!BB4xH12xH", message, at + 24)
        zero = command == _ADD if version < V12 else bool(flags & _RESET_COUNTS)
        if zero:
            yield from _reset(command, zero, table, priority, from_11(message, at + 48)[0])
    elif kind == _VENDOR and len(message) - at >= 16:
        yield from _vendor(message, at)


def _vendor(message: bytes, at: int) -> Iterator[Reset]:
    vendor = struct.unpack_from("!II", message, at + 8)
    if vendor == (_ONF, _ONF_BUNDLE_ADD) and at == 0:
        yield from resets(message, 24)
    elif vendor == (NICIRA, _NX_FLOW_MOD):  # cookie, table and command, 2 time-outs, priority, 8 bytes, match's length
        table, command, priority, length = struct.unpack_from("!BB4xH8xH", message, at + 24)
        yield from _reset(command, command == _ADD, table, priority, from_fields(message, at + 48, length))


def _reset(command: int, zero: bool, table: int, priority: int, match: Match) -> Iterator[Reset]:
    if zero and command in (_ADD, _MODIFY, _MODIFY_STRICT):
        yield Reset(command == _ADD, table, None if command == _MODIFY else priority, match)
