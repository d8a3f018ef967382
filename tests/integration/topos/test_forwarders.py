from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

import pytest
from fast_path.yard import FRAME, PORTS, QUIET_S, Yard, frame, mac

from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.mirred_forwarder import MirredForwarder
from topos.kernel.fastpath.rules import DROP, OUT, TO_OVS, Counts, Forwarder, PortRules, Rule
from topos.kernel.netlink import link_down, link_up

pytestmark = pytest.mark.root
WAYS: dict[str, Callable[[int, int], Forwarder]] = {"bpf": BpfForwarder, "mirred": lambda fd, _: MirredForwarder(fd)}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(params=WAYS)
def yard(request: pytest.FixtureRequest) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(stack, WAYS[request.param])


@pytest.mark.beside
def test_without_rules_every_packet_goes_up_and_what_comes_down_goes_out(yard: Yard) -> None:
    assert yard.reaches(1, to=2) == {"tap 1"}
    yard.taps[3].write(frame(to=1))
    assert yard.arrivals() == {"host 3"}
    assert yard.forwarder.port_counts("s")[1].received == Counts()


@pytest.mark.beside
def test_forward_drop_and_up_again(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2)), 2: PortRules(Rule(DROP))})
    assert yard.reaches(1, to=3) == {"host 2"}
    assert yard.reaches(2, to=1) == set()
    assert yard.reaches(3, to=1) == {"tap 3"}, "ports that are not named stay"
    yard.forwarder.set("s", {1: PortRules(), 2: PortRules(Rule(OUT, 1))})
    assert yard.reaches(1, to=3) == {"tap 1"}
    assert yard.reaches(2, to=3) == {"host 1"}


@pytest.mark.beside
def test_destinations_go_before_the_rest(yard: Yard) -> None:
    to = {mac(3): Rule(OUT, 3), mac(4): Rule(DROP), bytes.fromhex("ffffffffffff"): TO_OVS}
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2), to)})
    assert yard.reaches(1, to=3) == {"host 3"}
    assert yard.reaches(1, to=4) == set()
    assert yard.reaches(1, to=2) == {"host 2"}
    yard.wires[1].send(b"\xff" * 6 + frame(0)[6:])
    assert yard.arrivals(1) == {"tap 1"}
    yard.forwarder.set("s", {1: PortRules(Rule(DROP), {mac(4): Rule(OUT, 4), mac(2): Rule(OUT, 2)})})
    assert yard.reaches(1, to=4) == {"host 4"}
    assert yard.reaches(1, to=2) == {"host 2"}
    assert yard.reaches(1, to=3) == set()


@pytest.mark.beside
def test_ports_share_a_table_and_none_sends_back_what_it_received(yard: Yard) -> None:
    to = {mac(n): Rule(OUT, n) for n in yard.numbers}
    yard.forwarder.set("s", {n: PortRules(Rule(DROP), to) for n in yard.numbers})
    for sender in yard.numbers:
        for target in yard.numbers:
            assert yard.reaches(sender, target) == ({f"host {target}"} if target != sender else set())
    counts = yard.forwarder.port_counts("s")
    assert all(counts[n].received == Counts(PORTS, PORTS * FRAME) for n in yard.numbers)
    assert all(counts[n].sent == Counts(PORTS - 1, (PORTS - 1) * FRAME) for n in yard.numbers)
    assert yard.received(1) == PORTS - 1


