from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from checkout import ROOT

from railyard.errors import MachineError
from topos.kernel import namespaces
from topos.kernel.fastpath import bpf_forwarder
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.program import Map
from topos.kernel.fastpath.rules import DROP, OUT, KernelPort, PortRules, Rule
from topos.kernel.netlink import Netlink, VethEnd, link_up, veth

pytestmark = [pytest.mark.root, pytest.mark.beside]

REFUSE = """
import ctypes, platform, struct, sys
from topos.kernel.fastpath import bpf_forwarder
number = bpf_forwarder._NUMBERS[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | int(sys.argv[1])), (0x06, 0, 0, 0x7FFF0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(packed)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
"""
"""A program that refuses itself and its children bpf(2), with the error number that is its argument (seccomp)."""

RUN = """
import socket
from railyard.errors import MachineError
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
before = socket.if_nameindex()
try:
    with Emulation(RailTopo(servers=2, gpus=1, fabric="electrical"), openflow=None, datapath=sys.argv[2]) as net:
        child = net["g0"].popen(["ping", "-c1", "-W2", net.plan.rail_of(0).port(1, 0).ip])
        child.communicate(timeout=10)
        print(net.datapath, child.returncode, net.forwarding["why"])
except MachineError as error:
    print("refused:", error)
    print("left:", net.run.path.exists() if "net" in dir() else "nothing")
assert socket.if_nameindex() == before
"""
EPERM, ENOSYS = 1, 38


def run_without_bpf(error: int, datapath: str) -> str:
    """What a run says with this ``--datapath``."""
    command = [sys.executable, "-c", REFUSE + RUN, str(error), datapath]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("error", "datapath", "says"),
    [
        (ENOSYS, "auto", "ovs 0 bpf: making the map .*Function not implemented.*"),
        (EPERM, "bpf", "refused: datapath bpf is refused: making the map .*CAP_BPF.*auto would take ovs"),
        (EPERM, "ovs", "ovs 0 "),
    ],
)
def test_without_bpf_auto_takes_open_vswitch_and_bpf_is_refused(error: int, datapath: str, says: str) -> None:
    assert re.fullmatch(says, run_without_bpf(error, datapath))


class Two:
    """A namespace with two ports; an end of a veth stands for each port of Open vSwitch."""

    ports = (KernelPort("s", 1, 101, 103), KernelPort("s", 2, 105, 107))

    def __init__(self) -> None:
        (self.fd,) = namespaces.make(1)
        with Netlink(self.fd) as kernel:
            pairs = [(101, 102), (103, 104), (105, 106), (107, 108)]
            kernel.run(veth(VethEnd(f"v{a}", a), VethEnd(f"v{b}", b), 1500) for a, b in pairs)
            kernel.run(link_up(index, "an end") for pair in pairs for index in pair)

    def attached(self) -> list[str]:
        """The interfaces that have filters."""
        with namespaces.inside(self.fd):
            shown = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
        return sorted(line.split(" dev ")[1].split()[0] for line in shown.splitlines() if "clsact" in line)


@pytest.fixture
def two() -> Iterator[Two]:
    one = Two()
    yield one
    os.close(one.fd)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_program_that_the_verifier_rejects_is_named_with_its_reason(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_r3 = b"\xbf\x30" + bytes(6) + b"\x95" + bytes(7)
    monkeypatch.setattr(bpf_forwarder, "assemble", lambda *_: reads_r3)
    before = descriptors()
    with pytest.raises(MachineError, match=r"loading the program railyard failed .*R3 !read_ok"):
        BpfForwarder(two.fd, 2)
    assert descriptors() == before and two.attached() == []


def test_a_map_that_cannot_be_made_is_named_and_none_stays_open(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(bpf_forwarder, "_processors", lambda: 128)
        patched.setattr(bpf_forwarder, "_MOST_COUNTERS", 1 << 31)
        with pytest.raises(MachineError, match=f"making the map flows of {1 << 31} entries failed"):
            BpfForwarder(two.fd, 2, 1 << 24)
    monkeypatch.setattr(bpf_forwarder, "_MOST_TABLE_ENTRIES", 0)
    with pytest.raises(MachineError, match="making the map tables of 0 entries failed"):
        BpfForwarder(two.fd, 2)
    assert descriptors() == before


def test_an_interface_that_is_missing_leaves_nothing_attached(two: Two) -> None:
    forwarder = BpfForwarder(two.fd, 8)
    with pytest.raises(MachineError, match="interface 201"):
        forwarder.add([*two.ports, KernelPort("s", 3, 201, 203)])
    assert two.attached() == []
    forwarder.add(two.ports)
    assert two.attached() == ["v101", "v103", "v105", "v107"]
    forwarder.close()


def test_more_ports_than_it_was_made_for_are_refused_at_once(two: Two) -> None:
    forwarder = BpfForwarder(two.fd, 1)
    with pytest.raises(MachineError, match="made for 1 ports"):
        forwarder.add(two.ports)
    assert two.attached() == []
    forwarder.close()


def test_a_full_map_is_named_and_the_rules_stay(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpf_forwarder, "_MOST_TABLE_ENTRIES", 8)
    forwarder = BpfForwarder(two.fd, 2)
    forwarder.add(two.ports)

    def table(count: int) -> dict[bytes, Rule]:
        return {bytes([2, 0, 0, 0, 0, n]): Rule(OUT, 2) for n in range(count)}

    forwarder.set("s", {1: PortRules(Rule(DROP), table(3))})
    rules = list(forwarder._maps[Map.RULES].words)
    for _ in range(3):
        with pytest.raises(MachineError, match="the map tables"):
            forwarder.set("s", {1: PortRules(Rule(OUT, 2), table(100))})
        assert list(forwarder._maps[Map.RULES].words) == rules
    forwarder.set("s", {1: PortRules(Rule(DROP), table(5))})
    forwarder.close()


def test_descriptors_are_given_back(two: Two) -> None:
    before = descriptors()
    forwarder = BpfForwarder(two.fd, 2)
    forwarder.add(two.ports)
    forwarder.set("s", {1: PortRules(Rule(DROP), {bytes(6): Rule(OUT, 2)})})
    assert descriptors() > before
    forwarder.close()
    assert descriptors() == before
