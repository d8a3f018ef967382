"""The limits of one input: 4 s of processor time, 60 s on the clock, 512 MB of memory."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.fuzz.table import Reader

MOST_S = 4.0
"""The longest takes 1.3 s where nothing else uses the processor, and twice that beside other tests."""
MOST_BYTES = 512 << 20
STUCK_S = 60.0
"""Wall-clock time after which an input that does not even use the processor (it waits) counts as a failure."""
_AGAIN_S = 0.5
"""So long after the limit its error is raised again, where something swallowed it."""


class TookTooLong(BaseException):
    """A reader is over its time. It is no ``Exception``: no reader catches it, and Hypothesis does not repeat it."""


def _late(number: int, frame: FrameType | None) -> None:
    raise TookTooLong(f"used {MOST_S:g} s of processor time" if number == signal.SIGPROF else f"took {STUCK_S:g} s")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Reader, bytes], None]]:
    """Let a reader read an input in an empty folder, within the limits; errors that it does not document get out."""
    folder = tmp_path_factory.mktemp("input")
    before = {number: signal.signal(number, _late) for number in (signal.SIGPROF, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def read_within_limits(reader: Reader, data: bytes) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MOST_BYTES, hard))
        try:
            signal.setitimer(signal.ITIMER_REAL, STUCK_S, _AGAIN_S)
            signal.setitimer(signal.ITIMER_PROF, MOST_S, _AGAIN_S)
            reader.read(data, folder)
        except reader.allowed:
            pass
        except TookTooLong as late:
            raise TookTooLong(f"{late}: {reader.name} with {len(data)} bytes: {data[:2000]!r}") from late
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    yield read_within_limits
    for number, handler in before.items():
        signal.signal(number, handler)