@pytest.mark.beside
def test_counts_of_flows_and_ports_survive_changes(yard: Yard) -> None:
    forwarder = yard.forwarder
    first, second, dark = (forwarder.new_flow() for _ in range(3))
    assert len({first, second, dark, 0}) == 4

    def send(count: int, to: int) -> None:
        for _ in range(count):
            yard.wires[1].send(frame(to))
        yard.arrivals(1)

    forwarder.set("s", {1: PortRules(Rule(DROP, 0, dark), {mac(2): Rule(OUT, 2, first), mac(3): Rule(OUT, 3, first)})})
    send(5, 2)
    send(3, 3)
    send(2, 4)
    assert forwarder.flow_counts(first) == Counts(8, 8 * FRAME)
    assert forwarder.flow_counts(dark) == Counts(2, 2 * FRAME)
    forwarder.set("s", {1: PortRules(Rule(OUT, 4, second), {mac(2): Rule(OUT, 3, second)})})
    assert forwarder.flow_counts(first) == Counts(8, 8 * FRAME)
    send(1, 2)
    send(1, 3)
    assert forwarder.flow_counts(second) == Counts(2, 2 * FRAME)
    forwarder.set("s", {1: PortRules()})
    send(1, 2)
    counts = forwarder.port_counts("s")
    assert counts[1].received.packets == 12 and counts[1].dark == Counts(2, 2 * FRAME)
    assert [counts[n].sent.packets for n in (2, 3, 4)] == [5, 4, 1]
    forwarder.free_flow(first)
    again = forwarder.new_flow()
    assert forwarder.flow_counts(again) == Counts() and forwarder.flow_counts(0) == Counts()


@pytest.mark.beside
def test_rules_change_under_load_without_a_gap(yard: Yard) -> None:
    """Each frame comes out once, where its old or its new rule sends it; none goes up, and none is lost."""
    forwarder, frames = yard.forwarder, 30_000
    flows = [forwarder.new_flow() for _ in range(2)]
    ways = [
        PortRules(Rule(OUT, 2, flows[0])),
        PortRules(Rule(OUT, 2, flows[0]), {mac(4): Rule(OUT, 3, flows[1])}),
        PortRules(Rule(OUT, 3, flows[1])),
        PortRules(Rule(OUT, 3, flows[1]), {mac(4): Rule(OUT, 2, flows[0]), mac(1): Rule(DROP)}),
    ]
    forwarder.set("s", {1: ways[0]})
    sender = yard.wires[1]
    sender.setblocking(True)

    def send() -> None:
        for number in range(frames):
            sender.send(frame(4, number))

    before = {n: yard.received(n) for n in yard.numbers}
    thread = threading.Thread(target=send)
    thread.start()
    changes = 0
    while thread.is_alive():
        changes += 1
        forwarder.set("s", {1: ways[changes % len(ways)]})
    thread.join()
    time.sleep(QUIET_S)
    arrived = {n: yard.received(n) - before[n] for n in yard.numbers}
    counts = forwarder.port_counts("s")
    assert changes > 20
    assert arrived[2] and arrived[3] and arrived[2] + arrived[3] == frames
    assert not select.select(list(yard.taps.values()), [], [], 0)[0], "a frame went up"
    if isinstance(forwarder, BpfForwarder):
        assert counts[1].received.packets == frames and counts[2].sent.packets == arrived[2]
    assert 0.9 * frames <= counts[1].received.packets <= frames, "lost are packets of filters that end"
    assert counts[2].sent.packets + counts[3].sent.packets == counts[1].received.packets
    assert sum(forwarder.flow_counts(flow).packets for flow in flows) == counts[1].received.packets
    assert abs(counts[2].sent.packets - arrived[2]) <= frames // 20, "more than between changes and their reports"


@pytest.mark.beside
def test_a_link_that_is_down_gets_nothing_and_works_again_afterwards(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2))})
    yard.kernel.run([link_down(1002, "v2")])
    yard.wires[1].send(frame(2))
    yard.kernel.run([link_up(1002, "v2")])
    with pytest.raises(BlockingIOError):
        yard.wires[2].recv(2048)
    assert yard.reaches(1, to=2) == {"host 2"}


@pytest.mark.beside
@every_way
def test_descriptors_are_given_back(way: str) -> None:
    open_before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        Yard(stack, WAYS[way])
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.timed
@every_way
def test_64_ports_change_in_less_than_a_millisecond(way: str) -> None:
    with ExitStack() as stack:
        yard = Yard(stack, WAYS[way], 64)
        taken = []
        for shift in range(1, 41):
            rules = {n: PortRules(Rule(OUT, (n - 1 + shift) % 64 + 1)) for n in yard.numbers}
            start = time.perf_counter()
            yard.forwarder.set("s", rules)
            taken.append(time.perf_counter() - start)
    assert median(taken) < 1e-3
