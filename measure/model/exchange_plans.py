"""Plans the exchange of each communication of the model with the functions that live agents use."""

from __future__ import annotations

from measure.model.simulated_rank import SimulatedFlow, SimulatedRank
from railyard.scale import Scale
from workloads.agent.exchange import (
    by_position,
    collective_exchange,
    elements_of,
    on_circuits,
    recv_exchange,
    send_exchange,
)
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Program, Recv, Send
from workloads.schedule import Transfer


class ExchangePlans:
    """Plans the exchanges of ``program`` at ``scale``, and the circuits that they need."""

    def __init__(self, program: Program, scale: Scale) -> None:
        self._program = program
        self._scale = scale
        self._transfers: dict[int, list[list[tuple[int, Transfer]]]] = {}
        """The transfers of each position, by id of the schedule; ``program`` keeps the schedule alive."""

    def plan(self, rank: int, agent: SimulatedRank, flow: SimulatedFlow) -> None:
        """Set the exchange of ``flow`` on ``rank``, and its circuit client and slot sender if it needs circuits."""
        op = flow.op
        elements = elements_of(self._scale.emulated_bytes(op.bytes))
        if isinstance(op, Send):
            flow.exchange = send_exchange(op.peer, elements)
        elif isinstance(op, Recv):
            flow.exchange = recv_exchange(op.peer, elements, announced=not self._program.eager)
        else:
            self._plan_collective(rank, agent, flow, op, elements)

    def _plan_collective(
        self, rank: int, agent: SimulatedRank, flow: SimulatedFlow, op: Collective, elements: int
    ) -> None:
        group = self._program.groups[op.group]
        schedule = schedule_of(self._program, op)
        if id(schedule) not in self._transfers:
            self._transfers[id(schedule)] = by_position(schedule)
        mine = self._transfers[id(schedule)][group.members.index(rank)]
        if group.domain == "scale-out":
            flow.circuit_client = agent.circuit_clients.client_of(group, schedule)
            flow.slot_sender = agent.slot_scheduler.of(group.name)
        circuit_transfers = flow.circuit_client.circuits if flow.circuit_client is not None else None
        circuits = on_circuits(mine, circuit_transfers, in_slots=flow.slot_sender is not None)
        flow.exchange = collective_exchange(schedule, group.members, rank, elements, mine, circuits)
