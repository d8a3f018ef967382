"""Flow-mods that set the counts of a flow to zero, among the messages of a client.

A flow that is added in place of an equal one begins at zero in OpenFlow 1.0 and 1.1. Since 1.2 it keeps the counts of
the other one, as a modified flow does, unless the flow-mod has the flag OFPFF_RESET_COUNTS. The changes that a flow
monitor reports do not tell the two apart.

A flow-mod takes effect when it is sent, or in a bundle when the bundle is committed. If the bridge answers with an
error, what was set to zero has to be as before.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from topos.kernel.fastpath.simple_match import NICIRA, V10, V12, V14, SimpleMatch, from_10, from_11, from_fields

_VENDOR, _FLOW_MOD, _BUNDLE_CONTROL, _BUNDLE_ADD = 4, 14, 33, 34
_NX_FLOW_MOD, _ONF, _ONF_BUNDLE_CONTROL, _ONF_BUNDLE_ADD = 13, 0x4F4E4600, 2300, 2301
_COMMIT, _DISCARD = 4, 6
_ADD, _MODIFY, _MODIFY_STRICT = 0, 1, 2
_RESET_COUNTS = 1 << 2
_MOST_OPEN = 1 << 10
"""Messages and bundles of one connection that are remembered."""
_MOST_IN_BUNDLE = 1 << 16


class Reset(NamedTuple):
    """Flows whose counts a flow-mod sets to zero.

    ``added``: a flow is added, in place of one with the same priority and match if there is one; otherwise the flows
    that fit ``match`` are modified. ``priority`` is None for every priority.
    """

    added: bool
    table: int
    priority: int | None
    match: SimpleMatch


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


def _reset(command: int, zero: bool, table: int, priority: int, match: SimpleMatch) -> Iterator[Reset]:
    if zero and command in (_ADD, _MODIFY, _MODIFY_STRICT):
        yield Reset(command == _ADD, table, None if command == _MODIFY else priority, match)


class OpenResets:
    """The resets of one connection that the bridge may refuse yet.

    ``reset`` carries one out, and returns a function that takes it back.
    """

    def __init__(self, reset: Callable[[Reset], Callable[[], object]]) -> None:
        self._reset = reset
        self._bundles: OrderedDict[int, list[Reset]] = OrderedDict()
        self._done: OrderedDict[int, list[Callable[[], object]]] = OrderedDict()

    def asked(self, message: bytes) -> None:
        """Carry out what a message of the client sets to zero; ``struct.error`` if it is cut short."""
        bundle, step = _bundle(message)
        found = list(resets(message))
        if bundle is not None and step is None:
            if found:
                held = self._bundles.setdefault(bundle, [])
                held += found[: _MOST_IN_BUNDLE - len(held)]
                _limit(self._bundles)
            return
        if bundle is not None and step in (_COMMIT, _DISCARD):
            found = self._bundles.pop(bundle, [])
        if found and step != _DISCARD:
            self._done[int.from_bytes(message[4:8], "big")] = [self._reset(one) for one in found]
            _limit(self._done)

    def refused(self, error: bytes) -> None:
        """Take back what the message that ``error`` answers has set to zero."""
        for take_back in reversed(self._done.pop(int.from_bytes(error[4:8], "big"), [])):
            take_back()


def _bundle(message: bytes) -> tuple[int | None, int | None]:
    """(bundle, what a message does with it): None for no bundle; None for a message that is added to it."""
    kind, at = message[1], 8
    if kind == _VENDOR and len(message) >= 24 and struct.unpack_from("!I", message, 8)[0] == _ONF:
        found = struct.unpack_from("!I", message, 12)[0]
        kind, at = {_ONF_BUNDLE_CONTROL: _BUNDLE_CONTROL, _ONF_BUNDLE_ADD: _BUNDLE_ADD}.get(found, kind), 16
    if kind not in (_BUNDLE_CONTROL, _BUNDLE_ADD) or (at == 8 and message[0] < V14):
        return None, None
    bundle, step = struct.unpack_from("!IH", message, at)
    return bundle, step if kind == _BUNDLE_CONTROL else None


def _limit(remembered: OrderedDict[int, Any]) -> None:
    if len(remembered) > _MOST_OPEN:
        remembered.popitem(last=False)
