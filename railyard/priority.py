"""Scheduling priorities. Switch, controller and agents emulate hardware, so they run ahead of other software.

Where the kernel groups processes by session (``sched_autogroup_enabled``), ``nice`` counts only within a session, and
each session has a ``nice`` value of its own. Beside 30 busy processes the switch of 16 hosts x 100 Mb/s waited for a
core 0.85 s of each second with ``nice`` of the process alone, and 0.05 s with that of the session as well.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_TIMERSLACK = 29


def set_priority(nice: int, process: int = 0) -> None:
    """Set the priority of a process (0: this one), and of its session if it leads one; -20 is the highest.

    Best effort: a value that the kernel refuses is ignored.
    """
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, nice)
    if os.getsid(process) == (process or os.getpid()):
        set_session_priority(process or os.getpid(), nice)


def set_real_time(thread: int = 0, *, threads: bool = False) -> None:
    """Let a thread (0: this one) run before all others whenever it has work, since it must wake up in time.

    ``threads``: so do the threads and processes that it starts from then on. Best effort, where the kernel refuses. The
    kernel leaves other processes 5 % of the time (``sched_rt_runtime_us``).
    """
    with suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_RR | (0 if threads else os.SCHED_RESET_ON_FORK), os.sched_param(1))


@contextmanager
def real_time() -> Iterator[None]:
    """Let this thread run before all others, as ``set_real_time``, while the block runs."""
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    set_real_time()
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, policy, param)


def set_session_priority(leader: int, nice: int) -> None:
    """Set the priority of the session that process ``leader`` leads; -20 is the highest.

    Best effort: not every kernel groups processes by session.
    """
    with suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(f"{nice}\n")


def wake_in_time() -> None:
    """Have the kernel end the sleeps of this thread, and of those that it starts, to the microsecond (timer slack)."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
