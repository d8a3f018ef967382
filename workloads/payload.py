"""Numbers that prove a collective: what each rank contributes and what everybody must end up with.

The contribution of a rank to an element is a small integer, so float32 sums are exact in any order. It is
``(7 e + s) % 97 + ((31 r + s) % 89) * (1 + e % 3)`` for element e, rank r and a salt s of seed, step and operation:
a chunk in the wrong place, a rank missing or counted twice, or data of another operation all change the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from workloads.message import Flow
from workloads.schedule import Schedule

Floats = npt.NDArray[np.float32]

_SUMS = ("all_reduce", "reduce_scatter", "reduce")
_FROM_ROOT = ("broadcast", "scatter")


def _salt(seed: int, flow: Flow) -> int:
    return seed * 13 + flow.step * 29 + flow.group * 17 + flow.sequence * 11 + int(flow.point_to_point) * 5


def _rank_term(seed: int, flow: Flow, rank: int) -> int:
    return (31 * rank + _salt(seed, flow)) % 89


def _elements(seed: int, flow: Flow, start: int, end: int) -> tuple[Floats, Floats]:
    """The part that does not depend on the rank, and the factor of the rank's part."""
    index = np.arange(start, end, dtype=np.int64)
    common = ((7 * index + _salt(seed, flow)) % 97).astype(np.float32)
    factor = (1 + index % 3).astype(np.float32)
    return common, factor


def total(seed: int, flow: Flow, ranks: Sequence[int], start: int, end: int) -> Floats:
    """Sum of the contributions of ``ranks`` to elements ``start`` to ``end`` (exact up to some 40,000 ranks)."""
    common, factor = _elements(seed, flow, start, end)
    return common * np.float32(len(ranks)) + factor * np.float32(sum(_rank_term(seed, flow, r) for r in ranks))


def initial(seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int, elements: int) -> Floats:
    """All slots of ``rank`` before the collective: what it contributes in the input slots, nothing elsewhere.

    "Nothing" is 0 in memory that was never touched, so that the address space of an all-to-all costs only what is used.
    """
    bounds = schedule.chunk_bounds(elements)
    buffer = np.zeros(bounds[-1][1], dtype=np.float32)
    me = members.index(rank)
    for chunk in _held_first(schedule, me):
        start, end = bounds[chunk]
        into, until = bounds[schedule.input + chunk]
        buffer[into:until] = total(seed, flow, [rank], start, end)
    return buffer


def wrong_elements(
    buffer: Floats, seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int, elements: int
) -> int:
    """Number of elements of ``buffer`` (all slots) that are not what the collective promises ``rank``."""
    wrong = 0
    bounds = schedule.chunk_bounds(elements)
    for chunk, position in _held_last(schedule, members.index(rank)):
        start, end = bounds[chunk]
        ranks = members if position is None else [members[position]]
        wrong += int(np.count_nonzero(buffer[start:end] != total(seed, flow, ranks, start, end)))
    return wrong


def _held_first(schedule: Schedule, me: int) -> Iterator[int]:
    """The chunks of the input that position ``me`` holds before the collective (``Schedule``)."""
    for chunk, owner in enumerate(schedule.owner):
        if schedule.kind in _SUMS or me == (schedule.root if schedule.kind in _FROM_ROOT else owner):
            yield chunk


def _held_last(schedule: Schedule, me: int) -> Iterator[tuple[int, int | None]]:
    """The chunks promised to position ``me``, each with the position it comes from (None: the sum over all)."""
    n, kind = schedule.n, schedule.kind
    for chunk, owner in enumerate(schedule.owner):
        if kind in ("reduce_scatter", "scatter"):
            promised = owner == me
        elif kind in ("reduce", "gather"):
            promised = schedule.root == me
        elif kind == "all_to_all":
            promised = chunk * n * n // schedule.chunks % n == me
        else:
            promised = True
        if promised:
            yield chunk, None if kind in _SUMS else schedule.root if kind in _FROM_ROOT else owner
