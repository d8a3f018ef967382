"""An operation in flight: the state of one communication of a rank until it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workloads.program import Collective, Communication, Group
from workloads.rank.circuit_client import CircuitClient
from workloads.rank.exchange import Exchange, MessagePart, Step, elements_of
from workloads.rank.executor import NO_PHASE
from workloads.rank.flows import Flow, FlowKey
from workloads.rank.paths import PeerKey
from workloads.rank.roll_call import FirstPhase
from workloads.rank.slot_sender import SlotSender
from workloads.rank.tensors import Floats, Layout
from workloads.schedule import Schedule


def add_floats(into: Floats, values: Floats) -> None:
    into += values


class SlotMessage(NamedTuple):
    """A message that waits for the slot in which its peer is connected."""

    in_flight: InFlight
    part: MessagePart


@dataclass(eq=False)
class InFlight:
    """State of one communication; sizes are emulated bytes, times are those of the events that the machine got.

    ``first_byte`` is the time at which data began to move, ``last_progress`` the time of the latest event.
    """

    step: int
    op: Communication
    phase: int
    group: Group
    flow: Flow
    elements: int
    posted: float
    exchange: Exchange = field(default_factory=Exchange)
    schedule: Schedule | None = None
    circuit_client: CircuitClient | None = None
    slot_sender: SlotSender[SlotMessage] | None = None
    first_phase: FirstPhase | None = None
    """That of an eager collective, until it is over."""
    buffer: Floats | None = None
    """The values of the communication (None where only their number matters)."""
    add: Callable[[Floats, Floats], object] = add_floats
    """Reduces values into those of the buffer."""
    layout: Layout | None = None
    """Where the tensors of a user's script are in the buffer (None: no script gives the values)."""
    staged: dict[int, Floats] = field(default_factory=dict)
    """Values that came in or stay on this rank and are not applied yet, by transfer."""
    passing: dict[int, Floats] = field(default_factory=dict)
    """Values of chunks that pass through this rank and have no place in its buffer."""
    contents: dict[int, memoryview] = field(default_factory=dict)
    """Values to be sent, as read when the transfer became possible, by transfer."""
    awaiting_credit: dict[PeerKey, list[tuple[MessagePart, float | None]]] = field(default_factory=dict)
    """Parts that their receiver does not take yet, with the times at which they became possible, by path."""
    awaiting_circuit: list[MessagePart] = field(default_factory=list)
    unsent: int = 0
    unposted: Counter[tuple[int, int, bool]] = field(default_factory=Counter)
    """Number of outgoing parts that wait for a credit, a circuit or values, by path as in ``MessagePart``."""
    payload_bytes: int = 0
    """Bytes of the parts that were sent."""
    header_bytes: int = 0
    first_byte: float | None = None
    last_byte: float | None = None
    """Time at which all data was here, where that was before the receive started."""
    last_progress: float = 0.0
    since: float = 0.0
    """Time at which it became possible: before ``posted`` where this machine is late."""
    paths: set[PeerKey] = field(default_factory=set)
    """Paths on which anything of this communication moves."""
    opened: set[PeerKey] = field(default_factory=set)
    """Paths on which data of this communication has been sent."""
    lanes: set[int] = field(default_factory=set)
    """Ports by which anything of this communication was sent."""
    draining: bool = False
    buffered: bool = False
    """Whether the rank went on before the communication was done (a buffered send)."""
    wrong: int | None = None

    @property
    def moved(self) -> bool:
        """Whether every part has arrived, all outgoing data was taken from this rank, and no circuit is held."""
        return (
            self.first_phase is None
            and self.unsent == 0
            and self.exchange.received_all
            and (self.circuit_client is None or self.circuit_client.finished)
        )

    @property
    def key(self) -> FlowKey:
        """Key under which incoming messages find this communication."""
        return self.flow, -1 if isinstance(self.op, Collective) else self.op.peer

    @property
    def sent_bytes(self) -> int:
        return self.payload_bytes + self.header_bytes

    @property
    def peers_at_work(self) -> str:
        """The ranks that this communication waits for or has a path to, for an error."""
        peers = sorted({part.peer for part in self.exchange.awaited} | {key[2] for key in self.paths})
        return "rank " + ", ".join(map(str, peers)) if peers else "its peers"

    def fields(self) -> dict[str, Any]:
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
            "posted": self.posted,
            "payload_bytes": self.payload_bytes,
        }

    def transfer_fields(self, part: MessagePart) -> dict[str, Any]:
        return {
            "step": self.step,
            "op": self.op.id,
            "transfer": part.transfer,
            "round": part.round,
            "chunk": part.chunk,
            "peer": part.peer,
            "bytes": part.bytes,
            "reduce": part.reduce,
        }

    def on_circuit(self, part: MessagePart) -> bool:
        """Whether ``part`` takes a circuit that this rank requests for the collective."""
        return self.circuit_client is not None and part.transfer in self.circuit_client.circuits

    def in_slots(self, part: MessagePart) -> bool:
        """Whether ``part`` waits for the slot in which its peer is connected."""
        return self.slot_sender is not None and not part.scale_up

    def go_on(self, exchange: Exchange) -> list[Step]:
        """Go on with another exchange, of which nothing has begun; the first steps of it."""
        self.exchange = exchange
        self.unsent = len(exchange.outgoing)
        self.unposted = Counter(part.path for part in exchange.outgoing)
        return exchange.begin()

    def read(self, part: MessagePart) -> MessagePart:
        """Read the values of an outgoing ``part`` before later steps change them; returns it in its real size."""
        if self.buffer is not None:
            values = self.buffer[part.start : part.end]
            if part.chunk in self.passing:
                values = self.passing[part.chunk]
                part = self.sized(part, values.nbytes)
            self.contents[part.transfer] = memoryview(values.tobytes())
        return part

    def sized(self, part: MessagePart, size: int) -> MessagePart:
        """``part`` with the ``size`` of its message, where only that tells it."""
        if self.layout is None or part.chunk not in self.layout.passing:
            return part
        return part._replace(end=part.start + elements_of(size))

    def keep(self, part: MessagePart) -> None:
        """Read values that stay on this rank, for a later ``apply``."""
        if self.buffer is not None:
            self.staged[part.transfer] = self.buffer[part.start : part.end].copy()

    def apply(self, part: MessagePart) -> None:
        """Reduce or store the values that arrived (or were kept) for ``part``."""
        if self.buffer is None:
            return
        values = self.staged.pop(part.transfer)
        if self.layout is not None and part.chunk in self.layout.passing:
            self.passing[part.chunk] = values
        elif part.reduce:
            self.add(self.buffer[part.start : part.end], values)
        else:
            self.buffer[part.start : part.end] = values


@dataclass
class UnexpectedPart:
    """A part that came before its receive was posted; ``began`` and ``ended`` are the times of first and last byte."""

    began: float
    values: Floats | None = None
    ended: float | None = None
