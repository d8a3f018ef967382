"""Has Open vSwitch connect to the controller again at once.

After a connection has ended Open vSwitch waits for one to three seconds, however short the longest wait in its database
is. To a new target it connects at once; so the target of a bridge's controller gets another spelling of its address.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from railyard.errors import MachineError
from topos.kernel.ovsdb import Ovsdb

_TIMEOUT_S = 5.0
_WAKE_S, _WAKES = 0.005, (1, 0, 1, 0)
"""Open vSwitch does not wait for the hello of a controller: it looks up to a second later, unless it is woken, as by a
change of its database."""


def other_spelling(target: str) -> str:
    """The same address in other characters; the spelling of that is ``target`` again.

    Of Unix sockets Open vSwitch takes only its own path, and takes a double slash for a single one.
    """
    kind, _, address = target.partition(":")
    if kind == "unix":
        return f"unix:/{address}" if not address.startswith("//") else f"unix:{address[1:]}"
    host, _, port = address.rpartition(":")
    return f"{kind}:{host}:0{port}" if not port.startswith("0") else f"{kind}:{host}:{port[1:]}"


def connect_again(database: Ovsdb, bridge: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Have ``bridge`` connect to its controller at once; a bridge with several controllers is left alone.

    ``MachineError`` or ``OSError`` if the database does not answer.
    """
    where: list[object] = [["name", "==", bridge]]
    found = database.transact({"op": "select", "table": "Bridge", "where": where, "columns": ["controller"]})[0]["rows"]
    row = found[0]["controller"] if found else ["set", []]
    if row[0] != "uuid":
        return
    it = [["_uuid", "==", row]]
    columns = ["target", "max_backoff"]
    select = {"op": "select", "table": "Controller", "where": it, "columns": columns}
    (controller,) = database.transact(select)[0]["rows"]
    change = {"target": other_spelling(controller["target"])}
    database.transact({"op": "update", "table": "Controller", "where": it, "row": change})
    for more_ms in _WAKES:
        sleep(_WAKE_S)
        change = {"max_backoff": controller["max_backoff"] + more_ms}
        database.transact({"op": "update", "table": "Controller", "where": it, "row": change})


class Reconnector:
    """Calls ``connect_again`` in a thread of its own; ``path`` is the socket of the database of Open vSwitch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted: queue.SimpleQueue[tuple[str, Callable[[], bool]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="reconnect", daemon=True).start()

    def __call__(self, bridge: str, needed: Callable[[], bool]) -> None:
        """Have ``bridge`` connect again, soon, unless that is not ``needed`` any more: it ends a connection it has."""
        self._wanted.put((bridge, needed))

    def _run(self) -> None:
        database: Ovsdb | None = None
        while True:
            bridge, needed = self._wanted.get()
            if not needed():
                continue
            try:
                database = database or Ovsdb(self._path, _TIMEOUT_S)
                connect_again(database, bridge)
            except (OSError, MachineError) as error:
                print(f"controller: Open vSwitch cannot be told to connect {bridge} again: {error}", file=sys.stderr)
                if database is not None:
                    database.close()
                    database = None
