"""Packet captures, made with scapy: the same packets give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, PcapWriter

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def packet(
    t_s: float, src: str, dst: str, size: int, seq: int | None = None, port: int = 5000, flags: str = "A"
) -> Any:
    """A packet with ``size`` bytes of payload at ``t_s``: UDP, or TCP if it has a sequence number."""
    transport = UDP(sport=port, dport=9) if seq is None else TCP(sport=port, dport=9, seq=seq, flags=flags)
    made = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=src, dst=dst) / transport / Raw(bytes(size))
    made.time = 1000 + t_s
    return made


def capture(packets: Iterable[Any], ng: bool = False) -> bytes:
    """The content of a pcap file, or of a pcapng file, with ``packets``."""
    with NamedTemporaryFile(suffix=".pcap") as file, (PcapNgWriter if ng else PcapWriter)(file.name) as writer:
        for each in packets:
            writer.write(each)
        writer.flush()
        return Path(file.name).read_bytes()


TALK = (
    packet(0, A, B, 1000),
    packet(0.001, A, B, 1000),
    packet(0.101, B, A, 400),
    packet(0.2, A, C, 1000, seq=1),
    packet(0.201, A, C, 1000, seq=1),
    packet(0.202, A, C, 1000, seq=1001),
)
"""A sends 2,000 bytes to B, B answers 100 ms later with 400; then A sends 2,000 to C, half of them twice."""
