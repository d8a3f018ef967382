from __future__ import annotations

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from experiments.propius.data.messages import (
    HEADER,
    MOST_FIELDS_BYTES,
    ControlRequest,
    EdgeError,
    EdgeRefused,
    Frame,
    ManagerRequest,
    Message,
    encode,
    lengths,
    read,
)
from railyard.protocol import to_json


class Get(Message):
    op: Literal["get"]
    job: Annotated[int, Field(ge=0, le=9)]


class Bye(Message):
    op: Literal["bye"]


@given(st.dictionaries(st.text(max_size=8), st.integers(0, 9), max_size=5), st.binary(max_size=99))
def test_lengths_are_those_that_encode_wrote(fields: dict[str, int], payload: bytes) -> None:
    sent = encode(payload, **fields)
    size, payload_size = lengths(sent[: HEADER.size], 99)
    assert Frame(sent[HEADER.size :]).fields == fields
    assert (size, payload_size) == (len(sent) - HEADER.size, len(payload))


def test_what_is_too_long_is_refused_before_it_is_received() -> None:
    with pytest.raises(EdgeError, match="announces 100 bytes of payload; at most 99"):
        lengths(encode(b"x" * 100)[: HEADER.size], 99)
    with pytest.raises(EdgeError, match="announces 65537 bytes of fields"):
        lengths(HEADER.pack(b"RYe1", MOST_FIELDS_BYTES + 1, 0), 0)
    with pytest.raises(EdgeError, match="at most 65536 are allowed"):
        encode(text="x" * MOST_FIELDS_BYTES)


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_noise_is_no_frame(noise: bytes) -> None:
    try:
        assert max(lengths(noise, 5)) <= MOST_FIELDS_BYTES
    except EdgeError as error:
        assert "frame" in str(error)


@pytest.mark.parametrize("json", [b"", b"[1]", b"{", b"\xff", b"[" * 5000])
def test_fields_are_one_object(json: bytes) -> None:
    with pytest.raises(EdgeError, match="no JSON object"):
        assert Frame(json).fields


def test_a_request_is_told_apart_by_its_operation() -> None:
    either = Annotated[Get | Bye, Field(discriminator="op")]
    assert read(either, Frame(b'{"op":"get","job":3}')) == Get(op="get", job=3)
    assert read(either, Frame(b'{"op":"bye"}')) == Bye(op="bye")
    for text, key in ((b'{"op":"get","job":10}', "job"), (b'{"op":"bye","job":1}', "job"), (b"{", "JSON")):
        with pytest.raises(EdgeRefused, match=key):
            read(either, Frame(text))


JOB = {
    "op": "register",
    "name": "a",
    "demand": 2,
    "bounds": [3, 2, 400, 4, 0],
    "private_bound": 100,
    "rounds": 3,
    "over_selection": 1.2,
}


def test_a_registration_is_read_as_a_job() -> None:
    job = read(ControlRequest, Frame(to_json(JOB))).job
    assert (job.name, job.demand, job.bounds.fp16_mem, job.rounds, job.selected) == ("a", 2, 400, 3, 2)


def test_infinity_is_no_attribute() -> None:
    with pytest.raises(EdgeRefused, match=r"checkin\.attributes\.0"):
        read(ManagerRequest, Frame(b'{"op":"checkin","attributes":[Infinity,1,1,1,1]}'))
