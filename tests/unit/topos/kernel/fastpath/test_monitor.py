from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_path.doubles import FakeForwarder, OpenVSwitch, flow_match, flow_update, monitor_reply, output, turn

from railyard.loop import Loop
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.monitor import FeaturesWatch, Monitor, needing, unsupported
from topos.kernel.fastpath.openflow import ADDED, PAUSED, REMOVED, RESUMED
from topos.kernel.fastpath.rules import DROP, OUT, TO_OVS, KernelPort, Rule
from topos.kernel.fastpath.tables import FlowTables

MAC = b"\2\0\0\0\0\1"
PAUSE, RESUME = (struct.pack("!HH4x", 8, event) for event in (PAUSED, RESUMED))


class Bridge:
    """A monitor between a false Open vSwitch and a false kernel."""

    def __init__(self, path: Path) -> None:
        self.ovs, self.loop, self.kernel = OpenVSwitch(path), Loop(), FakeForwarder()
        self.kernel.add([KernelPort("s1", port, port, 100 + port) for port in (1, 2)])
        self.failed: list[str] = []
        tables = FlowTables("s1", (1, 2), self.kernel)
        self.monitor = Monitor(self.loop, tables, path, self.failed.append)
        self.ovs.accept()
        self.events: list[str] = []

    def rule(self) -> Rule:
        return self.kernel.receive(1, MAC)._replace(flow=0)

    def then(self, name: str = "then") -> None:
        self.events.append(
            f"{name} {'DROP' if self.rule().kind == DROP else 'OUT' if self.rule().kind == OUT else 'UP'}"
        )

    def end(self) -> None:
        self.then("end")
        self.loop.ended = True

    def barrier(self) -> int:
        """The number of the only message that Open vSwitch got, a barrier."""
        ((kind, xid),) = self.ovs.asked()
        assert kind == openflow.BARRIER_REQUEST
        return xid

    def close(self) -> None:
        self.ovs.close()
        turn(self.loop)
        self.loop.close()


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    one = Bridge(tmp_path / "mgmt")
    assert [kind for kind, _ in one.ovs.asked()] == [0, 28, 9, 18, 18]
    yield one
    one.close()


def added(instructions: bytes = output(2), *, priority: int = 1) -> bytes:
    return flow_update(ADDED, flow_match(1), instructions, priority=priority)


def reply(xid: int) -> bytes:
    return openflow.message(openflow.BARRIER_REPLY, xid)


def test_a_promise_holds_at_once_if_the_updates_are_there(bridge: Bridge) -> None:
    bridge.ovs.send(monitor_reply(added()))
    assert bridge.rule() == TO_OVS
    assert bridge.monitor.synchronize(bridge.then)
    assert bridge.rule() == Rule(OUT, 2) and not bridge.ovs.asked() and not bridge.events


