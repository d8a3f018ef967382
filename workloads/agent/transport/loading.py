"""Prepares the operations in flight of one rank (exchange, circuits, payload values) and checks their results."""

from __future__ import annotations

import numpy as np

from workloads.agent.circuit_requests import CircuitRequests
from workloads.agent.config import AgentConfig
from workloads.agent.exchange import (
    Exchange,
    by_position,
    collective_exchange,
    elements_of,
    on_circuits,
    recv_exchange,
    send_exchange,
)
from workloads.agent.transport import payload
from workloads.agent.transport.flows import flow_names
from workloads.agent.transport.in_flight import InFlight, SlotMessage
from workloads.agent.transport.slot_sender import SlotScheduler
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Communication, Send
from workloads.schedule import Schedule, Transfer


class Loader:
    """Makes the operations in flight (``InFlight``) of one rank."""

    def __init__(
        self, config: AgentConfig, circuit_clients: CircuitRequests[InFlight], scheduler: SlotScheduler[SlotMessage]
    ) -> None:
        self._config = config
        self._rank = config.rank
        self._circuit_clients = circuit_clients
        self._scheduler = scheduler
        self._names = flow_names(config.program, config.rank)
        self._prepared: dict[tuple[int, int], payload.Floats] = {}
        """Contributions of this rank prepared ahead, by (step, operation)."""
        self._transfers: dict[int, list[list[tuple[int, Transfer]]]] = {}
        """Transfers of each position, by identity of the schedule (the program or the catalog keeps it alive)."""

    def load(self, step: int, op: Communication, phase: int, now: float) -> InFlight:
        """The operation in flight for ``op``, which begins at ``now`` (monotonic seconds)."""
        config = self._config
        group = config.program.groups[op.group]
        flow = self._names[op.id].at(step)
        elements = elements_of(config.scale.emulated_bytes(op.bytes))
        in_flight = InFlight(step, op, phase, group, flow, Exchange(), elements, now, last_progress=now)
        if isinstance(op, Collective):
            self._plan(in_flight, schedule_of(config.program, op))
        elif isinstance(op, Send):
            in_flight.exchange = send_exchange(op.peer, elements)
        else:
            in_flight.exchange = recv_exchange(op.peer, elements, announced=not config.program.eager)
        in_flight.unsent = len(in_flight.exchange.outgoing)
        if config.real_payload:
            prepared = self._prepared.pop((step, op.id), None)
            in_flight.buffer = self._contribution(in_flight) if prepared is None else prepared
        return in_flight

    def recycle(self, in_flight: InFlight) -> None:
        """Reuse the buffer of a finished collective for the contribution to the same collective of the next step."""
        schedule, buffer, step = in_flight.schedule, in_flight.buffer, in_flight.step + 1
        if schedule is None or buffer is None or step >= self._config.steps:
            return
        seed, flow, members = self._config.seed, self._names[in_flight.op.id].at(step), in_flight.group.members
        if payload.refill(buffer, seed, flow, schedule, members, self._rank, in_flight.elements):
            self._prepared[step, in_flight.op.id] = buffer

    def _plan(self, in_flight: InFlight, plan: Schedule) -> None:
        in_flight.schedule = plan
        if id(plan) not in self._transfers:
            self._transfers[id(plan)] = by_position(plan)
        members = in_flight.group.members
        mine = self._transfers[id(plan)][members.index(self._rank)]
        if in_flight.group.domain == "scale-out":
            in_flight.circuit_client = self._circuit_clients.client_of(in_flight.group, plan)
            in_flight.slot_sender = self._scheduler.of(in_flight.group.name)
        circuit_transfers = in_flight.circuit_client.circuits if in_flight.circuit_client is not None else None
        circuits = on_circuits(mine, circuit_transfers, in_slots=in_flight.slot_sender is not None)
        in_flight.exchange = collective_exchange(plan, members, self._rank, in_flight.elements, mine, circuits)

    def _contribution(self, in_flight: InFlight) -> payload.Floats:
        seed, flow, op = self._config.seed, in_flight.flow, in_flight.op
        if in_flight.schedule is not None:
            members = in_flight.group.members
            return payload.initial(seed, flow, in_flight.schedule, members, self._rank, in_flight.elements)
        if isinstance(op, Send):
            return payload.total(seed, flow, [self._rank], 0, in_flight.elements)
        return np.full(in_flight.elements, -1, dtype=np.float32)

    def wrong_elements(self, in_flight: InFlight) -> int | None:
        """Number of elements that differ from the promised result; None where nothing is promised or verified."""
        buffer, seed, flow, op = in_flight.buffer, self._config.seed, in_flight.flow, in_flight.op
        if buffer is None or isinstance(op, Send) or not self._config.verify:
            return None
        if in_flight.schedule is not None:
            members, elements = in_flight.group.members, in_flight.elements
            return payload.wrong_elements(buffer, seed, flow, in_flight.schedule, members, self._rank, elements)
        assert not isinstance(op, Collective)
        return int(np.count_nonzero(buffer != payload.total(seed, flow, [op.peer], 0, in_flight.elements)))
