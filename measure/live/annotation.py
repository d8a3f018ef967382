"""Describes the content of captured packets in text: step, operation, round and chunk. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from measure.live.packets import Packet
from measure.live.streams import Place, StreamMessage, places
from topos.plan import FabricPlan
from workloads.agent.transport.message import Header
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Group, Program
from workloads.rank.flows import Flow


def annotate(packets: Sequence[Packet], program: Program, plan: FabricPlan) -> list[tuple[str, ...]]:
    """For each packet one comment per message that has bytes in it; none for acks and packets of other programs.

    ``packets`` may be in any order and from any number of ports. A stream is followed from its SYN on until a message
    header is missing in the capture; packets after that get no comment.
    """
    names = Names(program, plan)
    return [() if place is None else tuple(_comments(place, names)) for place in places(packets)]


def _comments(place: Place, names: Names) -> list[str]:
    again = "sent again: " if place.again else ""
    src, dst = names.rank_of(place.stream.src[0]), names.rank_of(place.stream.dst[0])
    return [
        again + names.message(message.header, src, dst) + _bytes(message, place)
        for message in place.stream.within(place.start, place.end)
    ]


def _bytes(message: StreamMessage, place: Place) -> str:
    """Text for the bytes of the message in the packet, counted from 0, both ends included."""
    first, last = max(place.start, message.body), min(place.end, message.end) - 1
    if message.header.kind == "ready":
        return ""
    if first > last:
        return f", header of {message.header.length} bytes"
    return f", bytes {first - message.body}-{last - message.body} of {message.header.length}"


class Names:
    """Translates the numbers in a message header into names of ranks, groups, operations and transfers."""

    def __init__(self, program: Program, plan: FabricPlan) -> None:
        self._program = program
        self._groups = tuple(program.groups.values())
        self._ranks = {port.ip.split("/")[0]: port.rank for switch in plan.switches for port in switch.ports}
        self._collectives: dict[str, tuple[Collective, ...]] = {}

    def rank_of(self, address: str) -> str:
        """The rank with this address as text, ``rank 3``, or the address itself if it is no rank's."""
        rank = self._ranks.get(address)
        return address if rank is None else f"rank {rank}"

    def message(self, header: Header, src: str, dst: str) -> str:
        """Text for the operation and the transfer of a message from ``src`` to ``dst``."""
        flow = header.flow
        if flow.group >= len(self._groups):
            return f"step {flow.step}, group {flow.group} (unknown to the program)"
        group = self._groups[flow.group]
        op = None if flow.point_to_point else self._collective(group, flow)
        kind = "send" if flow.point_to_point else "collective" if op is None else op.kind.replace("_", "-")
        what = f"step {flow.step}, {kind} {group.name} #{flow.sequence}"
        if header.kind == "ready":
            rounds = "" if flow.point_to_point else f", up to round {header.transfer}"
            return f"{what}: {src} is ready to receive from {dst}{rounds}"
        if op is None:
            return f"{what}: {src} -> {dst}"
        return f"{what}, transfer {header.transfer}: " + self._transfer(op, group, header.transfer)

    def _collective(self, group: Group, flow: Flow) -> Collective | None:
        """The collective that ``flow`` belongs to, found by its number in the group; None if it is unknown."""
        if group.name not in self._collectives:
            mine = self._program.communications(group.members[0])
            self._collectives[group.name] = tuple(
                op for op in mine if isinstance(op, Collective) and op.group == group.name
            )
        known = self._collectives[group.name]
        return known[flow.sequence] if flow.sequence < len(known) else None

    def _transfer(self, op: Collective, group: Group, number: int) -> str:
        transfers = schedule_of(self._program, op).transfers
        if number >= len(transfers):
            return f"beyond the {len(transfers)} transfers of its schedule"
        t = transfers[number]
        slot = f" into slot {t.slot}" if t.slot != t.chunk else ""
        ends = f"rank {group.members[t.src]} -> rank {group.members[t.dst]}"
        return f"round {t.round}, chunk {t.chunk} {t.op}{slot}, {ends}"
