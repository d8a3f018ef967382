"""Check of the messages that switches send, before the framework parses them. No I/O.

The parsers of the frameworks follow lengths inside of messages without looking at them: an element of length 0 keeps
them busy for ever, and with them the controller. Layouts: OpenFlow Switch Specification 1.4.0, section 7.
"""

from __future__ import annotations

VERSION = 5
"""Of OpenFlow 1.4, in the header of its messages."""
_HELLO, _MULTIPART_REPLY = 0, 19
_OTHERS = frozenset({1, 2, 3, 6, 12, 21})
"""Error, echo request and reply, features reply, port status, barrier reply."""
_HEADER = 8
_PORT_STATISTICS, _PORT_DESCRIPTIONS = 4, 13
_ENTRIES = {_PORT_STATISTICS: (80, 0), _PORT_DESCRIPTIONS: (40, 4)}
"""Multipart replies that are read: the least length of their entries, and where in an entry its length is."""


def is_read(message: bytes) -> bool:
    """Whether a whole message is one that the controller reads; ``ValueError`` if a length in it is too short."""
    if int.from_bytes(message[2:4], "big") < _HEADER:
        raise ValueError("a message is shorter than its header")
    kind = message[1]
    if kind == _HELLO:
        _check_entries(message, _HEADER, 4, 2)
        return True
    if message[0] != VERSION:
        return False
    if kind != _MULTIPART_REPLY:
        return kind in _OTHERS
    entries = _ENTRIES.get(int.from_bytes(message[8:10], "big"))
    if entries is not None:
        _check_entries(message, 16, *entries)
    return entries is not None


def _check_entries(message: bytes, at: int, least: int, length_at: int) -> None:
    """Raise ``ValueError`` unless entries of at least ``least`` bytes fill the message from ``at`` on."""
    while at < len(message):
        length = int.from_bytes(message[at + length_at : at + length_at + 2], "big")
        if not least <= length <= len(message) - at:
            raise ValueError(
                f"an entry of a message has the length {length}; it must be {least} to {len(message) - at}"
            )
        at += length
