"""The same flows and the same packets on bridges whose packets are forwarded in different ways."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from mininet.topo import SingleSwitchTopo
from openflow.decoding import connection, counts
from openflow.switch_client import SwitchClient

from topos.kernel import namespaces
from topos.kernel.emulation import Emulation
from topos.kernel.fastpath.offload import Forwarding

OFPROTO, PARSER = connection("1.4").ofproto, connection("1.4").ofproto_parser
ETHERTYPES = (0x88B5, 0x88B6)
Message = tuple[str, dict[str, Any]]
"""A message by its class in the framework's parser, and the arguments."""
MAGIC = b"twin"
MARK = "02:ff:00:00:00:01"
"""Frames to this address come to the client from every port, behind all frames that Open vSwitch got there before."""
_ALL_PROTOCOLS = 0x0003
_OUTGOING = 4
_SOL_PACKET, _PACKET_AUXDATA, _TAGGED = 263, 8, 1 << 4
"""The kernel takes the VLAN tag out of a frame and hands it over beside it (struct tpacket_auxdata)."""
_PATIENCE_S = 4.0
_STRAYS_S = 0.01
_CONFIGURED_S = 0.05
"""Open vSwitch alone obeys a new configuration of a port some milliseconds after the barrier's reply."""


def flow(table: int, priority: int, match: Mapping[str, Any], instructions: Sequence[Any], **more: Any) -> Message:
    """A flow-mod, which adds a flow unless ``more`` has another ``command``."""
    asked = {"table_id": table, "priority": priority, "match": PARSER.OFPMatch(**match), "instructions": instructions}
    return "OFPFlowMod", asked | {"out_port": OFPROTO.OFPP_ANY, "out_group": OFPROTO.OFPG_ANY} | more


EMPTY = flow(OFPROTO.OFPTT_ALL, 0, {}, [], command=OFPROTO.OFPFC_DELETE)
"""Removes every flow of every table."""


def frame(tag: int, to: str, sender: str, ethertype: int, length: int = 60, vlan: int | None = None) -> bytes:
    """A frame that only these tests send, of at least 22 bytes; with ``vlan``, a tag of 4 bytes comes on top."""
    head = bytes.fromhex((to + sender).replace(":", ""))
    if vlan is not None:
        head, length = head + struct.pack("!HH", 0x8100, vlan), length + 4
    return (head + struct.pack("!H", ethertype) + MAGIC + struct.pack("!I", tag)).ljust(length, b"\0")


class Twin:
    """One bridge with ``hosts`` ports, and a raw socket on the far end of each."""

    def __init__(self, net: Emulation, stack: ExitStack) -> None:
        self.net = net
        self.client = stack.enter_context(SwitchClient(net, "s1"))
        self.sockets: dict[int, socket.socket] = {}
        for number, host in enumerate(net.hosts, 1):
            with namespaces.inside(net.netns_fd(host.name)):
                sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
                sock.bind((f"{host.name}-eth0", _ALL_PROTOCOLS))
            sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
            sock.setblocking(False)
            self.sockets[number] = stack.enter_context(sock)
        self.arrived: Counter[tuple[int, int, bytes]] = Counter()
        self._addresses: dict[int, str] = {}
        self.marks: Counter[int] = Counter()
        self.packets_in: Counter[tuple[int, int, int, bytes]] = Counter()

    def collect(self, seconds: float = 0.0) -> bool:
        """Take what came out of the ports and to the client; whether anything came within ``seconds``."""
        found = False
        while ready := select.select(list(self.sockets.values()), [], [], 0 if found else seconds)[0]:
            for number, sock in self.sockets.items():
                if sock in ready:
                    data, more, _, address = sock.recvmsg(4096, 64)
                    if address[2] != _OUTGOING and data[14:18] == MAGIC:
                        status, tag = struct.unpack_from("=I12xH", more[0][2]) if more else (0, 0)
                        self.arrived[number, tag if status & _TAGGED else -1, data] += 1
                        found = True
        self.client.read()
        for message in self.client.packets_in:
            if bytes.fromhex(MARK.replace(":", "")) == message.data[:6]:
                self.marks[message.match["in_port"]] += 1
            else:
                self.packets_in[message.match["in_port"], message.table_id, message.reason, message.data] += 1
            found = True
        self.client.packets_in.clear()
        return found

    def configure(self, port: int, configuration: int, mask: int) -> None:
        """Set the bits ``mask`` of a port's configuration (OFPPC_...)."""
        if port not in self._addresses:
            ports = self.client.ask(PARSER.OFPPortDescStatsRequest(self.client.link, 0))
            self._addresses = {described.port_no: described.hw_addr for described in ports}
        self.client.send(PARSER.OFPPortMod(self.client.link, port, self._addresses[port], configuration, mask))

    def forget_caches(self) -> None:
        """Empty the caches of Open vSwitch, which follow a change of the tables later, and collect their counts."""
        appctl(self.net, "revalidator/purge")

    def flow_counts(self) -> dict[tuple[int, int, str], tuple[int, int]]:
        """Packets and bytes of each flow, by table, priority and match."""
        ofproto, parser = self.client.ofproto, self.client.parser
        everything = 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, 0, 0, parser.OFPMatch()
        flows = self.client.ask(parser.OFPFlowStatsRequest(self.client.link, *everything))
        return {(flow.table_id, flow.priority, str(sorted(flow.match.items()))): counts(flow) for flow in flows}

    def aggregate(self, **asked: Any) -> tuple[int, int, int]:
        """Packets, bytes and number of the flows that an aggregate request selects."""
        filled = {"table_id": OFPROTO.OFPTT_ALL, "out_port": OFPROTO.OFPP_ANY, "cookie": 0, "cookie_mask": 0} | asked
        request = PARSER.OFPAggregateStatsRequest(self.client.link, 0, out_group=OFPROTO.OFPG_ANY, **filled)
        found = self.client.ask(request)
        return (*counts(found), found.flow_count)

    def port_counts(self) -> dict[int, tuple[int, int, int, int]]:
        """Packets and bytes received and sent by each port."""
        ofproto, parser = self.client.ofproto, self.client.parser
        ports = self.client.ask(parser.OFPPortStatsRequest(self.client.link, 0, ofproto.OFPP_ANY))
        return {
            port.port_no: (port.rx_packets, port.rx_bytes, port.tx_packets, port.tx_bytes)
            for port in ports
            if port.port_no in self.sockets
        }

    def table_counts(self) -> list[tuple[int, int]]:
        """Lookups and matches of tables 0 and 1."""
        tables = self.client.ask(self.client.parser.OFPTableStatsRequest(self.client.link, 0))
        return [(table.lookup_count, table.matched_count) for table in tables[:2]]


