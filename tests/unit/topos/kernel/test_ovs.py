"""The private Open vSwitch: what it asks the database for, and what it says of daemons that end. No root."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from railyard.errors import ConfigError, MachineError
from topos.kernel import needs, ovs
from topos.kernel import ovs as module
from topos.kernel.ovs import (
    Bridge,
    BridgePort,
    Datapath,
    PrivateOvs,
    choose_datapath,
    kernel_datapath,
    remove_kernel_datapath,
)

RAIL = Bridge("rail0", 0x10000, (BridgePort("a", 1), BridgePort("b", 2)), ("unix:/x/ofp",))


class Database:
    """What the switch would have made of the transactions: tables of rows by name."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self.configuration = 0
        self.bad: list[dict[str, Any]] = []
        self.connected = 0
        self.closed = False

    def transact(self, *operations: dict[str, Any]) -> list[dict[str, Any]]:
        self.done += operations
        return [self._result(operation) for operation in operations]

    def _result(self, operation: dict[str, Any]) -> dict[str, Any]:
        if operation["op"] == "mutate":
            self.configuration += 1
        if operation["op"] != "select":
            return {}
        rows: dict[str, list[dict[str, Any]]] = {
            "Open_vSwitch": [{"cur_cfg": self.configuration}],
            "Interface": self.bad,
            "Controller": [{"_uuid": number} for number in range(self.connected)],
        }
        return {"rows": rows[operation["table"]]}

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [op["row"] for op in self.done if op["op"] == "insert" and op["table"] == table]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def switch(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateOvs]:
    monkeypatch.setattr(ovs, "kernel_datapath", lambda: True)
    monkeypatch.setattr(ovs, "remove_kernel_datapath", lambda netns_fd: None)
    made = PrivateOvs(tmp_path, -1, "system")
    made._db = database  # type: ignore[assignment]
    yield made
    made.stop()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A function that puts a shell script in the place of a program."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def write(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o700)

    return write


def ended(status: int) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", f"raise SystemExit({status})"])
    child.wait()
    return child


@pytest.mark.parametrize(
    ("asked", "kernel", "processors", "version", "chosen"),
    [
        ("auto", True, 2, "3.1.0", "system"),
        ("auto", False, 2, "3.1.0", "netdev"),
        ("netdev", True, 2, "3.1.0", "netdev"),
        ("system", True, 2, "3.1.0", "system"),
        ("auto", True, 1, "3.1.0", "netdev"),
        ("auto", True, 1, "3.5.0", "system"),
    ],
)
def test_the_kernel_s_datapath_is_taken_where_it_works(
    asked: Datapath, kernel: bool, processors: int, version: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ovs, "kernel_datapath", lambda: kernel)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setattr(needs, "open_vswitch_version", lambda: version)
    assert choose_datapath(asked) == chosen


def test_a_datapath_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovs, "kernel_datapath", lambda: False)
    with pytest.raises(MachineError, match=r"no Open vSwitch datapath; use datapath netdev or auto"):
        choose_datapath("system")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(needs, "open_vswitch_version", lambda: "3.1.0")
    with pytest.raises(MachineError, match=r"cannot use the kernel's datapath on one processor; use"):
        choose_datapath("system")
    with pytest.raises(ConfigError, match="must be auto, system or netdev, not fast") as caught:
        choose_datapath("fast")  # type: ignore[arg-type]
    assert caught.value.key == "datapath"


