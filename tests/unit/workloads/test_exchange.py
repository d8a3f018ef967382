from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.errors import VerifyError
from workloads import payload
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.exchange import Exchange, Progress, collective_exchange, elements_of, recv_exchange, send_exchange
from workloads.message import Flow
from workloads.schedule import CollectiveKind, Schedule, Transfer

CASES = [(name, kind) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]
FLOW = Flow(step=3, group=1, sequence=2)


def carry(plan: Schedule, members: list[int], elements: int, rng: random.Random) -> dict[int, payload.Floats]:
    """Run ``plan`` on numbers, with messages delivered in a random order; the buffers at the end."""
    exchanges: dict[int, Exchange] = {}
    buffers = {m: payload.initial(1, FLOW, plan, members, m, elements) for m in members}
    wire: list[tuple[int, int, payload.Floats]] = []
    staged: dict[tuple[int, int], payload.Floats] = {}

    def act(rank: int, progress: Progress) -> None:
        for is_send, part in progress.steps:
            if is_send:
                wire.append((part.peer, part.transfer, buffers[rank][part.start : part.end].copy()))
            elif part.reduce:
                buffers[rank][part.start : part.end] += staged.pop((rank, part.transfer))
            else:
                buffers[rank][part.start : part.end] = staged.pop((rank, part.transfer))

    for member in members:
        exchanges[member] = collective_exchange(plan, members, member, elements)
    for member in members:
        act(member, exchanges[member].begin())
    while wire:
        rank, transfer, values = wire.pop(rng.randrange(len(wire)))
        staged[rank, transfer] = values
        act(rank, exchanges[rank].arrived(transfer))
    assert all(exchange.received_all for exchange in exchanges.values())
    return buffers


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
@given(n=st.integers(1, 7), elements=st.integers(0, 60), seed=st.integers(0, 1 << 30))
def test_any_order_of_arrival_gives_the_right_numbers(
    algorithm: str, kind: CollectiveKind, n: int, elements: int, seed: int
) -> None:
    plan = schedule(kind, n, algorithm)
    members = list(range(10, 10 + 3 * n, 3))
    buffers = carry(plan, members, elements, random.Random(seed))
    for member in members:
        assert payload.wrong_elements(buffers[member], 1, FLOW, plan, members, member) == 0


def test_an_exchange_in_one_round_sends_what_stood_before() -> None:
    plan = Schedule("swap", "all_reduce", 2, 1, (0,), (Transfer(0, 0, 1, 0, "reduce"), Transfer(0, 1, 0, 0, "reduce")))
    buffers = carry(plan, [0, 1], 5, random.Random(1))
    assert np.array_equal(buffers[0], buffers[1])


def test_an_arrival_ahead_of_its_round_waits() -> None:
    plan = Schedule("relay", "all_reduce", 3, 1, (0,), (Transfer(0, 1, 0, 0, "reduce"), Transfer(1, 2, 0, 0, "copy")))
    exchange = collective_exchange(plan, [0, 1, 2], 0, 4)
    assert exchange.begin().steps == ()
    assert exchange.arrived(1).steps == ()
    assert [part.transfer for part in exchange.arrived(0).apply] == [0, 1]


def test_an_arrival_nobody_awaits_is_an_error() -> None:
    exchange = recv_exchange(1, 10)
    exchange.arrived(0)
    with pytest.raises(VerifyError, match="does not await"):
        exchange.arrived(0)


def test_point_to_point() -> None:
    (part,) = send_exchange(5, 10).begin().send
    assert (part.peer, part.bytes, part.lane) == (5, 40, 0)
    assert send_exchange(5, 10).received_all
    assert [elements_of(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_the_check_sees_a_wrong_chunk_and_a_missing_rank() -> None:
    plan = schedule("all_reduce", 4)
    members = [0, 1, 2, 3]
    right = payload.total(1, FLOW, members, 0, 64)
    assert payload.wrong_elements(right, 1, FLOW, plan, members, 0) == 0
    rolled = np.roll(right, 8)
    assert payload.wrong_elements(rolled, 1, FLOW, plan, members, 0) > 32
    missing = payload.total(1, FLOW, [0, 1, 3, 3], 0, 64)
    assert payload.wrong_elements(missing, 1, FLOW, plan, members, 0) == 64
    other = payload.total(1, Flow(4, 1, 2), members, 0, 64)
    assert payload.wrong_elements(other, 1, FLOW, plan, members, 0) > 32


def test_sums_of_128_ranks_are_exact() -> None:
    ranks = list(range(128))
    total = sum(payload.total(9, FLOW, [rank], 0, 300) for rank in ranks)
    assert np.array_equal(total, payload.total(9, FLOW, ranks, 0, 300))
