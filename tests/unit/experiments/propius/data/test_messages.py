from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.data.messages import (
    HEADER,
    MOST_FIELDS_BYTES,
    EdgeError,
    EdgeRefused,
    Frame,
    Number,
    Reply,
    Values,
    encode,
    lengths,
    operation,
    perform,
)


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


class Server:
    @operation
    def get(self, job: Number, payload: Any = b"") -> dict[str, Any]:
        return {"job": job, "bytes": len(payload)}

    @operation
    async def bye(self, attributes: Values = [0] * 5) -> Reply:
        return Reply({}, b"bye")

    def secret(self) -> None:
        raise AssertionError("this is no operation")


def answer(json: bytes, payload: bytes = b"") -> Reply:
    return asyncio.run(perform(Server(), Frame(json, payload)))


def test_a_request_is_carried_out_by_the_operation_that_it_names() -> None:
    assert answer(b'{"op":"get","job":3}') == Reply({"job": 3, "bytes": 0})
    assert answer(b'{"op":"get","job":3,"payload":"long"}', b"x") == Reply({"job": 3, "bytes": 1})
    assert answer(b'{"op":"bye"}') == Reply({}, b"bye")
    for text, key in (
        (b'{"op":"get","job":-1}', "get.job"),
        (b'{"op":"get","job":true}', "get.job"),
        (b'{"op":"bye","job":1}', "bye.job"),
        (b'{"op":"bye","self":1}', "bye.self"),
        (b'{"op":"bye","attributes":[1,1]}', "bye.attributes"),
        (b'{"op":"secret"}', "the request: there is no operation"),
        (b'{"op":["get"]}', "the request: there is no operation"),
    ):
        with pytest.raises(EdgeRefused, match=key):
            answer(text)
    with pytest.raises(EdgeRefused, match=r"bye\.payload"):
        answer(b'{"op":"bye"}', b"x")
    with pytest.raises(EdgeRefused, match=r"bye\.attributes\.0"):
        answer(b'{"op":"bye","attributes":[Infinity,1,1,1,1]}')
