"""Payload values that prove a collective: what each member contributes and what every member must hold at the end.

The contribution of a member to an element is a small integer, so float32 sums are exact in any order. It is ``(7 e + s)
% 97 + ((31 m + s) % 89) * (1 + e % 3)`` for element e, member m and a salt s made of seed, step and operation: a chunk
in the wrong place, a member that is missing or counted twice, or data of another operation all change the sum. The
member is the position in the group (a spare that takes over a position contributes the same values); for a send it is
the rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workloads.agent.config import AgentConfig
from workloads.program import Collective, Send
from workloads.rank.flows import Flow
from workloads.rank.in_flight import InFlight
from workloads.rank.tensors import Floats
from workloads.schedule import ADDING, Schedule

PERIOD = 97 * 3
"""The values repeat after this number of elements."""


def _salt(seed: int, flow: Flow) -> int:
    return seed * 13 + flow.step * 29 + flow.group * 17 + flow.sequence * 11 + int(flow.point_to_point) * 5


def _period(seed: int, flow: Flow, members: Sequence[int], start: int) -> Floats:
    """Sum of the contributions of ``members`` to the ``PERIOD`` elements from ``start`` on."""
    salt = _salt(seed, flow)
    index = np.arange(start, start + PERIOD, dtype=np.int64)
    common = ((7 * index + salt) % 97).astype(np.float32)
    factor = (1 + index % 3).astype(np.float32)
    return common * np.float32(len(members)) + factor * np.float32(sum((31 * m + salt) % 89 for m in members))


def _fill(out: Floats, period: Floats) -> None:
    """Repeat ``period`` over ``out``, doubling the filled part with each copy."""
    have = min(len(period), len(out))
    out[:have] = period[:have]
    while have < len(out):
        more = min(have, len(out) - have)
        out[have : have + more] = out[:more]
        have += more


def total(seed: int, flow: Flow, members: Sequence[int], start: int, end: int) -> Floats:
    """Sum of the contributions of ``members`` to elements ``start`` to ``end`` (exact up to some 40,000 members)."""
    out = np.empty(end - start, dtype=np.float32)
    _fill(out, _period(seed, flow, members, start))
    return out


def initial(seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int, elements: int) -> Floats:
    """All slots of ``rank`` before the collective: the contribution of its position in the input slots, 0 elsewhere.

    The zeros are untouched memory, so that an all-to-all with many slots only occupies the memory that is used.
    """
    buffer = np.zeros(schedule.chunk_bounds(elements)[-1][1], dtype=np.float32)
    _contribute(buffer, seed, flow, schedule, members.index(rank), elements)
    return buffer


def refill(
    buffer: Floats, seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int, elements: int
) -> bool:
    """Restore a used buffer to the result of ``initial``.

    Returns False, without a change, where that would not overwrite every slot.
    """
    if schedule.scratch or schedule.kind not in ADDING:
        return False
    _contribute(buffer, seed, flow, schedule, members.index(rank), elements)
    return True


def _contribute(buffer: Floats, seed: int, flow: Flow, schedule: Schedule, me: int, elements: int) -> None:
    bounds = schedule.chunk_bounds(elements)
    for chunk, (start, _) in enumerate(bounds[: schedule.chunks]):
        if schedule.starts_at(chunk) in (None, me):
            into, until = bounds[schedule.input + chunk]
            _fill(buffer[into:until], _period(seed, flow, [me], start))


def wrong_elements(
    buffer: Floats, seed: int, flow: Flow, schedule: Schedule, members: Sequence[int], rank: int, elements: int
) -> int:
    """Number of elements of ``buffer`` (all slots) that differ from the result promised to ``rank``."""
    wrong, me = 0, members.index(rank)
    for chunk, (start, end) in enumerate(schedule.chunk_bounds(elements)[: schedule.chunks]):
        if schedule.ends_at(chunk) in (None, me):
            position = schedule.starts_at(chunk)
            positions = range(len(members)) if position is None else [position]
            wrong += int(np.count_nonzero(buffer[start:end] != total(seed, flow, positions, start, end)))
    return wrong


class Values:
    """The payload values of one rank (``workloads.agent.transport.payload``)."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._prepared: dict[tuple[int, int], Floats] = {}
        """Contributions of this rank prepared ahead, by (step, operation)."""

    def contribution(self, in_flight: InFlight) -> Floats:
        prepared = self._prepared.pop((in_flight.step, in_flight.op.id), None)
        if prepared is not None:
            return prepared
        rank, seed, flow, op = self._config.rank, self._config.seed, in_flight.flow, in_flight.op
        if in_flight.schedule is not None:
            members = in_flight.group.members
            return initial(seed, flow, in_flight.schedule, members, rank, in_flight.elements)
        if isinstance(op, Send):
            return total(seed, flow, [rank], 0, in_flight.elements)
        return np.full(in_flight.elements, -1, dtype=np.float32)

    def recycle(self, in_flight: InFlight) -> None:
        """Reuse the buffer of a finished collective for the contribution to the same collective of the next step."""
        config, schedule, buffer, step = self._config, in_flight.schedule, in_flight.buffer, in_flight.step + 1
        if schedule is None or buffer is None or step >= config.steps:
            return
        flow, members = in_flight.flow.at(step), in_flight.group.members
        if refill(buffer, config.seed, flow, schedule, members, config.rank, in_flight.elements):
            self._prepared[step, in_flight.op.id] = buffer

    def wrong_elements(self, in_flight: InFlight) -> int | None:
        """Number of elements that differ from the promised result; None where nothing is promised or verified."""
        config, buffer, flow, op = self._config, in_flight.buffer, in_flight.flow, in_flight.op
        if buffer is None or isinstance(op, Send) or not config.verify:
            return None
        if in_flight.schedule is not None:
            members, elements = in_flight.group.members, in_flight.elements
            return wrong_elements(buffer, config.seed, flow, in_flight.schedule, members, config.rank, elements)
        assert not isinstance(op, Collective)
        return int(np.count_nonzero(buffer != total(config.seed, flow, [op.peer], 0, in_flight.elements)))