def test_all_bridges_are_one_transaction(switch: PrivateOvs, database: Database) -> None:
    switch.add([RAIL, Bridge("mgmt", 7, (BridgePort("m", 1),), standalone=True)])
    first, second = database.rows("Bridge")
    assert (first["name"], first["fail_mode"], first["datapath_type"]) == ("rail0", "secure", "system")
    assert ["datapath-id", f"{0x10000:016x}"] in first["other_config"][1]
    assert (second["name"], second["fail_mode"]) == ("mgmt", "standalone")
    assert len(first["controller"][1]) == 1 and second["controller"] == ["set", []]
    assert [row["target"] for row in database.rows("Controller")] == ["unix:/x/ofp"]
    interfaces = {row["name"]: row for row in database.rows("Interface")}
    assert {name: row.get("ofport_request") for name, row in interfaces.items()} == {
        "rail0": None,
        "a": 1,
        "b": 2,
        "mgmt": None,
        "m": 1,
    }
    assert interfaces["rail0"]["type"] == "internal"
    (mutation,) = [op for op in database.done if op["op"] == "mutate"]
    assert mutation["mutations"][0] == ["bridges", "insert", ["set", [["named-uuid", "b0"], ["named-uuid", "b1"]]]]
    names = [op["uuid-name"] for op in database.done if op["op"] == "insert"]
    assert len(set(names)) == len(names), "a name stands for one row"


def test_a_spanning_tree_forwards_to_hosts_at_once(switch: PrivateOvs, database: Database) -> None:
    ports = BridgePort("a", 1), BridgePort("h", 2, edge=True)
    switch.add([Bridge("s1", 1, ports, standalone=True, spanning_tree=True), Bridge("s2", 2, ports)])
    assert [row["rstp_enable"] for row in database.rows("Bridge")] == [True, False]
    edges = [row["name"] for row in database.rows("Port") if "other_config" in row]
    assert edges == ["h"], "of the first bridge alone"


@pytest.mark.parametrize(
    ("role", "state", "settled"),
    [
        ("Root", "Forwarding", True),
        ("Alternate", "Discarding", True),
        ("Designated", "Learning", False),
        ("Designated", "Discarding", False),
        ("Disabled", "Discarding", False),
        ("", "", True),
    ],
)
def test_a_port_of_a_tree_is_settled_when_it_forwards_or_is_one_too_many(role: str, state: str, settled: bool) -> None:
    assert ovs._is_settled({"rstp_port_role": role, "rstp_port_state": state} if role else {}) is settled


def test_no_program_that_gives_out_tables_outlives_a_failure(
    switch: PrivateOvs, program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("ovs-ofctl", 'case "$*" in *bad*) echo refused >&2; exit 1;; esac\nexec sleep 60')
    monkeypatch.setattr(ovs, "_TABLE_S", 0.1)
    started: list[subprocess.Popen[str]] = []

    class Started(subprocess.Popen[str]):
        def __init__(self, *args: Any, **others: Any) -> None:
            super().__init__(*args, **others)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Started)
    with pytest.raises(MachineError, match=r"slow did not take its forwarding table: no answer within 0\.1 s"):
        switch.forward({"slow": {"02:00:00:00:00:01": 1}, "other": {}})
    monkeypatch.setattr(ovs, "_TABLE_S", 10.0)
    with pytest.raises(MachineError, match="bad did not take its forwarding table: refused"):
        switch.forward({"bad": {}, "other": {}})
    assert len(started) == 4 and all(child.returncode is not None for child in started)


def test_an_interface_that_the_switch_cannot_take_is_named(switch: PrivateOvs, database: Database) -> None:
    database.bad = [{"name": "b", "error": "could not open network device b"}]
    with pytest.raises(MachineError, match="cannot take interface b: could not open network device b"):
        switch.add([RAIL])


def test_connections_are_counted(switch: PrivateOvs, database: Database) -> None:
    database.connected = 2
    assert switch.is_connected(2) and not switch.is_connected(3)


def test_a_daemon_that_ended_is_named_with_its_last_words(switch: PrivateOvs) -> None:
    switch._children["ovs-vswitchd"] = ended(7)
    with pytest.raises(MachineError, match="the private ovs-vswitchd ended with status 7: it wrote no log"):
        switch.check()
    (switch.run_dir / "ovs-vswitchd.log").write_text("starting\nopened log file\n\n")
    with pytest.raises(MachineError, match="status 7: opened log file"):
        switch.check()
    (switch.run_dir / "ovs-vswitchd.out").write_text("failed to create temporary file\n")
    with pytest.raises(MachineError, match="status 7: failed to create temporary file"):
        switch.check()


