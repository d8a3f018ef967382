from __future__ import annotations

import struct

import pytest
from openflow.decoding import encode
from openflow.twins import ETHERTYPES, Twin, flow, frame, twins

pytestmark = [pytest.mark.root, pytest.mark.beside]

FLOWS, ROUNDS = 2_000, 6
UNUSED, TO, FROM = "02:00:00:00:{:02x}:{:02x}", "02:00:00:00:ff:02", "02:00:00:00:ff:01"


def mods(twin: Twin, way: int) -> bytes:
    """Flow-mods that change flows which no packet meets, and then that of port 1, which sends to port ``way``."""
    parser, link = twin.client.parser, twin.client.link

    def encoded(priority: int, match: dict[str, object], port: int) -> bytes:
        apply = parser.OFPInstructionActions(4, [parser.OFPActionOutput(port)])
        name, arguments = flow(0, priority, match, [apply])
        return encode(getattr(parser, name)(link, **arguments), 1)

    unused = (encoded(5, {"eth_dst": UNUSED.format(*divmod(n, 256))}, way) for n in range(FLOWS))
    return b"".join(unused) + encoded(9, {"in_port": 1}, way)


def test_a_barrier_behind_more_changes_than_a_socket_takes() -> None:
    """A flow monitor's socket takes 278 short updates; those behind them reach the fast path after the barrier's reply.

    The first packet after the reply goes by the last flow-mod before the barrier, and nothing goes the old way.
    """
    with twins("bpf", ports=3) as made:
        (twin,) = made.twins
        ways = {way: mods(twin, way) for way in (2, 3)}
        for number in range(ROUNDS):
            way = 2 + number % 2
            twin.client._socket.sendall(ways[way])
            twin.client.barrier()
            twin.sockets[1].send(frame(number, TO, FROM, ETHERTYPES[0]))
            twin.collect(1.0)
            twin.collect(0.02)
            tags = {port: struct.unpack_from("!I", data, 18)[0] for port, _, data in twin.arrived}
            assert tags == {way: number}, f"round {number}"
            twin.arrived.clear()
