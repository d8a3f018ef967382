"""Routing of one rank: which connection carries which part of a communication."""

from __future__ import annotations

from railyard.errors import ControlError
from railyard.protocol import Hop
from workloads.agent.config import AgentConfig
from workloads.agent.exchange import MessagePart
from workloads.agent.transport.connection import PeerKey
from workloads.agent.transport.in_flight import InFlight
from workloads.agent.transport.paths import choose_path


class Routes:
    """The routes of one rank; ``paths`` are the paths that the controller gave to each group."""

    def __init__(self, config: AgentConfig) -> None:
        self._rank = config.rank
        self._groups = config.program.groups
        self._ports_per_gpu = config.plan.ports_per_gpu
        self._forwarding = config.mode in ("native", "electrical")
        self.paths: dict[str, tuple[Hop, ...]] = {}

    def key(self, in_flight: InFlight, part: MessagePart, *, incoming: bool) -> PeerKey:
        """The connection of a part; both ends compute it from the sender's side.

        Where circuits come in slots, only the sender knows the connection, and only once the slot has begun. Raises
        ``ControlError`` where the group has no path between the two ranks.
        """
        if part.scale_up:
            return "scale-up", 0, part.peer, 0
        if in_flight.circuit_client is not None and in_flight.on_circuit(part):
            own, far = in_flight.circuit_client.lanes(part.transfer)
            return "scale-out", own, part.peer, far
        if in_flight.slot_sender is not None:
            lanes = in_flight.slot_sender.lanes(part.peer)
            return "scale-out", lanes.out, part.peer, lanes.into
        place = self.place(in_flight.group.name, part.peer, part.lane, incoming=incoming)
        if place is None:
            source, target = (part.peer, self._rank) if incoming else (self._rank, part.peer)
            raise ControlError(
                f"group {in_flight.group.name} has no circuit between rank {source} and rank {target}, which "
                f"{in_flight.op.name} needs; the policy must set up one"
            )
        return in_flight.group.domain, place[0], part.peer, place[1]

    def place(self, group: str, peer: int, lane: int, *, incoming: bool) -> tuple[int, int] | None:
        """The ports (here, at the peer) that a transfer takes; None where no path is known."""
        forwarded = self._forwarding and self._groups[group].domain == "scale-out"
        source, target = (peer, self._rank) if incoming else (self._rank, peer)
        path = choose_path(
            self.paths.get(group, ()), source, target, lane, forwarded=forwarded, ports_per_gpu=self._ports_per_gpu
        )
        if path is None:
            return None
        return (path[3], path[1]) if incoming else (path[1], path[3])
