from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.openflow import app
from controllers.openflow.app import is_read
from railyard.errors import MachineError


@pytest.mark.parametrize("framework", app.PACKAGES)
def test_a_missing_framework_is_one_sentence_with_a_remedy(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app.check_installed(framework)  # both are there where tests run
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; scripts/setup.sh installs it$"):
        app.prepare(framework)
    monkeypatch.setattr(app, "SETUP", Path("/nowhere/setup.sh"))
    with pytest.raises(MachineError, match=rf"^{framework} is not installed; .*{framework}"):
        app.prepare(framework)


def message(kind: int, body: bytes = b"", version: int = 5) -> bytes:
    """A whole message."""
    return struct.pack("!BBHI", version, kind, 8 + len(body), 7) + body


def multipart(kind: int, *entries: bytes) -> bytes:
    """A multipart reply."""
    return message(19, struct.pack("!HH4x", kind, 0) + b"".join(entries))


def port_description(length: int, size: int = 72) -> bytes:
    """The description of a port that says it has ``length`` bytes."""
    return struct.pack("!IH", 1, length).ljust(size, b"\0")


def port_statistics(length: int, size: int = 112) -> bytes:
    """The statistics of a port that say they have ``length`` bytes."""
    return struct.pack("!HxxI", length, 1).ljust(size, b"\0")


def flow(length: int, size: int = 88) -> bytes:
    """The statistics of a flow that say they have ``length`` bytes."""
    return struct.pack("!H", length).ljust(size, b"\0")


VERSIONS = struct.pack("!HHI", 1, 8, 1 << 5)


@pytest.mark.parametrize(
    "sent",
    [message(0), message(0, VERSIONS), message(0, VERSIONS * 2, version=6), message(1, bytes(4)), message(2, b"hello"),
     message(3), message(6, bytes(24)), message(12, bytes(80)), message(21), multipart(13),
     multipart(13, port_description(72), port_description(40, 40)),
     multipart(4, port_statistics(112), port_statistics(80, 80)), multipart(1, flow(56, 56), flow(88, 88))],
)  # fmt: skip
def test_what_the_controller_needs_is_read(sent: bytes) -> None:
    assert is_read(sent)


@pytest.mark.parametrize(
    "sent",
    [message(10, bytes(24)), message(11, bytes(48)), message(4, bytes(8)), message(33, bytes(8)),
     multipart(3, bytes(24)), message(19), message(2, version=1), message(16, version=1), message(200)],
)  # fmt: skip
def test_what_the_controller_does_not_need_is_not_parsed(sent: bytes) -> None:
    assert not is_read(sent)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x05\x00\x00\x07\x00\x00\x00\x01", "shorter than its header"),
        (message(0, bytes(8)), "has the length 0; it must be 4 to 8"),
        (message(0, struct.pack("!HHI", 1, 3, 0)), "has the length 3; it must be 4 to 8"),
        (message(0, struct.pack("!HHI", 1, 9, 0)), "has the length 9; it must be 4 to 8"),
        (message(0, VERSIONS + bytes(4), version=4), "has the length 0; it must be 4 to 4"),
        (multipart(13, port_description(0)), "has the length 0; it must be 40 to 72"),
        (multipart(13, port_description(72), port_description(39)), "has the length 39; it must be 40 to 72"),
        (multipart(4, port_statistics(0)), "has the length 0; it must be 80 to 112"),
        (multipart(4, port_statistics(113)), "has the length 113; it must be 80 to 112"),
        (multipart(1, flow(0)), "has the length 0; it must be 56 to 88"),
        (multipart(1, flow(55)), "has the length 55; it must be 56 to 88"),
        (multipart(4, bytes(1)), "has the length 0; it must be 80 to 1"),
    ],
)
def test_a_length_that_cannot_be_followed_is_an_error(sent: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        is_read(sent)


@given(st.binary(min_size=8, max_size=120), st.sampled_from([0, 19]), st.sampled_from([1, 4, 13]))
def test_any_message_is_read_or_not_or_an_error(sent: bytes, kind: int, what: int) -> None:
    try:
        assert is_read(bytes([5, kind]) + sent[2:8] + struct.pack("!H", what) + sent[8:]) in (True, False)
    except ValueError as error:
        assert str(error)
