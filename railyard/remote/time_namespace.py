"""Time namespaces: processes see another monotonic clock than the rest of the machine, such as that of another machine.

What the kernel does for them: ``clock_gettime``, ``clock_nanosleep`` and timers with absolute times are converted,
relative times are as before. ``CLOCK_BOOTTIME`` is left alone, so the start times of processes in ``/proc`` stay as
they are, and so is ``CLOCK_REALTIME``. Programs of BPF see the machine's own clock (``bpf_ktime_get_ns``).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from railyard.errors import MachineError

_CLONE_NEWTIME = 0x80
_OFFSETS = Path("/proc/self/timens_offsets")
_OWN, _CHILDREN = "/proc/self/ns/time", "/proc/self/ns/time_for_children"
_NS = 10**9
_libc = ctypes.CDLL(None, use_errno=True)


def enter_time_offset(offset_s: float) -> None:
    """Let the monotonic clock of processes started from now on be ahead of this one's by ``offset_s`` seconds.

    This process keeps its clock, and before Linux 6.1 it can start no thread any more. ``MachineError`` where the
    kernel has no time namespaces, this process may not make one or has made one, or the clock would become negative.
    """
    seconds, nanoseconds = divmod(_own_ns() + round(offset_s * _NS), _NS)
    _check(_libc.unshare(_CLONE_NEWTIME))
    try:
        _OFFSETS.write_text(f"monotonic {seconds} {nanoseconds}\n")
    except OSError as error:
        raise _refused(error, f" with a clock {offset_s:.3f} s ahead") from error


def _own_ns() -> int:
    """By how many nanoseconds this process's monotonic clock is ahead of the machine's.

    The file tells the offset for children, which is this process's own until it asks for another.
    """
    try:
        if os.readlink(_OWN) != os.readlink(_CHILDREN):
            raise MachineError("the children of this process were given another clock before; start it without")
        lines = (line.split() for line in _OFFSETS.read_text().splitlines())
        return {clock: int(seconds) * _NS + int(nanoseconds) for clock, seconds, nanoseconds in lines}["monotonic"]
    except FileNotFoundError as error:
        raise _refused(error) from error


def _check(result: int) -> None:
    if result != 0:
        raise _refused(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))


def _refused(error: OSError, what: str = "") -> MachineError:
    return MachineError(
        f"the kernel refuses a time namespace{what} ({error.strerror}); it takes root and Linux 5.6 with CONFIG_TIME_NS"
    )
