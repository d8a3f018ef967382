"""The values that the communications of one rank begin with, and the check of their results."""

from __future__ import annotations

import numpy as np

from workloads.agent.config import AgentConfig
from workloads.agent.transport import payload
from workloads.program import Collective, Send
from workloads.rank.in_flight import Floats, InFlight


class Values:
    """The payload values of one rank (``workloads.agent.transport.payload``)."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._prepared: dict[tuple[int, int], Floats] = {}
        """Contributions of this rank prepared ahead, by (step, operation)."""

    def contribution(self, in_flight: InFlight) -> Floats:
        """The buffer of ``in_flight`` before it begins."""
        prepared = self._prepared.pop((in_flight.step, in_flight.op.id), None)
        if prepared is not None:
            return prepared
        rank, seed, flow, op = self._config.rank, self._config.seed, in_flight.flow, in_flight.op
        if in_flight.schedule is not None:
            members = in_flight.group.members
            return payload.initial(seed, flow, in_flight.schedule, members, rank, in_flight.elements)
        if isinstance(op, Send):
            return payload.total(seed, flow, [rank], 0, in_flight.elements)
        return np.full(in_flight.elements, -1, dtype=np.float32)

    def recycle(self, in_flight: InFlight) -> None:
        """Reuse the buffer of a finished collective for the contribution to the same collective of the next step."""
        config, schedule, buffer, step = self._config, in_flight.schedule, in_flight.buffer, in_flight.step + 1
        if schedule is None or buffer is None or step >= config.steps:
            return
        flow, members = in_flight.flow.at(step), in_flight.group.members
        if payload.refill(buffer, config.seed, flow, schedule, members, config.rank, in_flight.elements):
            self._prepared[step, in_flight.op.id] = buffer

    def wrong_elements(self, in_flight: InFlight) -> int | None:
        """Number of elements that differ from the promised result; None where nothing is promised or verified."""
        config, buffer, flow, op = self._config, in_flight.buffer, in_flight.flow, in_flight.op
        if buffer is None or isinstance(op, Send) or not config.verify:
            return None
        if in_flight.schedule is not None:
            members, elements = in_flight.group.members, in_flight.elements
            return payload.wrong_elements(buffer, config.seed, flow, in_flight.schedule, members, config.rank, elements)
        assert not isinstance(op, Collective)
        return int(np.count_nonzero(buffer != payload.total(config.seed, flow, [op.peer], 0, in_flight.elements)))
