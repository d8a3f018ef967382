"""A program on four lanes: every port of a wiring is busy for the same time, whatever the rates of its lanes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from workloads.catalog import load_workload
from workloads.collectives.catalog import schedule_of
from workloads.collectives.four_lanes import lane_weights, on_four_lanes
from workloads.collectives.verify import verify
from workloads.program import Collective
from workloads.rank.exchange import recv_exchange, send_exchange
from workloads.rank.paths import choose_path

RATES = (30.0, 30.0, 20.0, 20.0)
RING, PAIR = [(0, 1, 1, 0), (0, 3, 1, 2)], [(0, 1, 1, 0), (0, 0, 1, 1), (0, 3, 1, 2), (0, 2, 1, 3)]


@pytest.mark.parametrize("src, dst", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    "paths, four, lanes",
    [
        (RING, False, range(4)),
        (PAIR, True, range(4)),
        (PAIR[:2], True, range(4)),
        (PAIR[2:], True, range(4)),
        (RING, False, (0, 2)),
        (RING, False, (1, 3)),
    ],
    ids=["both of a pair", "all four", "the fast two", "the slow two", "clockwise", "the other way"],
)
def test_every_port_is_busy_for_the_same_time(paths, four, lanes, src, dst) -> None:  # type: ignore[no-untyped-def]
    weights, busy = lane_weights(RATES, four), Counter[int]()
    for lane in lanes:
        path = choose_path(paths, src, dst, lane)
        assert path is not None
        busy[path[1]] += weights[lane]
    times = [size / RATES[port] for port, size in busy.items()]
    assert len(busy) == len(paths)
    assert max(times) == pytest.approx(min(times))


def test_a_program_on_four_lanes_is_the_same_program() -> None:
    program = load_workload("llama3-8b-16").program
    made = on_four_lanes(program, RATES, two_stages=True)
    assert made.stripes == lane_weights(RATES, True)
    for ops, before in zip(made.operations, program.operations, strict=True):
        for op, old in zip(ops, before, strict=True):
            if isinstance(op, Collective) and made.groups[op.group].domain == "scale-out":
                assert op.algorithm == f"ring-4 {op.kind} 2"
                verify(schedule_of(made, op))
            else:
                assert op == old


@pytest.mark.parametrize("elements", [0, 1, 7, 1000])
def test_the_stripes_of_a_message_are_the_whole(elements: int) -> None:
    weights = lane_weights(RATES, True)
    sent = [part for action, part in send_exchange(3, elements, weights).begin() if action == "send"]
    assert [(part.lane, part.peer) for part in sent] == [(lane, 3) for lane in range(4)]
    assert sent[0].start == 0
    assert sent[-1].end == elements
    assert all(one.end == other.start for one, other in pairwise(sent))
    received = recv_exchange(3, elements, weights)
    assert [*received.incoming.values()] == sent
