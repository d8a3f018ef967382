from __future__ import annotations

import socket
import subprocess
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from railyard import __version__
from railyard.errors import ConfigError, MachineError
from railyard.process.connection import Connection
from topos.kernel.fastpath import offload as under_test
from topos.kernel.fastpath.offload import Offload, check_forwarding, check_path, tap_name
from topos.kernel.fastpath.rules import Counts, PortCounts


class Answered(Offload):
    """An offload whose process is a connection of the test's: what it ``says`` is there already."""

    def __init__(self, **says: Any) -> None:
        super().__init__(9, Path("run"), Path("run/ovs"), ["s1"], "auto", ("10.0.0.1", 6653), ports=2, flows=4)
        ours, theirs = (end.detach() for end in socket.socketpair())
        self._connection = Connection(ours, ours, "the fast path")
        self.process = Connection(theirs, theirs, "the test")
        for op, fields in says.items():
            self.process.tell(op, **fields)


def test_the_choice_and_its_reason() -> None:
    one = Answered(ready={"version": __version__, "datapath": "ovs", "why": "bpf: not root"}).ready()
    assert (one.choose(), one.why) == ("ovs", "bpf: not root")


def test_a_refusal_is_its_error() -> None:
    with pytest.raises(MachineError, match=r"^datapath bpf is refused$"):
        Answered(error={"error": "datapath bpf is refused"}).ready()


def test_ports_are_told_with_their_taps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "inside", lambda fd: nullcontext(fd))
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (31, tap_name(21)), (32, tap_name(22))])
    one = Answered(attached={})
    one.attach([("s1", 1, "s1-eth1", 21), ("s1", 2, "s1-eth2", 22)], {"tap-21": 100_000}, exchanged=True)
    assert one.process.messages()[0] == {
        "op": "attach",
        "ports": [["s1", 1, 21, 31], ["s1", 2, 22, 32]],
        "names": {"tap-21": "s1-eth1", "tap-22": "s1-eth2"},
        "speeds": {"tap-21": 100_000},
        "exchanged": True,
    }
    monkeypatch.setattr(under_test, "_ATTACH_S", 0.01)
    with pytest.raises(MachineError, match=r"the fast path did not answer within 0\.01 s"):
        one.attach([], {}, exchanged=False)


def test_counts_of_ports() -> None:
    one = Answered()
    counts = {"s1": {"1": [1, 100, 2, 200, 3, 300]}, "s2": {}}

    def answer() -> None:
        one.process.next_message(5.0)
        one.process.reply(0, result=counts)

    threading.Thread(target=answer).start()
    assert one.port_counts() == {"s1": {1: PortCounts(Counts(1, 100), Counts(2, 200), Counts(3, 300))}, "s2": {}}


def test_ways_to_forward() -> None:
    assert [check_forwarding(way) for way in ("auto", "bpf", "ovs")] == ["auto", "bpf", "ovs"]
    with pytest.raises(ConfigError, match="must be auto, bpf or ovs, not xdp"):
        check_forwarding("xdp")


def test_a_tap_has_a_name_that_an_interface_may_have() -> None:
    assert len(tap_name(2**31 - 1)) < 16


def test_a_process_that_has_ended_is_named() -> None:
    one = Answered()
    one.check()
    process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    one._process = process
    one.check()
    process.kill()
    process.wait()
    with pytest.raises(MachineError, match="the fast path ended with status -9; its message, if any, is above"):
        one.check()
    one.close()


def test_a_folder_whose_sockets_would_have_too_long_names_is_refused() -> None:
    check_path(Path("/run/railyard/4711-8e996f/ovs"), ["rail0", "rail1"])
    check_path(Path("/" + "x" * 89), ["rail0"])
    with pytest.raises(ConfigError, match="must be 2 characters shorter"):
        check_path(Path("/" + "x" * 91), ["rail0"])
