from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fast_path.yard import FRAME, PORTS, Yard, frame, mac

from railyard.errors import MachineError
from topos.kernel.fastpath import bpf_forwarder
from topos.kernel.fastpath.bpf_forwarder import BpfForwarder
from topos.kernel.fastpath.program import Map
from topos.kernel.fastpath.rules import DROP, OUT, Counts, PortRules, Rule

pytestmark = [pytest.mark.root, pytest.mark.beside]


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """The map of rules by destination has room for two tables."""
    monkeypatch.setattr(bpf_forwarder, "_MOST_TABLE_ENTRIES", 2 * PORTS)
    with ExitStack() as stack:
        yield Yard(stack, BpfForwarder)


def table(yard: Yard, shift: int) -> dict[bytes, Rule]:
    return {mac(n): Rule(OUT, (n - 1 + shift) % PORTS + 1) for n in yard.numbers}


def test_ports_with_one_table_have_it_once_in_the_kernel(yard: Yard) -> None:
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


def test_a_change_of_one_port_keeps_the_table_of_the_others(yard: Yard) -> None:
    shared = table(yard, 0)
    yard.forwarder.set("s", {n: PortRules(Rule(DROP), shared) for n in yard.numbers})
    for _ in range(3):
        yard.forwarder.set("s", {1: PortRules(Rule(OUT, 4))})
        assert yard.reaches(1, to=2) == {"host 4"} and yard.reaches(3, to=2) == {"host 2"}
        yard.forwarder.set("s", {1: PortRules(Rule(DROP), shared)})
        assert yard.reaches(1, to=2) == {"host 2"} and yard.reaches(3, to=2) == {"host 2"}


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
