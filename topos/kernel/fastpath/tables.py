"""The flow tables of one switch as rules of the fast path.

A flow becomes a rule if it is in table 0, compares nothing but the ingress port and the destination address, has no
idle time-out, and sends to one port of the fast path or drops. Packets that another flow may concern go to Open
vSwitch: where a flow of another kind has at least the priority of the rule, and where two flows of equal priority
overlap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from railyard.errors import MachineError
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.lasting import ELSEWHERE, DarkPorts, Lasting, Ways
from topos.kernel.fastpath.openflow import FlowUpdate, SimpleMatch
from topos.kernel.fastpath.rules import (
    ANY_FLOW,
    DROP,
    OUT,
    TO_OVS,
    UP,
    Counts,
    Forwarder,
    PortCounts,
    PortRules,
    Rule,
)

_MOST_REMOVED = 1 << 16
"""Flows whose last counts are kept for their flow-removed messages."""
_ALL_TABLES = 255
_BLOCKED = openflow.PORT_DOWN | openflow.PORT_NO_RECV | openflow.PORT_NO_FWD
_Key = tuple[int, bytes]
_DARK = PortRules(Rule(DROP))


@dataclass(slots=True)
class _Flow:
    """A flow of table 0; ``simple`` is False if it compares other fields too.

    ``before``: what its slot had counted when the flow's counts were set to zero; ``way``: the port to which it sends,
    ``ELSEWHERE``, or None if it drops.
    """

    priority: int
    simple: bool
    in_port: int | None
    eth_dst: bytes | None
    cookie: int = 0
    rule: Rule = TO_OVS
    way: int | None = ELSEWHERE
    slot: int = ANY_FLOW
    before: Counts = Counts()


class SimpleFlow(NamedTuple):
    """A flow that compares nothing but ingress port and destination, with what the fast path counted for it."""

    table: int
    priority: int
    in_port: int | None
    eth_dst: bytes | None
    cookie: int
    out_port: int | None
    counts: Counts


class Reset(NamedTuple):
    """Flows whose counts a flow-mod sets to zero.

    ``added``: a flow is added, in place of one with the same priority and match if there is one; otherwise the flows
    that fit ``match`` are modified. ``priority`` is None for every priority.
    """

    added: bool
    table: int
    priority: int | None
    match: SimpleMatch


class FlowTables:
    """The flows of ``switch``, whose ports ``ports`` (OpenFlow numbers) the ``forwarder`` serves.

    ``port_names``: name of each port in Open vSwitch -> name of the interface that it stands for; ``port_speeds``: the
    same names -> the rate that OpenFlow tells of the port, in kb/s, where it is not Open vSwitch's;
    ``counts_exchanged``: at these ports Open vSwitch counts as their other end does, as with the kernel's datapath.
    """

    port_speeds: Mapping[str, int] = MappingProxyType({})
    counts_exchanged = False

    def __init__(
        self, switch: str, ports: Iterable[int], forwarder: Forwarder, port_names: Mapping[str, str] | None = None
    ) -> None:
        self.switch = switch
        self.port_names = port_names or {}
        self._ports = frozenset(ports)
        self._forwarder = forwarder
        self._flows: dict[_Key, _Flow] = {}
        self._by_port: dict[int | None, dict[_Key, _Flow]] = {None: {}}
        self._simple: dict[tuple[int, int | None, bytes | None], _Flow] = {}
        self._blocked: set[int] = set()
        self._dirty: set[int] = set()
        self._shared: PortRules | None = None
        self._ended: list[tuple[_Key, _Flow]] = []
        self._leaving: dict[tuple[int, int | None, bytes | None, int], _Flow] = {}
        """The flows that Open vSwitch has removed and the kernel has not, as in ``_removed``."""
        self._removed: OrderedDict[tuple[int, int | None, bytes | None, int], Counts] = OrderedDict()
        self._resets: OrderedDict[tuple[int, int | None, bytes | None], None] = OrderedDict()
        self.suspended = self.refused = False
        self.lasting, self.dark = Lasting(), DarkPorts()

    def update(self, update: FlowUpdate) -> None:
        """Take a change of a flow; ``commit`` puts it into the kernel."""
        if update.event not in (openflow.INITIAL, openflow.ADDED, openflow.REMOVED, openflow.MODIFIED):
            return
        if update.table != 0:
            return
        key = update.priority, update.match_bytes
        old = self._flows.get(key)
        if update.event == openflow.REMOVED:
            if old is not None:
                self._leave(key, old)
            return
        if old is not None and self.lasting.replace(key):
            self._end(key, old)
            old = None
        flow = old or self._new_flow(key, update.match)
        reset = update.event == openflow.ADDED and self._resets.pop(_named(flow), False) is None
        if reset and old is not None:
            flow.before = self._forwarder.flow_counts(old.slot)
        output = update.output
        flow.cookie, flow.rule = update.cookie, TO_OVS
        flow.way = output if output is None or output in self._ports else ELSEWHERE
        if flow.simple and flow.way != ELSEWHERE:
            flow.slot = flow.slot or self._forwarder.new_flow()
            if flow.slot:
                flow.rule = Rule(DROP, 0, flow.slot) if output is None else Rule(OUT, output, flow.slot)
        self.lasting.added(flow.cookie)
        self._mark(flow.in_port)

    def _new_flow(self, key: _Key, match: SimpleMatch) -> _Flow:
        flow = _Flow(key[0], match.is_simple, match.in_port, match.eth_dst)
        self._flows[key] = flow
        self._by_port.setdefault(flow.in_port, {})[key] = flow
        if flow.simple:
            self._simple[_named(flow)] = flow
        return flow

    def _remove(self, key: _Key, flow: _Flow) -> None:
        del self._flows[key]
        del self._by_port[flow.in_port][key]
        if flow.simple:
            self._simple.pop(_named(flow), None)
        self._mark(flow.in_port)

    def _leave(self, key: _Key, flow: _Flow) -> None:
        """Take note that Open vSwitch has removed a flow, which may last longer in the kernel."""
        if not self.lasting.keep(key, flow.cookie):
            self._end(key, flow)
        elif flow.simple:
            self._simple.pop(_named(flow), None)
            self._leaving[(*_named(flow), flow.cookie)] = flow

    def _end(self, key: _Key, flow: _Flow) -> None:
        self._remove(key, flow)
        if flow.simple:
            self._leaving.pop((*_named(flow), flow.cookie), None)
        self._ended.append((key, flow))

    def end_lasting(self, now: float) -> set[int]:
        """End the flows and the dark times that are over at ``now``; returns the ports of these dark times."""
        for key in self.lasting.end(now):
            self._end(key, self._flows[key])
        over = self.dark.end(now)
        self._dirty |= self.dark.around(over)
        return over

    def keep_dark(self, seconds: float) -> set[int]:
        """Keep ports dark for ``seconds`` from each change of their circuits (0: no more); the ports that are lit."""
        over = self.dark.keep(seconds, {port: self._ways(port, self._rules(port)) for port in self._ports})
        self._dirty |= self.dark.around(over)
        return over

    def _mark(self, in_port: int | None) -> None:
        """Note that the rules of a port have changed (None: of every port)."""
        if in_port is None:
            self._shared = None
            self._dirty = set(self._ports)
        elif in_port in self._ports:
            self._dirty.add(in_port)

    def port_configured(self, number: int, configuration: int) -> None:
        """Take the configuration of a port (OFPPC_...): Open vSwitch forwards for one that is limited in any way."""
        blocked = bool(configuration & _BLOCKED)
        if blocked != (number in self._blocked) and number in self._ports:
            self._blocked ^= {number}
            self._mark(None)

    def suspend(self, suspended: bool) -> None:
        if suspended != self.suspended:
            self.suspended = suspended
            self._mark(None)

    def commit(self, held: Callable[[], None] = lambda: None) -> None:
        """Put all changes into the kernel at once; ``held`` is called as soon as the kernel holds them.

        ``MachineError`` if the kernel refuses. Open vSwitch then forwards all packets of the switch, from now on.
        """
        if self._dirty:
            try:
                self._forwarder.set(self.switch, self._rules_of(self._dirty))
            except MachineError:
                self.refused = True
                self._forwarder.set(self.switch, {port: PortRules() for port in self._ports})
                raise
            finally:
                self._dirty = set()
        held()
        for _, flow in self._ended:
            if flow.simple:
                self._bury(flow)
        self._ended.clear()

    def _bury(self, flow: _Flow) -> None:
        """Keep the last counts of a flow that is no more, and free its slot."""
        key = (*_named(flow), flow.cookie)
        if not flow.slot:
            self._removed.pop(key, None)
            return
        self._removed[key] = self._counts(flow)
        self._removed.move_to_end(key)
        self._forwarder.free_flow(flow.slot)
        if len(self._removed) > _MOST_REMOVED:
            self._removed.popitem(last=False)

    def _counts(self, flow: _Flow) -> Counts:
        now = self._forwarder.flow_counts(flow.slot)
        return Counts(now.packets - flow.before.packets, now.bytes - flow.before.bytes)

    def reset(self, reset: Reset) -> Callable[[], object]:
        """Take note of a flow-mod, which Open vSwitch has yet to carry out, that sets counts to zero.

        A flow that is added in place of another begins at zero when Open vSwitch reports it. Returns a function that
        takes it back.
        """
        match = reset.match
        zeroed: list[tuple[_Flow, Counts, Counts]] = []
        if reset.table not in (0, _ALL_TABLES):
            return partial(_take_back, zeroed)
        if reset.added and match.is_simple and reset.priority is not None:
            name = reset.priority, match.in_port, match.eth_dst
            self._resets[name] = None
            while len(self._resets) > _MOST_REMOVED:
                self._resets.popitem(last=False)
            return partial(self._resets.pop, name, None)
        for flow in self._simple.values():
            named = reset.priority is None or _named(flow) == (reset.priority, match.in_port, match.eth_dst)
            if not reset.added and named and match.covers(flow.in_port, flow.eth_dst):
                before, flow.before = flow.before, Counts(*self._forwarder.flow_counts(flow.slot))  # tells resets apart
                zeroed.append((flow, before, flow.before))
        return partial(_take_back, zeroed)

    def _rules_of(self, ports: Iterable[int]) -> dict[int, PortRules]:
        """The rules of ports, and of those whose dark time begins with them: dark ports drop all that they receive."""
        rules = {port: self._rules(port) for port in ports}
        if self.refused or not self.dark.seconds:
            return rules
        begun = self.dark.see({port: self._ways(port, own) for port, own in rules.items()})
        rules |= {port: self._rules(port) for port in begun - rules.keys()}
        return {port: _DARK if self.dark.is_dark(port) else own for port, own in rules.items()}

    def _ways(self, port: int, rules: PortRules) -> Ways:
        """Where the packets of a port go by its ``rules``, and by flows for which Open vSwitch forwards."""
        every = rules.other, *rules.to.values()
        ways = {rule.port for rule in every if rule.kind == OUT}
        if any(rule.kind == UP for rule in every):
            own, shared = self._by_port.get(port, {}).values(), self._by_port[None].values()
            ways |= {flow.way for flow in own if flow.way is not None}
            ways |= {flow.way for flow in shared if flow.way in self._ports}  # not those of a table miss
        return frozenset(ways - {port})

    def _rules(self, port: int) -> PortRules:
        if self.suspended or self.refused or port in self._blocked:
            return PortRules()
        own, shared = self._by_port.get(port), self._by_port[None]
        if own and not shared and not self._blocked and len(own) == 1:  # a circuit: rewiring must be fast
            (flow,) = own.values()
            if flow.simple and flow.eth_dst is None:
                return PortRules(flow.rule)
        if own:
            return _compile([*own.values(), *shared.values()], self._blocked)
        if self._shared is None:
            self._shared = _compile(self._by_port[None].values(), self._blocked)
        return self._shared

    def counts_of(self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None) -> Counts:
        """Counts of the flow with exactly this match; zeros if there is none."""
        flow = self._simple.get((priority, in_port, eth_dst)) if table == 0 else None
        return Counts() if flow is None else self._counts(flow)

    def removed_counts(
        self, table: int, priority: int, in_port: int | None, eth_dst: bytes | None, cookie: int
    ) -> Counts:
        """Counts of a flow that was removed; every client that hears of it asks.

        If the flow lasts in the kernel, that is what it counted until now.
        """
        if table != 0:
            return Counts()
        key = priority, in_port, eth_dst, cookie
        leaving = self._leaving.get(key)
        return self._removed.get(key, Counts()) if leaving is None else self._counts(leaving)

    def each(self) -> Iterator[SimpleFlow]:
        """The flows that compare nothing but ingress port and destination."""
        for flow in self._simple.values():
            out = flow.rule.port if flow.rule.kind == OUT else None
            yield SimpleFlow(0, *_named(flow), flow.cookie, out, self._counts(flow))

    def port_counts(self) -> Mapping[int, PortCounts]:
        return self._forwarder.port_counts(self.switch)


def _named(flow: _Flow) -> tuple[int, int | None, bytes | None]:
    return flow.priority, flow.in_port, flow.eth_dst


def _take_back(zeroed: Iterable[tuple[_Flow, Counts, Counts]]) -> None:
    """Undo the setting to zero of flows, each with its ``before`` of then and now, unless it was set again since."""
    for flow, then, now in zeroed:
        if flow.before is now:
            flow.before = then


def _compile(flows: Iterable[_Flow], blocked: Collection[int]) -> PortRules:
    """The rules of a port that ``flows`` concern; packets to ``blocked`` ports go to Open vSwitch."""
    ceiling = -1
    top: dict[bytes | None, list[_Flow]] = {}
    for flow in flows:
        if not flow.simple:
            ceiling = max(ceiling, flow.priority)
            continue
        best = top.get(flow.eth_dst)
        if best is None or flow.priority > best[0].priority:
            top[flow.eth_dst] = [flow]
        elif flow.priority == best[0].priority:
            best.append(flow)

    def rule(best: list[_Flow]) -> Rule:
        first = best[0]
        if len(best) > 1 or first.priority <= ceiling or (first.rule.kind == OUT and first.rule.port in blocked):
            return TO_OVS
        return first.rule

    everywhere = top.pop(None, None)
    other = rule(everywhere) if everywhere else TO_OVS
    floor = everywhere[0].priority if everywhere else -1
    to = {
        mac: TO_OVS if best[0].priority == floor else rule(best)
        for mac, best in top.items()
        if mac is not None and best[0].priority >= floor
    }
    return PortRules(other, to)
