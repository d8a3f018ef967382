"""What a run says of a controller of the user's own: which circuits it did not install, and who ended a connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from experiments.remote_controller import leads, needed_circuits
from topos import describe
from topos.kernel.relay import Relay
from topos.rails import RailTopo
from workloads.program import Group

HEAD = " cookie=0x0, duration=7.1s, table=0, n_packets=3, n_bytes=30, reset_counts "


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        ("priority=10,in_port=2 actions=output:3", True),
        ("in_port=2 actions=output:4,output:3", True),
        ("in_port=2,dl_dst=02:00:00:00:00:01 actions=output:3", True),
        ("priority=0 actions=output:3", True),
        ("in_port=2 actions=group:7", True),
        ("priority=0 actions=NORMAL", True),
        ("in_port=2 actions=output:33", False),
        ("in_port=22 actions=output:3", False),
        ("in_port=3 actions=output:2", False),
        ("in_port=2 actions=drop", False),
        ("priority=0 actions=CONTROLLER:65535", False),
    ],
)
def test_which_flows_may_lead_from_port_2_to_port_3(flow: str, expected: bool) -> None:
    assert leads(f"OFPST_FLOW reply (OF1.4) (xid=0x2):\n{HEAD}{flow}\n", 2, 3) is expected


def test_the_circuits_that_groups_use_without_a_request() -> None:
    plan = describe.plan(RailTopo(servers=4, gpus=1, fabric="ocs", ports=2))
    chain = [Group("a", "pp", (0, 1), "scale-out"), Group("b", "pp", (2, 3), "scale-out")]
    inside = Group("c", "tp", (0, 1), "scale-up")
    found = [(name, *sorted(circuit.ports)) for name, circuit in needed_circuits(plan, [*chain, inside], {0, 1, 2, 3})]
    assert found == [("rail0", 2, 3), ("rail0", 6, 7)]
    assert [name for name, _ in needed_circuits(plan, chain, {3})] == ["rail0"]
    assert not list(needed_circuits(plan, chain, set()))


@pytest.fixture
def ends() -> Iterator[tuple[Relay, list[str], socket.socket, socket.socket]]:
    """A relay, what it said, and the ends of a connection through it: of a switch and of a controller."""
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_server(("127.0.0.1", 0)) as there:
        there.settimeout(5.0)
        relay = Relay(here, lambda: socket.create_connection(there.getsockname()), lambda: said.append("left"))
        with relay, socket.create_connection(here.getsockname()) as switch, there.accept()[0] as controller:
            switch.sendall(b"hello")
            assert controller.recv(10) == b"hello"
            yield relay, said, switch, controller


@pytest.mark.parametrize("who", ["controller", "switch", "relay"])
def test_a_relay_tells_of_the_end_of_its_far_side_alone(
    ends: tuple[Relay, list[str], socket.socket, socket.socket], who: str
) -> None:
    relay, said, switch, controller = ends
    assert relay.relays
    by_name: dict[str, Relay | socket.socket] = {"controller": controller, "switch": switch, "relay": relay}
    by_name[who].close()
    other = controller if who == "switch" else switch
    other.settimeout(5.0)
    assert other.recv(10) == b""
    end = time.monotonic() + 0.2
    while (relay.relays or not said) and time.monotonic() < end:
        time.sleep(0.01)
    assert said == (["left"] if who == "controller" else [])
    assert not relay.relays