def full(room: int) -> bytes:
    """As many updates as fill ``room`` bytes, the last of which sends to port 2."""
    update = monitor_reply(flow_update(ADDED, flow_match(2), b"", priority=9))
    return update * (room // len(update)) + monitor_reply(added())


def test_after_a_full_socket_a_promise_waits_for_open_vswitch(bridge: Bridge) -> None:
    """What the socket did not take comes later, and the reply that promises it may come before."""
    bridge.ovs.send(full(40_000))
    turn(bridge.loop)
    assert not bridge.monitor.synchronize(bridge.then)
    xid = bridge.barrier()
    bridge.ovs.send(monitor_reply(added(b"", priority=5)), reply(xid - 1))
    turn(bridge.loop)
    assert not bridge.events
    bridge.ovs.send(reply(xid))
    turn(bridge.loop)
    assert bridge.events == ["then DROP"]
    assert bridge.monitor.synchronize(bridge.then), "and not for ever"


def test_a_full_socket_that_is_seen_only_now(bridge: Bridge) -> None:
    bridge.ovs.send(full(40_000))
    assert not bridge.monitor.synchronize(bridge.then)
    bridge.ovs.send(full(40_000), reply(bridge.barrier()))
    turn(bridge.loop)
    assert bridge.events == ["then OUT"]
    assert not bridge.monitor.synchronize(bridge.then), "the socket was full once more"
    bridge.ovs.send(reply(bridge.barrier()))
    turn(bridge.loop)
    assert len(bridge.events) == 2


@pytest.mark.parametrize("size", [48, 64, 88, 512, 4_096, 40_000])
def test_a_full_socket_is_recognized_whatever_the_size_of_messages(bridge: Bridge, size: int) -> None:
    """The kernel takes fewer bytes of short messages. The kernel of the tests is asked."""
    message, sent = openflow.message(openflow.HELLO, 0, bytes(size - 8)), 0
    while True:
        try:
            sent += bridge.ovs.socket.send(message)
        except BlockingIOError:
            break
    turn(bridge.loop, 1)
    assert sent >= size and not bridge.monitor.synchronize(bridge.then)


def test_all_who_wait_are_called_in_order(bridge: Bridge) -> None:
    for name in ("a", "b"):
        bridge.monitor.when_current(lambda name=name: bridge.then(name))  # type: ignore[misc]
    assert not bridge.monitor.synchronize(lambda: bridge.then("c"))
    xids = [xid for _, xid in bridge.ovs.asked()]
    bridge.ovs.send(reply(xids[0]), monitor_reply(added()), *map(reply, xids[1:]), reply(xids[0]))
    turn(bridge.loop)
    assert bridge.events == ["a OUT", "b OUT", "c OUT"]


def test_a_monitor_that_is_paused_lets_all_wait(bridge: Bridge) -> None:
    bridge.ovs.send(monitor_reply(PAUSE))
    turn(bridge.loop)
    assert not bridge.monitor.synchronize(bridge.then)
    bridge.ovs.send(reply(bridge.barrier()))
    turn(bridge.loop)
    assert not bridge.events, "updates are still missing"
    bridge.ovs.send(monitor_reply(added()), monitor_reply(RESUME))
    turn(bridge.loop)
    assert bridge.events == ["then OUT"]
    assert bridge.monitor.synchronize(bridge.then)


def test_a_bundle_of_several_messages_holds_when_the_last_has_come(bridge: Bridge) -> None:
    bridge.ovs.send(monitor_reply(added(), more=True))
    turn(bridge.loop)
    assert not bridge.kernel.sets
    assert not bridge.monitor.synchronize(bridge.then), "a reply that promises the bundle must wait"
    bridge.ovs.send(monitor_reply(added(b"", priority=7)), reply(bridge.barrier()))
    turn(bridge.loop)
    assert bridge.events == ["then DROP"] and len(bridge.kernel.sets) == 1


DARK_S = 0.005


def dark(bridge: Bridge) -> None:
    """A flow that drops and lasts ``DARK_S`` is removed, and someone waits for its end."""
    bridge.ovs.send(monitor_reply(added(b"", priority=9), added()))
    turn(bridge.loop)
    bridge.monitor.tables.lasting.ask(7, DARK_S, time.monotonic())
    bridge.ovs.send(monitor_reply(flow_update(REMOVED, flow_match(1), priority=9)))
    turn(bridge.loop, 1)
    assert bridge.rule() == Rule(DROP)
    assert bridge.monitor.when_gone(7, bridge.then) and not bridge.events


def wait(bridge: Bridge) -> None:
    """Let the loop serve until twice the time is over."""
    bridge.loop.at(time.monotonic() + 2 * DARK_S, lambda: setattr(bridge.loop, "ended", True))
    bridge.loop.ended = False
    bridge.loop.run()


def test_the_end_of_a_flow_that_lasts_comes_with_the_rest_of_a_change(bridge: Bridge) -> None:
    dark(bridge)
    bridge.ovs.send(monitor_reply(added(priority=3), more=True))
    turn(bridge.loop, 1)
    wait(bridge)
    assert not bridge.events and bridge.rule() == Rule(DROP)
    bridge.ovs.send(monitor_reply(added(b"", priority=4)))
    wait(bridge)
    assert bridge.events == ["then DROP"], "by the flow of the change"
    assert bridge.monitor.tables.counts_of(0, 9, 1, None).packets == 0


def test_whoever_waits_for_the_end_of_a_flow_hears_it_although_the_kernel_refuses(bridge: Bridge) -> None:
    dark(bridge)
    bridge.kernel.refuses = True
    bridge.ovs.send(monitor_reply(added(priority=3)))
    turn(bridge.loop)
    wait(bridge)
    assert bridge.events == ["then UP"]


def test_echoes_are_answered(bridge: Bridge) -> None:
    bridge.ovs.send(openflow.message(openflow.ECHO_REQUEST, 9, b"abc"))
    turn(bridge.loop)
    assert bridge.ovs.socket.recv(100) == openflow.message(openflow.ECHO_REPLY, 9, b"abc")


def test_ports_that_are_limited_are_heard_of(bridge: Bridge) -> None:
    def port(number: int, configuration: int) -> bytes:
        return struct.pack("!IH2x6s2x16sII", number, 40, bytes(6), b"p", configuration, 0)

    bridge.ovs.send(monitor_reply(added()))
    bridge.ovs.send(openflow.message(19, 1, struct.pack("!HH4x", 13, 0) + port(1, 0) + port(2, openflow.PORT_DOWN)))
    turn(bridge.loop)
    assert bridge.rule() == TO_OVS
    bridge.ovs.send(openflow.message(openflow.PORT_STATUS, 1, struct.pack("!B7x", 2) + port(2, 0)))
    turn(bridge.loop)
    assert bridge.rule() == Rule(OUT, 2)


def test_a_refusal_of_the_kernel_is_said_and_open_vswitch_forwards(
    bridge: Bridge, capsys: pytest.CaptureFixture[str]
) -> None:
    bridge.kernel.refuses = True
    bridge.ovs.send(monitor_reply(added()))
    turn(bridge.loop)
    said = "fast path: Open vSwitch forwards for s1 from now on: the map is full\n"
    assert capsys.readouterr().err == said and bridge.rule() == TO_OVS
    assert bridge.monitor.synchronize(bridge.then), "controllers are answered all the same"


def test_a_refusal_of_open_vswitch_is_a_failure(bridge: Bridge) -> None:
    bridge.ovs.send(openflow.message(openflow.ERROR, 1, struct.pack("!HH", 1, 5)))
    turn(bridge.loop)
    assert bridge.failed == ["Open vSwitch refused the flow monitor of s1: 00010005"]


@pytest.mark.parametrize("data", [b"", b"\5\0\0\3\0\0\0\0", monitor_reply(struct.pack("!HH", 0, 1))])
def test_the_end_of_the_connection_is_a_failure(bridge: Bridge, data: bytes) -> None:
    bridge.ovs.send(data)
    bridge.ovs.close()
    turn(bridge.loop)
    assert bridge.failed == ["Open vSwitch closed the flow monitor of s1"]
    assert not bridge.loop.watched


def test_a_rule_that_is_to_last_outlives_its_flow_and_ends_on_time(bridge: Bridge) -> None:
    bridge.ovs.send(monitor_reply(added()))
    turn(bridge.loop)
    held = time.monotonic()
    bridge.monitor.tables.lasting.ask(7, 0.05, held)
    bridge.ovs.send(monitor_reply(flow_update(REMOVED, flow_match(1), priority=1)))
    turn(bridge.loop)
    assert bridge.rule() == Rule(OUT, 2)
    assert bridge.monitor.when_gone(7, bridge.end) and not bridge.monitor.when_gone(8, bridge.end)
    bridge.loop.run()
    assert bridge.events == ["end UP"]
    assert 0.04 < time.monotonic() - held < 0.5, "half a second is for a busy machine"


def test_changes_and_what_promises_them_wait_for_the_time_that_a_controller_names(bridge: Bridge) -> None:
    held = time.monotonic()
    bridge.monitor.hold(held + 0.015)
    bridge.ovs.send(monitor_reply(added()))
    turn(bridge.loop)
    assert bridge.rule() == TO_OVS and not bridge.monitor.synchronize(bridge.then)
    assert not bridge.monitor.synchronize(bridge.end)
    bridge.loop.run()
    assert bridge.events == ["then OUT", "end OUT"]
    assert 0.014 < time.monotonic() - held < 0.5, "half a second is for a busy machine"
    assert bridge.monitor.synchronize(bridge.then)


def test_nothing_is_held_for_long(bridge: Bridge) -> None:
    bridge.monitor.hold(time.monotonic() + 1000.0)
    bridge.ovs.send(monitor_reply(added()))
    bridge.loop.at(time.monotonic() + 0.1, lambda: setattr(bridge.loop, "ended", True))
    bridge.loop.run()
    assert bridge.rule() == Rule(OUT, 2)


def test_changes_that_were_held_wait_for_the_rest_of_a_change_too(bridge: Bridge) -> None:
    bridge.monitor.hold(time.monotonic() + DARK_S)
    bridge.ovs.send(monitor_reply(added()))
    assert not bridge.monitor.synchronize(bridge.then)
    bridge.ovs.send(monitor_reply(added(priority=3), more=True))
    turn(bridge.loop, 1)
    wait(bridge)
    assert not bridge.events and bridge.rule() == TO_OVS
    bridge.ovs.send(monitor_reply(added(b"", priority=4)))
    turn(bridge.loop, 1)
    assert bridge.events == ["then DROP"]


def test_the_later_of_two_times_counts_and_the_end_is_never_missed(bridge: Bridge) -> None:
    """Also if a change is expected to take less time than it was when the end was ordered."""
    start = time.monotonic()
    bridge.monitor._change_s = 5e-4
    for after in (DARK_S, 2 * DARK_S, DARK_S):
        bridge.monitor.hold(start + after)
    bridge.ovs.send(monitor_reply(added()))
    assert not bridge.monitor.synchronize(lambda: setattr(bridge.loop, "ended", True))
    bridge.monitor._change_s = 0.0
    bridge.loop.at(start + 5.0, lambda: setattr(bridge.loop, "ended", True))
    bridge.loop.run()
    assert 2 * DARK_S <= time.monotonic() - start < 5 and bridge.rule() == Rule(OUT, 2)


# ---- features that need every packet -------------------------------------------------------------------------------


NONE = ["set", []]
BRIDGE = {"name": "s1", "stp_enable": False, "rstp_enable": False, "fail_mode": "secure", "controller": ["uuid", "c"]}
BRIDGE |= dict.fromkeys(("mirrors", "netflow", "sflow", "ipfix"), NONE)
MAP = ["map", []]
PLAIN = {"ingress_policing_rate": 0, "ingress_policing_kpkts_rate": 0, "bfd": MAP, "cfm_mpid": NONE, "lldp": MAP}


def rows(port: object = NONE, interface: Any = None, **bridge: object) -> dict[str, dict[str, dict[str, Any]]]:
    return {
        "Bridge": {"a": BRIDGE | bridge, "b": BRIDGE | {"name": "s2"}},
        "Port": {"p": {"qos": port}},
        "Interface": {"i": PLAIN | (interface or {})},
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rows(), set()),
        *((rows(NONE, None, **{key: ["uuid", "u"]}), {"s1"}) for key in ("mirrors", "netflow", "sflow", "ipfix")),
        (rows(mirrors=["set", [["uuid", "u"], ["uuid", "v"]]]), {"s1"}),
        (rows(stp_enable=True), {"s1"}),
        (rows(rstp_enable=True), {"s1"}),
        (rows(fail_mode="standalone"), {"s1"}),
        (rows(fail_mode=NONE), {"s1"}),
        (rows(fail_mode=NONE, controller=NONE), set()),
        (rows(port=["uuid", "q"]), {"s1", "s2"}),
        (rows(interface={"ingress_policing_kpkts_rate": 5}), {"s1", "s2"}),
        (rows(interface={"bfd": ["map", [["enable", "true"]]]}), {"s1", "s2"}),
        (rows(interface={"cfm_mpid": 3}), {"s1", "s2"}),
        (rows(interface={"lldp": ["map", [["enable", "true"]]]}), {"s1", "s2"}),
    ],
)
def test_bridges_that_need_every_packet(found: dict[str, dict[str, dict[str, Any]]], expected: set[str]) -> None:
    assert needing(found) == expected


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (rows(), []),
        (rows(mirrors=["uuid", "u"]), []),
        (rows(interface={"cfm_mpid": 3}), []),
        (rows(stp_enable=True), ["spanning tree of s1 leaves the ports"]),
        (rows(rstp_enable=True, name="s9"), ["spanning tree of s9 leaves the ports"]),
        (rows(port=["uuid", "q"]), ["queues and policers"]),
        (rows(interface={"ingress_policing_rate": 5}), ["queues and policers"]),
    ],
)
def test_features_that_do_not_act_are_named(found: dict[str, dict[str, dict[str, Any]]], words: list[str]) -> None:
    said = sorted(unsupported(found))
    assert len(said) == len(words) and all(start in sentence for start, sentence in zip(words, said, strict=True))
    assert all("take --datapath ovs" in sentence for sentence in said)


