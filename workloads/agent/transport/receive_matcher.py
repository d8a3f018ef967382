"""Matches incoming messages to the communications of a rank, and refuses those that no communication awaits.

In an eager program a send may come before its receive has started; its payload is kept until then.
"""

from __future__ import annotations

import numpy as np

from railyard.errors import VerifyError
from workloads.agent.config import AgentConfig
from workloads.agent.transport.connection import Connection
from workloads.agent.transport.message import Header
from workloads.program import Recv
from workloads.rank.exchange import ELEMENT_BYTES, MessagePart, elements_of
from workloads.rank.flows import Flow, FlowKey, flow_names
from workloads.rank.in_flight import InFlight, UnexpectedPart
from workloads.rank.machine import RankMachine


class ReceiveMatcher:
    """The receiving communications of the rank of ``machine``. Times are monotonic seconds."""

    def __init__(self, config: AgentConfig, machine: RankMachine) -> None:
        self._config = config
        self._machine = machine
        self._groups = list(config.program.groups)
        self._eager_receives: dict[tuple[Flow, int], Recv] = {}
        """The receives of an eager program by flow (in step 0) and peer; messages of any other program have none."""
        if config.program.eager:
            names = flow_names(config.program, config.rank)
            receives = [op for op in config.program.communications(config.rank) if isinstance(op, Recv)]
            self._eager_receives = {(names[op.id], op.peer): op for op in receives}

    @staticmethod
    def key(connection: Connection, header: Header) -> FlowKey:
        """Key of the communication that a message belongs to."""
        return header.flow, connection.peer if header.flow.point_to_point else -1

    def may_receive(self, connection: Connection, header: Header) -> bool:
        """Whether a message may be received now; in slots, a message of a peer that is ahead has to wait."""
        rotating = self._machine.rotating
        if not rotating or header.kind == "ready" or header.flow.point_to_point:
            return True
        return self.key(connection, header) in self._machine.receiving or self._group(header) not in rotating

    def find(self, connection: Connection, header: Header) -> tuple[InFlight, MessagePart] | None:
        """The communication and part of a payload; None if the receive has not begun.

        Raises ``VerifyError`` if the message is misdelivered.
        """
        in_flight = self._machine.receiving.get(self.key(connection, header))
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
        flow, peer = key = self.key(connection, header)
        op = self._eager_receives.get((flow.at(0), peer)) if flow.step < self._config.steps else None
        if op is None:
            raise VerifyError(f"misdelivered: {self._describe(connection, header)}, which it does not expect")
        elements = elements_of(self._config.scale.emulated_bytes(op.bytes))
        unexpected = self._machine.unexpected
        if header.transfer != 0 or header.length != elements * ELEMENT_BYTES or key in unexpected:
            raise VerifyError(
                f"misdelivered: {self._describe(connection, header)}, but expects {op.bytes} bytes ({op.name})"
            )
        values = np.empty(elements, dtype=np.float32) if self._config.real_payload else None
        unexpected[key] = {header.transfer: UnexpectedPart(now, values)}
        return None if values is None or not elements else values.data.cast("B")

    def _comes_by(self, in_flight: InFlight, part: MessagePart, connection: Connection) -> bool:
        """Whether ``part`` may come by this connection; in slots, by any connection with its sender."""
        if in_flight.in_slots(part):
            return connection.key[0] == "scale-out" and connection.peer == part.peer
        return self._machine.path(in_flight, part, incoming=True) == connection.key

    def _group(self, header: Header) -> str:
        return self._groups[header.flow.group] if header.flow.group < len(self._groups) else "?"

    def _describe(self, connection: Connection, header: Header) -> str:
        flow = header.flow
        return (
            f"rank {self._config.rank} got transfer {header.transfer} ({header.length} bytes) of group "
            f"{self._group(header)}, operation {flow.sequence}, step {flow.step} from rank {connection.peer}"
        )
