"""MSCCL XML that is wrong: refused with file, line and reason; whatever a file holds, no other error comes out."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_texts import SWAP, algo, exchange, step, tb

from railyard.errors import ConfigError, VerifyError
from workloads.collectives.catalog import schedule
from workloads.collectives.verify import verify
from workloads.formats import msccl_reader
from workloads.formats.msccl_reader import parse_msccl, read_msccl
from workloads.formats.msccl_writer import write_msccl

BAD = {
    "no XML": ("hello", 1, "not well-formed"),
    "cut off": (SWAP[: len(SWAP) // 2], None, "not well-formed"),
    "another root": ("<algos/>", 1, "is one <algo>"),
    "a doctype": ('<!DOCTYPE a [<!ENTITY e "x">]><algo name="&e;"/>', 1, "no DOCTYPE and no entities"),
    "an entity": (SWAP.replace("own", "&own;"), 1, "undefined entity"),
    "no ngpus": (SWAP.replace('ngpus="2"', ""), 1, "needs an attribute ngpus"),
    "ngpus no number": (SWAP.replace('ngpus="2"', 'ngpus="two"'), 1, "must be an integer"),
    "too many gpus": (SWAP.replace('ngpus="2"', 'ngpus="99999"'), 1, "between 1 and 256"),
    "a missing gpu": (SWAP.replace('ngpus="2"', 'ngpus="3"'), 1, "gpu 2 of 3 is missing"),
    "a gpu twice": (SWAP.replace('<gpu id="1"', '<gpu id="0"'), 8, "gpu 0 is described twice"),
    "no such gpu": (SWAP.replace('<gpu id="1"', '<gpu id="7"'), 8, "id=7 of <gpu>"),
    "a custom collective": (SWAP.replace("allreduce", "custom"), 1, "not a known collective"),
    "no coll": (SWAP.replace("coll=", "cool="), 1, "needs an attribute coll"),
    "no inplace": (SWAP.replace("inplace=", "outofplace="), 1, "needs an attribute inplace"),
    "chunks that do not split": (
        algo("allgather", exchange(1), exchange(0), chunks=3), 1, "must be a multiple of its 2 gpus",
    ),
    "too many chunks": (SWAP.replace('nchunksperloop="1"', 'nchunksperloop="99999999"'), 1, "nchunksperloop=99999999"),
    "a missing peer": (SWAP.replace('send="1"', 'send="5"'), 3, "send=5 of <tb>"),
    "no peer": (SWAP.replace('send="1"', 'send="-1"'), 4, "needs a peer"),
    "itself as peer": (SWAP.replace('send="1"', 'send="0"'), 3, "itself as its peer"),
    "a threadblock twice": (algo("allreduce", exchange(1) * 2, exchange(0), chunks=1), 7, "described twice"),
    "a step twice": (
        algo("allreduce", tb(1, 1, step("s", "i0", s=0), step("rrc", "i0", "i0", s=0)), exchange(0), chunks=1),
        5,
        "step 0 of this threadblock is described twice",
    ),
    "an unknown step": (SWAP.replace('"rrc"', '"rrx"', 1), 5, "must be one of s, r, rrc"),
    "a step without type": (SWAP.replace('type="s"', "", 1), 4, "needs an attribute type"),
    "no buffer": (SWAP.replace('srcbuf="i"', "", 1), 4, "needs an attribute srcbuf"),
    "an unknown buffer": (SWAP.replace('srcbuf="i"', 'srcbuf="z"', 1), 4, "must be i, o or s, not 'z'"),
    "outside the buffer": (SWAP.replace('srcoff="0"', 'srcoff="1"', 1), 4, "lies outside buffer i"),
    "a count of zero": (SWAP.replace('cnt="1"', 'cnt="0"', 1), 4, "cnt=0 of <step>"),
    "a count too large": (SWAP.replace('cnt="1"', 'cnt="99999"', 1), 4, "cnt=99999 of <step>"),
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
    "a dependency on nothing": (
        SWAP.replace('depid="-1" deps="-1"', 'depid="4" deps="2"', 1), 4, "waits for step 2 of threadblock 4",
    ),
    "a step that waits for itself": (
        SWAP.replace('depid="-1" deps="-1"', 'depid="0" deps="0"', 1), 4, "can never run: it waits for line 4",
    ),
    "two that wait for each other": (
        algo("allreduce", *(tb(k, k, step("rrc", "i0", "i0"), step("s", "i0")) for k in (1, 0)), chunks=1),
        None,
        "can never run: it waits for line",
    ),
    "a tb outside a gpu": (SWAP.replace("</algo>", '<tb id="0"/></algo>'), None, "is in the wrong place"),
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


def test_an_addition_too_many_is_refused() -> None:
    text = algo("allreduce", *(tb(k, k, *[step("s", "i0"), step("rrc", "i0", "i0")] * 2) for k in (1, 0)), chunks=1)
    with pytest.raises(
        VerifyError, match=r"^bad\.xml: .*position [01], chunk 0: the contribution of position 0 is added"
    ):
        parse_msccl(text, "bad.xml")


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

RING = write_msccl(schedule("all_reduce", 3, "ring"))
A2A = write_msccl(schedule("all_to_all", 3, "pairwise"))
VALUES = [
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "1000000",
    "99999999999",
    "",
    "x",
    "i",
    "o",
    "s",
    "r",
    "rrs",
    "rcs",
    "nop",
    "re",
]


def point_run(text: str) -> None:
    began = time.perf_counter()
    try:
        verify(parse_msccl(text, "fuzz.xml"))
    except (ConfigError, VerifyError) as error:
        assert str(error).startswith("fuzz.xml")
    assert time.perf_counter() - began < 2


@settings(deadline=None, max_examples=150)
@given(data=st.data(), text=st.sampled_from([RING, A2A]))
def test_changed_attributes_raise_nothing_else(data: st.DataObject, text: str) -> None:
    places = list(re.finditer(r'(?<==")[^"]*(?=")', text))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.sampled_from(places))
        value = data.draw(st.sampled_from(VALUES))
        text = text[: place.start()] + value + text[place.end() :]
        places = list(re.finditer(r'(?<==")[^"]*(?=")', text))
    point_run(text)


@settings(deadline=None, max_examples=100)
@given(data=st.data(), text=st.sampled_from([RING, A2A]))
def test_moved_and_missing_lines_raise_nothing_else(data: st.DataObject, text: str) -> None:
    lines = text.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        taken = lines.pop(data.draw(st.integers(0, len(lines) - 1)))
        if data.draw(st.booleans()):
            lines.insert(data.draw(st.integers(0, len(lines))), taken)
    point_run("".join(lines))


@settings(deadline=None, max_examples=100)
@given(start=st.integers(0, len(RING)), length=st.integers(0, 40), put=st.text(max_size=12))
def test_changed_characters_raise_nothing_else(start: int, length: int, put: str) -> None:
    point_run(RING[:start] + put + RING[start + length :])


def test_much_in_little_is_bounded() -> None:
    many = step("s", "i0", cnt=1000) * 70
    text = algo("broadcast", tb(1, -1, many), tb(-1, 0, many.replace('"s"', '"r"')), chunks=1000)
    with pytest.raises(ConfigError, match="move more than 65536 chunks"):
        parse_msccl(text, "much.xml")