class Database:
    """A watch and the database that it asks."""

    def __init__(self, path: Path) -> None:
        self.server, self.loop = OpenVSwitch(path), Loop()
        self.changes: list[set[str]] = []
        self.failed: list[str] = []
        FeaturesWatch(self.loop, path, self.changes.append, self.failed.append)
        self.server.accept()

    def says(self, text: str, piece: int = 1 << 20) -> None:
        data = text.encode()
        for start in range(0, len(data), piece):
            self.server.send(data[start : start + piece])
            turn(self.loop, 1)

    def close(self) -> None:
        self.server.close()
        turn(self.loop)
        self.loop.close()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    one = Database(tmp_path / "db.sock")
    yield one
    one.close()


def first(**bridge: object) -> str:
    new = {
        table: {row: {"new": columns} for row, columns in found.items()}
        for table, found in rows(NONE, None, **bridge).items()
    }
    return json.dumps({"id": 0, "error": None, "result": new})


def update(table: str, row: str, **change: object) -> str:
    return json.dumps({"id": None, "method": "update", "params": [None, {table: {row: change}}]})


def test_it_asks_for_the_columns_that_it_judges(database: Database) -> None:
    asked = json.loads(database.server.socket.recv(1 << 16))
    assert (asked["method"], asked["params"][:2]) == ("monitor", ["Open_vSwitch", None])
    wanted = asked["params"][2]
    for table, found in rows().items():
        for columns in found.values():
            assert set(wanted[table]["columns"]) == set(columns)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_messages_in_pieces_and_several_at_once(database: Database, piece: int) -> None:
    mirrored = update("Bridge", "b", new=BRIDGE | {"name": "fünf", "mirrors": ["uuid", "m"]})
    text = first() + mirrored.replace("\\u00fc", "ü") + update("Bridge", "b", old={})
    database.says(text, piece)
    assert database.changes == [set(), {"fünf"}, set()]


