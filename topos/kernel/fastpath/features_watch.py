"""Follows the features of Open vSwitch that need every packet: mirrors, sampling, spanning tree, policing, queues.

As long as a bridge has one of them, Open vSwitch forwards all of its packets. The database tells of changes (RFC 7047).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topos.kernel.fastpath.streams import BufferedStream, Loop, connect_unix

_COLUMNS = {
    "Bridge": ("name", "mirrors", "netflow", "sflow", "ipfix", "stp_enable", "rstp_enable", "fail_mode", "controller"),
    "Port": ("qos",),
    "Interface": ("ingress_policing_rate", "ingress_policing_kpkts_rate", "bfd", "cfm_mpid", "lldp"),
}
_UNSET = (0, False, ["set", []], ["map", []])
_SEEING = ("mirrors", "netflow", "sflow", "ipfix")
_NONE = ["set", []]
_FLAGS = ("stp_enable", "rstp_enable")
_POLICING = ("ingress_policing_rate", "ingress_policing_kpkts_rate")
_CONNECT_S = 10.0
Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]


def needing(rows: Rows) -> set[str]:
    """The bridges all of whose packets Open vSwitch must see; ``rows``: table -> row id -> columns (``_COLUMNS``)."""
    limited = any(port["qos"] != _NONE for port in rows["Port"].values()) or any(
        value not in _UNSET for interface in rows["Interface"].values() for value in interface.values()
    )
    return {bridge["name"] for bridge in rows["Bridge"].values() if limited or _needs(bridge)}


def unsupported(rows: Rows) -> set[str]:
    """Sentences about features that do not act on the links of a fast path, since its ports are behind them."""
    found = {
        f"spanning tree of {bridge['name']} leaves the ports of a fast path out; take --datapath ovs"
        for bridge in rows["Bridge"].values()
        if any(bridge[key] is True for key in _FLAGS)
    }
    policed = any(row.get(key) for row in rows["Interface"].values() for key in _POLICING)
    if policed or any(port["qos"] != _NONE for port in rows["Port"].values()):
        found.add("queues and policers of Open vSwitch do not act on the links of a fast path; take --datapath ovs")
    return found


def _needs(bridge: Mapping[str, Any]) -> bool:
    # with a controller and without fail_mode secure, hidden flows forward while the controller is away
    alone = bridge["controller"] != _NONE and bridge["fail_mode"] != "secure"
    return alone or any(bridge[key] != _NONE for key in _SEEING) or any(bridge[key] is True for key in _FLAGS)


class FeaturesWatch:
    """Calls ``changed`` with the bridges of ``needing`` at the start and after each change of the database ``path``.

    ``failed`` is called with a sentence if the connection ends. ``OSError`` if the database does not answer.
    """

    def __init__(
        self, loop: Loop, path: Path, changed: Callable[[set[str]], None], failed: Callable[[str], None]
    ) -> None:
        self._changed, self._failed = changed, failed
        self._decoder = json.JSONDecoder()
        self._said: set[str] = set()
        self._rows: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in _COLUMNS}
        ended = "the database of Open vSwitch closed the connection of the fast path"
        self._stream = BufferedStream(loop, connect_unix(path, _CONNECT_S), self._received, lambda: failed(ended))
        wanted = {table: {"columns": list(columns)} for table, columns in _COLUMNS.items()}
        self._stream.send(json.dumps({"id": 0, "method": "monitor", "params": ["Open_vSwitch", None, wanted]}).encode())

    def _received(self, buffer: bytearray) -> None:
        while buffer:
            try:
                message, end = self._decoder.raw_decode(buffer.decode())
            except ValueError:  # the rest of the message is still to come
                return
            del buffer[: len(buffer.decode()[:end].encode())]
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "echo":
            reply = {"id": message["id"], "result": message["params"], "error": None}
            self._stream.send(json.dumps(reply).encode())
            return
        if message.get("error"):
            self._failed(f"the database of Open vSwitch does not tell of its features: {message['error']}")
            return
        updates = message["params"][1] if message.get("method") == "update" else message.get("result")
        for table, rows in (updates or {}).items():
            for row, change in rows.items():
                if "new" in change:
                    self._rows[table][row] = change["new"]
                else:
                    self._rows[table].pop(row, None)
        for sentence in unsupported(self._rows) - self._said:
            print(f"fast path: {sentence}", file=sys.stderr)
            self._said.add(sentence)
        self._changed(needing(self._rows))
