"""Random runs of clients, leaf servers and the root in which answers are lost and servers die and come back."""

from __future__ import annotations

import random

from edge.data_world import SEED, SIZE, Accounts, World
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.data.messages import Mode
from experiments.propius.data.servers import check_sum


def accounts_of(mode: Mode, seed: int, steps: int) -> tuple[Accounts, World]:
    world = World(mode, random.Random(seed))
    for _ in range(steps):
        world.step()
    accounts = world.end()
    for event in world.events:
        if event.kind == "sum":
            assert event["count"] == sum(map(len, event["order"])) >= world.demand
            check_sum(event, SEED, SIZE)
    return accounts, world


@given(st.integers(0, 2**32), st.integers(0, 150))
def test_fixed_loses_no_acknowledged_update_and_counts_none_twice(seed: int, steps: int) -> None:
    accounts, world = accounts_of("fixed", seed, steps)
    assert accounts.lost == 0
    assert accounts.twice == 0
    assert accounts.counted + accounts.late == accounts.acknowledged
    told = [event["outcome"] for event in world.events if event.kind == "push"]
    assert "lost" not in told and "refused" not in told


def test_authors_lose_updates_or_count_them_twice_in_such_runs_and_fixed_does_not() -> None:
    found = {mode: [accounts_of(mode, seed, 150)[0] for seed in range(20)] for mode in ("authors", "fixed")}
    assert sum(accounts.lost for accounts in found["authors"]) > 0
    assert sum(accounts.twice for accounts in found["authors"]) > 0
    assert sum(accounts.lost + accounts.twice for accounts in found["fixed"]) == 0


def test_the_random_runs_do_what_they_are_for() -> None:
    worlds = [accounts_of("fixed", seed, 150)[1] for seed in range(20)]
    events = [event for world in worlds for event in world.events]
    assert {event["outcome"] for event in events if event.kind == "flush"} == {"acknowledged", "late"}
    assert {event.kind for event in events} == {"push", "flush", "sum", "cleared"}
    assert max(leaf.life for world in worlds for leaf in world.leaves) > 3
    assert any(len(part) > 1 for event in events if event.kind == "sum" for part in event["order"])
