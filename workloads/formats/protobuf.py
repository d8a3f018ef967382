"""The part of the protobuf wire format that Chakra traces use, read defensively.

A message is a sequence of fields, each a varint key (number x 8 + wire type) and a value. Every length is checked
against the available bytes, so reading takes time and memory in proportion to the file.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class WireError(ValueError):
    """Raised for bytes that are not a protobuf message; the text gives the reason in a few words."""


@dataclass(frozen=True)
class Field:
    """One field: its number, wire type, and an integer (varint, fixed: little-endian, unsigned) or the bytes."""

    number: int
    wire: int
    value: int | bytes

    def integer(self) -> int:
        """The value of a scalar field."""
        if isinstance(self.value, int):
            return self.value
        raise WireError(f"field {self.number} holds bytes where a number belongs")

    def payload(self) -> bytes:
        """The value of a string, bytes or message field."""
        if isinstance(self.value, bytes):
            return self.value
        raise WireError(f"field {self.number} holds a number where bytes belong")

    def text(self) -> str:
        """The value of a string field; bytes that are not UTF-8 are replaced."""
        return self.payload().decode("utf-8", "replace")

    def integers(self) -> list[int]:
        """The values of a repeated varint field, packed or single."""
        if isinstance(self.value, int):
            return [self.value]
        found, at = [], 0
        while at < len(self.value):
            value, at = read_varint(self.value, at)
            found.append(value)
        return found


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read the unsigned varint at ``at``; returns the value and the offset after it."""
    value = 0
    for place in range(_MOST_VARINT_BYTES):
        if at + place >= len(data):
            raise WireError("a number is cut off at the end")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
    raise WireError(f"a number takes more than {_MOST_VARINT_BYTES} bytes")


def read_fields(data: bytes) -> Iterator[Field]:
    """The fields of one message, in file order."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise WireError("a field has number 0")
        value: int | bytes
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire == BYTES:
            value, at = _cut(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            if at + size > len(data):
                raise WireError(f"field {number} is cut off at the end")
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            raise WireError(f"field {number} has the unknown wire type {wire}")
        yield Field(number, wire, value)


def read_delimited(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Length-prefixed messages, each as (offset in ``data``, bytes)."""
    at = 0
    while at < len(data):
        start = at
        try:
            message, at = _cut(data, at)
        except WireError as error:
            raise WireError(f"byte {start}: {error}") from None
        yield start, message


def signed(value: int, bits: int = 64) -> int:
    """Interpret a varint as int32 or int64 (negative ones are written with all 64 bits)."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def zigzag(value: int) -> int:
    """Interpret a varint as sint32 or sint64."""
    return (value >> 1) ^ -(value & 1)


def as_float(value: int, bits: int) -> float:
    """Interpret the 32 or 64 bits in ``value`` as a floating-point number."""
    layout = "<f" if bits == 32 else "<d"
    return float(struct.unpack(layout, value.to_bytes(bits // 8, "little"))[0])


def _cut(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    if length > len(data) - at:
        raise WireError(f"{length} bytes are announced and {len(data) - at} are left")
    return data[at : at + length], at + length
