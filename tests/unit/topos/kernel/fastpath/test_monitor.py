from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.monitor import Monitor
from topos.kernel.fastpath.rules import OUT, Counts, KernelPort, PortCounts, PortRules
from topos.kernel.fastpath.streams import Loop
from topos.kernel.fastpath.tables import FlowTables

PORTS = (1, 2, 3)


class FakeForwarder:
    """Notes what is set."""

    def __init__(self) -> None:
        self.calls: list[dict[int, int | None]] = []
        self.flows = 0

    def add(self, ports: Sequence[KernelPort]) -> None:
        raise NotImplementedError

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        """Note the egress port for each port that is named."""
        self.calls.append({n: one.other.port if one.other.kind == OUT else None for n, one in sorted(rules.items())})

    def new_flow(self) -> int:
        self.flows += 1
        return self.flows

    def free_flow(self, flow: int) -> None:
        pass

    def flow_counts(self, flow: int) -> Counts:
        return Counts()

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        return {}

    def close(self) -> None:
        pass


class Bridge:
    """The monitor of a bridge that this test plays."""

    def __init__(self, folder: Path) -> None:
        self.forwarder, self.failed = FakeForwarder(), list[str]()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "mgmt"))
        listener.listen(1)
        tables = FlowTables("s1", PORTS, self.forwarder)
        self.loop = Loop()
        self.monitor = Monitor(self.loop, tables, folder / "mgmt", self.failed.append)
        self.socket = listener.accept()[0]
        listener.close()

    def say(self, *messages: bytes) -> None:
        """Send messages, and let the monitor read them."""
        self.socket.sendall(b"".join(messages))
        for key, mask in self.loop.selector.select(1):
            key.data(mask)

    def asked(self) -> list[bytes]:
        """What the monitor has sent."""
        return list(openflow.split(bytearray(self.socket.recv(1 << 16))))


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    one = Bridge(tmp_path)
    one.asked()
    yield one
    one.socket.close()
    one.monitor._stream.close()


def added(in_port: int, out: int) -> bytes:
    """A flow update: packets of one port go to another."""
    match = struct.pack("!HHIIxxxx", 1, 12, 0x80000004, in_port)
    action = struct.pack("!HH4xHHIHxxxxxx", 4, 24, 0, 16, out, 0)
    length = 24 + len(match) + len(action)
    return struct.pack("!HHBBHHH4xQ", length, openflow.ADDED, 0, 0, 0, 0, 10, 7) + match + action


def reply(*updates: bytes, more: bool = False) -> bytes:
    head = struct.pack("!HH4x", openflow.MULTIPART_MONITOR, more)
    return openflow.message(openflow.MULTIPART_REPLY, 1, head + b"".join(updates))


def test_changes_of_one_message_hold_at_once(bridge: Bridge) -> None:
    bridge.say(reply(added(1, 2), added(2, 1)))
    assert bridge.forwarder.calls == [{1: 2, 2: 1}]


def test_a_bundle_of_several_messages_holds_when_the_last_has_come(bridge: Bridge) -> None:
    bridge.say(reply(added(1, 2), more=True))
    bridge.say(reply(added(2, 3), more=True))
    assert bridge.forwarder.calls == []
    assert not bridge.monitor.synchronize(lambda: None), "a reply that promises the bundle must wait"
    bridge.say(reply(added(3, 1)))
    assert bridge.forwarder.calls == [{1: 2, 2: 3, 3: 1}]


def test_a_message_that_comes_in_parts_holds_when_it_is_whole(bridge: Bridge) -> None:
    whole = reply(added(1, 2), added(2, 1))
    bridge.say(whole[:50])
    assert bridge.forwarder.calls == []
    bridge.say(whole[50:])
    assert bridge.forwarder.calls == [{1: 2, 2: 1}]


def test_what_waits_is_called_after_the_barrier_reply(bridge: Bridge) -> None:
    called: list[int] = []
    bridge.monitor.when_current(lambda: called.append(len(bridge.forwarder.calls)))
    (barrier,) = bridge.asked()
    bridge.say(reply(added(1, 2)))
    assert called == []
    bridge.say(openflow.message(openflow.BARRIER_REPLY, int.from_bytes(barrier[4:8], "big")))
    assert called == [1], "once, with the rules in the kernel"


def test_an_end_of_the_connection_is_reported(bridge: Bridge) -> None:
    bridge.socket.close()
    for key, mask in bridge.loop.selector.select(1):
        key.data(mask)
    assert bridge.failed == ["Open vSwitch closed the flow monitor of s1"]
