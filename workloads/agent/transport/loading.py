"""What a rank brings to a communication: its exchange, its gate, its numbers; and whether they came out right."""

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
from workloads.agent.transport.in_flight import InFlight, Waiting
from workloads.agent.transport.slot_scheduler import SlotScheduler
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Communication, Send
from workloads.schedule import Schedule, Transfer


class Loader:
    """Makes the carriages of one rank."""

    def __init__(self, config: AgentConfig, gates: CircuitRequests[InFlight], turns: SlotScheduler[Waiting]) -> None:
        self._config = config
        self._rank = config.rank
        self._gates = gates
        self._turns = turns
        self._names = flow_names(config.program, config.rank)
        self._prepared: dict[tuple[int, int], payload.Floats] = {}
        """By step and operation: what this rank will contribute."""
        self._transfers: dict[int, list[list[tuple[int, Transfer]]]] = {}
        """By identity of a schedule (the program or the catalog keeps it alive): the transfers of each position."""

    def load(self, step: int, op: Communication, phase: int, now: float) -> InFlight:
        """The carriage of an operation that begins now."""
        config = self._config
        group = config.program.groups[op.group]
        flow = self._names[op.id].at(step)
        elements = elements_of(config.scale.emulated_bytes(op.bytes))
        carriage = InFlight(step, op, phase, group, flow, Exchange(), elements, now, last_progress=now)
        if isinstance(op, Collective):
            self._plan(carriage, schedule_of(config.program, op))
        elif isinstance(op, Send):
            carriage.exchange = send_exchange(op.peer, elements)
        else:
            carriage.exchange = recv_exchange(op.peer, elements, announced=not config.program.eager)
        carriage.unsent = len(carriage.exchange.outgoing)
        if config.real_payload:
            prepared = self._prepared.pop((step, op.id), None)
            carriage.buffer = self._contribution(carriage) if prepared is None else prepared
        return carriage

    def recycle(self, carriage: InFlight) -> None:
        """Nobody needs the numbers of a collective any more: put those of the next step in their place, ahead of it."""
        schedule, buffer, step = carriage.schedule, carriage.buffer, carriage.step + 1
        if schedule is None or buffer is None or step >= self._config.steps:
            return
        seed, flow, members = self._config.seed, self._names[carriage.op.id].at(step), carriage.group.members
        if payload.refill(buffer, seed, flow, schedule, members, self._rank, carriage.elements):
            self._prepared[step, carriage.op.id] = buffer

    def _plan(self, carriage: InFlight, plan: Schedule) -> None:
        carriage.schedule = plan
        if id(plan) not in self._transfers:
            self._transfers[id(plan)] = by_position(plan)
        members = carriage.group.members
        mine = self._transfers[id(plan)][members.index(self._rank)]
        if carriage.group.domain == "scale-out":
            carriage.gate = self._gates.gate(carriage.group, plan)
            carriage.turnstile = self._turns.of(carriage.group.name)
        gated = carriage.gate.circuits if carriage.gate is not None else None
        circuits = on_circuits(mine, gated, turning=carriage.turnstile is not None)
        carriage.exchange = collective_exchange(plan, members, self._rank, carriage.elements, mine, circuits)

    def _contribution(self, carriage: InFlight) -> payload.Floats:
        seed, flow, op = self._config.seed, carriage.flow, carriage.op
        if carriage.schedule is not None:
            members = carriage.group.members
            return payload.initial(seed, flow, carriage.schedule, members, self._rank, carriage.elements)
        if isinstance(op, Send):
            return payload.total(seed, flow, [self._rank], 0, carriage.elements)
        return np.full(carriage.elements, -1, dtype=np.float32)

    def wrong_elements(self, carriage: InFlight) -> int | None:
        """Elements that are not what was promised; None where nothing is (a send, or without ``verify``)."""
        buffer, seed, flow, op = carriage.buffer, self._config.seed, carriage.flow, carriage.op
        if buffer is None or isinstance(op, Send) or not self._config.verify:
            return None
        if carriage.schedule is not None:
            members, elements = carriage.group.members, carriage.elements
            return payload.wrong_elements(buffer, seed, flow, carriage.schedule, members, self._rank, elements)
        assert not isinstance(op, Collective)
        return int(np.count_nonzero(buffer != payload.total(seed, flow, [op.peer], 0, carriage.elements)))
