"""A process for tests of connections: it answers what it is asked, and passes on what is written to a named pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from railyard.errors import ConfigError
from railyard.remote.connection import Connection, Service


def refuse(key: str) -> None:
    raise ConfigError("is wrong; leave it out", key=key)


def stamp() -> float:
    return time.monotonic()


def wait(seconds: float) -> str:
    time.sleep(seconds)
    return "waited"


def echo(value: Any) -> Any:
    return value


def fail() -> None:
    print("about to fail", file=sys.stderr)
    os._exit(3)


def main() -> None:
    connection = Connection.of_standard_streams("the head")
    operations: dict[str, Callable[..., Any]] = {
        "echo": echo,
        "refuse": refuse,
        "wait": wait,
        "fail": fail,
        "stamp": stamp,
        "user": os.geteuid,
        "pid": os.getpid,
        "say": lambda text: connection.tell("said", text=text),
    }
    Service(connection, operations).serve()


if __name__ == "__main__":
    main()
