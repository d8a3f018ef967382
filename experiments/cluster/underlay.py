"""The network between the machines of a cluster: probes it, refuses what does not carry the fabric, notes the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from secrets import token_hex

from experiments.cluster.machines import Cluster
from measure.live.underlay.echo import TOKEN_BYTES
from measure.metrics.underlay import (
    Underlay,
    UnderlayNeeds,
    ip_version,
    refusals,
    shared_refusals,
    underlay_event,
)
from railyard.errors import MachineError
from railyard.timeline import Event
from topos.placement import Placed
from topos.plan import FabricPlan, HostPort

_LONGEST_S = 30.0
Pair = tuple[str, str]


def needs_of(cluster: Cluster, placed: Placed) -> dict[Pair, UnderlayNeeds]:
    """What each pair of machines that share cut links needs of the network between them."""
    found = {}
    for a, b in combinations(placed.machines, 2):
        demand = placed.demand_mbps(a, b)
        if demand:
            version = ip_version(cluster.machines[a].address)
            found[a, b] = UnderlayNeeds(a, b, placed.plan.mtu, demand, version)
    return found


def rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs in rounds in which each machine is in at most one pair; greedy, each pair as early as it can be."""
    found: list[list[Pair]] = []
    for pair in pairs:
        free = next((each for each in found if not any({*pair} & {*other} for other in each)), None)
        if free is None:
            found.append([pair])
        else:
            free.append(pair)
    return found


def probe(cluster: Cluster, needs: Mapping[Pair, UnderlayNeeds]) -> dict[Pair, Underlay]:
    """Probe the network between each pair, the pairs of a round at the same time; 1.1 s a round."""
    found: dict[Pair, Underlay] = {}
    for pairs in rounds(needs):
        tokens = {pair: token_hex(TOKEN_BYTES) for pair in pairs}
        addresses = {pair: cluster.machines[pair[1]].address for pair in pairs}
        fields = {pair[1]: {"address": addresses[pair], "token": tokens[pair], "seconds": _LONGEST_S} for pair in pairs}
        ports = cluster.ask("begin_echo", fields)
        try:
            orders = {
                pair[0]: {
                    "address": addresses[pair],
                    "port": ports[pair[1]],
                    "token": tokens[pair],
                    "packet_bytes": needs[pair].packet_bytes,
                }
                for pair in pairs
            }
            answers = cluster.ask("probe", orders, timeout_s=_LONGEST_S)
        finally:
            cluster.ask("end_echo", {pair[1]: {} for pair in pairs})
        found |= {pair: Underlay(**answers[pair[0]]) for pair in pairs}
    return found


def refuse(needs: Mapping[Pair, UnderlayNeeds], found: Mapping[Pair, Underlay]) -> None:
    """Raise ``MachineError`` if a network does not carry the links that are cut."""
    each = [(need, found[pair]) for pair, need in needs.items()]
    for sentence in [*(one for need, under in each for one in refusals(need, under)), *shared_refusals(each)]:
        raise MachineError(sentence)


def events(needs: Mapping[Pair, UnderlayNeeds], found: Mapping[Pair, Underlay], t: float) -> list[Event]:
    """What was found at monotonic time ``t``, as events."""
    return [underlay_event(t, needs[pair], one) for pair, one in found.items()]


def delayed(placed: Placed, found: Mapping[Pair, Underlay]) -> FabricPlan:
    """The plan with cut links as long as half of the round trip between their machines."""
    extra = {
        (cut.switch, cut.port): found[pair].round_trip_ms / 2e3
        for cut in placed.cuts
        for pair in found
        if set(pair) == {cut.switch_machine, cut.host_machine}
    }

    def longer(switch: str, port: HostPort) -> HostPort:
        return replace(port, delay_s=port.delay_s + extra.get((switch, port.number), 0.0))

    switches = (replace(s, ports=tuple(longer(s.name, port) for port in s.ports)) for s in placed.plan.switches)
    return replace(placed.plan, switches=tuple(switches))
