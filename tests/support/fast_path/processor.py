"""A processor of eBPF that runs the program of the fast path without a kernel; it knows no instruction besides."""

from __future__ import annotations

import struct

from topos.kernel.fastpath.program import (
    FLOW_SHIFT,
    KIND_SHIFT,
    LINK,
    TABLE_KEY,
    TAP,
    VALUE_BYTES,
    Map,
    assemble,
)
from topos.kernel.fastpath.rules import UP

SHOT, REDIRECTED = 2, 7
FLOWS, SLOTS, SWITCH, PROCESSORS = 16, 4, 5, 2
"""Counters of flows and ports for one processor, number of the only switch, processors."""
_MASK = (1 << 64) - 1
_LOADS, _STORES = {0x61: "=I", 0x69: "=H", 0x79: "=Q"}, {0x63: "=I", 0x6B: "=H", 0x7B: "=Q"}
_ALU = {
    0xBF: lambda a, b: b,
    0xBC: lambda a, b: b & 0xFFFFFFFF,
    0xB7: lambda a, b: b,
    0x0F: lambda a, b: a + b,
    0x07: lambda a, b: a + b,
    0x77: lambda a, b: a >> b,
    0x67: lambda a, b: a << b,
    0x57: lambda a, b: a & b,
    0x27: lambda a, b: a * b,
    0x97: lambda a, b: a % b,
}
_OF_REGISTERS = 0x08
_FIRST_FD, _REGION = 100, 1 << 20


def instructions(code: bytes) -> list[tuple[int, int, int, int, int]]:
    """Code, target register, source register, offset and number of each instruction."""
    return [(op, regs & 15, regs >> 4, off, imm) for op, regs, off, imm in struct.iter_unpack("<BBhi", code)]


class Processor:
    """The program and its maps: ports 1 to 3 of a switch are links 11 to 13 and taps 21 to 23, all rules ``UP``."""

    def __init__(self) -> None:
        fds = {kind: _FIRST_FD + kind for kind in Map}
        self._code = instructions(assemble(fds, FLOWS, SLOTS, PROCESSORS))
        self.maps: dict[Map, dict[bytes, bytearray]] = {kind: {} for kind in Map}
        for kind, entries in ((Map.FLOWS, FLOWS), (Map.COUNTS, SLOTS)):
            for number in range(PROCESSORS * entries):
                self.put(kind, number, bytes(VALUE_BYTES[kind]))
        for slot in range(1, SLOTS):
            self.put(Map.PORTS, 10 + slot, struct.pack("=4I", slot, SWITCH, 20 + slot, LINK))
            self.put(Map.PORTS, 20 + slot, struct.pack("=4I", slot, SWITCH, 10 + slot, TAP))
            self.rule(slot, UP)
        self.put(Map.BANKS, SWITCH, bytes(8))

    def put(self, kind: Map, key: int, value: bytes) -> None:
        """Set a value of a map whose keys are numbers."""
        self.maps[kind][struct.pack("=I", key)] = bytearray(value)

    def rule(self, slot: int, kind: int, egress: int = 0, flow: int = 0, *, table: int = 0, bank: int = 0) -> None:
        """Set the rule of a port for packets that its ``table`` does not name."""
        self.put(Map.RULES, bank * SLOTS + slot, struct.pack("=QQ", _word(kind, egress, flow), table))

    def destination(self, table: int, mac: bytes, kind: int, egress: int = 0, flow: int = 0) -> None:
        """Set the rule of a table for a destination."""
        self.maps[Map.TABLES][TABLE_KEY.pack(table, mac)] = bytearray(struct.pack("=Q", _word(kind, egress, flow)))

    def port_counts(self, slot: int, processor: int = 0) -> list[int]:
        """Packets and bytes received, sent and dropped."""
        return list(struct.unpack("=6Q", self.maps[Map.COUNTS][struct.pack("=I", processor * SLOTS + slot)]))

    def flow_counts(self, flow: int, processor: int = 0) -> list[int]:
        """Packets and bytes."""
        return list(struct.unpack("=2Q", self.maps[Map.FLOWS][struct.pack("=I", processor * FLOWS + flow)]))

    def run(self, interface: int, frame: bytes, *, processor: int = 0, tagged: bool = False) -> tuple[int, int]:
        """What becomes of a packet: ``REDIRECTED`` and the interface, or ``SHOT`` and 0."""
        context = bytearray(44)
        struct.pack_into("=I16xI16xI", context, 0, len(frame), tagged, interface)
        regions = [context, bytearray(b"\xee" * 512)]
        registers = [0xEEEEEEEEEEEEEEEE] * 10 + [_REGION + 512]
        registers[1], to, place = 0, 0, 0
        while True:
            op, target, source, offset, number = self._code[place]
            place += 1
            operand = registers[source] if op & _OF_REGISTERS else number
            if op in _LOADS:
                region, at = divmod(registers[source] + offset, _REGION)
                (registers[target],) = struct.unpack_from(_LOADS[op], regions[region], at)
            elif op in _STORES:
                region, at = divmod(registers[target] + offset, _REGION)
                size = struct.calcsize(_STORES[op])
                value = registers[source] & ((1 << 8 * size) - 1)
                struct.pack_into(_STORES[op], regions[region], at, value)
            elif op in _ALU:
                registers[target] = _ALU[op](registers[target], operand) & _MASK
            elif op == 0x18:
                registers[target], place = number, place + 1
            elif op == 0x05 or (op in (0x15, 0x1D, 0x55) and (registers[target] == operand) == (op != 0x55)):
                place += offset
            elif op == 0x85:
                if number == 23:
                    to = registers[1]
                registers[:6] = [self._call(number, registers, regions, frame, processor)] + [_MASK] * 5
            elif op == 0x95:
                return registers[0], to if registers[0] == REDIRECTED else 0
            else:
                assert op in (0x15, 0x1D, 0x55), f"unknown instruction {op:#x}"

    def _call(self, helper: int, registers: list[int], regions: list[bytearray], frame: bytes, processor: int) -> int:
        if helper == 1:
            kind = Map(registers[1] - _FIRST_FD)
            region, at = divmod(registers[2], _REGION)
            found = self.maps[kind].get(bytes(regions[region][at : at + (TABLE_KEY.size if kind == Map.TABLES else 4)]))
            if found is None:
                return 0
            regions.append(found)
            return (len(regions) - 1) * _REGION
        if helper == 26:
            start, (region, at), count = registers[2], divmod(registers[3], _REGION), registers[4]
            if start + count > len(frame):
                return -14 & _MASK
            regions[region][at : at + count] = frame[start : start + count]
            return 0
        return {8: processor, 23: REDIRECTED}[helper]


def _word(kind: int, egress: int, flow: int) -> int:
    return kind << KIND_SHIFT | flow << FLOW_SHIFT | egress