def test_a_daemon_that_is_ending_is_waited_for(switch: PrivateOvs) -> None:
    ending = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    switch._children["ovsdb-server"] = ending
    switch.check()
    assert ending.stdin is not None
    ending.stdin.close()
    with pytest.raises(MachineError, match="the private ovsdb-server ended with status 0"):
        switch.check(patience_s=30)


def test_a_switch_that_dies_while_it_makes_bridges_is_named(switch: PrivateOvs, database: Database) -> None:
    switch._children["ovs-vswitchd"] = ended(1)
    database.configuration = -5  # it never gets there
    with pytest.raises(MachineError, match="the private ovs-vswitchd ended with status 1"):
        switch.add([RAIL])


def test_a_database_that_does_not_listen_is_named(switch: PrivateOvs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ovs, "_START_S", 0.0)
    with pytest.raises(MachineError, match="ovsdb-server did not listen within 0 s: it wrote no log"):
        switch._connect(switch.run_dir / "db.sock")


def test_stopping_ends_every_child_and_again_does_nothing(switch: PrivateOvs, database: Database) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    switch._children["ovsdb-server"] = child
    assert switch.pids == {"ovsdb-server": child.pid}
    switch.stop()
    assert child.returncode is not None and database.closed and switch.pids == {}
    switch.stop()


def test_a_database_that_cannot_be_made_is_one_sentence(
    switch: PrivateOvs, program: Callable[[str, str], None], tmp_path: Path
) -> None:
    program("ovsdb-tool", "echo 'failed to write: No space left on device' >&2; exit 1")
    with pytest.raises(MachineError, match=rf"in {tmp_path}: failed to write: No space left on device"):
        switch.start()


def test_a_switch_that_hangs_at_its_first_packet_is_named(
    switch: PrivateOvs, program: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("ovs-ofctl", "exec sleep 60")
    monkeypatch.setattr(ovs, "_PACKET_S", 0.1)
    switch.datapath = "netdev"
    with pytest.raises(MachineError, match=r"rail0 did not take a packet \(no answer within 0\.1 s\)"):
        switch.add([RAIL])


# ---- the datapath of the kernel ------------------------------------------------------------------------------------


FAMILY = 33


def answer(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def error(number: int) -> bytes:
    return answer(2, struct.pack("=i", -number) + bytes(16))


NAME_AND_NUMBER = struct.pack("=HH", 17, 2) + b"ovs_datapath\0" + bytes(3) + struct.pack("=HHHxx", 6, 1, FAMILY)
FOUND = answer(16, struct.pack("=BBxx", 1, 2) + NAME_AND_NUMBER)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The end of the kernel; it is there before it is asked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(module, "_open", lambda: ours)
    monkeypatch.setattr(module, "inside", lambda fd: nullcontext())
    with ours, theirs:
        yield theirs


@pytest.mark.parametrize(("said", "has"), [(FOUND, True), (error(errno.ENOENT), False)])
def test_a_kernel_without_the_module_does_not_know_the_family(kernel: socket.socket, said: bytes, has: bool) -> None:
    kernel.send(said)
    assert kernel_datapath() is has
    assert b"ovs_datapath\0" in kernel.recv(4096)


@pytest.mark.parametrize("said", [error(0), answer(FAMILY, bytes(24)), error(errno.ENODEV)])
def test_the_datapath_of_a_dead_switch_is_removed_by_its_name(kernel: socket.socket, said: bytes) -> None:
    kernel.send(FOUND)
    kernel.send(said)
    remove_kernel_datapath(-1)
    kernel.recv(4096)
    request = kernel.recv(4096)
    length, kind, flags = struct.unpack_from("=IHH", request)
    assert (length, kind, flags) == (len(request), FAMILY, 5)
    assert request[16:18] == bytes([2, 2]) and request.endswith(b"ovs-system\0\0")


def test_a_refusal_is_one_sentence(kernel: socket.socket) -> None:
    kernel.send(FOUND)
    kernel.send(error(errno.EPERM))
    with pytest.raises(MachineError, match=r"does not remove the datapath .*: Operation not permitted"):
        remove_kernel_datapath(-1)
