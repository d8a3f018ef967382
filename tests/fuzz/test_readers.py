"""Every reader takes what others wrote, changed at will: it raises only errors that it documents, within its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from railyard.errors import ConfigError
from tests.fuzz.conftest import MOST_BYTES, TookTooLong
from tests.fuzz.table import TABLE, Reader

Read = Callable[[Reader, bytes], None]
EXAMPLES = settings().max_examples
TAKES_ITS_TIME = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
QUICK, SLOW = ([name for name, reader in TABLE.items() if reader.slow is slow] for slow in (False, True))


@settings(max_examples=min(5 * EXAMPLES, 2000), suppress_health_check=TAKES_ITS_TIME)
@pytest.mark.parametrize("name", QUICK)
@given(data=st.data())
def test_a_reader_raises_only_the_errors_that_it_documents(name: str, read: Read, data: st.DataObject) -> None:
    read(TABLE[name], data.draw(TABLE[name].inputs))


@settings(max_examples=EXAMPLES, suppress_health_check=TAKES_ITS_TIME)
@pytest.mark.parametrize("name", SLOW)
@given(data=st.data())
def test_so_does_a_slow_reader(name: str, read: Read, data: st.DataObject) -> None:
    read(TABLE[name], data.draw(TABLE[name].inputs))


@pytest.mark.parametrize("name", [name for name in TABLE if name not in ("command-line", "rest-body", "ovsdb")])
def test_a_reader_takes_its_valid_inputs(name: str, read: Read) -> None:
    for seed in TABLE[name].seeds:
        read(Reader(name, TABLE[name].read, (), allowed=()), seed)


# ---- the limits ----------------------------------------------------------------------------------------------------


def _bad(data: bytes, folder: Path) -> None:
    """Reads some inputs as no reader may."""
    (folder / "file").write_bytes(data)
    if data == b"hang":
        while True:
            try:
                data = data.strip()
            except Exception:
                continue
    if data == b"memory":
        bytearray(2 * MOST_BYTES)  # memory that others gave back since the limit was set may serve a part
    if data == b"wait":
        sleep(60)
    if data == b"error":
        raise KeyError("key")
    if data == b"refused":
        raise ConfigError("no")


BAD = Reader("bad", _bad, [b"good"])


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [(b"hang", TookTooLong, "used 0.2 s of processor"), (b"memory", MemoryError, "^$"), (b"error", KeyError, "key"),
     (b"wait", TookTooLong, "took 0.3 s")],
)  # fmt: skip
def test_a_hang_a_wait_a_bomb_of_memory_and_an_error_get_out(
    read: Read, data: bytes, error: type[BaseException], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if data in (b"hang", b"wait"):
        monkeypatch.setattr("tests.fuzz.conftest.MOST_S", 0.2)
        monkeypatch.setattr("tests.fuzz.conftest.STUCK_S", 60 if data == b"hang" else 0.3)
    with pytest.raises(error, match=says):
        read(BAD, data)
    for taken in (b"good", b"refused"):
        read(BAD, taken)
