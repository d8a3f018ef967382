"""MSCCL XML as schedules: the real files, and every step type in programs written here."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from msccl_texts import SWAP, algo, case, exchange, step, tb, wires

from railyard.errors import VerifyError
from workloads.formats.msccl_reader import parse_msccl
from workloads.schedule import Transfer

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


def test_in_place_all_gather_has_its_input_inside_the_output() -> None:
    def gpu(me: int) -> str:
        return tb(1 - me, 1 - me, step("s", "i0"), step("r", dst=f"o{1 - me}"))

    made = parse_msccl(algo("allgather", gpu(0), gpu(1), chunks=2), "ag.xml")
    assert made.transfers == (Transfer(0, 0, 1, 0, "copy"), Transfer(0, 1, 0, 1, "copy"))


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
