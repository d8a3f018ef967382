from __future__ import annotations

import pytest

from measure.wires import Wires, wire_bytes
from topos.describe import plan
from topos.rails import RailTopo

# 4 hosts on one rail, 2 ports of 80 Mb/s = 1e7 bytes per second
WIRES = plan(RailTopo(servers=4, gpus=1, rate_mbps=80))
FULL = 8948


def test_headers_count_per_packet() -> None:
    assert wire_bytes(0, 9000) == 0
    assert wire_bytes(FULL, 9000) == 9014
    assert wire_bytes(FULL + 1, 9000) == 9015 + 66


def test_a_port_sends_one_thing_after_another() -> None:
    wires = Wires(WIRES)
    one = wires.send(1.0, "scale-out", (0, 1), (1, 0), 100 * FULL)
    assert one == pytest.approx(1.0 + 901_400 / 1e7)
    assert wires.send(1.0, "scale-out", (0, 1), (1, 0), 100 * FULL) == pytest.approx(1.0 + 2 * 901_400 / 1e7)


def test_ports_and_directions_are_independent() -> None:
    wires = Wires(WIRES)
    ends = [
        wires.send(0.0, "scale-out", src, dst, FULL)
        for src, dst in [((0, 1), (1, 0)), ((1, 0), (0, 1)), ((0, 0), (1, 1)), ((2, 0), (3, 0))]
    ]
    assert ends == pytest.approx([9014 / 1e7] * 4)


def test_two_senders_share_a_receiving_port() -> None:
    wires = Wires(WIRES)
    wires.send(0.0, "scale-out", (0, 0), (2, 0), FULL)
    assert wires.send(0.0, "scale-out", (1, 0), (2, 0), FULL) == pytest.approx(2 * 9014 / 1e7)


def test_a_network_that_is_not_there_takes_no_time() -> None:
    assert Wires(WIRES).send(3.0, "front-end", (0, 0), (1, 0), 4) == 3.0
