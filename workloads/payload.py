"""Numbers that prove a collective: what each rank contributes and what everybody must end up with.

The contribution of a rank to an element is a small integer, so float32 sums are exact in any order. It is
``(7 e + s) % 97 + ((31 r + s) % 89) * (1 + e % 3)`` for element e, rank r and a salt s of seed, step and operation:
a chunk in the wrong place, a rank missing or counted twice, or data of another operation all change the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workloads.message import Flow
from workloads.schedule import Schedule

Floats = npt.NDArray[np.float32]


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
    """The buffer of ``rank`` before the collective: its contribution, or its own chunks of a gather (the rest -1)."""
    if schedule.kind in ("all_reduce", "reduce_scatter"):
        return total(seed, flow, [rank], 0, elements)
    buffer = np.full(elements, -1, dtype=np.float32)
    for chunk, (start, end) in enumerate(schedule.chunk_bounds(elements)):
        if members[_owner(schedule, chunk)] == rank:
            buffer[start:end] = total(seed, flow, [rank], start, end)
    return buffer


def wrong_elements(buffer: Floats, seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int) -> int:
    """Number of elements of ``buffer`` that are not what the collective promises ``rank``."""
    wrong = 0
    for chunk, (start, end) in enumerate(schedule.chunk_bounds(len(buffer))):
        owner = members[_owner(schedule, chunk)]
        if schedule.kind == "reduce_scatter" and owner != rank:
            continue
        if schedule.kind in ("all_reduce", "reduce_scatter"):
            ranks: Sequence[int] = members
        else:
            ranks = [owner]
        wrong += int(np.count_nonzero(buffer[start:end] != total(seed, flow, ranks, start, end)))
    return wrong


def _owner(schedule: Schedule, chunk: int) -> int:
    return schedule.owner[0 if schedule.kind == "broadcast" else chunk]
