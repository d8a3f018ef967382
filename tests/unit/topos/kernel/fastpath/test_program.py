from __future__ import annotations

import struct

import pytest
from fast_path.processor import REDIRECTED, SHOT, SWITCH, Processor, instructions

from topos.kernel.fastpath.program import Assembler, Map
from topos.kernel.fastpath.rules import DROP, OUT, UP

ONE, TWO = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"


def to(mac: bytes = ONE, length: int = 100) -> bytes:
    return mac + bytes(length - 6)


def test_jumps_go_forward_and_backward_to_their_labels() -> None:
    a = Assembler()
    a.label("start")
    a.jump_if(1, 7, "end")
    a.jump_unless(2, 8, "start")
    a.jump_equal(3, 4, "end")
    a.jump("start")
    a.label("end")
    a.end()
    assert instructions(a.code) == [
        (0x15, 1, 0, 3, 7),
        (0x55, 2, 0, -2, 8),
        (0x1D, 3, 4, 1, 0),
        (0x05, 0, 0, -4, 0),
        (0x95, 0, 0, 0, 0),
    ]


def test_without_a_rule_packets_go_up_uncounted_and_what_comes_down_goes_out() -> None:
    one = Processor()
    assert one.run(11, to()) == (REDIRECTED, 21)
    assert one.run(22, to()) == (REDIRECTED, 12)
    one.rule(2, DROP)
    assert one.run(22, to()) == (REDIRECTED, 12), "rules are for what comes from links"
    assert one.port_counts(1) == one.port_counts(2) == [0] * 6


def test_rules_for_any_destination_are_counted() -> None:
    one = Processor()
    one.rule(1, OUT, 12, flow=7)
    one.rule(2, DROP, flow=8)
    assert one.run(11, to(length=60)) == one.run(11, b"\2" * 5) == (REDIRECTED, 12), "also a short frame"
    assert one.run(12, to()) == (SHOT, 0)
    assert (one.flow_counts(7), one.flow_counts(8)) == ([2, 65], [1, 100])
    assert one.port_counts(1) == [2, 65, 0, 0, 0, 0]
    assert one.port_counts(2) == [1, 100, 2, 65, 1, 100]


def test_destinations_go_before_the_rest() -> None:
    one = Processor()
    one.rule(1, DROP, flow=7, table=9)
    one.destination(9, ONE, OUT, 13, flow=8)
    one.destination(9, TWO, UP)
    one.destination(10, b"\2\0\0\0\0\3", OUT, 12)
    assert one.run(11, to(ONE)) == (REDIRECTED, 13)
    assert one.run(11, to(TWO)) == (REDIRECTED, 21)
    assert one.run(11, to(b"\2\0\0\0\0\3")) == (SHOT, 0), "that is in another table"
    assert (one.flow_counts(7), one.flow_counts(8)) == ([1, 100], [1, 100])


def test_a_packet_is_never_sent_back_but_counts_for_its_flow() -> None:
    one = Processor()
    one.rule(1, OUT, 11, flow=7)
    assert one.run(11, to()) == (SHOT, 0)
    assert one.flow_counts(7) == [1, 100] and one.port_counts(1) == [1, 100, 0, 0, 0, 0]


def test_one_word_changes_all_rules() -> None:
    one = Processor()
    for slot, (before, after) in enumerate(((12, 13), (13, 11), (11, 12)), 1):
        one.rule(slot, OUT, before)
        one.rule(slot, OUT, after, bank=1)
    assert [one.run(10 + slot, to())[1] for slot in (1, 2, 3)] == [12, 13, 11]
    one.put(Map.BANKS, SWITCH, struct.pack("=Q", 4))
    assert [one.run(10 + slot, to())[1] for slot in (1, 2, 3)] == [13, 11, 12]


def test_each_processor_counts_for_itself() -> None:
    one = Processor()
    one.rule(1, OUT, 12, flow=7)
    for processor in (0, 1, 1):
        one.run(11, to(), processor=processor)
    assert [one.flow_counts(7, processor)[0] for processor in (0, 1)] == [1, 2]
    assert [one.port_counts(2, processor)[2] for processor in (0, 1)] == [1, 2]


def test_a_tag_beside_the_packet_counts() -> None:
    one = Processor()
    one.rule(1, OUT, 12, flow=7)
    one.run(11, to(), tagged=True)
    assert one.flow_counts(7) == [1, 104]


@pytest.mark.parametrize("interface", [1, 99])
def test_interfaces_that_are_no_ports_pass_nothing(interface: int) -> None:
    one = Processor()
    one.put(Map.PORTS, 99, bytes(16))
    assert one.run(interface, to()) == (SHOT, 0)


def test_a_frame_without_a_destination_is_dropped_where_destinations_count() -> None:
    one = Processor()
    one.rule(1, OUT, 12, table=9)
    assert one.run(11, b"\2" * 5) == (SHOT, 0)
