"""What Mininet would do to the machine is not done. No root."""

from __future__ import annotations

import subprocess
import sys

from mininet import net
from mininet.net import Mininet

from topos.kernel.emulation import machine_left_alone


def test_terminals_are_ended_by_their_ids_and_nothing_by_its_command_line() -> None:
    sleep = "import time; time.sleep(60)"
    mine = subprocess.Popen([sys.executable, "-c", sleep])
    others = subprocess.Popen([sys.executable, "-c", sleep, "mnexec of another user, with socat"])
    with machine_left_alone():
        pass
    made = Mininet.__new__(Mininet)
    made.terms = [mine]
    try:
        made.stopXterms()
        assert mine.wait(10) < 0
        assert others.poll() is None and net.cleanUpScreens() is None
    finally:
        for process in (mine, others):
            process.kill()
            process.wait()
