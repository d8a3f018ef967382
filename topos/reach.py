"""Which host reaches which over the circuits and switches of a fabric: names, routes and words for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from textwrap import shorten
from typing import NamedTuple

from railyard.scale import Scale, scale_in_words
from topos.plan import FabricPlan, HostPort, SwitchPlan

Circuits = Mapping[str, Sequence[Sequence[int]]]
"""Optical switch -> its circuits, each a pair of ports."""
_COLUMNS = 80
_MOST_SWITCHES = 6
_MOST_NAMES = 8


class Joint(NamedTuple):
    """A way from a host to a peer: its ``own`` port, at ``switch``, and the ``far`` one that packets get to."""

    switch: str
    own: HostPort
    far: HostPort


def joints(plan: FabricPlan, circuits: Circuits) -> list[Joint]:
    """All ways between two hosts, best first: circuits, the other switches of the rails, then other networks.

    A circuit joins two lanes; electrical switches join every lane with the same lane of all other hosts.
    """
    found = []
    for switch in _optical(plan):
        ports = {port.number: port for port in switch.ports}
        ends = sorted(way for a, b in circuits.get(switch.name, ()) for way in ((a, b), (b, a)))
        found += [Joint(switch.name, ports[a], ports[b]) for a, b in ends if a in ports and b in ports]
    for switches in _forwarding_together(plan):
        ports_at = [(switch.name, port) for switch in switches for port in switch.ports]
        found += [Joint(name, own, far) for name, own in ports_at for _, far in ports_at if own.lane == far.lane]
    return [joint for joint in found if joint.own.host != joint.far.host]


def _optical(plan: FabricPlan) -> list[SwitchPlan]:
    return [switch for switch in plan.switches if switch.kind == "ocs"]


def _forwarding_together(plan: FabricPlan) -> list[list[SwitchPlan]]:
    """The electrical switches, each with those that links join it to; the rails' before those of other networks."""
    group = {switch.name: [switch] for switch in plan.switches if switch.kind == "electrical"}
    for link in plan.links:
        one, other = group.get(link.a), group.get(link.b)
        if one is not None and other is not None and one is not other:
            one += other
            group.update((switch.name, one) for switch in other)
    groups = {id(switches): switches for switches in group.values()}
    return sorted(groups.values(), key=lambda switches: switches[0].network != "rail")


def ring(plan: FabricPlan) -> Circuits:
    """Circuits with which a fabric can begin: on each optical rail the last lane of a host to lane 0 of the next.

    Of hosts with one lane, every two neighbours are joined.
    """
    found: dict[str, list[list[int]]] = {}
    for switch in plan.switches:
        lanes: dict[str, list[int]] = {}
        for port in sorted(switch.ports, key=lambda port: (port.rank, port.lane)) if switch.kind == "ocs" else ():
            lanes.setdefault(port.host, []).append(port.number)
        hosts = list(lanes.values())
        if len(hosts) > 1 and all(len(ports) > 1 for ports in hosts):
            found[switch.name] = [[one[-1], next_one[0]] for one, next_one in pairwise([*hosts, hosts[0]])]
        elif len(hosts) > 1:
            found[switch.name] = [[one[0], next_one[0]] for one, next_one in zip(hosts[::2], hosts[1::2], strict=False)]
    return found


def ways(plan: FabricPlan, circuits: Circuits) -> dict[str, dict[str, Joint]]:
    """The best way from each host to each peer that it reaches."""
    best: dict[str, dict[str, Joint]] = {host: {} for host in plan.hosts}
    for joint in joints(plan, circuits):
        best[joint.own.host].setdefault(joint.far.host, joint)
    return best


def routes(plan: FabricPlan, circuits: Circuits) -> dict[str, dict[str, str]]:
    """For each host the addresses that it reaches by another lane than lane 0, and the interface of that lane."""
    found: dict[str, dict[str, str]] = {host: {} for host in plan.hosts}
    for _, own, far in joints(plan, circuits):
        if own.lane:
            found[own.host].setdefault(far.ip, own.interface)
    return found


def first_addresses(plan: FabricPlan) -> dict[str, str]:
    """The address of lane 0 of each host, on its rail if it has one."""
    switches = sorted(plan.switches, key=lambda switch: switch.network == "rail")
    found = {port.host: port.ip for switch in switches for port in reversed(switch.ports)}
    return {host: found[host] for host in plan.hosts}


