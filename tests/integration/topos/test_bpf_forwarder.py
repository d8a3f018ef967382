from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import pytest
from fast_path.yard import FRAME, PORTS, QUIET_S, Yard, frame, mac

from railyard.errors import MachineError
from topos.kernel.fastpath import bpf_forwarder
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.program import Map
from topos.kernel.fastpath.rules import DROP, OUT, Counts, PortRules, Rule
from topos.kernel.netlink import link_down, link_up

pytestmark = pytest.mark.root


@pytest.fixture
def yard() -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(stack, BpfForwarder)


@pytest.fixture
def narrow_yard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """The map of rules by destination has room for two tables."""
    monkeypatch.setattr(bpf_forwarder, "_MOST_TABLE_ENTRIES", 2 * PORTS)
    with ExitStack() as stack:
        yield Yard(stack, BpfForwarder)


@pytest.mark.beside
def test_without_rules_every_packet_goes_up_and_what_comes_down_goes_out(yard: Yard) -> None:
    assert yard.reaches(1, to=2) == {"tap 1"}
    yard.taps[3].write(frame(to=1))
    assert yard.arrivals() == {"host 3"}
    assert yard.forwarder.port_counts("s")[1].received == Counts()


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
    assert counts[1].received.packets == frames
    assert [counts[n].sent.packets for n in (2, 3)] == [arrived[2], arrived[3]]
    assert sum(forwarder.flow_counts(flow).packets for flow in flows) == frames


@pytest.mark.beside
def test_a_link_that_is_down_gets_nothing_and_works_again_afterwards(yard: Yard) -> None:
    yard.forwarder.set("s", {1: PortRules(Rule(OUT, 2))})
    yard.kernel.run([link_down(1002, "v2")])
    yard.wires[1].send(frame(2))
    yard.kernel.run([link_up(1002, "v2")])
    with pytest.raises(BlockingIOError):
        yard.wires[2].recv(2048)
    assert yard.reaches(1, to=2) == {"host 2"}


@pytest.mark.timed
def test_64_ports_change_in_less_than_a_millisecond() -> None:
    with ExitStack() as stack:
        yard = Yard(stack, BpfForwarder, 64)
        taken = []
        for shift in range(1, 41):
            rules = {n: PortRules(Rule(OUT, (n - 1 + shift) % 64 + 1)) for n in yard.numbers}
            start = time.perf_counter()
            yard.forwarder.set("s", rules)
            taken.append(time.perf_counter() - start)
    assert median(taken) < 1e-3


def table(yard: Yard, shift: int) -> dict[bytes, Rule]:
    return {mac(n): Rule(OUT, (n - 1 + shift) % PORTS + 1) for n in yard.numbers}


@pytest.mark.beside
def test_ports_with_one_table_have_it_once_in_the_kernel(narrow_yard: Yard) -> None:
    yard = narrow_yard
    shared = table(yard, 0)
    for shift in (1, 2, 1, 0):
        changed = table(yard, shift)
        yard.forwarder.set("s", {n: PortRules(Rule(DROP), shared) for n in yard.numbers})
        yard.forwarder.set("s", {n: PortRules(Rule(DROP), changed) for n in yard.numbers})
        shared = changed
    assert yard.reaches(1, to=3) == {"host 3"} and yard.reaches(1, to=1) == set()
    with pytest.raises(MachineError, match="adding to the map tables"):
        yard.forwarder.set("s", {n: PortRules(Rule(DROP), table(yard, 1)) for n in yard.numbers})
    assert yard.reaches(2, to=4) == {"host 4"}


@pytest.mark.beside
def test_every_processor_counts_for_itself_and_the_sum_is_told(yard: Yard) -> None:
    forwarder = yard.forwarder
    assert isinstance(forwarder, BpfForwarder)
    flow = forwarder.new_flow()
    forwarder.set("s", {1: PortRules(Rule(OUT, 2, flow))})
    processors = os.sched_getaffinity(0)
    try:
        for processor in processors:
            os.sched_setaffinity(0, {processor})
            for _ in range(5):
                yard.wires[1].send(frame(2))
            assert yard.arrivals(1) == {"host 2"}
    finally:
        os.sched_setaffinity(0, processors)
    words = forwarder._maps[Map.FLOWS].words
    counted = {processor: words[2 * (processor * forwarder._flows + flow)] for processor in processors}
    assert counted == dict.fromkeys(processors, 5)
    count = 5 * len(processors)
    assert forwarder.flow_counts(flow) == Counts(count, count * FRAME)
    assert forwarder.port_counts("s")[2].sent == Counts(count, count * FRAME)
    forwarder.set("s", {1: PortRules()})
    forwarder.free_flow(flow)
    while forwarder.new_flow() != flow:
        pass
    assert forwarder.flow_counts(flow) == Counts(), "a slot begins at zero on every processor"
    assert forwarder.new_flow() == 0, "and there are no more"
