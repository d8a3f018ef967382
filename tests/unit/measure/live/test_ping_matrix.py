"""What a question of the ping matrix sends, and what of the things that come in it takes for an answer."""

from __future__ import annotations

import pytest
from scapy.layers.l2 import Ether

from measure.live.packets import ETHERTYPE
from measure.live.ping_matrix import PingMatrix, _frame, _sender_of
from railyard.errors import ConfigError
from topos.describe import plan
from topos.rails import RailTopo

PLAN = plan(RailTopo(servers=4, gpus=1, ports=2))
A, B = PLAN.switches[0].port(1, 1), PLAN.switches[0].port(3, 0)
TOKEN = b"question"


def test_a_frame_goes_to_the_macs_own_port_and_says_who_sent_it() -> None:
    frame = Ether(_frame(A, B, TOKEN))
    assert (frame.src, frame.dst, frame.type) == (A.mac, B.mac, ETHERTYPE)
    assert len(frame) >= 60, "the shortest frame of Ethernet, without its checksum"
    assert _sender_of(bytes(frame), TOKEN) == (1, 1)


def test_a_frame_of_another_question_is_none() -> None:
    assert _sender_of(_frame(A, B, b"earlier!"), TOKEN) is None
    assert _sender_of(b"short", TOKEN) is None


@pytest.mark.parametrize("quiet", [0.0, -1.0, 2.0])
def test_a_silence_must_be_shorter_than_the_whole(quiet: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        PingMatrix(PLAN, [], quiet_s=quiet)
