"""Targets of Open vSwitch in another spelling, and what is written into its database."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.openflow.recovery import connect_again, other_spelling


@pytest.mark.parametrize(
    ("target", "other"),
    [
        ("tcp:127.0.0.1:6653", "tcp:127.0.0.1:06653"),
        ("tcp:[::1]:6653", "tcp:[::1]:06653"),
        ("unix:/run/railyard/1/ovs/rail0.controller", "unix://run/railyard/1/ovs/rail0.controller"),
    ],
)
def test_a_target_has_two_spellings(target: str, other: str) -> None:
    assert other_spelling(target) == other and other_spelling(other) == target


class Database:
    """A database with one bridge; ``controllers`` is what the bridge has. Keeps what is written."""

    def __init__(self, controllers: list[Any]) -> None:
        self.controllers = controllers
        self.written: list[dict[str, Any]] = []

    def transact(self, operation: dict[str, Any]) -> list[dict[str, Any]]:
        if operation["op"] == "update":
            assert operation["where"] == [["_uuid", "==", self.controllers]]
            self.written.append(operation["row"])
            return [{"count": 1}]
        if operation["table"] == "Bridge":
            return [{"rows": [{"controller": self.controllers}] if operation["where"][0][2] == "rail0" else []}]
        return [{"rows": [{"target": "tcp:127.0.0.1:6653", "max_backoff": 1000}]}]


def test_a_bridge_gets_the_other_spelling_and_is_woken() -> None:
    database, slept = Database(["uuid", "c"]), list[float]()
    connect_again(database, "rail0", slept.append)  # type: ignore[arg-type]
    assert database.written[0] == {"target": "tcp:127.0.0.1:06653"}
    assert [row["max_backoff"] for row in database.written[1:]] == [1001, 1000, 1001, 1000]
    assert len(slept) == 4


@pytest.mark.parametrize(
    ("bridge", "controllers"), [("rail0", ["set", []]), ("rail0", ["set", [["uuid", "a"], ["uuid", "b"]]]), ("x", [])]
)
def test_other_bridges_are_left_alone(bridge: str, controllers: list[Any]) -> None:
    database = Database(controllers)
    connect_again(database, bridge)  # type: ignore[arg-type]
    assert not database.written
