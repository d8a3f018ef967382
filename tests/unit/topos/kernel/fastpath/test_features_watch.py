from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_path.doubles import OpenVSwitch, turn

from topos.kernel.fastpath.monitor import FeaturesWatch, needing, unsupported
from topos.kernel.fastpath.streams import Loop

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
        self.loop.selector.close()


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
