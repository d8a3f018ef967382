"""Who gets a processor first. Switch, controller and agents stand for hardware, which does not wait for software.

Where the kernel groups processes by session (``sched_autogroup_enabled``), ``nice`` counts only inside a session, and
the session has a value of its own. Beside 30 busy processes the switch of 16 hosts x 100 Mb/s waited 0.85 s of each
second for a core with ``nice`` alone, and 0.05 s with both.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def put_ahead(nice: int) -> None:
    """Give this process a priority (-20 first), and its session too where it leads one. Best effort."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    if os.getsid(0) == os.getpid():
        put_session_ahead(os.getpid(), nice)


def put_session_ahead(leader: int, nice: int) -> None:
    """Give the session that process ``leader`` leads a priority. Best effort: not every kernel groups by session."""
    with suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(f"{nice}\n")
