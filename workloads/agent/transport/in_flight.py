"""An operation in flight: the state of one communication of a rank until it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from railyard.errors import VerifyError
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


class SlotMessage(NamedTuple):
    """A message that waits for the slot in which its peer is connected."""

    in_flight: InFlight
    part: MessagePart
    content: memoryview


@dataclass
class InFlight:
    """State of one communication; sizes are emulated bytes, times monotonic seconds.

    ``first_byte`` is the time at which data began to move, ``last_progress`` the time of the latest event.
    """

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
    slot_sender: SlotSender[SlotMessage] | None = None
    buffer: payload.Floats | None = None
    staged: dict[int, payload.Floats] = field(default_factory=dict)
    awaiting_circuit: dict[int, tuple[MessagePart, memoryview]] = field(default_factory=dict)
    """Messages that wait for their circuit, by transfer."""
    unsent: int = 0
    sent_bytes: int = 0
    payload_bytes: int = 0
    first_byte: float | None = None
    last_byte: float | None = None
    """Time at which all data was here, where that was before the receive started."""
    last_progress: float = 0.0
    connections: dict[PeerKey, Connection] = field(default_factory=dict)
    opened: set[PeerKey] = field(default_factory=set)
    """Paths on which data of this communication has been sent."""
    lanes: set[int] = field(default_factory=set)
    draining: bool = False
    buffered: bool = False
    """Whether the rank went on before the communication was done (a buffered send)."""
    wrong: int | None = None

    @property
    def moved(self) -> bool:
        """Whether every part has arrived, the kernel has taken all outgoing data, and no circuit is held."""
        return (
            self.exchange.received_all
            and self.unsent == 0
            and (self.circuit_client is None or self.circuit_client.finished)
        )

    @property
    def key(self) -> FlowKey:
        """Key under which incoming messages find this communication."""
        return self.flow, -1 if isinstance(self.op, Collective) else self.op.peer

    @property
    def peers_at_work(self) -> str:
        """The ranks that this communication waits for or has a connection to, for an error."""
        peers = sorted({part.peer for part in self.exchange.awaited} | {c.peer for c in self.connections.values()})
        return "rank " + ", ".join(map(str, peers)) if peers else "its peers"

    def fields(self) -> dict[str, Any]:
        """Fields of the ``communicate`` event that is logged at the end."""
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

    def note_transfer(self, note: Callable[..., Any], part: MessagePart, began: float, ended: float) -> None:
        """Log the ``transfer`` event of ``part``, which arrived between ``began`` and ``ended``, with ``note``."""
        note(
            "transfer",
            began,
            ended,
            step=self.step,
            op=self.op.id,
            transfer=part.transfer,
            round=part.round,
            chunk=part.chunk,
            peer=part.peer,
            bytes=part.bytes,
            reduce=part.reduce,
        )

    def on_circuit(self, part: MessagePart) -> bool:
        """Whether ``part`` takes a circuit that this rank requests for the collective."""
        return self.circuit_client is not None and part.transfer in self.circuit_client.circuits

    def check_result(self, rank: int) -> None:
        """Raise ``VerifyError`` if ``rank`` ended the communication with wrong elements."""
        if self.wrong:
            raise VerifyError(
                f"rank {rank} ended {self.op.name} of step {self.step} (group {self.op.group}) with "
                f"{self.wrong} of {self.elements} elements wrong"
            )

    def apply(self, part: MessagePart) -> None:
        """Add or store the values that arrived (or were kept) for ``part``."""
        if self.buffer is None:
            return
        values = self.staged.pop(part.transfer)
        if part.reduce:
            self.buffer[part.start : part.end] += values
        else:
            self.buffer[part.start : part.end] = values

    def keep(self, part: MessagePart) -> None:
        """Read values that stay on this rank, for a later ``apply``."""
        if self.buffer is not None:
            self.staged[part.transfer] = self.buffer[part.start : part.end].copy()
