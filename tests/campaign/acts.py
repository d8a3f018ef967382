"""Makes a fault in a run that goes on: signals to its processes, and disturbed OpenFlow connections."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

from tests.campaign.expectation import CLEAN_S
from tests.campaign.fault import STOP_S
from tests.campaign.processes import Family
from topos.kernel.run_watcher import Process

OPENFLOW_PORT = 6653
_BETWEEN_INTS_S = 0.1
_POLL_S = 0.02
_COMMAND_S = 10.0


class NotPossible(Exception):
    """A fault cannot be made on this machine; the text says which means is missing."""


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal to a process; False if it has ended, so that no other process with its id is hit."""
    try:
        if process.alive:
            os.kill(process.pid, number)
            return True
    except ProcessLookupError:
        pass
    return False


def disturb(process: Process, what: str, goes_on: Callable[[], bool]) -> bool:
    """Make one of ``fault.SIGNALS`` to a process; False if it has ended.

    A stopped process continues after ``STOP_S`` seconds, or as soon as the run no longer ``goes_on``.
    """
    if what == "INT INT":
        sent = send(process, signal.SIGINT)
        wait_while(lambda: process.alive and goes_on(), _BETWEEN_INTS_S)
        send(process, signal.SIGINT)
        return sent
    if what != "STOP":
        return send(process, signal.Signals[f"SIG{what}"])
    sent = send(process, signal.SIGSTOP)
    try:
        wait_while(lambda: process.alive and goes_on(), STOP_S)
    finally:
        send(process, signal.SIGCONT)
    return sent


def wait_while(goes_on: Callable[[], bool], longest_s: float) -> None:
    """Wait ``longest_s`` seconds, or until something does not go on."""
    end = time.monotonic() + longest_s
    while goes_on() and (left := end - time.monotonic()) > 0:
        time.sleep(min(_POLL_S, left))


def _in_namespace_of(process: Process, *command: str) -> subprocess.CompletedProcess[str]:
    entered = ["nsenter", "-t", str(process.pid), "-n", *command]
    return subprocess.run(entered, capture_output=True, text=True, timeout=_COMMAND_S, check=False)


def stall(process: Process, seconds: float, goes_on: Callable[[], bool]) -> bool:
    """Take the loopback interface in the namespace of a process down for ``seconds``; False if it has ended."""
    down = _in_namespace_of(process, "ip", "link", "set", "lo", "down")
    wait_while(goes_on, seconds)
    _in_namespace_of(process, "ip", "link", "set", "lo", "up")
    return down.returncode == 0


def reset(process: Process) -> bool:
    """Reset all OpenFlow connections in the namespace of a process; False if it has ended.

    ``NotPossible`` where the tool ``ss`` is missing or the kernel cannot destroy sockets (CONFIG_INET_DIAG_DESTROY).
    """
    if shutil.which("ss") is None:
        raise NotPossible("the tool ss is missing")
    port = f"( sport = :{OPENFLOW_PORT} or dport = :{OPENFLOW_PORT} )"
    done = _in_namespace_of(process, "ss", "--kill", "--tcp", "--no-header", "state", "established", port)
    if "not supported" in done.stderr:
        raise NotPossible("this kernel cannot destroy sockets")
    return done.returncode == 0 and bool(done.stdout.strip())


def end(family: Family) -> None:
    """Kill a run. Its watcher has ``CLEAN_S`` seconds to clean up after it; what is left then is killed too."""
    family.look_everywhere()
    send(family.main, signal.SIGKILL)
    wait_while(lambda: bool(family.alive()), CLEAN_S)
    family.look_everywhere()
    for process in family.alive():
        send(process, signal.SIGKILL)
