from __future__ import annotations

import struct

import pytest

from measure.model.wires import wire_bytes
from topos.kernel.netlink import attributes
from topos.kernel.queues import (
    _WITHOUT_DATA,
    counting,
    delay_packets,
    filters,
    link_queue,
    lose,
    random_drop,
    redirect,
    token_bucket,
)


def frame(payload: bytes, *, flags: int = 0x10, options: int = 12, protocol: int = 6, ip_options: int = 0) -> bytes:
    """An Ethernet frame with a TCP segment."""
    tcp = bytes(12) + bytes([(20 + options) // 4 << 4, flags]) + bytes(6 + options)
    length = 20 + ip_options + len(tcp) + len(payload)
    ip = bytes([0x40 | (20 + ip_options) // 4, 0]) + struct.pack("!H", length) + bytes(5) + bytes([protocol])
    return bytes(12) + b"\x08\x00" + ip + bytes(10 + ip_options) + tcp + payload


def run(packet: bytes) -> bool:
    """What the kernel's interpreter of classic BPF would say."""
    a = x = at = 0
    while True:
        code, jump, other, k = _WITHOUT_DATA[at]
        at += 1
        if code == 0x28:
            a = struct.unpack_from("!H", packet, k)[0]
        elif code in (0x30, 0x50):
            a = packet[k + (x if code == 0x50 else 0)]
        elif code == 0xB1:
            x = 4 * (packet[k] & 0xF)
        elif code == 0x54:
            a &= k
        elif code == 0x74:
            a >>= k
        elif code == 0x0C:
            a += x
        elif code == 0x07:
            x = a
        elif code in (0x15, 0x1D, 0x45):
            true = {0x15: a == k, 0x1D: a == x, 0x45: bool(a & k)}[code]
            at += jump if true else other
        else:
            assert code == 0x06
            return k != 0


@pytest.mark.parametrize("options", [0, 12, 24, 40])
@pytest.mark.parametrize("ip_options", [0, 8])
def test_only_segments_without_data_go_first(options: int, ip_options: int) -> None:
    shape = {"options": options, "ip_options": ip_options}
    assert run(frame(b"", **shape))
    assert run(frame(b"", flags=0x02, **shape)), "a SYN finds its way into a full link"
    assert not run(frame(b"x", **shape)), "data never overtakes data"
    assert not run(frame(bytes(8000), **shape))
    assert not run(frame(b"", flags=0x11, **shape)), "nor does the end of it"
    assert not run(frame(b"", protocol=17, **shape))


def test_other_frames_are_no_acknowledgements() -> None:
    packet = bytearray(frame(b""))
    packet[12:14] = b"\x08\x06"
    assert not run(bytes(packet))


def test_requests_are_well_formed_and_for_the_interface() -> None:
    requests = list(link_queue(1234, "n0-eth2", 50, 100_000, 9_000_000))
    assert len(requests) == 6
    for request in requests:
        assert struct.unpack_from("=I", request.packed)[0] == len(request.packed)
        assert struct.unpack_from("=i", request.packed, 20)[0] == 1234
        assert "n0-eth2" in request.what
    shared = bytes(requests[1].packed)
    assert struct.pack("=I", 6_250_000) in shared
    assert struct.pack("=I", 16_000_000 // 64) in shared  # 100 kB are 16 ms at 50 Mb/s


def test_rate_beyond_32_bits_of_bytes_is_given_in_64() -> None:
    shared = bytes(list(link_queue(1, "n0-eth2", 100_000, 1 << 20, 1 << 30))[1].packed)
    assert struct.pack("=Q", 12_500_000_000) in shared
    bucket = bytes(token_bucket(1, "g0-r0", 100_000, 1 << 20, 1 << 30).packed)
    assert struct.pack("=HHQ", 12, 4, 12_500_000_000) in bucket
    assert struct.pack("=HH", 12, 4) not in bytes(token_bucket(1, "g0-r0", 100, 1 << 20, 1 << 30).packed)


@pytest.mark.parametrize("percent", [0.1, 1.0, 5.0, 50.0, 99.9999])
def test_random_drop_compares_a_32_bit_number_with_the_share(percent: float) -> None:
    (load, _, _, source), (jump, over, _, threshold), (_, _, _, first), (_, _, _, second) = random_drop(percent)
    assert (load, source) == (0x20, 0xFFFFF038), "a 32-bit load of the kernel's random number"
    assert (jump, over) == (0x35, 1), "from the threshold on, the first verdict is skipped"
    assert threshold / 2**32 == pytest.approx(percent / 100, rel=1e-6)
    assert (first, second) == (2, 0), "shot, ok"


def test_all_or_nothing_is_lost() -> None:
    assert random_drop(100) == ((0x06, 0, 0, 2),)
    assert random_drop(0)[1][3] == 0


def test_requests_of_delayed_links_are_well_formed() -> None:
    requests = [
        filters(7, "mid0a"),
        redirect(7, "mid0a", 8),
        lose(7, "mid0a", 0.5),
        delay_packets(7, "mid0a", 5e3, 1e3),
    ]
    for request in requests:
        assert struct.unpack_from("=I", request.packed)[0] == len(request.packed)
        assert struct.unpack_from("=i", request.packed, 20)[0] == 7
    assert struct.pack("=iI", 1, 8) in bytes(requests[1].packed), "redirected to interface 8"
    netem = bytes(requests[3].packed)
    assert struct.pack("=HHq", 12, 10, 5_000_000) in netem and struct.pack("=HHq", 12, 11, 1_000_000) in netem
    assert struct.pack("=HH", 20, 6) in netem, "with a rate, netem keeps the order of packets that jitter"
    assert struct.pack("=HH", 20, 6) not in bytes(delay_packets(7, "mid0a", 5e3).packed)


@pytest.mark.parametrize("mtu", [1280, 1500, 4200, 9000])
@pytest.mark.parametrize("queue", ["bucket", "link"])
def test_a_queue_counts_an_overhead_for_each_frame_as_the_model_does(queue: str, mtu: int) -> None:
    bucket, link = token_bucket(1, "g0-r0", 100, 50_000, 1 << 20), next(link_queue(1, "n0-eth2", 100, 50_000, 1 << 20))
    plain = bucket if queue == "bucket" else link
    assert counting(plain, mtu, 0) == plain
    packed = bytes(counting(plain, mtu, 24).packed)
    assert packed[4 : len(plain.packed)] == plain.packed[4:] and len(packed) == struct.unpack_from("=I", packed)[0]
    found = {kind: (start, end) for kind, start, end in attributes(packed, 36, len(packed))}
    table = {kind: packed[start:end] for kind, start, end in attributes(packed, *found[8])}
    cell, unit, align, added, *_, count = struct.unpack("=BBhi4I", table[1])
    sizes = struct.unpack(f"={count}H", table[2])
    assert (align, added) == (0, 0) and len(sizes) << cell > 1 << 16
    full = mtu - 52
    for payload in (1, 700, full - 1, *range(full, 65_000, full), *range(full + 100, 65_000, full)):
        counted = sizes[(66 + payload) >> cell] << unit
        assert abs(counted - wire_bytes(payload, mtu, 24)) <= 5, f"{payload} bytes"
