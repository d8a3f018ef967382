"""What came before its receive was started: kept until then (eager sends)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.agent.exchange import ELEMENT_BYTES, elements_of
from workloads.agent.transport import payload
from workloads.agent.transport.flows import flow_names
from workloads.agent.transport.in_flight import FlowKey
from workloads.agent.transport.message import Header
from workloads.program import Program, Recv


@dataclass
class UnexpectedMessage:
    """A message that is here, or on its way in (``began`` and ``ended``: first and last byte)."""

    began: float
    values: payload.Floats | None
    ended: float | None = None


class UnexpectedQueue:
    """Keeps the messages of an eager program; any other program has none."""

    def __init__(self, program: Program, rank: int, steps: int, *, keep_values: bool) -> None:
        self._steps = steps
        self._keep_values = keep_values
        self._arrivals: dict[FlowKey, UnexpectedMessage] = {}
        self._receives: dict[tuple[int, int, int], Recv] = {}
        if program.eager:
            names = flow_names(program, rank)
            for op in program.communications(rank):
                if isinstance(op, Recv):
                    self._receives[names[op.id].group, names[op.id].sequence, op.peer] = op

    def receive_of(self, key: FlowKey) -> Recv | None:
        """The receive that a message will be for; None if the program has none."""
        flow, peer = key
        if not (flow.point_to_point and flow.step < self._steps):
            return None
        return self._receives.get((flow.group, flow.sequence, peer))

    def expect(self, key: FlowKey, header: Header, emulated_bytes: int, now: float) -> memoryview | None:
        """Where the payload of a message goes whose length is right; raises ``ValueError`` if it is not."""
        elements = elements_of(emulated_bytes)
        if header.transfer != 0 or header.length != elements * ELEMENT_BYTES or key in self._arrivals:
            raise ValueError(header.length)
        values = np.empty(elements, dtype=np.float32) if self._keep_values else None
        self._arrivals[key] = UnexpectedMessage(now, values)
        return None if values is None or not elements else values.data.cast("B")

    def ended(self, key: FlowKey, now: float) -> None:
        """The last byte is here."""
        self._arrivals[key].ended = now

    def take(self, key: FlowKey) -> UnexpectedMessage | None:
        """What came early for a receive that starts now."""
        return self._arrivals.pop(key, None)
