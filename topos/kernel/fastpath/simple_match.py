"""What matches of OpenFlow messages say about the two fields that the fast path knows: in_port and eth_dst.

Encodings: the fixed structures of OpenFlow 1.0 and 1.1, and lists of fields, which are OXM since OpenFlow 1.2 and NXM
in Nicira's extension of 1.0 and in what Open vSwitch sends in 1.1 (OpenFlow Switch Specification 1.0.0, 5.2.3; 1.1.0,
A.2.3; 1.5.1, 7.2.3; ``nicira-ext.h`` of Open vSwitch). A match that is cut short raises ``struct.error``.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

V10, V11, V12, V13, V14, V15 = 1, 2, 3, 4, 5, 6
"""Version in the header of OpenFlow 1.0, 1.1, ..., 1.5."""
NICIRA = 0x2320
ALL_ONES = b"\xff" * 6
ANY_PORT = 0xFFFFFFFF
"""The port number that stands for all ports in a filter, in the numbering of OpenFlow 1.1 and later."""

_NXM_IN_PORT, _OXM_IN_PORT = (0x0000, 0), (0x8000, 0)
_ETH_DST = {(0x0000, 1), (0x8000, 3)}
_COOKIE = (0x0001, 30)
_MATCH_10_LENGTH = 40
_MATCH_11_LENGTH = 88
_STANDARD_11 = 0


class SimpleMatch(NamedTuple):
    """A match: ``None`` matches every value; ``others`` says that it is on further fields too.

    ``cookie`` and ``cookie_mask`` are a filter inside the match, which only requests of Nicira's extension have.
    """

    in_port: int | None = None
    eth_dst: bytes | None = None
    eth_dst_mask: bytes = ALL_ONES
    others: bool = False
    cookie: int = 0
    cookie_mask: int = 0

    @property
    def is_simple(self) -> bool:
        """Whether a flow with this match may be in the fast path."""
        return not self.others and (self.eth_dst is None or self.eth_dst_mask == ALL_ONES)

    def covers(self, in_port: int | None, eth_dst: bytes | None) -> bool:
        """Whether every packet of a flow with this simple match fits here too (the non-strict match of OpenFlow)."""
        if self.others or (self.in_port is not None and self.in_port != in_port):
            return False
        if self.eth_dst is None:
            return True
        if eth_dst is None:
            return not any(self.eth_dst_mask)
        return all(a & mask == b & mask for a, b, mask in zip(self.eth_dst, eth_dst, self.eth_dst_mask, strict=True))


def wide_port(number: int) -> int:
    """The 32-bit number of a port of OpenFlow 1.0, which has 16 bits; reserved ports are the highest in both."""
    return number if number < 0xFF00 else number | 0xFFFF0000


def from_10(data: bytes | bytearray, at: int) -> SimpleMatch:
    """The match at ``at`` in the structure of OpenFlow 1.0 (40 bytes)."""
    wildcards, in_port = struct.unpack_from("!IH", data, at)
    eth_dst = _slice(data, at + 12, 6)
    addresses_wild = (wildcards >> 8) & 63 >= 32 and (wildcards >> 14) & 63 >= 32
    return SimpleMatch(
        in_port=None if wildcards & 1 else wide_port(in_port),
        eth_dst=None if wildcards & 8 else eth_dst,
        others=wildcards & 0x3000F6 != 0x3000F6 or not addresses_wild,
    )


def from_11(data: bytes | bytearray, at: int) -> tuple[SimpleMatch, int]:
    """The match at ``at`` in the form of OpenFlow 1.1 and later, and the length that it takes with its padding."""
    kind, length = struct.unpack_from("!HH", data, at)
    if kind != _STANDARD_11:
        return from_fields(data, at + 4, length - 4), (length + 7) // 8 * 8
    in_port, wildcards = struct.unpack_from("!II", data, at + 4)
    eth_dst, unmasked = _slice(data, at + 24, 6), _slice(data, at + 30, 6)  # in 1.1 ones of a mask are wild
    wild_masks = _slice(data, at + 18, 6), _slice(data, at + 48, 4), _slice(data, at + 56, 4), _slice(data, at + 80, 8)
    match = SimpleMatch(
        in_port=None if wildcards & 1 else in_port,
        eth_dst=None if unmasked == ALL_ONES else eth_dst,
        eth_dst_mask=bytes(byte ^ 0xFF for byte in unmasked),
        others=wildcards & 0x3FE != 0x3FE or any(mask.strip(b"\xff") for mask in wild_masks),
    )
    return match, _MATCH_11_LENGTH


def from_fields(data: bytes | bytearray, at: int, length: int) -> SimpleMatch:
    """The match in the ``length`` bytes from ``at``, a list of OXM or NXM fields."""
    match, end = SimpleMatch(), at + length
    while at + 4 <= end:
        group, field, size = struct.unpack_from("!HBB", data, at)
        value, key, masked = _slice(data, at + 4, size), (group, field >> 1), field & 1
        at += 4 + size
        if key == _OXM_IN_PORT and size == 4:
            match = match._replace(in_port=int.from_bytes(value, "big"))
        elif key == _NXM_IN_PORT and size == 2:
            match = match._replace(in_port=wide_port(int.from_bytes(value, "big")))
        elif key in _ETH_DST and size == 6 * (1 + masked):
            match = match._replace(eth_dst=value[:6], eth_dst_mask=value[6:] or ALL_ONES)
        elif key == _COOKIE and size == 8 * (1 + masked):
            mask = int.from_bytes(value[8:], "big") if masked else (1 << 64) - 1
            match = match._replace(cookie=int.from_bytes(value[:8], "big"), cookie_mask=mask)
        else:
            match = match._replace(others=True)
    return match


def _slice(data: bytes | bytearray, at: int, length: int) -> bytes:
    found: bytes = struct.unpack_from(f"{length}s", data, at)[0]
    return found
