"""MSCCL XML as schedules: the real files, and every step type in programs written here."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from call_count import count_calls
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msccl_texts import SWAP, algo, case, exchange, step, tb, wires

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.collectives.verify import verify
from workloads.formats import msccl_reader
from workloads.formats.msccl_algo import parse_xml
from workloads.formats.msccl_reader import parse_msccl, read_msccl
from workloads.formats.msccl_writer import write_msccl
from workloads.schedule import CollectiveKind, Schedule, Transfer

# The real files.


def test_the_ring_of_astra_sim_sends_what_a_ring_must() -> None:
    made = case("astra-sim/custom_ring_allreduce_8npus_1MB/custom_allreduce.xml")
    assert (made.kind, made.n, made.chunks, made.input, made.scratch) == ("all_reduce", 8, 8, 0, 0)
    assert (len(made.transfers), made.rounds, made.one_port) == (112, 14, True)
    bounds = made.chunk_bounds((1 << 20) // 4)
    for rank in range(8):
        for end in ("src", "dst"):
            mine = [t for t in made.transfers if getattr(t, end) == rank]
            assert sum(4 * (bounds[t.chunk][1] - bounds[t.chunk][0]) for t in mine) == 1_835_008
    assert {(t.src, t.dst) for t in made.transfers} == {(k, (k + 1) % 8) for k in range(8)}


def test_the_all_gather_of_azure_is_one_round_between_all() -> None:
    made = case("msccl-scheduler/ag-1k-512k.xml")
    assert (made.kind, made.n, made.chunks, made.rounds) == ("all_gather", 8, 16, 1)
    assert made.owner == tuple(c // 2 for c in range(16))
    assert wires(made) == Counter(
        (made.owner[c], d, c, "copy") for c in range(16) for d in range(8) if made.owner[c] != d
    )


# Every step type, in programs written here.


def test_send_and_receive_reduce_copy() -> None:
    made = parse_msccl(SWAP, "swap.xml")
    assert made.transfers == (Transfer(0, 0, 1, 0, "reduce"), Transfer(0, 1, 0, 0, "reduce"))
    assert made.algorithm == "own"


def test_receive_copy_send_passes_a_chunk_on_a_round_later() -> None:
    chain = [
        tb(1, -1, step("s", "i0", cnt=2)),
        tb(2, 0, step("rcs", "i0", "o0", cnt=2)),
        tb(-1, 1, step("r", "i0", "o0", cnt=2)),
    ]
    made = parse_msccl(algo("broadcast", *chain, chunks=2), "chain.xml")
    assert made.root == 0
    assert [(t.round, t.src, t.dst, t.chunk) for t in made.transfers] == [
        (0, 0, 1, 0),
        (0, 0, 1, 1),
        (1, 1, 2, 0),
        (1, 1, 2, 1),
    ]


def test_receive_reduce_copy_send_and_the_root_that_it_leads_to() -> None:
    chain = [
        tb(1, -1, step("s", "i0")),
        tb(2, 0, step("rrcs", "i0", "i0")),
        tb(-1, 1, step("rrc", "i0", "i0")),
    ]
    made = parse_msccl(algo("reduce", *chain, chunks=1), "chain.xml")
    assert made.root == 2
    assert wires(made) == Counter([(0, 1, 0, "reduce"), (1, 2, 0, "reduce")])


def test_receive_reduce_send_does_not_change_what_is_stored() -> None:
    """GPU 1 passes the sum of 0 and 1 on and then sends its own chunk to 0: stored, 0 would count twice there."""
    gpus = [
        tb(1, -1, step("s", "i0"))
        + tb(-1, 2, step("rrc", "i0", "i0", dep="0.0"), number=1)
        + tb(-1, 1, step("rrc", "i0", "i0", dep="1.0"), number=2),
        tb(2, 0, step("rrs", "i0"))
        + tb(0, -1, step("s", "i0", dep="0.0"), number=1)
        + tb(-1, 2, step("r", dst="i0", dep="1.0"), number=2),
        tb(0, -1, step("s", "i0"))
        + tb(-1, 1, step("rrc", "i0", "i0", dep="0.0"), number=1)
        + tb(1, -1, step("s", "i0", dep="1.0"), number=2),
    ]
    text = algo("allreduce", *gpus, chunks=1, scratch=0)
    made = parse_msccl(text, "rrs.xml")
    assert made.scratch == 1
    beside = made.chunks
    assert Transfer(0, 0, 1, 0, "copy", 0, beside) in made.transfers
    assert Transfer(1, 1, 1, 0, "reduce", 0, beside) in made.transfers
    assert Transfer(2, 1, 2, beside, "reduce", 0, 0) in made.transfers
    assert wires(made).total() == 5
    with pytest.raises(VerifyError, match="the contribution of position 0 is added twice"):
        parse_msccl(text.replace("rrs", "rrcs").replace('srcoff="0" cnt', 'srcoff="0" dstbuf="i" dstoff="0" cnt'), "x")


def test_local_reduce_and_copy_of_an_all_reduce_through_scratch() -> None:
    """Everyone sends its input to everyone, adds it up locally and copies it out of place."""

    def gpu(me: int) -> str:
        others = [k for k in range(3) if k != me]
        sends = [tb(k, k, step("s", "i0"), step("r", dst=f"s{k}"), number=1 + j) for j, k in enumerate(others)]
        sums = [step("cpy", "i0", "o0"), step("nop", dep="1.1")]
        sums += [step("re", f"s{k}", "o0", dep="2.1" if j == 0 else "") for j, k in enumerate(others)]
        return tb(-1, -1, *sums) + "".join(sends)

    made = parse_msccl(algo("allreduce", *map(gpu, range(3)), chunks=1, inplace=0), "allpairs.xml")
    assert made.input == made.chunks == 1
    assert {t.round for t in made.transfers if not t.local} == {0}
    assert sum(t.op == "reduce" for t in made.transfers if t.local) == 6


def test_out_of_place_all_gather_reads_its_input() -> None:
    def gpu(me: int) -> str:
        other = 1 - me
        return tb(other, other, step("s", "i0"), step("cpy", "i0", f"o{me}"), step("r", dst=f"o{other}"))

    made = parse_msccl(algo("allgather", gpu(0), gpu(1), chunks=2, inplace=0), "ag.xml")
    assert (made.input, made.chunks, made.owner) == (2, 2, (0, 1))
    assert Transfer(0, 0, 1, 2, "copy", 0, 0) in made.transfers
    assert Transfer(0, 1, 1, 3, "copy", 0, 1) in made.transfers


@pytest.mark.parametrize("coll", ["reducescatter", "reduce_scatter"])
@pytest.mark.parametrize("inplace", [0, 1])
def test_reduce_scatter_leaves_its_part(coll: str, inplace: int) -> None:
    def gpu(me: int) -> str:
        return tb(1 - me, 1 - me, step("s", f"i{1 - me}"), step("rrc", f"i{me}", "o0"))

    made = parse_msccl(algo(coll, gpu(0), gpu(1), chunks=2, inplace=inplace), "rs.xml")
    assert made.owner == (0, 1)
    assert {(t.src, t.dst) for t in made.transfers if not t.local} == {(0, 1), (1, 0)}


def test_all_to_all_forwards_through_scratch_and_names_chunks_globally() -> None:
    """On a ring of three: a chunk for the second next goes through the next."""

    def gpu(me: int) -> str:
        after, before = (me + 1) % 3, (me - 1) % 3
        steps = [
            step("cpy", f"i{me}", f"o{me}"),
            step("s", f"i{after}"),
            step("r", dst=f"o{before}"),
            step("s", f"i{before}"),
            step("rcs", dst="s0"),
            step("r", dst=f"o{after}"),
        ]
        return tb(after, before, *steps)

    made = parse_msccl(algo("alltoall", *map(gpu, range(3)), chunks=3, inplace=0), "a2a.xml")
    assert (made.chunks, made.scratch, made.input) == (9, 0, 0)
    wanted = Counter((i, (i + 1) % 3, 3 * i + j, "copy") for i in range(3) for j in range(3) if i != j)
    wanted += Counter(((i + 1) % 3, (i + 2) % 3, 3 * i + (i + 2) % 3, "copy") for i in range(3))
    assert wires(made) == wanted


def test_in_place_all_to_all_has_one_buffer() -> None:
    def gpu(me: int) -> str:
        return tb(1 - me, 1 - me, step("s", f"i{1 - me}"), step("r", dst=f"o{1 - me}"))

    made = parse_msccl(algo("alltoall", gpu(0), gpu(1), chunks=2), "a2a.xml")
    assert wires(made) == Counter([(0, 1, 1, "copy"), (1, 0, 2, "copy")])


def test_copy_elements_of_older_writers_come_first() -> None:
    def gpu(me: int) -> str:
        copy = f'<copy i_off="{me}" o_off="{me}"/>\n'
        return copy + tb(1 - me, 1 - me, step("s", f"i{1 - me}"), step("r", dst=f"o{1 - me}"))

    text = algo("alltoall", gpu(0), gpu(1), chunks=2, inplace=0)
    assert wires(parse_msccl(text, "a2a.xml")).total() == 2
    without = re.sub(r"<copy.*>", "", text)
    with pytest.raises(VerifyError, match=r"^a2a.xml: .*position 0, chunk 0: ends without"):
        parse_msccl(without, "a2a.xml")


@pytest.mark.parametrize(("coll", "types"), [("gather", "o"), ("scatter", "i")])
def test_gather_and_scatter_know_their_root(coll: str, types: str) -> None:
    if coll == "gather":
        gpus = [tb(1, -1, step("s", "i0")), tb(-1, 0, step("r", dst="o0"))]
    else:
        gpus = [tb(-1, 1, step("r", dst="o0")), tb(0, -1, step("s", "i0"))]
    made = parse_msccl(algo(coll, *gpus, chunks=2), "rooted.xml")
    assert made.root == 1
    assert parse_msccl(algo(coll, *gpus, chunks=2, more=' root="1"'), "rooted.xml") == made
    with pytest.raises(VerifyError, match=r"^rooted.xml"):
        parse_msccl(algo(coll, *gpus, chunks=2, more=' root="0"'), "rooted.xml")


def test_compilers_write_the_senders_place_as_src_of_a_receive_reduce() -> None:
    """GPU 0 sends from scratch, so src of the receive names scratch, which GPU 1 never filled."""
    gpus = [
        tb(1, 1, step("cpy", "i0", "s0"), step("s", "s0"), step("r", dst="i0")),
        tb(0, 0, step("rrcs", "s0", "i0")),
    ]
    made = parse_msccl(algo("allreduce", *gpus, chunks=1), "compiled.xml")
    assert wires(made).total() == 2


def test_a_connection_carries_one_thing_after_the_other() -> None:
    gpus = [tb(1, -1, step("s", "i0"), step("s", "i1")), tb(-1, 0, step("r", dst="o0"), step("r", dst="o1"))]
    assert parse_msccl(algo("broadcast", *gpus, chunks=2), "two.xml").rounds == 2


def test_channels_are_connections_of_their_own() -> None:
    def gpu(send: int, recv: int, kind: str, order: tuple[int, int]) -> str:
        return "".join(
            tb(send, recv, step(kind, f"o{c}", f"o{c}"), number=number, chan=c) for number, c in enumerate(order)
        )

    text = algo("broadcast", gpu(1, -1, "s", (0, 1)), gpu(-1, 0, "r", (1, 0)), chunks=2)
    made = parse_msccl(text, "channels.xml")
    assert [(t.round, t.chunk, t.lane) for t in made.transfers] == [(0, 0, 0), (0, 1, 0)]


def test_what_arrives_before_its_receive_lands_beside() -> None:
    """Each of two transfers overwrites what the other sends later: in one piece, each would come before itself."""
    gpus = [
        tb(1, 1, step("s", "i2"), step("s", "i3"), step("r", dst="o3"), step("r", dst="o2")),
        tb(0, 0, step("s", "i1"), step("s", "i0"), step("r", dst="o0"), step("r", dst="o1")),
    ]
    made = parse_msccl(algo("alltoall", *gpus, chunks=4, scratch=0), "early.xml")
    assert wires(made) == Counter([(0, 1, 2, "copy"), (0, 1, 3, "copy"), (1, 0, 4, "copy"), (1, 0, 5, "copy")])
    assert [(t.src, t.chunk) for t in made.transfers if t.round == 0] == [(0, 2), (1, 5)]


def test_steps_may_stand_in_any_order_and_carry_more_attributes() -> None:
    swapped = tb(1, 1, step("rrc", "i0", "i0", s=1), step("s", "i0", s=0))
    other = exchange(0).replace("<tb", '<tb redop="sum"').replace("<step", '<step nop="0"')
    text = algo("all_reduce", swapped, other, chunks=1, more=' redop="nop" minBytes="0"')
    text = text.replace("</gpu>", '<note a="1"><gpu/><b/></note></gpu>')
    assert parse_msccl(text, "any.xml").transfers == parse_msccl(SWAP, "swap.xml").transfers


BAD = {
    "cut off": (SWAP[: len(SWAP) // 2], None, "not well-formed"),
    "chunks that do not split": (
        algo("allgather", exchange(1), exchange(0), chunks=3), 1, "must be a multiple of its 2 gpus",
    ),
    "a threadblock twice": (algo("allreduce", exchange(1) * 2, exchange(0), chunks=1), 7, "described twice"),
    "a step twice": (
        algo("allreduce", tb(1, 1, step("s", "i0", s=0), step("rrc", "i0", "i0", s=0)), exchange(0), chunks=1),
        5,
        "step 0 of this threadblock is described twice",
    ),
    "counts that differ": (
        algo("broadcast", tb(1, -1, step("s", "i0", cnt=2)), tb(-1, 0, step("r", dst="o0")), chunks=2),
        9,
        "receives 1 chunks, but send 1 of gpu 0 to gpu 1 on channel 0 has 2",
    ),
    "a send without its receive": (
        algo("allreduce", exchange(1), tb(0, 0, step("s", "i0")), chunks=1),
        4,
        "is send 1 of gpu 0 to gpu 1 on channel 0, which has only 0 receives",
    ),
    "a receive without its send": (
        algo("allreduce", exchange(1), tb(0, 0, step("rrc", "i0", "i0")), chunks=1),
        5,
        "is receive 1 of gpu 0 from gpu 1 on channel 0, which has only 0 sends",
    ),
    "a connection with two ends": (
        algo("allreduce", exchange(1) + exchange(1).replace('id="0"', 'id="1"'), exchange(0), chunks=1),
        8,
        "a second threadblock of gpu 0 sends to gpu 1 on channel 0",
    ),
    "two that wait for each other": (
        algo("allreduce", *(tb(k, k, step("rrc", "i0", "i0"), step("s", "i0")) for k in (1, 0)), chunks=1),
        None,
        "can never run: it waits for line",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_with_place_and_reason(what: str) -> None:
    text, line, reason = BAD[what]
    with pytest.raises(ConfigError) as caught:
        parse_msccl(text, "bad.xml")
    message = str(caught.value)
    assert re.match(rf"bad\.xml:{line if line else '[0-9]+'}: ", message), message
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("rrc", "r"), "position 0, chunk 0: ends without the contribution of position 0"),
        (('srcoff="0" dstbuf="i"', 'srcoff="0" dstbuf="s"'), "position 0, chunk 0: ends without"),
    ],
)
def test_what_does_not_reduce_is_refused_with_file_position_and_chunk(change: tuple[str, str], reason: str) -> None:
    with pytest.raises(VerifyError, match=rf"^bad\.xml: .*{reason}"):
        parse_msccl(SWAP.replace(*change, 1), "bad.xml")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.xml"
    path.write_bytes(b"<algo>\n\xff</algo>")
    with pytest.raises(ConfigError, match=r"file.xml:2: is not UTF-8"):
        read_msccl(path)
    path.write_text("\ufeff" + SWAP, encoding="utf-8")
    assert read_msccl(str(path)).n == 2
    monkeypatch.setattr(msccl_reader, "MAX_BYTES", 100)
    with pytest.raises(ConfigError, match="is larger than"):
        read_msccl(path)


# Whatever a file holds, only our own errors come out.


def test_much_in_little_is_bounded() -> None:
    many = step("s", "i0", cnt=1000) * 70
    text = algo("broadcast", tb(1, -1, many), tb(-1, 0, many.replace('"s"', '"r"')), chunks=1000)
    with pytest.raises(ConfigError, match="move more than 65536 chunks"):
        parse_msccl(text, "much.xml")


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
    text = write_msccl(schedule("all_to_all", 4, "pairwise"))
    root = parse_xml(text, "a2a.xml")
    assert root.attributes["coll"] == "alltoall"
    assert (root.attributes["inplace"], root.attributes["outofplace"]) == ("0", "1")
    assert (root.attributes["nchunksperloop"], root.attributes["proto"]) == ("4", "Simple")
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


def test_a_ring_of_32_takes_no_more_work_a_transfer_than_one_of_8() -> None:
    """Function calls, which do not depend on the machine; both are some 268 a transfer."""
    calls_a_transfer = []
    for ranks in (4, 8, 32):  # the first also imports what is read
        text = write_msccl(schedule("all_reduce", ranks, "ring"))
        with count_calls() as calls:
            made = parse_msccl(text, "ring.xml")
        calls_a_transfer.append(calls.total() / len(made.transfers))
    assert calls_a_transfer[2] <= 1.1 * calls_a_transfer[1]
    assert len(made.transfers) == 32 * 62
    assert made.rounds == 62
