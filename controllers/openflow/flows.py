"""OpenFlow 1.4 on the wire, packed by hand: only what a circuit switch needs, and fast.

Built from framework objects, a rewiring of 64 ports costs about 9 ms of Python; packed here, a fraction of one. The
body of every flow is built once and kept. Layouts: OpenFlow Switch Specification 1.4.0, section 7.

Flows of an OCS (one table without a table-miss flow, so packets without a flow are dropped):

========= ======== ============================== ==============================================
flow      priority cookie                         does
========= ======== ============================== ==============================================
circuit   10       ``CIRCUIT_COOKIE``             in_port (in a rotation: and eth_dst of the peer) -> output peer
dark      20       ``dark_cookie(id)``            in_port -> drop
========= ======== ============================== ==============================================

Flows of an electrical switch: priority 10, eth_dst -> output port (on a torus: ``controllers.circuits.torus_routes``).
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from controllers.circuits.circuits import Circuit
from controllers.engine.actions import Darken
from topos.kernel.fastpath.lasting import Lasts, encode
from topos.kernel.fastpath.openflow import SimpleMatch, read_match
from topos.plan import SwitchPlan

VERSION = 5
"""OpenFlow 1.4."""
TYPE_ERROR, TYPE_FLOW_MOD, TYPE_MULTIPART_REQUEST, TYPE_BARRIER_REQUEST, TYPE_BARRIER_REPLY = 1, 14, 18, 20, 21
TYPE_BUNDLE_CONTROL, TYPE_BUNDLE_ADD = 33, 34
ADD, DELETE, DELETE_STRICT = 0, 3, 4
BUNDLE_OPEN, BUNDLE_COMMIT = 0, 4
BUNDLE_ATOMIC_ORDERED = 3
NO_BUFFER = ANY = 0xFFFFFFFF
ALL_TABLES = 0xFF
MULTIPART_FLOW, MULTIPART_PORT = 1, 4

CIRCUIT_PRIORITY, DARK_PRIORITY = 10, 20
CIRCUIT_COOKIE = 0x5259_0001_0000_0000
FORWARD_COOKIE = 0x5259_0002_0000_0000
DARK_COOKIE = 0x5259_0003_0000_0000
EVERY_BIT = 0xFFFF_FFFF_FFFF_FFFF

_HEADER = struct.Struct("!BBHI")
_FLOW_MOD = struct.Struct("!QQBBHHHIIIHH")
_BUNDLE_ADD = struct.Struct("!I2xH")
MATCH_NOTHING = struct.pack("!HH4x", 1, 4)


def dark_cookie(reconfiguration_id: int) -> int:
    return DARK_COOKIE | (reconfiguration_id & 0xFFFFFFFF)


def header(kind: int, xid: int, body_bytes: int) -> bytes:
    return _HEADER.pack(VERSION, kind, 8 + body_bytes, xid)


def barrier(xid: int) -> bytes:
    """A barrier request: its reply confirms that all earlier messages have been executed."""
    return header(TYPE_BARRIER_REQUEST, xid, 0)


@cache
def match_in_port(port: int) -> bytes:
    return struct.pack("!HHII4x", 1, 12, 0x80000004, port)


@cache
def match_in_port_to(port: int, mac: str) -> bytes:
    fields = struct.pack("!II", 0x80000004, port) + struct.pack("!I6s", 0x80000606, bytes.fromhex(mac.replace(":", "")))
    return struct.pack("!HH", 1, 4 + len(fields)) + fields + bytes(-(4 + len(fields)) % 8)


@cache
def match_eth_dst(mac: str) -> bytes:
    return struct.pack("!HHI6s2x", 1, 14, 0x80000606, bytes.fromhex(mac.replace(":", "")))


@cache
def output(port: int) -> bytes:
    return struct.pack("!HH4xHHIH6x", 4, 24, 0, 16, port, 0)


def flow_mod(
    command: int,
    match: bytes,
    instructions: bytes = b"",
    *,
    priority: int = 0,
    cookie: int = 0,
    cookie_mask: int = 0,
    table: int = 0,
) -> bytes:
    head = _FLOW_MOD.pack(cookie, cookie_mask, table, command, 0, 0, priority, NO_BUFFER, ANY, ANY, 0, 0)
    return head + match + instructions


@cache
def circuit_flow(port: int, peer: int) -> bytes:
    return flow_mod(ADD, match_in_port(port), output(peer), priority=CIRCUIT_PRIORITY, cookie=CIRCUIT_COOKIE)


@cache
def rotation_circuit_flow(port: int, peer: int, mac: str) -> bytes:
    """Flow-mod that forwards from ``port`` to ``peer`` only packets to the host at ``peer`` (MAC ``mac``).

    In a rotation hosts hold back packets until the circuit to their destination is up, in a queue per destination (as
    in RotorNet, SIGCOMM'17). The queues of the kernel cannot do that, so such packets are dropped here.
    """
    return flow_mod(ADD, match_in_port_to(port, mac), output(peer), priority=CIRCUIT_PRIORITY, cookie=CIRCUIT_COOKIE)


@cache
def no_circuit_flow(port: int) -> bytes:
    """Flow-mod that removes the circuit flow of ``port``, of either kind."""
    return flow_mod(DELETE, match_in_port(port), cookie=CIRCUIT_COOKIE, cookie_mask=EVERY_BIT)


def dark_flow(port: int, reconfiguration_id: int) -> bytes:
    """Flow-mod that makes ``port`` dark: it drops received packets, whatever circuit it has."""
    cookie = dark_cookie(reconfiguration_id)
    return flow_mod(ADD, match_in_port(port), priority=DARK_PRIORITY, cookie=cookie)


@cache
def unlit_flow() -> bytes:
    """Flow-mod that drops what no circuit leads on.

    Without it Open vSwitch reads such packets, and forwards them for some milliseconds by what it knew last.
    """
    return flow_mod(ADD, MATCH_NOTHING)


@cache
def forward_flow(mac: str, port: int) -> bytes:
    return flow_mod(ADD, match_eth_dst(mac), output(port), priority=CIRCUIT_PRIORITY, cookie=FORWARD_COOKIE)


@cache
def no_forward_flow(mac: str) -> bytes:
    return flow_mod(DELETE_STRICT, match_eth_dst(mac), priority=CIRCUIT_PRIORITY)


@cache
def no_flows() -> bytes:
    return flow_mod(DELETE, MATCH_NOTHING, table=ALL_TABLES)


def bundle(bodies: Iterable[bytes], xid: int) -> bytes:
    """An atomic bundle of flow-mods, executed all at once or not at all, then a barrier request.

    ``xid`` is the id of the bundle and the xid of every message in it, so every reply names its bundle.
    """
    parts = [_bundle_control(BUNDLE_OPEN, xid)]
    add = _BUNDLE_ADD.pack(xid, BUNDLE_ATOMIC_ORDERED)
    for body in bodies:
        inner = 8 + len(body)
        parts += (_HEADER.pack(VERSION, TYPE_BUNDLE_ADD, 16 + inner, xid), add)
        parts += (_HEADER.pack(VERSION, TYPE_FLOW_MOD, inner, xid), body)
    parts += (_bundle_control(BUNDLE_COMMIT, xid), barrier(xid))
    return b"".join(parts)


def _bundle_control(kind: int, xid: int) -> bytes:
    return _HEADER.pack(VERSION, TYPE_BUNDLE_CONTROL, 16, xid) + struct.pack("!IHH", xid, kind, BUNDLE_ATOMIC_ORDERED)


def darken(
    change: Darken, xid: int, macs: Mapping[int, str] | None = None, rotation_ports: Container[int] | None = None
) -> bytes:
    """The bundle that begins a reconfiguration: ports go dark (unless the delay is 0) and get their new circuits.

    Ports that only lose their circuit are left without a flow, so that another reconfiguration may use them at once.
    ``macs`` (of the hosts, by port): circuits of a rotation (``quiet``) carry packets to the host at their end only.
    ``rotation_ports``: the ports that may hold a flow of a rotation (None: all). A plain circuit flow replaces another
    plain one by itself; only a flow of the other kind must be removed first, and each message costs the switch time.
    """
    bodies = []
    for port in sorted(change.ports):
        peer = change.after.peer(port)
        if peer is None or change.quiet or rotation_ports is None or port in rotation_ports:
            bodies.append(no_circuit_flow(port))
        if peer is None:
            continue
        if change.delay_s > 0:
            bodies.append(dark_flow(port, change.reconfiguration_id))
        if change.quiet and macs is not None:
            bodies.append(rotation_circuit_flow(port, peer, macs[peer]))
        else:
            bodies.append(circuit_flow(port, peer))
    return bundle(bodies, xid)


def end_dark(reconfiguration_id: int, xid: int, dark_s: float | None = None) -> bytes:
    """One flow-mod that removes all dark flows of a reconfiguration at once, then a barrier request.

    ``dark_s``: the switch is to keep them until they have lasted so many seconds (``topos.kernel.fastpath.lasting``).
    """
    body = flow_mod(
        DELETE, MATCH_NOTHING, cookie=dark_cookie(reconfiguration_id), cookie_mask=EVERY_BIT, table=ALL_TABLES
    )
    lasts = b"" if dark_s is None else encode(Lasts(xid, dark_cookie(reconfiguration_id), dark_s))
    return lasts + header(TYPE_FLOW_MOD, xid, len(body)) + body + barrier(xid)


def forward(table: Mapping[str, int | None], xid: int) -> bytes:
    """The bundle that changes the output ports of the destinations in ``table`` (MAC -> port; None: removed)."""
    return bundle((no_forward_flow(m) if port is None else forward_flow(m, port) for m, port in table.items()), xid)


def fill(
    switch: SwitchPlan,
    circuits: Iterable[tuple[int, int]],
    xid: int,
    routes: Mapping[str, int] | None = None,
    rotating: Mapping[int, str] | None = None,
) -> bytes:
    """The bundle that replaces all flows of a switch when it joins: forwarding, or circuits in both directions.

    ``routes`` (destination MAC -> port) are the routes of an electrical switch that also leads to hosts of other
    switches. ``rotating`` are the ports whose circuit is of a rotation, with the MAC address of the host.
    """
    bodies = [no_flows()]
    if switch.kind == "electrical":
        table = {port.mac: port.number for port in switch.ports} if routes is None else routes
        bodies += [forward_flow(mac, port) for mac, port in table.items()]
    else:
        bodies.append(unlit_flow())
    macs = rotating or {}
    for pair in circuits:
        for port, peer in (pair, pair[::-1]):
            rotates = peer in macs
            bodies.append(rotation_circuit_flow(port, peer, macs[peer]) if rotates else circuit_flow(port, peer))
    return bundle(bodies, xid)


def flow_stats_request(xid: int) -> bytes:
    """A request for all flows of a switch."""
    body = struct.pack("!H6xB3xII4xQQ", MULTIPART_FLOW, ALL_TABLES, ANY, ANY, 0, 0) + MATCH_NOTHING
    return header(TYPE_MULTIPART_REQUEST, xid, len(body)) + body


def circuits_in(entries: bytes) -> tuple[set[Circuit], set[Circuit]]:
    """The circuits of a switch that are up, and those of dark ports, from the entries of its flow statistics.

    Circuits of a rotation are left out.
    """
    held = [(flow, flow.match.in_port) for flow in flows_in(entries) if flow.match.in_port]
    circuit_flows = [(flow, port) for flow, port in held if flow.cookie == CIRCUIT_COOKIE and flow.whole]
    peers = {port: peer for flow, port in circuit_flows for peer in flow.outputs}  # none where a person made it drop
    dark = {port for flow, port in held if flow.cookie & ~0xFFFFFFFF == DARK_COOKIE}
    circuits = {Circuit(port, peer) for port, peer in peers.items() if peer != port and peers.get(peer) == port}
    out = {circuit for circuit in circuits if dark.intersection(circuit.ports)}
    return circuits - out, out


def port_stats_request(xid: int) -> bytes:
    body = struct.pack("!HH4xI4x", MULTIPART_PORT, 0, ANY)
    return header(TYPE_MULTIPART_REQUEST, xid, len(body)) + body


# ---- flows of any controller --------------------------------------------------------------------------------------

_APPLY, _CLEAR, _METER = 4, 5, 6
_WRITE = 3
_GROUP, _EXPERIMENTER = 22, 0xFFFF
_TO_CONTROLLER, _MOST_PORT = 0xFFFFFFFD, 0xFFFFFF00


class FlowEntry(NamedTuple):
    """A flow of table 0: the ports that it sends to, and whether these are all (``clear``): it uses no group, no other
    table and no reserved port.
    """

    priority: int
    cookie: int
    match: SimpleMatch
    outputs: frozenset[int]
    clear: bool

    @property
    def whole(self) -> bool:
        """Whether it takes all packets of its port."""
        return not self.match.others and self.match.eth_dst is None


def flows_in(entries: bytes) -> list[FlowEntry]:
    """The flows of table 0, highest priority first, from flow statistics (``ValueError`` if these are cut short)."""
    found, at = [], 0
    while at < len(entries):
        length, table = struct.unpack_from("!HB", entries, at) if len(entries) - at >= 56 else (0, 0)
        if not 56 <= length <= len(entries) - at:
            raise ValueError("a flow of a switch is shorter than its header")
        if table == 0:
            found.append(_flow(entries[at : at + length]))
        at += length
    return sorted(found, key=lambda flow: -flow.priority)


def _flow(entry: bytes) -> FlowEntry:
    priority, cookie, match_bytes = struct.unpack_from("!12xH10xQ18xH", entry)
    outputs: set[int] = set()
    clear = True
    for kind, body in _elements(entry, 48 + (match_bytes + 7) // 8 * 8):
        if kind not in (_APPLY, _WRITE):
            clear &= kind in (_CLEAR, _METER)
            continue
        for action, fields in _elements(body, 8):
            port = int.from_bytes(fields[4:8], "big")
            if action == 0 and port <= _MOST_PORT:
                outputs.add(port)
            elif action in (_GROUP, _EXPERIMENTER) or (action == 0 and port != _TO_CONTROLLER):
                clear = False
    return FlowEntry(priority, cookie, read_match(entry[48 : 48 + match_bytes]), frozenset(outputs), clear)


def _elements(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """The instructions or actions from ``at`` on, by kind; ``ValueError`` for one that is too short."""
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("!HH", data, at)
        if length < 8:
            raise ValueError("an instruction or an action of a flow is shorter than its header")
        yield kind, data[at : at + length]
        at += length


def leads(found: Iterable[FlowEntry], port: int, peer: int) -> bool | None:
    """Whether the flows send packets from ``port`` out of ``peer``; None if they do not tell."""
    for flow in found:
        if flow.match.in_port not in (None, port):
            continue
        if peer in flow.outputs:
            return True
        if not flow.clear:
            return None
        if flow.whole:
            return False
    return False
