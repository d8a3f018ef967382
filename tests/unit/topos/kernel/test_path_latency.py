"""Packets held back on a switch's ports: what the kernel is asked, and that it is asked only for what changes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from railyard.errors import MachineError
from topos.kernel import path_latency
from topos.kernel.netlink import NetlinkRequest
from topos.kernel.path_latency import PathLatency
from topos.kernel.queues import delay_packets, remove_delay

INTERFACES = {1: (1001, "rail0-eth1"), 2: (1002, "rail0-eth2"), 3: (1003, "rail0-eth3")}


class FakeKernel:
    """Remembers what it was asked, and does not do it if it is ``broken``."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False

    def run(self, requests: Iterable[NetlinkRequest]) -> None:
        if self.broken:
            raise MachineError("holding back failed (No such device)")
        self.asked += [request.what for request in requests]


def decoded(request: NetlinkRequest) -> tcmsg:
    message = tcmsg(bytes(request.packed))
    message.decode()
    return message


def test_the_message_is_netem_as_the_kernel_has_it() -> None:
    message = decoded(delay_packets(1001, "rail0-eth1", 12.8))
    assert message["header"]["type"] == 36 and message["index"] == 1001  # RTM_NEWQDISC
    assert message["parent"] == 0xFFFFFFFF and message.get_attr("TCA_KIND") == "netem"
    options = delay_packets(1001, "rail0-eth1", 12.8).packed
    at = bytes(options).index(struct.pack("=6I", 200, 100_000, 0, 0, 0, 0))
    assert bytes(options)[at + 24 :] == struct.pack("=HHq", 12, 10, 12_800)
    assert message["header"]["length"] == len(options)
    assert message.get_attr("TCA_OPTIONS")["delay"] == 200  # ticks of 64 ns


def test_a_delay_of_minutes_does_not_overflow_what_old_kernels_read() -> None:
    packed = bytes(delay_packets(1, "x", 600e6).packed)
    assert struct.pack("=II", 0xFFFFFFFF, 100_000) in packed and packed.endswith(struct.pack("=q", 600_000_000_000))


def test_letting_pass_takes_the_queue_away() -> None:
    message = decoded(remove_delay(1001, "rail0-eth1"))
    assert message["header"]["type"] == 37 and message["index"] == 1001  # RTM_DELQDISC


def test_only_what_changes_is_asked_for() -> None:
    kernel = FakeKernel()
    ports = PathLatency(kernel.run, INTERFACES)
    ports.set({1: 15.0, 2: 15.0, 3: 0.0})
    assert kernel.asked == [
        "delaying packets of rail0-eth1 by 15 us",
        "delaying packets of rail0-eth2 by 15 us",
    ]
    ports.set({1: 15.0, 2: 20.0})
    ports.set({1: 0.0})
    assert kernel.asked[2:] == [
        "delaying packets of rail0-eth2 by 20 us",
        "removing the delay of packets of rail0-eth1",
    ]


def test_below_a_microsecond_nothing_is_held_back() -> None:
    kernel = FakeKernel()
    PathLatency(kernel.run, INTERFACES).set({1: 0.99})
    assert kernel.asked == []


def test_a_port_without_an_interface_and_a_kernel_that_fails_are_said() -> None:
    kernel = FakeKernel()
    ports = PathLatency(kernel.run, INTERFACES)
    with pytest.raises(MachineError, match="port 4 has no interface"):
        ports.set({4: 5.0})
    kernel.broken = True
    with pytest.raises(MachineError, match="No such device"):
        ports.set({1: 5.0})


def test_a_switch_that_is_not_here_is_named() -> None:
    with pytest.raises(MachineError, match="no interface of nowhere is in the network namespace of the controller"):
        path_latency.open_path_latency("nowhere")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_who_may_not_try_is_told_so() -> None:
    assert "run it as root" in str(path_latency.unsupported_reason())
