from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_path.doubles import FakeForwarder, OpenVSwitch, turn

from railyard.errors import MachineError
from railyard.process.connection import Connection
from railyard.process.parent import Parent
from topos.kernel.fastpath import openflow, process
from topos.kernel.fastpath.process import OffloadServer, make_forwarder


def refuse(*_: int) -> None:
    raise MachineError("making the map ports failed (not root)")


@pytest.mark.parametrize("asked", ["auto", "bpf"])
def test_a_kernel_with_bpf_forwards_by_it(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(process, "BpfForwarder", lambda *arguments: arguments)
    assert make_forwarder(asked, 3, 8, 16) == ((3, 8, 16), {"datapath": "bpf", "why": ""})


def test_without_bpf_auto_takes_open_vswitch_and_bpf_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BpfForwarder", refuse)
    why = "bpf: making the map ports failed (not root)"
    assert make_forwarder("auto", 3, 8, 16) == (None, {"datapath": "ovs", "why": why})
    message = r"datapath bpf is refused: making the map ports failed \(not root\); auto would take ovs"
    with pytest.raises(MachineError, match=f"^{message}$"):
        make_forwarder("bpf", 3, 8, 16)


class FakeCarrier:
    def __init__(self, netns_fd: int, ports: object) -> None:
        self._pipe = os.pipe()

    def fileno(self) -> int:
        return self._pipe[0]

    def run(self) -> None:
        raise NotImplementedError


class FakeWatch:
    """In place of the watch of the database; the last one made."""

    last: FakeWatch

    def __init__(self, loop: object, path: Path, changed: Any, failed: Any) -> None:
        self.path, self.changed, self.failed = path, changed, failed
        FakeWatch.last = self


class Process:
    """The offload process in this one, with its parent's end of their connection."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.kernel = capsys, FakeForwarder()
        ours, theirs = (end.detach() for end in socket.socketpair())
        self.parent = Connection(ours, ours, "the fast path")
        (folder / "ovs").mkdir()
        self.ovs = [OpenVSwitch(folder / "ovs" / f"{name}.mgmt") for name in ("s1", "s2")]
        for name, value in (("Carrier", FakeCarrier), ("FeaturesWatch", FakeWatch)):
            monkeypatch.setattr(process, name, value)
        settings = {
            "netns_fd": 3,
            "run_dir": str(folder),
            "own_dir": str(folder / "ovs"),
            "bridges": ["s1", "s2"],
            "openflow": None,
        }
        self.parent.tell("settings", **settings)
        self.offload = OffloadServer(Parent(Connection(theirs, theirs, "the parent")), self.kernel)

    def told(self, op: str, **fields: Any) -> list[Any]:
        """The messages of the process when it is told ``op``."""
        self.parent.tell(op, **fields)
        return self.said()

    def asked(self, op: str) -> Any:
        number = self.parent.begin(op)
        turn(self.offload._loop)
        return self.parent.answer(number, 1.0)

    def said(self) -> list[Any]:
        turn(self.offload._loop)
        return self.parent.messages()

    @property
    def ended(self) -> bool:
        return self.offload._loop.ended


@pytest.fixture
def offload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Process]:
    one = Process(tmp_path, monkeypatch, capsys)
    yield one
    for ovs in one.ovs:
        ovs.close()
    for owner in one.offload._loop.watched:
        owner.close() if isinstance(owner, socket.socket) else os.close(owner.fileno())
    one.offload._loop.close()


def test_it_counts_when_asked_and_ends_when_told(offload: Process) -> None:
    assert offload.asked("counts") == {}
    assert not offload.ended
    assert offload.told("stop") == [] and offload.ended


def test_it_ends_with_its_parent(offload: Process) -> None:
    offload.parent.close()
    turn(offload.offload._loop)
    assert offload.ended


ATTACH: dict[str, Any] = {
    "ports": [["s1", 1, 5, 6], ["s2", 2, 7, 8]],
    "names": {"o5": "s1-eth1"},
    "speeds": {},
    "exchanged": False,
}


def test_it_says_that_it_is_attached_when_the_rules_of_all_switches_hold(offload: Process, tmp_path: Path) -> None:
    assert offload.told("attach", **ATTACH) == []
    assert offload.kernel.rules.keys() == {1, 2} and FakeWatch.last.path == tmp_path / "db.sock"
    for ovs, said in zip(offload.ovs, ([], [{"op": "attached"}]), strict=True):
        ovs.accept()
        kind, xid = ovs.asked()[-1]
        assert kind == openflow.BARRIER_REQUEST
        ovs.send(openflow.message(openflow.BARRIER_REPLY, xid))
        assert offload.said() == said
    assert offload.asked("counts") == {"s1": {}, "s2": {}}
    monitors = offload.offload._monitors
    FakeWatch.last.changed({"s1"})
    assert [monitors[name].tables.suspended for name in ("s1", "s2")] == [True, False]
    FakeWatch.last.changed({"s2"})
    assert [monitors[name].tables.suspended for name in ("s1", "s2")] == [False, True]


def test_what_the_kernel_refuses_is_an_error(offload: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise MachineError("attaching the program failed")

    monkeypatch.setattr(offload.kernel, "add", refuse)
    kinds = ["MachineError", "RailyardError"]
    assert offload.told("attach", **ATTACH) == [
        {"op": "error", "of": "attach", "error": "attaching the program failed", "kinds": kinds}
    ]


def test_without_open_vswitch_there_is_an_error(offload: Process) -> None:
    offload.ovs[1].close()
    (said,) = offload.told("attach", **ATTACH)
    assert "refused" in said["error"]


def test_an_open_vswitch_that_goes_away_ends_it_with_one_sentence(offload: Process) -> None:
    offload.told("attach", **ATTACH)
    offload.ovs[0].accept()
    offload.ovs[0].close()
    turn(offload.offload._loop)
    FakeWatch.last.failed("the database is gone too")
    assert offload.ended
    assert offload.capsys.readouterr().err == "fast path: Open vSwitch closed the flow monitor of s1\n"
