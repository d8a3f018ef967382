"""Writes captured packets as a pcapng file for Wireshark, with one interface per host port and comments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from measure.live.packets import Packet
from railyard.ownership import naming, open_binary

_ETHERNET = 1
_INBOUND, _OUTBOUND = 1, 2


def write_pcapng(
    path: Path,
    packets: Sequence[Packet],
    comments: Iterable[Sequence[str]] | None = None,
    *,
    interfaces: Sequence[str] = (),
) -> None:
    """Write ``packets`` in order of time, each with its ``comments`` (see ``measure.live.annotation.annotate``).

    Each of ``interfaces`` gets a block with its name, also if no packet was captured there; other interfaces of packets
    follow. Times are in microseconds, as most readers expect.
    """
    from scapy.utils import RawPcapNgWriter  # imported here, since it is slow and only a capture needs it

    names = list(dict.fromkeys([*interfaces, *(packet.interface for packet in packets)]))
    comments_of = [()] * len(packets) if comments is None else list(comments)

    class Writer(RawPcapNgWriter):
        """Writes a named block for every interface first; scapy's own writer would begin with an unnamed one."""

        def _write_header(self, pkt: object) -> None:
            self.header_present = True
            self.interfaces2id = {name.encode(): number for number, name in enumerate(names)}
            self._write_block_shb()
            for name in names:
                self._write_block_idb(linktype=_ETHERNET, ifname=name.encode())

    make: Any = Writer  # of a descriptor, which it closes, in the place of a name
    with naming(path), open_binary(path, "wb") as file, make(os.dup(file.fileno())) as out:
        out.linktype = _ETHERNET
        out.write_header(None)
        for packet, lines in sorted(zip(packets, comments_of, strict=True), key=lambda pair: pair[0].t_ns):
            out._write_packet(
                packet.data,
                linktype=_ETHERNET,
                sec=Fraction(packet.t_ns, 10**9),  # a float would be off by a fraction of a microsecond
                wirelen=packet.length,
                ifname=packet.interface.encode(),
                direction=_OUTBOUND if packet.outgoing else _INBOUND,
                comments=[line.encode() for line in lines],
            )
