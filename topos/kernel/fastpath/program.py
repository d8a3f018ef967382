"""The eBPF program of the fast path, assembled here: no compiler and no kernel headers are needed.

The same program runs at the tc ingress of every switch's end of a link and of every tap (port of Open vSwitch). Maps:

============ ============== ======================================================================================
map          key            value
============ ============== ======================================================================================
``PORTS``    interface      u32 slot of the port, u32 number of the switch, u32 the port's other interface, u32 side
``BANKS``    switch         u64 first slot of the bank of rules that holds now
``RULES``    bank + slot    u64 rule for any destination, u64 number of the table by destination (0: none)
``TABLES``   table, MAC     u64 rule
``FLOWS``    flow           u64 packets, u64 bytes; one after the other for each processor
``COUNTS``   slot           u64 packets and bytes received, sent, dropped by a rule; likewise
============ ============== ======================================================================================

A rule: bits 56 to 63 its kind (``rules.UP``, ``OUT``, ``DROP``), 32 to 55 the slot of the flow, 0 to 31 the interface
that sends. Counters are of one processor each, so that no two of them write the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from topos.kernel.fastpath.rules import DROP, UP


class Map(IntEnum):
    """The maps of the program."""

    PORTS = 0
    BANKS = 1
    RULES = 2
    TABLES = 3
    FLOWS = 4
    COUNTS = 5


LINK, TAP = 1, 2
"""Sides of a port: the switch's end of the link, and the port of Open vSwitch."""
VALUE_BYTES = {Map.PORTS: 16, Map.BANKS: 8, Map.RULES: 16, Map.TABLES: 8, Map.FLOWS: 16, Map.COUNTS: 48}
TABLE_KEY = struct.Struct("=I6s2x")
KIND_SHIFT, FLOW_SHIFT, FLOW_BITS = 56, 32, 24

_LENGTH, _TAGGED, _INTERFACE = 0, 20, 40  # offsets in struct __sk_buff of linux/bpf.h
_LOOKUP, _PROCESSOR, _REDIRECT, _LOAD_BYTES = 1, 8, 23, 26  # helper functions of linux/bpf.h
_SHOT = 2  # TC_ACT_SHOT of linux/pkt_cls.h
_LOAD_MAP = 0x18
_PSEUDO_MAP_FD = 1
_LOADS = {2: 0x69, 4: 0x61, 8: 0x79}
_STORES = {2: 0x6B, 4: 0x63, 8: 0x7B}
_R0, _R1, _R2, _R3, _R4, _CONTEXT, _RULE, _PORT, _CPU, _FRAME = 0, 1, 2, 3, 4, 6, 7, 8, 9, 10
_KEY, _TABLE_KEY = -4, -16


class _Jump(NamedTuple):
    code: int
    register: int
    target: str
    source: int = 0
    value: int = 0


class Assembler:
    """Instructions of eBPF one after another; ``code`` gives their bytes once all labels are set."""

    def __init__(self) -> None:
        self._code: list[bytes | _Jump] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def op(self, code: int, to: int, source: int = 0, offset: int = 0, value: int = 0) -> None:
        self._code.append(struct.pack("<BBhi", code, source << 4 | to, offset, value))

    def load(self, size: int, to: int, pointer: int, offset: int = 0) -> None:
        """``to`` = the ``size`` bytes at ``pointer`` + ``offset``."""
        self.op(_LOADS[size], to, pointer, offset)

    def store(self, size: int, pointer: int, offset: int, source: int) -> None:
        """The ``size`` bytes at ``pointer`` + ``offset`` = ``source``."""
        self.op(_STORES[size], pointer, source, offset)

    def move(self, to: int, source: int) -> None:
        self.op(0xBF, to, source)

    def move32(self, to: int, source: int) -> None:
        """``to`` = the lower 32 bits of ``source``."""
        self.op(0xBC, to, source)

    def set(self, to: int, value: int) -> None:
        """``to`` = a number of 31 bits."""
        self.op(0xB7, to, value=value)

    def add(self, to: int, source: int) -> None:
        self.op(0x0F, to, source)

    def call(self, helper: int) -> None:
        """r0 = the result of a helper function with arguments r1 to r5."""
        self.op(0x85, 0, value=helper)

    def jump(self, target: str) -> None:
        self._code.append(_Jump(0x05, 0, target))

    def jump_if(self, register: int, value: int, target: str) -> None:
        self._code.append(_Jump(0x15, register, target, value=value))

    def jump_unless(self, register: int, value: int, target: str) -> None:
        self._code.append(_Jump(0x55, register, target, value=value))

    def jump_equal(self, register: int, other: int, target: str) -> None:
        self._code.append(_Jump(0x1D, register, target, other))

    def lookup(self, fd: int, key: int) -> None:
        """r0 = the address of the value for the key at stack offset ``key`` in the map ``fd``, or 0."""
        self.op(_LOAD_MAP, _R1, _PSEUDO_MAP_FD, value=fd)
        self.op(0, 0)  # the upper half of the 64 bits
        self.move(_R2, _FRAME)
        self.op(0x07, _R2, value=key)
        self.call(_LOOKUP)

    def count(self, offset: int) -> None:
        """Add the packet, with the VLAN tag that the kernel keeps beside it, to the counts at r0 + ``offset``."""
        self.load(8, _R1, _R0, offset)
        self.op(0x07, _R1, value=1)
        self.store(8, _R0, offset, _R1)
        self.load(4, _R1, _CONTEXT, _LENGTH)
        self.load(8, _R2, _R0, offset + 8)
        self.add(_R2, _R1)
        self.load(4, _R1, _CONTEXT, _TAGGED)
        self.op(0x67, _R1, value=2)
        self.add(_R2, _R1)
        self.store(8, _R0, offset + 8, _R2)

    def end(self) -> None:
        self.op(0x95, 0)

    @property
    def code(self) -> bytes:
        return b"".join(self._encoded())

    def _encoded(self) -> Iterable[bytes]:
        for place, instruction in enumerate(self._code):
            if isinstance(instruction, bytes):
                yield instruction
            else:
                distance = self._labels[instruction.target] - place - 1
                yield struct.pack(
                    "<BBhi",
                    instruction.code,
                    instruction.source << 4 | instruction.register,
                    distance,
                    instruction.value,
                )


