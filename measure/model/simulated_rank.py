"""The state of one simulated agent, and of one communication that is in progress there."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from railyard.protocol import Hop
from workloads.agent.circuit_client import CircuitClient
from workloads.agent.circuit_requests import CircuitRequests
from workloads.agent.deferred_release import DeferredRelease
from workloads.agent.exchange import Exchange, MessagePart
from workloads.agent.executor import Blocked, Executor
from workloads.agent.transport.slot_sender import SlotScheduler, SlotSender
from workloads.program import Collective, Communication, Dimension, Send

FlowName = tuple[str, str, int]
"""(group, stream, number): the name of a communication, equal on all ranks that take part in it."""
UnexpectedPart = tuple[MessagePart, float, float]
"""A part that arrived before its receive was posted, with the times of its first and last byte."""


class InSlot(NamedTuple):
    """A part of a message that is to be sent when its peer has a slot."""

    flow: SimulatedFlow
    part: MessagePart
    sent: int = 0
    """Bytes of the part that were sent in earlier slots."""
    began: float | None = None
    """Time at which the first of those bytes was sent."""


@dataclass
class SimulatedFlow:
    """One communication that is in progress on one rank."""

    op: Communication
    step: int
    phase: int
    exchange: Exchange
    name: FlowName
    began: float
    circuit_client: CircuitClient | None = None
    slot_sender: SlotSender[InSlot] | None = None
    unsent: int = 0
    buffered: bool = False
    """Whether the rank continues before the send is finished, as with a buffered send."""
    sent_bytes: int = 0
    takes: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    """Last round that this rank can receive by each path, (peer, lane, scale-up)."""
    held: list[MessagePart] = field(default_factory=list)
    """Parts that wait for receiver credit or for their circuit."""

    def on_circuit(self, part: MessagePart) -> bool:
        """Whether ``part`` is sent over a circuit that must be requested."""
        return self.circuit_client is not None and part.transfer in self.circuit_client.circuits


@dataclass
class SimulatedRank:
    """The state of one simulated agent."""

    executor: Executor
    dimensions: tuple[Dimension, ...]
    circuit_clients: CircuitRequests[SimulatedFlow]
    slot_scheduler: SlotScheduler[InSlot]
    paths: dict[str, tuple[Hop, ...]] = field(default_factory=dict)
    flows: dict[FlowName, SimulatedFlow] = field(default_factory=dict)
    unexpected: dict[FlowName, list[UnexpectedPart]] = field(default_factory=lambda: defaultdict(list))
    count: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    began: dict[tuple[str, int], float] = field(default_factory=dict)
    deferred_release: DeferredRelease = field(default_factory=DeferredRelease)
    blocked: dict[int, tuple[Blocked, float]] = field(default_factory=dict)
    cut: list[InSlot] = field(default_factory=list)
    """Parts, or the rest of them, that did not fit into the slots of a rotation so far."""
    booked: dict[int, float] = field(default_factory=dict)
    """Time by lane at which all parts sent in the current slot will have left the port."""

    @property
    def waits_for(self) -> str:
        """Text for the circuits or operations that the rank waits for."""
        blocked = [action.group for action, _ in self.blocked.values()]
        if blocked:
            return f"the circuits of group {blocked[0]}"
        return ", ".join(f"{f.op.name} in group {f.op.group}" for f in self.flows.values()) or "another operation"

    def next_name(self, rank: int, op: Communication) -> FlowName:
        """Name the next communication ``op`` of this rank, whose number is ``rank``."""
        if isinstance(op, Collective):
            stream = "collective"
        else:
            stream = f"{rank}>{op.peer}" if isinstance(op, Send) else f"{op.peer}>{rank}"
        number = self.count[op.group, stream]
        self.count[op.group, stream] = number + 1
        return op.group, stream, number
