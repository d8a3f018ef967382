"""Bodies of REST calls: whatever the bytes are, a request comes of them or one sentence, within bounds."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.northbound import bodies
from controllers.northbound.bodies import BODY_BYTES, BodyTooLong, read_body
from controllers.northbound.messages import AnyRequest, Failed, Fault, Gates, Rewire
from railyard.errors import ConfigError

REQUESTS: dict[str, Callable[[bytes], AnyRequest]] = {
    "circuits": lambda body: bodies.rewire_request(body, "rail0"),
    "gates": lambda body: bodies.gates_request(body, "rail0"),
    "pairs": lambda body: bodies.pairs_request(body, "rail0", "update"),
    "fault": bodies.fault_request,
}
KEYS = ["circuits", "update", "delay_s", "gates", "blocked", "switch", "port", "state", "rank", "cause", "pair", "op",
        "id", bodies.CROSS_CONNECTS]  # fmt: skip
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "ingress"]), inner, max_size=2),
    max_leaves=6,
)


def test_bodies_become_requests() -> None:
    assert REQUESTS["circuits"](b'{"circuits": [[1, 4]], "switch": "rail7", "delay_s": 0.25}') == Rewire(
        op="rewire", switch="rail0", circuits=((1, 4),), delay_s=0.25
    )
    assert REQUESTS["gates"](b'{"gates": ["bar"]}') == Gates(op="gates", switch="rail0", gates=("bar",))
    wanted = Rewire(op="rewire", switch="rail0", circuits=((1, 4),), update="update")
    pairs = {"pair": [{"ingress": 1, "egress": 4}]}
    assert REQUESTS["pairs"](json.dumps(pairs).encode()) == wanted
    assert REQUESTS["pairs"](json.dumps({bodies.CROSS_CONNECTS: pairs}).encode()) == wanted
    assert REQUESTS["fault"](b'{"rank": 1}') == Failed(op="failed", rank=1, cause="reported over REST")
    assert REQUESTS["fault"](b'{"switch": "s", "port": 1, "state": "failed"}') == Fault(
        op="fault", switch="s", port=1, state="failed"
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[" * BODY_BYTES, "the body must be JSON, nested at most 200 deep"),
        (b'{"rank": ' * 1000 + b"1" + b"}" * 1000, "the body must be JSON, nested at most 200 deep"),
        (b'{"rank": %s}' % (b"9" * 100), "rank: must be at most 9.0072e+15, not 9"),
        (b'{"rank": %s}' % (b"9" * 100_000), "the body must be JSON"),
        (b'{"rank": 1, "%s": 2}' % (b"k" * 500_000), "k...: there is no such key"),
        (b'{"rank": 1, "cause": "%s"}' % (b"c" * 5000), "cause: must have at most 4096 characters"),
    ],
)
def test_a_wrong_body_is_one_short_sentence(body: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bodies.fault_request(body)
    assert reason in str(caught.value) and len(str(caught.value)) < 500


def chunked(data: bytes, size: int) -> bytes:
    """``data`` in chunks of ``size`` bytes."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x;x=1\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@given(st.binary(max_size=200), st.integers(1, 50))
def test_a_body_is_read_by_its_length_and_in_chunks(data: bytes, size: int) -> None:
    assert read_body(io.BytesIO(data + b"more"), str(len(data)), None) == data
    assert read_body(io.BytesIO(chunked(data, size)), None, "chunked") == data
    assert read_body(io.BytesIO(data), None, None) == b""


def test_a_body_of_the_greatest_length_is_read_and_a_longer_one_refused_before_its_end() -> None:
    data = bytes(BODY_BYTES)
    assert read_body(io.BytesIO(chunked(data, 1 << 16)), "1", "Chunked ") == data
    endless = io.BytesIO(chunked(bytes(3 * BODY_BYTES), 1 << 16))
    with pytest.raises(BodyTooLong, match="the body is longer than 1048576 bytes"):
        read_body(endless, None, "chunked")
    assert endless.tell() < 1.2 * BODY_BYTES
    with pytest.raises(BodyTooLong):
        read_body(io.BytesIO(), "9" * 18, None)


@pytest.mark.parametrize(
    ("stream", "length", "encoding", "reason"),
    [
        (b"abc", "9" * 5000, None, "Content-Length: must be a number of bytes"),
        (b"0" * 5000, None, "chunked", "a chunk of the body must begin with a line"),
    ],
)
def test_a_body_that_is_not_as_its_headers_say_is_refused(
    stream: bytes, length: str | None, encoding: str | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_body(io.BytesIO(stream), length, encoding)