def appctl(net: Emulation, command: str, *arguments: str) -> str:
    """Have ovs-vswitchd carry out a command of ``ovs-appctl``."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(10)
        control.connect(f"{net.run.path}/ovs-vswitchd.{net.yard.pids['ovs-vswitchd']}.ctl")
        control.sendall(json.dumps({"id": 0, "method": command, "params": arguments}).encode())
        answer = json.loads(control.recv(1 << 16))
    assert answer["error"] is None, answer
    return str(answer["result"])


class Twins:
    """Several bridges that are told the same and get the same."""

    def __init__(self, twins: Sequence[Twin]) -> None:
        self.twins = twins
        self._configured: dict[int, int] = {}

    def tell(self, *messages: Message, bundled: bool = False) -> None:
        """Send messages, in a bundle if ``bundled``, and wait for the barrier's reply."""
        for twin in self.twins:
            client = twin.client
            if bundled:
                client.bundle(messages)
            else:
                client.send(*(getattr(client.parser, name)(client.link, **arguments) for name, arguments in messages))
        for twin in self.twins:
            twin.client.barrier()
            twin.forget_caches()

    def configure(self, configurations: Mapping[int, int], mask: int) -> None:
        """Set the bits ``mask`` of the configuration of ports, those that are not named have none of them."""
        if configurations == self._configured:
            return
        self._configured = dict(configurations)
        for twin in self.twins:
            for port in twin.sockets:
                twin.configure(port, configurations.get(port, 0), mask)
        for twin in self.twins:
            twin.client.barrier()
        time.sleep(_CONFIGURED_S)

    def pour(self, packets: Iterable[tuple[int, bytes]]) -> None:
        """Send each (port, frame) to every bridge, and return when all have come out where they come out."""
        packets = list(packets)
        deaf = {port for port, bits in self._configured.items() if bits & OFPROTO.OFPPC_NO_RECV}
        for twin in self.twins:
            twin.marks.clear()
            for number, data in packets:
                twin.sockets[number].send(data)
            for sock in twin.sockets.values():
                sock.send(frame(0, MARK, "02:00:00:00:00:00", ETHERTYPES[0]))
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            for twin in self.twins:
                twin.collect()
            marked = all(set(twin.sockets) - deaf <= set(twin.marks) for twin in self.twins)
            if marked and self.agree() and not any(twin.collect(_STRAYS_S) for twin in self.twins):
                return
            time.sleep(0.001)

    def agree(self) -> bool:
        """Whether the same frames have come out of the same ports and to the client."""
        first = self.twins[0]
        return all(t.arrived == first.arrived and t.packets_in == first.packets_in for t in self.twins)

    def forget(self) -> None:
        """Begin anew."""
        for twin in self.twins:
            twin.collect(_STRAYS_S)
            for counter in (twin.arrived, twin.marks, twin.packets_in):
                counter.clear()


@contextmanager
def twins(*datapaths: Forwarding, ports: int = 4) -> Iterator[Twins]:
    """A bridge for each of ``datapaths``, with ``ports`` hosts and no flows."""
    with ExitStack() as stack:
        nets = [stack.enter_context(Emulation(SingleSwitchTopo(ports), openflow=None, datapath=d)) for d in datapaths]
        made = Twins([Twin(net, stack) for net in nets])
        made.tell(EMPTY)  # a bridge without a controller begins as a plain Ethernet switch
        yield made
