"""Apps of Ryu 4.34 as they are installed, started by ``ryu-manager`` in charge of the switches of a net.

Run as a program, this file is our ``ryu-manager``; ``HURRY`` in its environment makes the timers of its framework run
so many times as fast.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[3]
if TYPE_CHECKING:
    from topos.kernel.emulation import Emulation

START_S = 30.0
REST = "http://127.0.0.1:8080"
"""Where the apps with a REST interface answer, in the namespace of the switches."""


@contextmanager
def in_charge(net: Emulation, apps: str, hurry: int = 1) -> Iterator[None]:
    """The apps (names of modules, separated by blanks) run until the block ends; all switches are connected."""
    from topos.kernel.namespaces import inside

    command = [sys.executable, "-u", "-W", "ignore", str(Path(__file__)), *apps.split()]
    environment = {**os.environ, "HURRY": str(hurry), "PYTHONPATH": str(ROOT)}
    log = net.run.path / "ryu.log"
    with log.open("wb") as output, inside(net.yard.netns_fd):
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        assert net.waitConnected(START_S), log.read_text(errors="replace")
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Be ``ryu-manager`` in a hurry."""
    import eventlet.hubs.hub

    hurry, hub = int(os.environ.get("HURRY", "1")), eventlet.hubs.hub.BaseHub
    schedule_local, schedule_global = hub.schedule_call_local, hub.schedule_call_global
    hub.schedule_call_local = lambda self, s, *a, **k: schedule_local(self, s / hurry, *a, **k)
    hub.schedule_call_global = lambda self, s, *a, **k: schedule_global(self, s / hurry, *a, **k)
    from railyard.__main__ import ryu_manager

    sys.exit(ryu_manager())


if __name__ == "__main__":
    main()
