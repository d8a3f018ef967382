"""Servers leased to jobs that come and go: which are chosen, in which order, and that no job starves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.allocation.leases import (
    MOST_OVERTAKEN,
    Given,
    JobPlacement,
    Order,
    Packed,
    ServerLeases,
    load_placement,
)
from railyard.errors import ConfigError


@pytest.mark.parametrize(
    ("placement", "count", "free", "chosen"),
    [
        ("packed", 2, [0, 2, 3, 5], [2, 3]),
        ("packed", 3, [0, 2, 3, 5], [0, 2, 3]),  # no three neighbours are free
        ("spread", 2, [0, 1, 2, 3, 4, 5], [0, 3]),
        ("spread", 3, [0, 1, 2, 3, 4, 5], [0, 2, 4]),
        ("4+1", 2, [0, 1, 4], [4, 1]),  # its first server is 4
        ("4+1", 2, [0, 1, 5], []),
    ],
)
def test_placements(placement: str, count: int, free: list[int], chosen: list[int]) -> None:
    assert list(load_placement(placement).place(count, free)) == chosen


def test_jobs_wait_in_order_and_go_on_when_one_ends() -> None:
    leases = ServerLeases(4)
    for job, count in (("a", 3), ("b", 2), ("c", 1)):
        leases.arrive(job, count, Packed())
    assert leases.start() == [("a", (0, 1, 2))]  # c would fit, and b came before it
    leases.end("a")
    assert leases.start() == [("b", (0, 1)), ("c", (2,))]
    assert leases.free == {3} and not leases.waiting


def test_backfill_lets_a_job_that_fits_go_before() -> None:
    leases = ServerLeases(4, "backfill")
    for job, count in (("a", 3), ("b", 2), ("c", 1)):
        leases.arrive(job, count, Packed())
    assert [job for job, _ in leases.start()] == ["a", "c"]


def test_a_dead_server_is_leased_to_nobody() -> None:
    leases = ServerLeases(3)
    leases.arrive("a", 2, Packed())
    leases.lose([0])
    assert leases.start() == [("a", (1, 2))]


def test_a_placement_of_ones_own_may_not_choose_what_is_taken() -> None:
    class First(JobPlacement):
        def place(self, count: int, free: Sequence[int]) -> Sequence[int]:
            return range(count)

    leases = ServerLeases(3)
    leases.arrive("a", 2, First())
    leases.arrive("b", 1, First())
    with pytest.raises(ConfigError, match="job b chose servers 0; it must choose 1 different ones of the free"):
        leases.start()


JOBS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=60)
"""Servers, duration, and time since the arrival before, of each job."""


@given(jobs=JOBS, order=st.sampled_from(["fifo", "backfill"]), named=st.booleans())
def test_no_job_starves(jobs: list[tuple[int, int, int]], order: Order, named: bool) -> None:
    leases, ends, started, now = ServerLeases(6, order), dict[str, int](), list[int](), 0
    coming = []
    for number, (count, duration, gap) in enumerate(jobs):
        now += gap
        coming.append((now, number, count, duration))
    now = 0
    while coming or leases.waiting or ends:
        while coming and coming[0][0] <= now:
            _, number, count, _ = coming.pop(0)
            placement = Given(range(6 - count, 6)) if named and number % 3 == 0 else Packed()
            leases.arrive(str(number), count, placement)
        for job in [job for job, end in ends.items() if end <= now]:
            del ends[job]
            leases.end(job)
        for job, servers in leases.start():
            started.append(int(job))
            ends[job] = now + jobs[int(job)][1]
            assert len(servers) == jobs[int(job)][0]
        held = [server for servers in leases.held.values() for server in servers]
        assert len(held) == len(set(held)) and leases.free.isdisjoint(held)
        now += 1
        assert now < 2000
    assert sorted(started) == list(range(len(jobs)))
    for place, number in enumerate(started):
        overtaken = sum(other > number for other in started[:place])
        assert overtaken <= (0 if order == "fifo" else MOST_OVERTAKEN)
