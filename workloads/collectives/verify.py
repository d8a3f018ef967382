"""The proof of a schedule: every contribution arrives exactly once wherever the collective promises it.

A position's value of a chunk is the set of positions whose contribution is in it, kept as a bit mask. Adding two
values that share a contribution would count it twice, so it is an error, as is sending what one does not hold.
"""

from __future__ import annotations

from itertools import groupby

from railyard.errors import VerifyError
from workloads.schedule import Schedule, Transfer

Values = list[list[int]]
"""``values[position][chunk]``: bit p is set when the contribution of position p is in it."""


def verify(schedule: Schedule) -> None:
    """Raise ``VerifyError`` naming position and chunk when ``schedule`` is not the collective that it says it is."""
    _check_ranges(schedule)
    values = _start(schedule)
    transfers = sorted(schedule.transfers, key=lambda t: t.round)
    for _, in_round in groupby(transfers, key=lambda t: t.round):
        _run_round(schedule, values, list(in_round))
    _check_end(schedule, values)


def _check_ranges(schedule: Schedule) -> None:
    """Positions, chunks, rounds and owners must exist."""
    if schedule.n < 1 or schedule.chunks < 1:
        raise VerifyError(f"{_title(schedule)}: needs at least 1 position and 1 chunk")
    if len(schedule.owner) != schedule.chunks or not all(0 <= p < schedule.n for p in schedule.owner):
        raise VerifyError(f"{_title(schedule)}: owner must name one position below {schedule.n} for each chunk")
    for t in schedule.transfers:
        if not (0 <= t.src < schedule.n and 0 <= t.dst < schedule.n and t.src != t.dst and t.round >= 0):
            raise VerifyError(f"{_title(schedule)}: {t} must join two different positions below {schedule.n}")
        if not 0 <= t.chunk < schedule.chunks:
            raise VerifyError(f"{_title(schedule)}: {t} names a chunk outside 0 to {schedule.chunks - 1}")


def _start(schedule: Schedule) -> Values:
    """What each position holds before the first round."""
    if schedule.kind in ("all_reduce", "reduce_scatter"):
        return [[1 << p] * schedule.chunks for p in range(schedule.n)]
    if schedule.kind == "all_gather":
        return [[1 << p if schedule.owner[c] == p else 0 for c in range(schedule.chunks)] for p in range(schedule.n)]
    if schedule.kind == "broadcast":
        root = schedule.owner[0]
        return [[1 << root if p == root else 0] * schedule.chunks for p in range(schedule.n)]
    raise VerifyError(f"{_title(schedule)}: there is no proof for {schedule.kind} yet")


def _run_round(schedule: Schedule, values: Values, transfers: list[Transfer]) -> None:
    """Carry out one round; every transfer reads what stood at the start of the round."""
    carried = [values[t.src][t.chunk] for t in transfers]
    copied: set[tuple[int, int]] = set()
    reduced: set[tuple[int, int]] = set()
    for t, value in zip(transfers, carried, strict=True):
        where = f"{_title(schedule)}: round {t.round}, position {t.dst}, chunk {t.chunk}"
        place = (t.dst, t.chunk)
        if not value:
            raise VerifyError(f"{where}: position {t.src} sends a chunk that it does not hold")
        if place in copied or (t.op == "copy" and place in reduced):
            raise VerifyError(f"{where}: two transfers write the same chunk in one round")
        if t.op == "copy":
            copied.add(place)
            values[t.dst][t.chunk] = value
            continue
        reduced.add(place)
        twice = values[t.dst][t.chunk] & value
        if twice:
            raise VerifyError(f"{where}: the contribution of position {_first(twice)} is added twice")
        if not values[t.dst][t.chunk]:
            raise VerifyError(f"{where}: reduces into a chunk that holds nothing")
        values[t.dst][t.chunk] |= value


def _check_end(schedule: Schedule, values: Values) -> None:
    """What the collective promises after its last round."""
    everyone = (1 << schedule.n) - 1
    for position in range(schedule.n):
        for chunk in range(schedule.chunks):
            owner = schedule.owner[chunk]
            if schedule.kind == "reduce_scatter" and owner != position:
                continue
            if schedule.kind == "broadcast":
                owner = schedule.owner[0]
            wanted = 1 << owner if schedule.kind in ("all_gather", "broadcast") else everyone
            held = values[position][chunk]
            if held & ~wanted:
                extra = _first(held & ~wanted)
                raise VerifyError(
                    f"{_title(schedule)}: position {position}, chunk {chunk}: ends with the contribution of "
                    f"position {extra}, which does not belong there"
                )
            if held != wanted:
                raise VerifyError(
                    f"{_title(schedule)}: position {position}, chunk {chunk}: ends without the contribution of "
                    f"position {_first(wanted & ~held)}"
                )


def _first(mask: int) -> int:
    """The lowest position in a mask."""
    return (mask & -mask).bit_length() - 1


def _title(schedule: Schedule) -> str:
    return f"{schedule.algorithm} {schedule.kind} over {schedule.n}"
