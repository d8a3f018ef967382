from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.formats.protobuf import (
    Field,
    WireError,
    as_float,
    read_delimited,
    read_fields,
    read_varint,
    signed,
    zigzag,
)


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(st.integers(0, (1 << 64) - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = b"\x07" + varint(value) + b"\x01"
    assert read_varint(data, 1) == (value, len(data) - 1)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_negative_numbers_come_back(value: int) -> None:
    assert signed(read_varint(varint(value), 0)[0]) == value
    assert zigzag(read_varint(varint((value << 1) ^ (value >> 63)), 0)[0]) == value


def test_fields_of_every_wire_type() -> None:
    data = b"\x08\x96\x01" + b"\x11" + struct.pack("<d", 2.5) + b"\x1a\x03abc" + b"\x25" + struct.pack("<f", -1.5)
    found = list(read_fields(data))
    assert [(f.number, f.wire) for f in found] == [(1, 0), (2, 1), (3, 2), (4, 5)]
    assert found[0].integer() == 150
    assert as_float(found[1].integer(), 64) == 2.5
    assert found[2].text() == "abc"
    assert as_float(found[3].integer(), 32) == -1.5


def test_packed_and_single_numbers() -> None:
    assert Field(5, 2, b"\x01\x96\x01").integers() == [1, 150]
    assert Field(5, 0, 7).integers() == [7]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x08", "cut off"),
        (b"\x08" + b"\xff" * 11, "more than 10 bytes"),
        (b"\x12\x05abc", "5 bytes are announced and 3 are left"),
        (b"\x11abc", "field 2 is cut off"),
        (b"\x0b", "unknown wire type 3"),
        (b"\x00\x00", "number 0"),
    ],
)
def test_what_is_no_message_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        list(read_fields(data))


def test_a_cut_row_names_the_byte() -> None:
    assert list(read_delimited(b"\x02ab\x00\x01c")) == [(0, b"ab"), (3, b""), (4, b"c")]
    with pytest.raises(WireError, match="byte 3: 9 bytes are announced"):
        list(read_delimited(b"\x02ab\x09cd"))


def test_a_field_of_the_other_sort_is_refused() -> None:
    with pytest.raises(WireError, match="bytes where a number"):
        Field(1, 2, b"x").integer()
    with pytest.raises(WireError, match="number where bytes"):
        Field(1, 0, 1).payload()


@given(st.binary(max_size=200))
def test_any_bytes_end_in_fields_or_a_wire_error(data: bytes) -> None:
    try:
        for _, message in read_delimited(data):
            for found in read_fields(message):
                found.integers()
    except WireError:
        pass
