"""What clients are told: by ``ovs-ofctl`` and by flow-removed messages. Nothing may be missing.

Each test runs on every datapath; on Open vSwitch alone it shows that the test asks for what Open vSwitch says.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from openflow.decoding import counts
from openflow.switch_client import SwitchClient
from openflow.twins import ETHERTYPES, Twin, frame, twins

pytestmark = [pytest.mark.root, pytest.mark.beside]

DATAPATHS = ["ovs", "bpf"]
ONE, TWO, SENDER = "02:00:00:00:00:01", "02:00:00:00:00:02", "0a:00:00:00:00:01"
PROTOCOLS = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"]
PATIENCE_S = 5.0


@pytest.fixture(scope="module", params=DATAPATHS)
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    with twins(request.param) as made:
        made.twins[0].net["s1"].cmd("ovs-vsctl set Open_vSwitch . other_config:max-revalidator=100")
        yield made.twins[0]


def ofctl(twin: Twin, command: str, *arguments: str, protocol: str = "") -> str:
    """What ``ovs-ofctl`` prints in the shell of the switch."""
    words = ["ovs-ofctl", *(["-O", protocol] if protocol else []), command, "s1", *(f"'{a}'" for a in arguments)]
    return str(twin.net["s1"].cmd(" ".join(words)))


def comes(found: Callable[[], object], expected: object) -> None:
    """Wait until what is found is what is expected: Open vSwitch collects its counts now and then."""
    end = time.monotonic() + PATIENCE_S
    while found() != expected and time.monotonic() < end:
        time.sleep(0.05)
    assert found() == expected


def pour(twin: Twin, port: int, count: int, length: int, to: str) -> None:
    for tag in range(count):
        twin.sockets[port].send(frame(tag, to, SENDER, ETHERTYPES[0], length))


def numbers(pattern: str, text: str) -> list[tuple[int, ...]]:
    """What each match of ``pattern`` has in its groups."""
    return [tuple(map(int, found)) for found in re.findall(pattern, text)]


def told(twin: Twin) -> list[tuple[int, ...]]:
    """The counts of the flows as clients are told."""
    return numbers(r"n_packets=(\d+), n_bytes=(\d+)", ofctl(twin, "dump-flows"))


def itself(twin: Twin) -> list[tuple[int, ...]]:
    """The counts of the flows as Open vSwitch itself has them."""
    own = twin.net.run.path / ("" if twin.net.datapath == "ovs" else "ovs") / "s1.mgmt"
    text = subprocess.run(["ovs-ofctl", "dump-flows", f"unix:{own}"], capture_output=True, text=True, check=True).stdout
    return numbers(r"n_packets=(\d+), n_bytes=(\d+)", text)


def test_by_hand(twin: Twin) -> None:
    ports = {port: twin.port_counts()[port] for port in (1, 2)}
    tables = twin.table_counts()[0]
    for flow in (
        "cookie=0x5,priority=5,in_port=1,actions=output:2",
        f"cookie=0x6,priority=6,in_port=1,dl_dst={TWO},actions=drop",
        f"cookie=0x7,priority=4,in_port=1,dl_src={TWO},actions=drop",
    ):
        assert ofctl(twin, "add-flow", flow) == ""
    pour(twin, 1, 7, 100, ONE)
    pour(twin, 1, 3, 200, TWO)
    pour(twin, 3, 2, 60, ONE)  # no flow
    comes(lambda: sum(packets for packets, _ in itself(twin)), 10 if twin.net.datapath == "ovs" else 0)
    for protocol in ("", *PROTOCOLS):

        def aggregate(asked: str = "", protocol: str = protocol) -> list[tuple[int, ...]]:
            text = ofctl(twin, "dump-aggregate", *([asked] if asked else []), protocol=protocol)
            return numbers(r"packet_count=(\d+) byte_count=(\d+) flow_count=(\d+)", text)

        def flows(protocol: str = protocol) -> list[tuple[int, ...]]:
            text = ofctl(twin, "dump-flows", protocol=protocol)
            return sorted(numbers(r"n_packets=(\d+), n_bytes=(\d+),.* priority=(\d+)", text))

        def table(protocol: str = protocol) -> tuple[int, int]:
            (lookups, matched), *_ = numbers(
                r"lookup=(\d+), matched=(\d+)", ofctl(twin, "dump-tables", protocol=protocol)
            )
            return lookups - tables[0], matched - tables[1]

        comes(table, (12, 10))
        comes(flows, [(0, 0, 4), (3, 600, 6), (7, 700, 5)])
        assert aggregate() == [(10, 1300, 3)]
        assert aggregate("in_port=1") == [(10, 1300, 3)]
        assert aggregate(f"dl_dst={TWO}") == [(3, 600, 1)]
        assert aggregate("out_port=2") == [(7, 700, 1)]
        if protocol != "OpenFlow10":
            assert aggregate("cookie=0x5/0xf") == [(7, 700, 1)]
        text = ofctl(twin, "dump-ports", protocol=protocol)
        received = numbers(r"port +\"?[a-z0-9-]*?(\d+)\"?: rx pkts=(\d+), bytes=(\d+)", text)
        sent = numbers(r"tx pkts=(\d+), bytes=(\d+)", text)
        by_port = {port: (packets, size) for port, packets, size in received}
        first, second = ports[1], ports[2]
        assert by_port[1] == (first[0] + 10, first[1] + 1300)
        assert (second[2] + 7, second[3] + 700) in sent
        names = re.findall(
            r"(\d+)\((s1-eth\d+)\)", ofctl(twin, "show", protocol=protocol) + ofctl(twin, "dump-ports-desc")
        )
        assert set(names) == {(str(port), f"s1-eth{port}") for port in twin.sockets}
    ofctl(twin, "del-flows")


def test_flow_removed_messages_have_the_counts(twin: Twin) -> None:
    """Of a flow that is deleted and of one whose time is over, to every client; then neither forwards any more."""
    with ExitStack() as stack:
        clients = [stack.enter_context(SwitchClient(twin.net, "s1", version)) for version in ("1.0", "1.3", "1.5")]
        for flow in (
            "cookie=1,priority=5,in_port=1,send_flow_rem,actions=output:2",
            f"cookie=2,priority=5,in_port=2,dl_dst={ONE},send_flow_rem,hard_timeout=1,actions=output:1",
        ):
            assert ofctl(twin, "add-flow", flow) == ""
        pour(twin, 1, 7, 100, ONE)
        pour(twin, 2, 3, 200, ONE)
        time.sleep(0.1)
        twin.forget_caches()  # Open vSwitch does not count for a deleted flow what it has not collected yet
        ofctl(twin, "del-flows", "in_port=1")
        for client in clients:
            end = time.monotonic() + PATIENCE_S
            while len(client.removed) < 2 and time.monotonic() < end:
                client.read(0.1)
            assert {(m.cookie, *counts(m)) for m in client.removed} == {(1, 7, 700), (2, 3, 600)}
    while twin.collect(0.05):
        twin.arrived.clear()
    pour(twin, 1, 5, 100, ONE)
    pour(twin, 2, 5, 100, ONE)
    assert not twin.collect(0.1)
    twin.forget_caches()  # or Open vSwitch counts these packets for the next flow that they fit


def test_a_flow_that_replaces_another_begins_with_its_counts_or_at_zero(twin: Twin) -> None:
    for command, flow, packets, counted in (
        ("add-flow", "priority=5,in_port=1,actions=output:2", 7, 7),
        ("mod-flows", "in_port=1,actions=output:3", 2, 9),
        ("mod-flows", "in_port=1,actions=output:3,output:2", 2, 11),
        ("add-flow", "priority=5,in_port=1,actions=output:4", 1, 12),
        ("add-flow", "reset_counts,priority=5,in_port=1,actions=output:4", 1, 1),
    ):
        assert ofctl(twin, command, flow, protocol="OpenFlow14") == ""
        pour(twin, 1, packets, 100, ONE)
        comes(partial(told, twin), [(counted, 100 * counted)])
    ofctl(twin, "del-flows")


def test_a_bundle_that_is_refused_sets_no_counts_to_zero(twin: Twin, tmp_path: Path) -> None:
    flows, found = tmp_path / "flows", partial(told, twin)
    assert ofctl(twin, "add-flow", "in_port=1,actions=output:2", protocol="OpenFlow14") == ""
    pour(twin, 1, 7, 100, ONE)
    comes(found, [(7, 700)])
    zero = "modify reset_counts in_port=1,actions=output:2\n"
    flows.write_text(f"{zero}add in_port=3,actions=group:77\n")
    said = ofctl(twin, "--bundle add-flows", str(flows), protocol="OpenFlow14")
    assert "OFPBAC_BAD_OUT_GROUP" in said and found() == [(7, 700)]
    flows.write_text(zero)
    assert ofctl(twin, "--bundle add-flows", str(flows), protocol="OpenFlow14") == ""
    pour(twin, 1, 1, 100, ONE)
    comes(found, [(1, 100)])
    ofctl(twin, "del-flows")
