"""Follows the flow tables of a bridge over a connection of its own, and keeps the fast path equal to them.

It also follows the features of Open vSwitch that need every packet: mirrors, sampling, spanning tree, policing, queues.
As long as a bridge has one of them, Open vSwitch forwards all of its packets. The database tells of changes (RFC 7047).
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from railyard.errors import MachineError
from railyard.loop import Loop
from topos.kernel.fastpath import openflow
from topos.kernel.fastpath.streams import BufferedStream
from topos.kernel.fastpath.tables import FlowTables
from topos.kernel.relay import connect_unix

_FIRST_XID = 1
_SURE_PART = 20
"""A full socket holds at least this part of the bytes that the kernel grants it; 1/16 if all messages have 48 bytes, as
the kernel counts 768 for each. Open vSwitch sends updates before the reply that promises them, and at once unless the
socket is full: if less than this could be read, all updates before the reply have been."""
_CONNECT_S = 10.0
_LONGEST_HOLD_S = 0.02
"""Changes wait at most so long for a time that a controller names."""
_SLOW_WEIGHT = 0.2
_MOST_CHANGE_S = 5e-4
"""A change of rules that took longer had to wait for a processor, which says nothing about the next one."""


class Monitor:
    """The flow monitor of ``tables``' bridge, whose own socket is ``path``.

    ``failed`` is called with a sentence if the connection ends. ``OSError`` if Open vSwitch does not answer there.
    """

    def __init__(self, loop: Loop, tables: FlowTables, path: Path, failed: Callable[[str], None]) -> None:
        self.tables = tables
        self._loop = loop
        self._timer: float | None = None
        self._gone: list[tuple[int, Callable[[], None]]] = []
        self._change_s = 0.0
        """How long a change at a given time takes: the next one begins so much earlier."""
        self._changed_at = 0.0
        """When the kernel held the last change."""
        self._held_until: float | None = None
        """No change is put into the kernel before this time (None: at once)."""
        self._after_hold: list[Callable[[], None]] = []
        self._unlit: list[tuple[set[int], Callable[[], None]]] = []
        """Ports that are dark, and what is called when the last of them is lit."""
        self._failed = failed
        self._paused = False
        self._more = False
        """The next message continues the changes of the last one: those of a large bundle hold at once."""
        self._xid = _FIRST_XID
        self._behind = 0
        """The last xid sent when Open vSwitch may have had more updates than the socket took; 0 if it has none."""
        self._waiting: dict[int, Callable[[], None]] = {}
        self._after_pause: list[Callable[[], None]] = []
        connection = connect_unix(path, _CONNECT_S)
        self._sure_bytes = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // _SURE_PART
        self._stream = BufferedStream(loop, connection, self._received, self._ended)
        self._stream.send(openflow.monitor_requests(_FIRST_XID))

    def synchronize(self, then: Callable[[], None]) -> bool:
        """Make the fast path equal to all changes that Open vSwitch has made by now.

        True if it is; else False, and ``then`` is called when it is.
        """
        self._stream.read()
        if self._held_until is not None and not (self._behind or self._paused or self._more or self._waiting):
            self._after_hold.append(then)
            return False
        if not (self._behind or self._paused or self._more or self._waiting):
            return True
        self.when_current(then)
        return False

    def when_current(self, then: Callable[[], None]) -> None:
        """Call ``then`` when the fast path has followed all changes up to now."""
        self._xid += 1
        self._waiting[self._xid] = then
        self._stream.send(openflow.message(openflow.BARRIER_REQUEST, self._xid))

    def _received(self, buffer: bytearray) -> None:
        done: list[Callable[[], None]] = []
        if len(buffer) >= self._sure_bytes:
            self._behind = self._xid
        for message in openflow.split(buffer):
            kind, xid = message[1], int.from_bytes(message[4:8], "big")
            if kind == openflow.MULTIPART_REPLY:
                self._answered(message)
            elif kind == openflow.PORT_STATUS:
                self.tables.port_configured(*openflow.changed_port(message))
            elif kind == openflow.BARRIER_REPLY and xid in self._waiting:
                self._behind = 0 if xid > self._behind else self._behind
                (self._after_pause if self._paused else done).append(self._waiting.pop(xid))
            elif kind == openflow.ECHO_REQUEST:
                self._stream.send(openflow.message(openflow.ECHO_REPLY, xid, message[8:]))
            elif kind == openflow.ERROR:
                self._failed(f"Open vSwitch refused the flow monitor of {self.tables.switch}: {message[8:12].hex()}")
        self.commit()
        if not self._paused:
            done += self._after_pause
            self._after_pause = []
        self._after_hold += done
        self._tell_held()

    def hold(self, until: float) -> None:
        """Put no change into the kernel before time ``until``, which is at most ``_LONGEST_HOLD_S`` away."""
        until = min(until, time.monotonic() + _LONGEST_HOLD_S)
        if self._held_until is None and until > time.monotonic():
            self._loop.at(until - self._change_s, self._end_hold)
        if until > (self._held_until or time.monotonic()):
            self._held_until = until

    def _end_hold(self) -> None:
        began = time.monotonic()
        if self._held_until is None:
            return
        if began + self._change_s < self._held_until:  # a later one took its place
            self._loop.at(self._held_until - self._change_s, self._end_hold)
            return
        self._held_until = None
        self.commit()
        self._learn(began)
        self._tell_held()

    def _tell_held(self) -> None:
        """Call those to whom the fast path is current; not between two messages of one change."""
        if self._held_until is None and not self._more:
            done, self._after_hold = self._after_hold, []
            for then in done:
                then()

    def commit(self) -> None:
        """Put the changes into the kernel, when all that belong together have come.

        If that fails, a message says that Open vSwitch forwards for the switch.
        """
        if not self._more and self._held_until is None:
            self._put()
            self._tell_gone()

    def _put(self) -> None:
        try:
            self.tables.commit(self._note_time)
        except MachineError as error:
            print(f"fast path: Open vSwitch forwards for {self.tables.switch} from now on: {error}", file=sys.stderr)
            self._note_time()
        self.tables.lasting.committed(self._changed_at)
        self.tables.dark.committed(self._changed_at)
        self._set_timer()

    def _note_time(self) -> None:
        self._changed_at = time.monotonic()

    def _tell_gone(self) -> None:
        waiting, self._gone = self._gone, []
        for cookie, then in waiting:
            if not self.when_gone(cookie, then):
                then()

    def when_gone(self, cookie: int, then: Callable[[], None]) -> bool:
        """Whether flows with ``cookie`` stay although Open vSwitch has none; if so, ``then`` is called at their end."""
        if self.tables.lasting.has(cookie):
            self._gone.append((cookie, then))
            return True
        return False

    def keep_dark(self, seconds: float) -> None:
        """Keep ports dark for ``seconds`` from each change of their circuits, from now on; 0: light all."""
        lit = self.tables.keep_dark(seconds)
        self.commit()
        self._tell_lit(lit)

    def when_lit(self, then: Callable[[], None]) -> bool:
        """Whether circuits are dark; if so, ``then`` is called when the dark time of all of them is over."""
        awaited = self.tables.dark.awaited()
        if awaited:
            self._unlit.append((awaited, then))
        return bool(awaited)

    def _tell_lit(self, lit: set[int]) -> None:
        for ports, _ in self._unlit:
            ports -= lit
        done = [then for ports, then in self._unlit if not ports]
        self._unlit = [waiting for waiting in self._unlit if waiting[0]]
        for then in done:
            then()

    def _set_timer(self) -> None:
        ends = [end for end in (self.tables.lasting.next_end(), self.tables.dark.next_end()) if end is not None]
        if ends and (self._timer is None or min(ends) < self._timer):
            self._timer = end = min(ends)
            self._loop.at(end - self._change_s, self._end_lasting)

    def _end_lasting(self) -> None:
        began, self._timer = time.monotonic(), None
        if self._more or self._held_until is not None:
            return  # with the rest of a change, which comes soon
        lit = self.tables.end_lasting(began + self._change_s)
        self._put()
        self._learn(began)
        self._tell_gone()
        self._tell_lit(lit)

    def _learn(self, began: float) -> None:
        """Learn how long a change takes from one that began at ``began``; slow ones, which had to wait, weigh less."""
        took = self._changed_at - began
        if took >= 0:
            slower = self._change_s + (took - self._change_s) * _SLOW_WEIGHT
            self._change_s = min(took, slower, _MOST_CHANGE_S)

    def _answered(self, message: bytes) -> None:
        kind = int.from_bytes(message[8:10], "big")
        if kind == openflow.MULTIPART_PORTS:
            for number, configuration in openflow.ports(message):
                self.tables.port_configured(number, configuration)
        elif kind == openflow.MULTIPART_MONITOR:
            self._more = openflow.has_more(message)
            for update in openflow.flow_updates(message):
                if update.event in (openflow.PAUSED, openflow.RESUMED):
                    self._paused = update.event == openflow.PAUSED
                self.tables.update(update)

    def _ended(self) -> None:
        self._failed(f"Open vSwitch closed the flow monitor of {self.tables.switch}")


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
Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]


def needing(rows: Rows) -> set[str]:
    """The bridges all of whose packets Open vSwitch must see; ``rows``: table -> row id -> columns (``_COLUMNS``)."""
    limited = any(port["qos"] != _NONE for port in rows["Port"].values()) or any(
        value not in _UNSET for interface in rows["Interface"].values() for value in interface.values()
    )
    return {bridge["name"] for bridge in rows["Bridge"].values() if limited or _needs(bridge)}


def unsupported(rows: Rows) -> set[str]:
    """Sentences about features that do not act on the links of a fast path, since its ports are behind them."""
    sentences = {
        f"spanning tree of {bridge['name']} leaves the ports of a fast path out; take --datapath ovs"
        for bridge in rows["Bridge"].values()
        if any(bridge[key] is True for key in _FLAGS)
    }
    policed = any(row.get(key) for row in rows["Interface"].values() for key in _POLICING)
    if policed or any(port["qos"] != _NONE for port in rows["Port"].values()):
        sentences.add("queues and policers of Open vSwitch do not act on the links of a fast path; take --datapath ovs")
    return sentences


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
