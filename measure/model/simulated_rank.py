"""What the model keeps of one agent, and of one communication that is under way there."""

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
"""(group, stream, number): what one communication is called on all ranks that take part in it."""
Early = tuple[MessagePart, float, float]
"""What came before its receive: first and last byte."""


class InSlot(NamedTuple):
    """What is to be sent when its turn comes."""

    flow: SimulatedFlow
    part: MessagePart
    sent: int = 0
    """Bytes of it that went in earlier slots."""
    began: float | None = None
    """When the first of those went."""


@dataclass
class SimulatedFlow:
    """One communication under way on one rank."""

    op: Communication
    step: int
    phase: int
    exchange: Exchange
    name: FlowName
    began: float
    circuit_client: CircuitClient | None = None
    slot_sender: SlotSender[InSlot] | None = None
    unsent: int = 0
    told: bool = False
    """The rank went on before it was done: a buffered send."""
    sent_bytes: int = 0
    takes: dict[tuple[int, int, bool], int] = field(default_factory=dict)
    """Up to which round this rank takes what comes by a path (``Part.way``)."""
    held: list[MessagePart] = field(default_factory=list)
    """What waits for its receiver, or for its circuit."""

    def on_circuit(self, part: MessagePart) -> bool:
        """Whether ``part`` takes a circuit that is asked for."""
        return self.circuit_client is not None and part.transfer in self.circuit_client.circuits


@dataclass
class SimulatedRank:
    """One agent."""

    executor: Executor
    dimensions: tuple[Dimension, ...]
    circuit_clients: CircuitRequests[SimulatedFlow]
    turns: SlotScheduler[InSlot]
    paths: dict[str, tuple[Hop, ...]] = field(default_factory=dict)
    flows: dict[FlowName, SimulatedFlow] = field(default_factory=dict)
    early: dict[FlowName, list[Early]] = field(default_factory=lambda: defaultdict(list))
    count: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    began: dict[tuple[str, int], float] = field(default_factory=dict)
    deferred_release: DeferredRelease = field(default_factory=DeferredRelease)
    blocked: dict[int, tuple[Blocked, float]] = field(default_factory=dict)
    cut: list[InSlot] = field(default_factory=list)
    """What did not fit into the slots of a rotation so far."""
    booked: dict[int, float] = field(default_factory=dict)
    """By lane: when all that goes in the present slot has left."""

    @property
    def waits_for(self) -> str:
        """In words, where the rank stands still."""
        blocked = [action.group for action, _ in self.blocked.values()]
        if blocked:
            return f"the circuits of group {blocked[0]}"
        return ", ".join(f"{f.op.name} in group {f.op.group}" for f in self.flows.values()) or "another operation"

    def next_name(self, rank: int, op: Communication) -> FlowName:
        """What ``rank``, which is this one, calls ``op``."""
        if isinstance(op, Collective):
            stream = "collective"
        else:
            stream = f"{rank}>{op.peer}" if isinstance(op, Send) else f"{op.peer}>{rank}"
        number = self.count[op.group, stream]
        self.count[op.group, stream] = number + 1
        return op.group, stream, number
