"""Doubles of the kernel and of Open vSwitch for tests of the fast path."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from railyard.errors import MachineError
from railyard.loop import Loop
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.rules import UP, Counts, KernelPort, PortCounts, PortRules, Rule


class FakeForwarder:
    """A kernel that forwards packets of 100 bytes by the rules it is given, and checks how slots are used."""

    def __init__(self, slots: int = 1 << 10) -> None:
        self.rules: dict[int, PortRules] = {}
        self.free = list(range(slots, 0, -1))
        self.counted: dict[int, int] = {}
        self.sets: list[Mapping[int, PortRules]] = []
        self.refuses = False

    def add(self, ports: Sequence[KernelPort]) -> None:
        self.rules |= {port.number: PortRules() for port in ports}

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        if self.refuses and any(one != PortRules() for one in rules.values()):
            raise MachineError("the map is full")
        self.rules |= rules
        self.sets.append(rules)
        assert self.slots_in_rules() <= self.counted.keys(), "a rule names a slot that is free"

    def slots_in_rules(self) -> frozenset[int]:
        every = [rule for one in self.rules.values() for rule in (one.other, *one.to.values())]
        return frozenset(rule.flow for rule in every if rule.flow)

    def new_flow(self) -> int:
        if not self.free:
            return 0
        slot = self.free.pop()
        self.counted[slot] = 0
        return slot

    def free_flow(self, flow: int) -> None:
        assert flow not in self.slots_in_rules(), "a slot that a rule names is freed"
        del self.counted[flow]
        self.free.append(flow)

    def flow_counts(self, flow: int) -> Counts:
        return Counts(self.counted[flow], 100 * self.counted[flow]) if flow else Counts()

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        return {}

    def close(self) -> None:
        pass

    def receive(self, port: int, destination: bytes) -> Rule:
        """What happens to a packet that a port receives."""
        rules = self.rules.get(port, PortRules())
        rule = rules.to.get(destination, rules.other)
        if rule.kind != UP and rule.flow:
            self.counted[rule.flow] += 1
        return rule


class OpenVSwitch:
    """Open vSwitch's end of the connection of a flow monitor, at the Unix socket ``path``."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._asked = bytearray()
        self.socket: socket.socket

    def accept(self) -> None:
        self.socket = self._listener.accept()[0]
        self.socket.setblocking(False)

    def asked(self) -> list[tuple[int, int]]:
        """Type and number of each message that has come since the last call."""
        with suppress(BlockingIOError):
            self._asked += self.socket.recv(1 << 20)
        return [(message[1], int.from_bytes(message[4:8], "big")) for message in openflow.split(self._asked)]

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def close(self) -> None:
        self._listener.close()
        if hasattr(self, "socket"):
            self.socket.close()


def turn(loop: Loop, times: int = 4) -> None:
    """Let a loop serve what is ready."""
    for _ in range(times):
        loop.turn(0.0)


def flow_match(in_port: int | None = None, eth_dst: bytes | None = None, eth_type: int | None = None) -> bytes:
    """A match of OpenFlow 1.4 with its padding."""
    fields = b"" if in_port is None else struct.pack("!II", 0x80000004, in_port)
    fields += b"" if eth_dst is None else struct.pack("!I6s", 0x80000606, eth_dst)
    fields += b"" if eth_type is None else struct.pack("!IH", 0x80000A02, eth_type)
    return padded(struct.pack("!HH", 1, 4 + len(fields)) + fields)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def output(port: int, kind: int = 4) -> bytes:
    """The instruction to send to a port: apply actions (``kind`` 4) or write actions (3)."""
    return struct.pack("!HH4xHHIH6x", kind, 24, 0, 16, port, 0xFFFF)


def flow_update(
    event: int, match: bytes, instructions: bytes = b"", *, priority: int = 1, table: int = 0, idle: int = 0
) -> bytes:
    """One update of a flow monitor; ``match`` is padded."""
    body = struct.pack("!BBHHH4xQ", table, 0, idle, 0, priority, 7) + match + instructions
    return struct.pack("!HH", 4 + len(body), event) + body


def monitor_reply(*updates: bytes, more: bool = False) -> bytes:
    """A multipart reply with updates of a flow monitor; the next one continues it if there are ``more``."""
    return openflow.message(openflow.MULTIPART_REPLY, 1, struct.pack("!HH4x", 16, more) + b"".join(updates))