def hosts_file(names: Mapping[str, str], machine: str, ports: Mapping[str, str]) -> str:
    """An ``/etc/hosts``: addresses by name, ``localhost`` with the name of the ``machine``, and those of ``ports``."""
    lines = [f"127.0.0.1 localhost {machine}"]
    return "\n".join([*lines, *(f"{ip} {name}" for table in (names, ports) for name, ip in table.items()), ""])


def ping_line(host: str, found: Mapping[str, Joint], answered: Mapping[str, bool], hosts: Sequence[str]) -> str:
    """The line of ``pingall`` about a host: the peers that it reaches, by switch, an X after one that was silent."""
    parts = []
    for switch, peers in groupby(sorted(found, key=lambda peer: found[peer].switch), lambda peer: found[peer].switch):
        parts.append(f"{switch}: {' '.join(peer + ('' if answered[peer] else ' X') for peer in peers)}")
    rest = [peer for peer in hosts if peer != host and peer not in found]
    more = f" and {len(rest) - _MOST_NAMES} more" if len(rest) > _MOST_NAMES else ""
    parts += [f"not joined: {' '.join(rest[:_MOST_NAMES])}{more}"] if rest else []
    return f"{host} -> {', '.join(parts)}"


def banner(plan: FabricPlan, circuits: Circuits | None, scale: Scale | None = None) -> str:
    """The first words about a fabric, for a person who sees it the first time: at most 12 lines of 80 columns.

    ``circuits`` are None where another controller than Railyard's makes them.
    """
    lines = [*fabric_lines(plan, circuits, scale), *_what_to_type(plan, circuits)]
    return "\n".join(shorten(line, _COLUMNS, placeholder=" ...") for line in lines)


def fabric_lines(plan: FabricPlan, circuits: Circuits | None, scale: Scale | None = None) -> list[str]:
    """The hosts, the switches with their addresses and circuits, and the scale."""
    hosts = plan.hosts
    lines = [f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}; their names work in every command on a host"]
    lines += [_switch_line(switch, circuits) for switch in plan.switches[:_MOST_SWITCHES]]
    more = [switch.name for switch in plan.switches[_MOST_SWITCHES:]]
    lines += [f"and {len(more)} more switches: {' '.join(more)}"] if more else []
    return [*lines, *_scale_line(plan, scale)]


def _switch_line(switch: SwitchPlan, circuits: Circuits | None) -> str:
    if not switch.ports:
        return f"{switch.name}: {switch.network}, between switches"
    ends = [f"{port.ip} {port.host}" for port in (switch.ports[0], switch.ports[-1])]
    joined = (
        " ".join(f"{a}-{b}" for a, b in circuits.get(switch.name, ())) or "none" if circuits is not None else "yours"
    )
    kind = f"circuits {joined}" if switch.kind == "ocs" else "joins all"
    return f"{switch.name}: {' to '.join(ends)}, {len(switch.ports)} ports; {kind}"


def _scale_line(plan: FabricPlan, scale: Scale | None) -> Iterator[str]:
    rates = [port.rate_mbps for switch in plan.network("rail") for port in switch.ports]
    if scale is not None and rates:
        real_gbps = max(rates) / scale.rate / 1000
        yield f"scale: {scale_in_words(scale)}; {max(rates):.3g} Mb/s here stand for {real_gbps:.3g} Gb/s"


def _what_to_type(plan: FabricPlan, circuits: Circuits | None) -> Iterator[str]:
    own = ways(plan, circuits or {})
    found = next(((host, peer, joint) for host in own for peer, joint in own[host].items()), None)
    if found is not None:
        host, peer, joint = found
        yield f"{host} is joined to {peer} ({joint.far.ip}); type: {host} ping -c1 {peer}"
        yield f"or: pingall | iperf {host} {peer} | {host} COMMAND | links | help | exit"
    else:
        joined = "no host is joined to another yet" if circuits is not None else "your controller joins the hosts"
        yield f"{joined}; type: pingall | {plan.hosts[0]} COMMAND | links | help | exit"
    for switch in _optical(plan)[:1] if circuits is not None else ():
        a, *others = switch.ports
        b = next((port for port in others if port.host != a.host), a)
        yield f"to see and change circuits: circuits | rewire {switch.name} {a.number}-{b.number}"
