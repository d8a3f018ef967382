"""Ranks that disagree are named from their reports; those that wait for one that works are left alone."""

from __future__ import annotations

from dataclasses import replace

from workloads.pytorch.standstill import STEADY, Awaited, RankReport, standstill

ALL = Awaited(4, "all_reduce", (0, 1, 2), 64, "world", 3)


def waiting(awaited: Awaited, times: int = STEADY, **made: int) -> RankReport:
    report = RankReport()
    for _ in range(times):
        report.hear(awaited, made or {awaited.needs: awaited.place})
    return report


def test_ranks_in_one_call_or_behind_one_that_works_do_not_stand_still() -> None:
    assert standstill({rank: waiting(ALL) for rank in range(3)}) is None
    other = replace(ALL, kind="broadcast")
    assert standstill({0: waiting(ALL), 1: waiting(ALL), 2: RankReport()}) is None
    message = Awaited(3, "recv", (1, 2), 8, "world send 2>1", 1)
    assert standstill({0: waiting(ALL), 1: waiting(message, world=2), 2: RankReport()}) is None
    assert standstill({0: waiting(ALL), 1: waiting(other, times=1), 2: waiting(ALL)}) is None


def test_a_rank_that_has_made_the_call_and_waits_in_the_next_holds_nobody_up() -> None:
    assert standstill({0: waiting(ALL), 1: waiting(replace(ALL, place=4), world=4), 2: waiting(ALL)}) is None


def test_two_kinds_two_sizes_and_an_end_are_named() -> None:
    reports = {0: waiting(ALL), 1: waiting(ALL), 2: waiting(replace(ALL, kind="broadcast", number=7))}
    sentence = standstill(reports)
    assert sentence == (
        "rank 0 is in call 4, all_reduce of 64 bytes over ranks 0-2; "
        "rank 2 is in call 7, broadcast of 64 bytes over ranks 0-2, so neither can go on"
    )
    assert "of 4 bytes" in str(standstill(reports | {2: waiting(replace(ALL, bytes=4))}))
    assert "rank 2 has ended its script" in str(standstill(reports | {2: RankReport(ended=True)}))
    uneven = replace(ALL, kind="all_to_all")
    assert standstill({0: waiting(uneven), 1: waiting(replace(uneven, bytes=4)), 2: waiting(uneven)}) is None


def test_messages_in_a_circle_are_named() -> None:
    reports = {
        rank: waiting(Awaited(1, "recv", (rank, (rank + 1) % 3), 8, f"pp send {(rank + 1) % 3}>{rank}", 1))
        for rank in range(3)
    }
    assert "rank 0 is in call 1, recv of 8 bytes over ranks 0-1; rank 1 is in call 1" in str(standstill(reports))
