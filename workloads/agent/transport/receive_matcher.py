"""Matches incoming messages to the communications of a rank, and keeps unexpected ones of an eager program.

A message that no communication awaits is an error and is never received. In an eager program a send may come before its
receive has started; its payload is kept until then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railyard.errors import VerifyError
from workloads.agent.config import AgentConfig
from workloads.agent.exchange import ELEMENT_BYTES, MessagePart, elements_of
from workloads.agent.transport import payload
from workloads.agent.transport.connection import Connection, PeerKey
from workloads.agent.transport.flows import flow_names
from workloads.agent.transport.in_flight import FlowKey, InFlight
from workloads.agent.transport.message import Header
from workloads.agent.transport.routes import Routes
from workloads.agent.transport.slot_connections import SlotConnections
from workloads.program import Program, Recv


@dataclass
class UnexpectedMessage:
    """A message that came before its receive; ``began`` and ``ended`` are the times of its first and last byte."""

    began: float
    values: payload.Floats | None
    ended: float | None = None


class UnexpectedQueue:
    """Keeps the unexpected messages of an eager program; any other program has none."""

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
        """Buffer for the payload of a message; raises ``ValueError`` if the length or the transfer is wrong."""
        elements = elements_of(emulated_bytes)
        if header.transfer != 0 or header.length != elements * ELEMENT_BYTES or key in self._arrivals:
            raise ValueError(header.length)
        values = np.empty(elements, dtype=np.float32) if self._keep_values else None
        self._arrivals[key] = UnexpectedMessage(now, values)
        return None if values is None or not elements else values.data.cast("B")

    def ended(self, key: FlowKey, now: float) -> None:
        """Record the arrival time of the last byte."""
        self._arrivals[key].ended = now

    def take(self, key: FlowKey) -> UnexpectedMessage | None:
        """Remove and return the message of a receive that starts now; None if it has not come."""
        return self._arrivals.pop(key, None)


class ReceiveMatcher:
    """The receiving communications of one rank. Times are monotonic seconds."""

    def __init__(self, config: AgentConfig, routes: Routes, slot_connections: SlotConnections) -> None:
        self._config = config
        self._routes = routes
        self._rotations = slot_connections
        self._groups = list(config.program.groups)
        self.open: dict[FlowKey, InFlight] = {}
        """The communications that receive now."""
        self.unexpected = UnexpectedQueue(config.program, config.rank, config.steps, keep_values=config.real_payload)
        self.began: dict[PeerKey, float] = {}
        """Time at which the message began that is coming in on a connection."""

    @staticmethod
    def key(connection: Connection, header: Header) -> FlowKey:
        """Key of the communication that a message belongs to."""
        return header.flow, connection.peer if header.flow.point_to_point else -1

    def may_receive(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be received now; in slots, a message of a peer that is ahead has to wait."""
        if header.kind == "ready" or header.flow.point_to_point:
            return True
        if not self._rotations.groups or self.key(connection, header) in self.open:
            return True
        return self._group(header) not in self._rotations.groups

    def find(self, connection: Connection, header: Header) -> tuple[InFlight, MessagePart] | None:
        """The communication and part of a payload; None if the receive has not begun.

        Raises ``VerifyError`` if the message is misdelivered.
        """
        in_flight = self.open.get(self.key(connection, header))
        if in_flight is None:
            return None
        part = in_flight.exchange.incoming.get(header.transfer)
        if part is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not expect")
        if part.bytes != header.length or not self._comes_by(in_flight, part, connection):
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, but expects {part.bytes} bytes from rank "
                f"{part.peer} on another path or in another length"
            )
        return in_flight, part

    def keep_unexpected(self, connection: Connection, header: Header, now: float) -> memoryview | None:
        """Buffer for a payload whose receive has not begun; ``VerifyError`` if the program has no such receive."""
        key = self.key(connection, header)
        op = self.unexpected.receive_of(key)
        if op is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not expect")
        try:
            return self.unexpected.expect(key, header, self._config.scale.emulated_bytes(op.bytes), now)
        except ValueError:
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, but expects {op.bytes} bytes ({op.name})"
            ) from None

    def _comes_by(self, in_flight: InFlight, part: MessagePart, connection: Connection) -> bool:
        """Whether ``part`` may come by this connection; in slots, by any connection with its sender."""
        if in_flight.slot_sender is not None and not part.scale_up:
            return connection.key[0] == "scale-out" and connection.peer == part.peer
        return self._routes.key(in_flight, part, incoming=True) == connection.key

    def _group(self, header: Header) -> str:
        return self._groups[header.flow.group] if header.flow.group < len(self._groups) else "?"

    def _describe(self, connection: Connection, header: Header) -> str:
        flow = header.flow
        return (
            f"rank {self._config.rank} got transfer {header.transfer} ({header.length} bytes) of group "
            f"{self._group(header)}, operation {flow.sequence}, step {flow.step} from rank {connection.peer}"
        )
