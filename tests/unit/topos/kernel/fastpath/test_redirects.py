from __future__ import annotations

import struct

import pytest

from topos.kernel.fastpath import redirects
from topos.kernel.fastpath.rules import Counts

MAC = bytes.fromhex("020000000a0b")


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def an_action(place: int, number: int, byte_count: int, packets: int) -> bytes:
    """An action as the kernel reports it, with packets in 64 bits where 32 are too few."""
    counts = attribute(1, struct.pack("=QIxxxx", byte_count, packets & 0xFFFFFFFF))
    if packets >> 32:
        counts += attribute(8, struct.pack("=Q", packets))
    counts += attribute(3, bytes(20))
    parameters = attribute(2, struct.pack("=5IiI", number, 0, 4, 1, 1, 1, 7)) + attribute(1, bytes(32))
    return attribute(place, attribute(1, b"mirred\0") + attribute(4, counts) + attribute(2 | 0x8000, parameters))


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 3, 0) + body


def test_filter_by_destination_compares_the_six_bytes_before_the_network_header() -> None:
    packed = bytes(redirects.redirect(1234, 5, MAC, 99, 77).packed)
    assert struct.unpack_from("=I", packed)[0] == len(packed)
    assert struct.unpack_from("=iI", packed, 20) == (1234, 0x80000005)
    assert struct.pack("=4s4si", b"\0\0\xff\xff", b"\0\0\x02\0", -16) in packed
    assert struct.pack("=4s4si", b"\xff\xff\xff\xff", b"\0\0\x0a\x0b", -12) in packed
    assert struct.pack("=5IiI", 99, 0, 4, 0, 0, 1, 77) in packed


def test_filter_for_every_packet_compares_nothing_and_comes_last() -> None:
    packed = bytes(redirects.redirect(1234, redirects.OTHER, b"", 99, 77).packed)
    assert struct.unpack_from("=I", packed, 24)[0] == 0x80000FFF
    assert attribute(5, b"\1" + bytes(15)) in packed, "one that ends the search, with no key"


@pytest.mark.parametrize("count", [0, 1, 32, 33, 64, 65])
def test_changes_go_in_messages_of_32(count: int) -> None:
    requests = list(redirects.change([(100 + n, 7 + n) for n in range(count)]))
    assert len(requests) == -(-count // 32)
    assert all(struct.unpack_from("=I", request.packed)[0] == len(request.packed) for request in requests)
    packed = b"".join(bytes(request.packed) for request in requests)
    assert all(struct.pack("=5IiI", 100 + n, 0, 4, 0, 0, 1, 7 + n) in packed for n in range(count))


def test_reading_names_each_action_once() -> None:
    packed = b"".join(bytes(request.packed) for request in redirects.read(range(1000, 1020)))
    assert [packed.count(attribute(3, struct.pack("=I", number))) for number in range(1000, 1020)] == [1] * 20


def test_counters_of_changed_and_of_removed_filters() -> None:
    actions = an_action(1, 500, 1000, 10) + an_action(2, 501, 0, 0) + an_action(3, 502, 9 << 32, 2 << 32)
    expected = [(500, Counts(10, 1140)), (501, Counts()), (502, Counts(2 << 32, (9 << 32) + 14 * (2 << 32)))]
    assert list(redirects.counters(message(48, bytes(4) + attribute(1, actions)))) == expected
    options = attribute(5, bytes(16)) + attribute(7, actions)
    removed = bytes(20) + attribute(1, b"u32\0") + attribute(2, options)
    assert list(redirects.counters(message(45, removed))) == expected


def test_a_filter_without_an_action_has_no_counters() -> None:
    removed = bytes(20) + attribute(1, b"u32\0") + attribute(2, attribute(5, bytes(16)))
    assert list(redirects.counters(message(45, removed))) == []
