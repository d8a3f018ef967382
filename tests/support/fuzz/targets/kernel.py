"""Replies of switches, of ovsdb-server and of the kernel, as the fast path and the samplers read them."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from fuzz.target import Target
from measure.live import packets
from measure.live.counters import link_counters
from railyard.errors import MachineError
from topos.kernel.fastpath import carrier, openflow, resets, simple_match, statistics
from topos.kernel.fastpath.rules import Counts, PortCounts
from topos.kernel.netlink import messages
from topos.kernel.ovsdb import Ovsdb

_TOO_SHORT = (ValueError, struct.error)
_FIELDS = struct.pack("!HBBIHBB6s", 0x8000, 0, 4, 3, 0x8000, 6, 6, b"\x02\0\0\0\0\1")
_MATCH = struct.pack("!HH", 1, 4 + len(_FIELDS)) + _FIELDS + bytes(-(4 + len(_FIELDS)) % 8)
_INSTRUCTIONS = struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, 7, 65535)


def _messages(data: bytes, folder: Path) -> None:
    """What the monitor of a switch does with the messages of a stream."""
    for message in openflow.split(bytearray(data)):
        if message[1] == openflow.MULTIPART_REPLY and len(message) >= 16:
            kind = int.from_bytes(message[8:10], "big")
            deque(openflow.ports(message) if kind == openflow.MULTIPART_PORTS else openflow.flow_updates(message), 0)
        elif message[1] == openflow.PORT_STATUS:
            openflow.changed_port(message)


def _client_messages(data: bytes, folder: Path) -> None:
    """What the relay of a client's connection does with its messages."""
    opened = resets.OpenResets(lambda reset: lambda: None)
    for message in openflow.split(bytearray(data)):
        opened.asked(message)
        opened.refused(message)
        if statistics.statistics_kind(message, reply=False):
            statistics.selection(message)


def _match(data: bytes, folder: Path) -> None:
    for read in (simple_match.from_10, simple_match.from_11):
        with suppress(struct.error):
            read(data, 0)
    with suppress(struct.error):
        simple_match.from_fields(data, 0, len(data))
    openflow.read_match(data)
    openflow.read_instructions(data)


def _netlink(data: bytes, folder: Path) -> None:
    for message in messages(data):
        kind = int.from_bytes(message[4:6], "little")
        if kind == _LINK:
            carrier.has_carrier(message)
        elif kind == _STATISTICS:
            link_counters(message, 28)


def _statistics(data: bytes, folder: Path) -> None:
    """What the fast path does with the messages of a client and of its bridge, in turn."""
    rewriting = statistics.Statistics(_Flows())
    for number, message in enumerate(openflow.split(bytearray(data))):
        if number % 2:
            rewriting.asked(message)
        elif len(rewriting.answered(message)) != len(message):
            raise AssertionError("a rewritten message has another length")


class _Flows:
    """A bridge whose ports are known, with one flow."""

    port_names: ClassVar = {"x": "g0-eth0"}

    def counts_of(self, *flow: object) -> Counts:
        return Counts(3, 300)

    removed_counts = counts_of

    def reset(self, reset: object) -> Callable[[], object]:
        return lambda: None

    def each(self) -> list[tuple[int, int, int | None, bytes | None, int, int | None, Counts]]:
        return [(0, 100, 1, b"\2\0\0\0\0\1", 7, 2, Counts(3, 300))]

    def port_counts(self) -> dict[int, PortCounts]:
        return {1: PortCounts(Counts(3, 300), Counts(3, 300), Counts())}


def _spool(data: bytes, folder: Path) -> None:
    (folder / "spool").write_bytes(data)
    for packet in packets.read_spool(folder / "spool", ("g0-eth0", "g1-eth0")):
        packets.tcp_segment(packet)


def _from_kernel(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


_LINK, _STATISTICS = 16, 92


def _ovsdb(data: bytes, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "db.sock"))
        listener.listen(1)
        client = Ovsdb(folder / "db.sock", timeout_s=5)
        server, _ = listener.accept()
        with server:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            try:
                client.transact({"op": "comment"})
            finally:
                client.close()