def test_changes_are_followed(database: Database) -> None:
    database.says(first(mirrors=["uuid", "m"]))
    database.says(update("Bridge", "a", old={"mirrors": ["uuid", "m"]}, new=BRIDGE))
    database.says(update("Interface", "new", new=PLAIN | {"ingress_policing_rate": 9}))
    database.says(update("Interface", "new", old={}))
    assert database.changes == [{"s1"}, set(), {"s1", "s2"}, set()]


def test_the_database_hears_that_the_watch_is_alive(database: Database) -> None:
    database.server.socket.recv(1 << 16)
    database.says(json.dumps({"id": "echo", "method": "echo", "params": [1]}))
    assert json.loads(database.server.socket.recv(1000)) == {"id": "echo", "result": [1], "error": None}
    assert not database.changes


def test_a_database_that_refuses_is_a_failure(database: Database) -> None:
    database.says(json.dumps({"id": 0, "error": {"error": "syntax error", "details": "no column"}, "result": None}))
    assert not database.changes and len(database.failed) == 1 and "no column" in database.failed[0]


def test_a_database_that_ends_is_a_failure(database: Database) -> None:
    database.server.close()
    turn(database.loop)
    assert database.failed == ["the database of Open vSwitch closed the connection of the fast path"]


def test_a_dark_time_ends_on_time_and_who_waits_hears_it(bridge: Bridge) -> None:
    bridge.monitor.keep_dark(0.03)
    bridge.ovs.send(monitor_reply(added()))
    assert bridge.monitor.synchronize(bridge.then) and bridge.monitor.when_lit(bridge.end)
    began, bridge.loop.ended = time.monotonic(), False
    assert bridge.rule() == Rule(DROP)
    bridge.loop.run()
    assert 0.029 < time.monotonic() - began < 0.06 and bridge.events == ["end OUT"]
    assert not bridge.monitor.when_lit(bridge.end)


def test_a_change_in_the_dark_lets_wait_on_and_the_end_of_all_dark_times_does_not(bridge: Bridge) -> None:
    bridge.monitor.keep_dark(0.02)
    bridge.ovs.send(monitor_reply(added()))
    assert bridge.monitor.synchronize(bridge.then) and bridge.monitor.when_lit(bridge.then)
    bridge.loop.turn(time.monotonic() + 0.01)
    bridge.ovs.send(monitor_reply(flow_update(REMOVED, flow_match(1)), flow_update(ADDED, flow_match(2), output(1))))
    until = time.monotonic() + 0.015
    while time.monotonic() < until:
        bridge.loop.turn(until)
    assert not bridge.events and bridge.rule() == Rule(DROP)
    bridge.monitor.keep_dark(0.0)
    assert bridge.events == ["then UP"] and bridge.kernel.receive(2, MAC).kind == OUT
