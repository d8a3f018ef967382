"""A process for tests of connections: it answers what it is asked."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from typing import Any

from railyard.errors import ConfigError
from railyard.process.parent import Parent
from railyard.remote.time_namespace import enter_time_offset


def refuse(key: str) -> None:
    raise ConfigError("is wrong; leave it out", key=key)


def wait(seconds: float) -> str:
    time.sleep(seconds)
    return "waited"


def clock() -> list[float]:
    return [time.monotonic(), time.monotonic()]


def child_clock() -> list[float]:
    """The clock of a process that is started now."""
    code = "import time; print(time.monotonic())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(ran.stdout)] * 2


def through(path: str, text: str) -> list[str]:
    """The mode of a Unix socket, and what comes back through it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10.0)
        client.connect(path)
        client.sendall(text.encode())
        return [oct(stat.S_IMODE(os.stat(path).st_mode)), client.recv(100).decode()]


def echo(value: Any) -> Any:
    return value


def fail() -> None:
    print("about to fail", file=sys.stderr)
    os._exit(3)


def main() -> None:
    parent = Parent()
    parent.operations = {
        "echo": echo,
        "refuse": refuse,
        "wait": wait,
        "fail": fail,
        "clock": clock,
        "child_clock": child_clock,
        "move_clock": enter_time_offset,
        "through": through,
        "user": os.geteuid,
        "pid": os.getpid,
    }
    parent.ready()
    parent.serve()


if __name__ == "__main__":
    main()
