"""One communication under way on a rank: what is known of it until it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workloads.agent.circuit_client import CircuitClient
from workloads.agent.exchange import Exchange, MessagePart
from workloads.agent.executor import NO_PHASE
from workloads.agent.transport import payload
from workloads.agent.transport.connection import Connection, PeerKey
from workloads.agent.transport.message import Flow
from workloads.agent.transport.slot_sender import SlotSender
from workloads.program import Collective, Communication, Group
from workloads.schedule import Schedule

FlowKey = tuple[Flow, int]
"""A flow, and the peer for point to point (-1 for a collective)."""


class Waiting(NamedTuple):
    """What is to be sent when its turn comes."""

    in_flight: InFlight
    part: MessagePart
    content: memoryview


@dataclass
class InFlight:
    """``first_byte`` is when data began to move; sizes are emulated bytes, times monotonic seconds."""

    step: int
    op: Communication
    phase: int
    group: Group
    flow: Flow
    exchange: Exchange
    elements: int
    posted: float
    schedule: Schedule | None = None
    circuit_client: CircuitClient | None = None
    slot_sender: SlotSender[Waiting] | None = None
    buffer: payload.Floats | None = None
    staged: dict[int, payload.Floats] = field(default_factory=dict)
    shut: dict[int, tuple[MessagePart, memoryview]] = field(default_factory=dict)
    """What is ready to go when its circuit stands, by transfer."""
    unsent: int = 0
    sent_bytes: int = 0
    payload_bytes: int = 0
    first_byte: float | None = None
    last_byte: float | None = None
    """When all data was here, where that was before the receive."""
    last_progress: float = 0.0
    connections: dict[PeerKey, Connection] = field(default_factory=dict)
    opened: set[PeerKey] = field(default_factory=set)
    """Paths on which data of this communication has been sent."""
    lanes: set[int] = field(default_factory=set)
    draining: bool = False
    told: bool = False
    """The rank went on before it was done: a buffered send."""
    wrong: int | None = None

    @property
    def moved(self) -> bool:
        """Everything has arrived, everything is in the kernel's hands, and no circuit is held."""
        return (
            self.exchange.received_all
            and self.unsent == 0
            and (self.circuit_client is None or self.circuit_client.finished)
        )

    @property
    def key(self) -> FlowKey:
        """Under which messages find this communication."""
        return self.flow, -1 if isinstance(self.op, Collective) else self.op.peer

    def fields(self) -> dict[str, Any]:
        """What the timeline says of it when it is over."""
        op = self.op
        return {
            "step": self.step,
            "op": op.id,
            "name": op.name,
            "group": op.group,
            "dimension": self.group.dimension,
            "op_kind": op.kind if isinstance(op, Collective) else type(op).__name__.lower(),
            "sent_bytes": self.sent_bytes,
            "phase": None if self.phase == NO_PHASE else self.phase,
            "lanes": sorted(self.lanes),
            "posted": self.posted,
            "payload_bytes": self.payload_bytes,
        }

    def on_circuit(self, part: MessagePart) -> bool:
        """Whether ``part`` takes a circuit that is asked for."""
        return self.circuit_client is not None and part.transfer in self.circuit_client.circuits

    def apply(self, part: MessagePart) -> None:
        """Add or store what arrived (or was kept) for ``part``."""
        if self.buffer is None:
            return
        values = self.staged.pop(part.transfer)
        if part.reduce:
            self.buffer[part.start : part.end] += values
        else:
            self.buffer[part.start : part.end] = values

    def keep(self, part: MessagePart) -> None:
        """Read what stays on this rank, for a later ``apply``."""
        if self.buffer is not None:
            self.staged[part.transfer] = self.buffer[part.start : part.end].copy()
