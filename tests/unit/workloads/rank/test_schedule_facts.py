"""What ranks share of a schedule, and what one of them gets for itself."""

from __future__ import annotations

import pytest

from workloads.collectives.catalog import schedule
from workloads.rank.schedule_facts import ScheduleFacts


@pytest.mark.parametrize("algorithm", ["ring", "bidirectional-ring", "stragglar"])
def test_each_position_has_its_transfers_in_order(algorithm: str) -> None:
    found, facts = schedule("all_reduce", 8, algorithm), ScheduleFacts()
    for position in range(found.n):
        mine = [(n, t) for n, t in enumerate(found.transfers) if position in (t.src, t.dst)]
        assert facts.transfers(found, position) == mine


def test_one_rank_gets_copies_of_its_own_and_everything_else_from_all() -> None:
    found, facts = schedule("all_reduce", 8, "ring"), ScheduleFacts()
    facts.prepare(found)
    one = facts.of_one([(found, 3), (found, 3)])
    for position in range(found.n):
        assert one.transfers(found, position) == facts.transfers(found, position)
    assert all(t is not found.transfers[n] for n, t in one.transfers(found, 3))
    assert all(t is found.transfers[n] for n, t in one.transfers(found, 4))
