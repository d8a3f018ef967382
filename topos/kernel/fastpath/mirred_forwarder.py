"""Forwards by filters of traffic control (``redirects``), for machines that refuse bpf(2).

Every rule of every port is a filter with an action of its own, and a rule is changed by changing where its action sends
to. An action of this kind cannot drop packets (the kind gact can, which not every kernel has), so packets to be dropped
are sent to a sink: a tap whose packet filter takes none.

A change of rules takes effect for one destination at one port after another: every packet goes by its old rule or by
its new one, and no filter is missing in between.

The kernel reports the counters of a rule as it changes it. Packets forwarded between the change and the report, some
microseconds, count for the old rule in place of the new one. If a destination loses its rule, those forwarded between
the report and the removal of the filter are not counted; seen: 3 of 30,000 packets in hundreds of changes.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from railyard.errors import MachineError
from topos.kernel import namespaces, queues
from topos.kernel.fastpath import redirects
from topos.kernel.fastpath.rules import ANY_FLOW, DROP, OUT, TO_OVS, UP, Counts, KernelPort, PortCounts, PortRules, Rule
from topos.kernel.netlink import Netlink, VethEnd, link_up, veth

_FIRST_ACTION = 1 << 20
_TUNSETIFF, _TUNSETOFFLOAD, _TUNATTACHFILTER = 0x400454CA, 0x400454D0, 0x401054D5
_TAP = 0x2 | 0x1000  # IFF_TAP, IFF_NO_PI
_SEGMENTS = 0x1 | 0x2 | 0x4  # TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6: the sink is given segments whole


class _Sink:
    """An interface that drops what is sent to it, named ``sink0`` or so; it ends when it is closed."""

    def __init__(self, netns_fd: int) -> None:
        with namespaces.inside(netns_fd):
            try:
                self._fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise MachineError(f"/dev/net/tun cannot be opened ({error.strerror})") from error
            try:
                self.index = self._make()
            except OSError as error:
                os.close(self._fd)
                raise MachineError(f"making a tap failed ({error.strerror})") from error

    def _make(self) -> int:
        made = fcntl.ioctl(self._fd, _TUNSETIFF, struct.pack("=16sH22x", b"sink%d", _TAP))
        take_nothing = array("B", struct.pack("=HBBI", 0x06, 0, 0, 0))
        fcntl.ioctl(self._fd, _TUNATTACHFILTER, struct.pack("HP", 1, take_nothing.buffer_info()[0]))
        fcntl.ioctl(self._fd, _TUNSETOFFLOAD, _SEGMENTS)
        return socket.if_nametoindex(made[:16].rstrip(b"\0").decode())

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True, eq=False)
class _Filter:
    """A filter at the link of a port: its number there, that of its action, its rule, the counters last read."""

    number: int
    action: int
    port: _Port
    rule: Rule
    seen: Counts = Counts()


@dataclass(slots=True, eq=False)
class _Port:
    """A port with its rules, its filters in the kernel and what it has counted."""

    at: KernelPort
    rules: PortRules = PortRules()
    filters: dict[bytes, _Filter] = field(default_factory=dict)
    """By destination; ``b""`` is the filter for every packet."""
    free: list[int] = field(default_factory=list)
    """Numbers of filters below the highest that are not in use."""
    received: Counts = Counts()
    sent: Counts = Counts()
    dark: Counts = Counts()

    def new_number(self) -> int:
        """A number for a filter by destination."""
        return self.free.pop() if self.free else len(self.filters)


@dataclass
class _Changes:
    """What one call changes: filters to add (with destination), to change and to remove."""

    added: list[tuple[_Filter, bytes]] = field(default_factory=list)
    changed: list[tuple[_Filter, Rule]] = field(default_factory=list)
    removed: list[_Filter] = field(default_factory=list)


class MirredForwarder:
    """Forwards packets in the namespace ``netns_fd``; ``MachineError`` where the kernel refuses (see ``Forwarder``).

    Differences from what eBPF counts: a segment that a host's stack left whole (TSO) is the frames that it stands for,
    and the 4 bytes of a VLAN tag are not counted. A port takes up to 4094 rules by destination. If the
    kernel refuses a change, the ports that it names pass all packets to Open vSwitch.
    """

    def __init__(self, netns_fd: int) -> None:
        with ExitStack() as undo:
            self._kernel = undo.enter_context(Netlink(netns_fd))
            self._sink = _Sink(netns_fd)
            undo.callback(self._sink.close)
            self._kernel.run([link_up(self._sink.index, "the sink")])
            self._undo = undo.pop_all()
        self._switches: dict[str, dict[int, _Port]] = defaultdict(dict)
        self._by_action: dict[int, _Filter] = {}
        self._by_flow: dict[int, set[_Filter]] = {}
        self._flows: dict[int, Counts] = {}
        self._free_flows: list[int] = []
        self._next_action = _FIRST_ACTION

    def add(self, ports: Sequence[KernelPort]) -> None:
        """Forward between the interfaces of ``ports``; if one fails, none of them keeps a filter."""
        made = [_Port(at) for at in ports]
        interfaces = [index for at in ports for index in (at.link, at.tap)]
        requests = [queues.filters(index, f"interface {index}") for index in interfaces]
        for port in made:
            link, tap = port.at.link, port.at.tap
            first = self._new_filter(port, b"", TO_OVS)
            requests.append(redirects.redirect(tap, redirects.OTHER, b"", redirects.ANY_ACTION, link))
            requests.append(redirects.redirect(link, first.number, b"", first.action, tap))
        self._kernel.run_or_undo(requests, (queues.no_filters(index, f"interface {index}") for index in interfaces))
        for port in made:
            self._switches[port.at.switch][port.at.number] = port
            self._enter(port.filters[b""])

    def set(self, switch: str, rules: Mapping[int, PortRules]) -> None:
        """Change the rules of the ports named, those of the switch's other ports stay."""
        ports = self._switches[switch]
        for number, wanted in rules.items():
            self._check_room(ports[number], wanted)
        changes = _Changes()
        for number, wanted in rules.items():
            self._compare(ports[number], wanted, changes)
        # In this order a destination that gets or loses a rule of its own changes once, from the old to the new one.
        requests = [
            redirects.redirect(one.port.at.link, one.number, to, one.action, self._target(one.port, one.rule))
            for one, to in changes.added
        ]
        requests += redirects.change([(one.action, self._target(one.port, rule)) for one, rule in changes.changed])
        requests += (redirects.remove(one.port.at.link, one.number) for one in changes.removed)
        try:
            self._take(self._kernel.ask(requests))
        except MachineError:
            self._pass_up([ports[number] for number in rules])
            raise
        for one in changes.removed:
            self._leave(one)
        for one, rule in changes.changed:
            self._leave(one)
            one.rule = rule
            self._enter(one)
        for one, _ in changes.added:
            self._enter(one)

    def _pass_up(self, ports: Iterable[_Port]) -> None:
        """Let Open vSwitch have all packets of ``ports``, whatever filters they have; their last counts are lost."""
        for port in ports:
            for one in port.filters.values():
                if one.action in self._by_action:
                    self._leave(one)
            port.rules, port.filters, port.free = PortRules(), {}, []
            link, first = port.at.link, self._new_filter(port, b"", TO_OVS)
            self._kernel.run(
                [
                    queues.no_filters(link, f"interface {link}"),
                    queues.filters(link, f"interface {link}"),
                    redirects.redirect(link, first.number, b"", first.action, port.at.tap),
                ]
            )
            self._enter(first)

    @staticmethod
    def _check_room(port: _Port, wanted: PortRules) -> None:
        if wanted.to is port.rules.to:
            return
        at_once = len(wanted.to.keys() | port.rules.to.keys())
        if at_once >= redirects.OTHER:
            raise MachineError(
                f"port {port.at.number} of {port.at.switch} would have {at_once} rules by destination, old and new "
                f"ones; the datapath mirred holds {redirects.OTHER - 1} at a port, take the datapath bpf or ovs"
            )

    def _compare(self, port: _Port, wanted: PortRules, changes: _Changes) -> None:
        """Note how the filters of ``port`` have to change."""
        old = port.rules
        if old.other != wanted.other:
            changes.changed.append((port.filters[b""], wanted.other))
        if old.to is not wanted.to:
            for mac in old.to.keys() - wanted.to.keys():
                changes.removed.append(port.filters[mac])
            for mac, rule in wanted.to.items():
                if mac not in old.to:
                    changes.added.append((self._new_filter(port, mac, rule), mac))
                elif old.to[mac] != rule:
                    changes.changed.append((port.filters[mac], rule))
            for mac in old.to.keys() - wanted.to.keys():
                port.free.append(port.filters.pop(mac).number)
        port.rules = wanted

    def _new_filter(self, port: _Port, destination: bytes, rule: Rule) -> _Filter:
        # Numbers of actions are not used again: the kernel removes an action some time after its filter.
        self._next_action += 1
        number = port.new_number() if destination else redirects.OTHER
        port.filters[destination] = one = _Filter(number, self._next_action, port, rule)
        return one

    def _target(self, port: _Port, rule: Rule) -> int:
        """The interface to which a rule sends the packets of ``port``."""
        if rule.kind == UP:
            return port.at.tap
        egress = self._switches[port.at.switch].get(rule.port) if rule.kind == OUT else None
        return self._sink.index if egress is None or egress is port else egress.at.link

    def _enter(self, one: _Filter) -> None:
        self._by_action[one.action] = one
        if one.rule.flow != ANY_FLOW:
            self._by_flow.setdefault(one.rule.flow, set()).add(one)

    def _leave(self, one: _Filter) -> None:
        del self._by_action[one.action]
        if one.rule.flow != ANY_FLOW:
            self._by_flow[one.rule.flow].discard(one)

    def _take(self, answers: Iterable[bytes]) -> None:
        """Count what the kernel reports for the rules as they are known here."""
        for message in answers:
            for action, counts in redirects.counters(message):
                one = self._by_action.get(action)
                if one is not None:
                    self._count(one, counts)

    def _count(self, one: _Filter, counts: Counts) -> None:
        new = counts.packets - one.seen.packets, counts.bytes - one.seen.bytes
        one.seen = counts
        rule, port = one.rule, one.port
        if rule.kind == UP or not new[0]:
            return
        if rule.flow in self._flows:
            self._flows[rule.flow] += new
        port.received += new
        egress = self._switches[port.at.switch].get(rule.port)
        if rule.kind == DROP:
            port.dark += new
        elif egress is not None and egress is not port:
            egress.sent += new

    def _read(self, filters: Iterable[_Filter]) -> None:
        self._take(self._kernel.ask(redirects.read([one.action for one in filters if one.rule.kind != UP])))

    def new_flow(self) -> int:
        """A free slot of counters, which are 0; there are as many as are asked for."""
        flow = self._free_flows.pop() if self._free_flows else len(self._flows) + 1
        self._flows[flow] = Counts()
        return flow

    def free_flow(self, flow: int) -> None:
        """Give a slot back that no rule names any more."""
        if self._flows.pop(flow, None) is not None:
            self._by_flow.pop(flow, None)
            self._free_flows.append(flow)

    def flow_counts(self, flow: int) -> Counts:
        """What the rules of slot ``flow`` have decided; zeros for ``ANY_FLOW``."""
        self._read(self._by_flow.get(flow, ()))
        return self._flows.get(flow, Counts())

    def port_counts(self, switch: str) -> dict[int, PortCounts]:
        """What the ports of a switch forwarded, by OpenFlow number."""
        ports = self._switches[switch]
        self._read(one for port in ports.values() for one in port.filters.values())
        return {number: PortCounts(port.received, port.sent, port.dark) for number, port in ports.items()}

    def close(self) -> None:
        """Close the socket and the sink; the filters stay as they are and end with their interfaces."""
        self._undo.close()


def unsupported_reason() -> str | None:
    """Why this kernel cannot forward by filters; None if it can, tried between two ends in a namespace of its own."""
    try:
        with ExitStack() as stack:
            (fd,) = namespaces.make(1)
            stack.callback(os.close, fd)
            with Netlink(fd) as kernel:
                kernel.run([veth(VethEnd("trial0", 10), VethEnd("trial1", 11), 1500)])
            forwarder = MirredForwarder(fd)
            stack.callback(forwarder.close)
            forwarder.add([KernelPort("trial", 1, 10, 11)])
            forwarder.set("trial", {1: PortRules(Rule(DROP), {bytes(6): Rule(OUT, 1)})})
            forwarder.set("trial", {1: PortRules(Rule(DROP))})
            forwarder.port_counts("trial")
    except MachineError as error:
        return str(error)
    return None
