"""Schedules as MSCCL XML: they come back the same, and say what MSCCL's runtime wants to read."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msccl_texts import case, wires

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.collectives.verify import verify
from workloads.formats.msccl_algo import parse_xml
from workloads.formats.msccl_reader import parse_msccl
from workloads.formats.msccl_writer import write_msccl
from workloads.schedule import CollectiveKind, Schedule, Transfer


@pytest.mark.parametrize(
    "name", ["astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml", "msccl-scheduler/ag-1k-512k.xml"]
)
def test_real_files_are_written_and_read_back(name: str) -> None:
    made = case(name)
    again = parse_msccl(write_msccl(made), "again.xml")
    assert wires(again) == wires(made)
    assert (again.rounds, again.one_port, again.owner) == (made.rounds, made.one_port, made.owner)


EVERY = [(kind, name) for name, algorithm in ALGORITHMS.items() for kind in algorithm.kinds]


def catalog(which: tuple[CollectiveKind, str], n: int) -> Schedule:
    try:
        return schedule(which[0], n, which[1])
    except ConfigError:
        return schedule(which[0], 8, which[1])


def offsets(made: Schedule) -> list[int] | None:
    """Where MSCCL keeps a chunk: those of one position stand together."""
    if made.kind in ("all_reduce", "broadcast", "reduce", "all_to_all"):
        return None
    order = sorted(range(made.chunks), key=lambda c: (made.owner[c], c))
    return [order.index(c) for c in range(made.chunks)]


@settings(deadline=None, max_examples=20)
@given(which=st.sampled_from(EVERY), n=st.integers(2, 16))
@example(which=("all_reduce", "stragglar"), n=8)
@example(which=("all_reduce", "direct"), n=5)
@example(which=("all_to_all", "bidirectional-ring"), n=4)
def test_written_schedules_come_back_with_the_same_transfers(which: tuple[CollectiveKind, str], n: int) -> None:
    made = catalog(which, n)
    again = parse_msccl(write_msccl(made), "again.xml")
    verify(again)
    assert wires(again) == wires(made, offsets(made))
    assert (again.kind, again.n, again.chunks, again.root) == (made.kind, made.n, made.chunks, made.root)
    assert again.rounds == made.rounds
    assert again.one_port >= made.one_port


def test_a_schedule_out_of_place_comes_back_out_of_place() -> None:
    local = [Transfer(0, p, p, 2 + p, "copy", 0, p) for p in range(2)]
    wire = (Transfer(0, 0, 1, 2, "copy", 0, 0), Transfer(0, 1, 0, 3, "copy", 0, 1))
    made = Schedule("own", "all_gather", 2, 2, (0, 1), (*local, *wire), scratch=2, input=2)
    assert parse_msccl(write_msccl(made), "again.xml").transfers == tuple(sorted(made.transfers))


def test_the_writer_says_what_the_runtime_wants() -> None:
    text = write_msccl(schedule("all_to_all", 4, "pairwise"), proto="LL128")
    root = parse_xml(text, "a2a.xml")
    assert root.attributes["coll"] == "alltoall"
    assert (root.attributes["inplace"], root.attributes["outofplace"]) == ("0", "1")
    assert (root.attributes["nchunksperloop"], root.attributes["proto"]) == ("4", "LL128")
    for gpu in root.children:
        numbers = [block.number("id", 0, 99) for block in gpu.children]
        assert numbers == list(range(len(numbers)))
        awaited = set()
        for block in gpu.children:
            peers = {block.attributes["send"], block.attributes["recv"]}
            assert gpu.attributes["id"] not in peers
            after_nop = False
            for one in block.children:
                waits = one.attributes["depid"] != "-1"
                assert waits or not after_nop  # what follows a nop must carry a dependency itself
                after_nop = one.attributes["type"] == "nop"
                if waits:
                    awaited.add((int(one.attributes["depid"]), int(one.attributes["deps"])))
        flagged = {
            (number, k)
            for number, block in enumerate(gpu.children)
            for k, one in enumerate(block.children)
            if one.attributes["hasdep"] == "1"
        }
        assert flagged == awaited


def test_the_writer_refuses_what_the_format_cannot_say() -> None:
    with pytest.raises(ConfigError, match="unknown protocol 'TCP'; known: Simple"):
        write_msccl(schedule("all_reduce", 4), proto="TCP")
    with pytest.raises(VerifyError):
        write_msccl(Schedule("own", "all_reduce", 2, 1, (0,), ()))
    turned = tuple(Transfer(0, 0, 0, c, "copy", 0, 1 - c) for c in (0, 1)) + tuple(
        Transfer(1, 0, 0, c, "copy", 0, 1 - c) for c in (0, 1)
    )
    with pytest.raises(ConfigError, match="in round 0 position 0 exchanges chunks with itself"):
        write_msccl(Schedule("own", "broadcast", 1, 2, (0, 0), turned))
    uneven = Schedule("own", "all_gather", 2, 1, (0,), (Transfer(0, 0, 1, 0, "copy"),))
    with pytest.raises(ConfigError, match="every position must own as many chunks"):
        write_msccl(uneven)


def test_a_ring_of_64_is_read_in_two_seconds_of_processor_time() -> None:
    text = write_msccl(schedule("all_reduce", 64, "ring"))
    began = time.process_time()
    made = parse_msccl(text, "ring.xml")
    assert time.process_time() - began < 2
    assert len(made.transfers) == 64 * 126
    assert made.rounds == 126