def assemble(fds: dict[Map, int], flows: int, ports: int, processors: int) -> bytes:
    """The program for maps with these descriptors; ``flows`` and ``ports`` are the slots of one of ``processors``."""
    a = Assembler()
    a.move(_CONTEXT, _R1)
    a.load(4, _R1, _CONTEXT, _INTERFACE)
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.PORTS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.move(_PORT, _R0)
    a.load(4, _R1, _PORT, 12)
    a.jump_if(_R1, TAP, "other side")
    a.jump_unless(_R1, LINK, "drop")
    _find_rule(a, fds)
    a.label("decided")
    a.move(_R1, _RULE)
    a.op(0x77, _R1, value=KIND_SHIFT)
    a.jump_if(_R1, UP, "other side")
    _count(a, fds, flows, ports, processors)
    a.move32(_R1, _RULE)
    a.op(0x67, _R1, value=32)
    a.op(0x77, _R1, value=32)
    a.load(4, _R2, _CONTEXT, _INTERFACE)
    a.jump_equal(_R1, _R2, "drop")
    _count_sent(a, fds, ports)
    a.move32(_R1, _RULE)
    a.jump("redirect")
    a.label("other side")
    a.load(4, _R1, _PORT, 8)
    a.label("redirect")
    a.set(_R2, 0)
    a.call(_REDIRECT)
    a.end()
    a.label("drop")
    a.set(_R0, _SHOT)
    a.end()
    return a.code


def _find_rule(a: Assembler, fds: dict[Map, int]) -> None:
    """Leave the rule for the packet in its register: that of its destination, else that of the port."""
    a.load(4, _R1, _PORT, 4)
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.BANKS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.load(4, _R1, _R0)
    a.load(4, _R2, _PORT, 0)
    a.add(_R1, _R2)
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.RULES], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.load(8, _RULE, _R0, 0)
    a.load(4, _R1, _R0, 8)
    a.jump_if(_R1, 0, "decided")
    a.store(4, _FRAME, _TABLE_KEY, _R1)
    a.set(_R1, 0)
    a.store(2, _FRAME, _TABLE_KEY + 10, _R1)
    a.move(_R1, _CONTEXT)
    a.set(_R2, 0)
    a.move(_R3, _FRAME)
    a.op(0x07, _R3, value=_TABLE_KEY + 4)
    a.set(_R4, 6)
    a.call(_LOAD_BYTES)
    a.jump_unless(_R0, 0, "drop")
    a.lookup(fds[Map.TABLES], _TABLE_KEY)
    a.jump_if(_R0, 0, "decided")
    a.load(8, _RULE, _R0)


def _count(a: Assembler, fds: dict[Map, int], flows: int, ports: int, processors: int) -> None:
    """Count the packet for its flow and as received; a packet to be dropped also as dropped, and drop it."""
    a.call(_PROCESSOR)
    a.op(0x97, _R0, value=processors)  # a processor that was added later shares the counters of another
    a.move(_CPU, _R0)
    a.op(0x27, _R0, value=flows)
    a.move(_R1, _RULE)
    a.op(0x77, _R1, value=FLOW_SHIFT)
    a.op(0x57, _R1, value=(1 << FLOW_BITS) - 1)
    a.add(_R0, _R1)
    a.store(4, _FRAME, _KEY, _R0)
    a.lookup(fds[Map.FLOWS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.count(0)
    a.op(0x27, _CPU, value=ports)
    a.load(4, _R1, _PORT, 0)
    a.add(_R1, _CPU)
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.COUNTS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.count(0)
    a.move(_R1, _RULE)
    a.op(0x77, _R1, value=KIND_SHIFT)
    a.jump_unless(_R1, DROP, "sent")
    a.count(32)
    a.jump("drop")
    a.label("sent")


def _count_sent(a: Assembler, fds: dict[Map, int], ports: int) -> None:
    """Count the packet as sent by the interface in r1."""
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.PORTS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.load(4, _R1, _R0, 0)
    a.add(_R1, _CPU)
    a.store(4, _FRAME, _KEY, _R1)
    a.lookup(fds[Map.COUNTS], _KEY)
    a.jump_if(_R0, 0, "drop")
    a.count(16)