def targets() -> list[Target]:
    """The targets of this module."""
    update = openflow._UPDATE.pack(32 + len(_MATCH) + 24, 0, 0, 0, 0, 100, len(_MATCH), 7)[:24] + _MATCH + _INSTRUCTIONS
    update = struct.pack("!HH", len(update), 0) + update[4:]
    port = struct.pack("!IH2x6s2x16sII", 3, 40, b"\x02\0\0\0\0\1", b"g0-eth0", 0, 0)
    replies = [
        openflow.message(19, 1, struct.pack("!HH4x", openflow.MULTIPART_MONITOR, 0) + update * 2),
        openflow.message(19, 2, struct.pack("!HH4x", openflow.MULTIPART_PORTS, 0) + port * 3),
        openflow.message(12, 3, struct.pack("!B7x", 2) + port),
    ]
    add = struct.pack("!QQBBHHHIIIH2x", 1, 0, 0, 0, 0, 0, 100, _ANY, _ANY, _ANY, 4) + _MATCH + _INSTRUCTIONS
    flow_mod = openflow.message(14, 9, add)
    bundled = openflow.message(34, 10, struct.pack("!I2xH", 1, 0) + flow_mod)
    commit = openflow.message(33, 11, struct.pack("!IHH", 1, 4, 0))
    old = bytes([1]) + openflow.message(14, 12, bytes(40) + struct.pack("!QHHHHIHH", 1, 0, 0, 0, 100, _ANY, 1, 0))[1:]
    aggregate = openflow.message(18, 13, struct.pack("!HH4xB3xII4xQQ", 2, 0, 0, _ANY, _ANY, 0, 0) + _MATCH)
    link = _from_kernel(_LINK, struct.pack("=BxHiIIHHB3xHHI", 0, 1, 5, 1, 0, 5, 33, 1, 8, 4, 9000))
    counted = _from_kernel(_STATISTICS, struct.pack("=BxxxiIHH", 0, 5, 1, 196, 1) + bytes(192))
    frame = bytes(12) + b"\x08\0" + b"\x45\0\0\x2c" + bytes(5) + b"\x06" + bytes(12) + b"\x50" + bytes(23)
    answers = [
        b'{"id":1,"result":[{}],"error":null}',
        b'{"method":"echo","params":[],"id":"echo"}{"id":1,"result":[{"error":"no","details":"such"}],"error":null}',
        b'{"id":1,"result":null,"error":"not allowed"}',
    ]
    return [
        Target("openflow-replies", _messages, replies, _TOO_SHORT, [replies[0][:8]]),
        Target("openflow-requests", _client_messages, [flow_mod, bundled + commit, old, aggregate], _TOO_SHORT),
        Target("openflow-match", _match, [_MATCH, bytes(40), bytes(88), _INSTRUCTIONS], _TOO_SHORT),
        Target("netlink", _netlink, [link, counted, link + counted], (MachineError, struct.error, KeyError)),
        Target("openflow-counts", _statistics, [aggregate + old, flow_mod + replies[1], *_counted()], _TOO_SHORT),
        Target("spool", _spool, [packets.pack_record(5, 0, True, 60, len(frame)) + frame], (IndexError,), weight=0.5),
        Target("ovsdb", _ovsdb, answers, (MachineError,), [b'"id":1', b'"result":', b'"error":', b"null"]),
    ]


_ANY = 0xFFFFFFFF


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _counted() -> list[bytes]:
    """Replies of statistics: of flows, of ports and of a table, and a flow that was removed."""
    flow = struct.pack("!HBxIIHHH6x", 48 + len(_MATCH), 0, 0, 0, 100, 0, 0) + struct.pack("!QQQ", 7, 1, 2) + _MATCH
    port = struct.pack("!I4x", 1) + bytes(104)
    table = struct.pack("!B3xIQQ", 0, 1, 2, 3)
    removed = struct.pack("!QHBBIIHHQQ", 7, 100, 0, 0, 0, 0, 0, 0, 1, 2) + _MATCH
    kinds = ((1, flow), (4, port * 2), (3, table))
    return [openflow.message(19, 1, struct.pack("!HH4x", kind, 0) + body) for kind, body in kinds] + [
        openflow.message(11, 2, removed)
    ]
