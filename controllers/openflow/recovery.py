"""Brings switches back that were away, refused a message or did not reply: their flows are sent again, then the rest.

A switch is in *trouble* from then until it has confirmed its flows, which ``flows.fill`` sets all at once to what the
engine wants. Ports of reconfigurations under way have no flow in it, so they are dark; these are then sent again. What
is begun meanwhile waits. After ``PATIENCE_S`` (``AWAY_S`` without a connection) all that waits for the switch is
refused, and what comes later is refused at once, but the switch is taken back whenever it returns.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from controllers.circuits.circuits import Matching
from controllers.engine.actions import Action, Note
from controllers.openflow import flows
from controllers.openflow.datapaths import Datapath, DatapathSender, Send, Transaction, Trouble
from controllers.openflow.tuning import Forwarding, Tuning
from railyard.errors import MachineError
from topos.kernel.ovsdb import Ovsdb
from topos.plan import SwitchPlan

PATIENCE_S = 10.0
"""How long a switch may not execute its messages before the requests that wait for it are refused."""
AWAY_S = 5.0
"""How long a switch may be away before they are."""
ANSWER_S = 0.5
"""How long a reply is waited for, or a refused message kept back, before it is sent again; doubled each time."""
LONGEST_S = 8.0
"""Longest time between two attempts."""
RECONNECT_S = 0.25
"""How long a switch may take to connect again before it is asked once more; doubled each time."""


class Recovery:
    """The switches in trouble (``Datapaths.troubles``). ``reconnect(name)`` has a switch connect again at once.

    ``takes_over``: an optical switch that joins for the first time is asked for its flows, and keeps its circuits.
    ``flows`` are the entries that have come, by the xid of the request.
    """

    def __init__(
        self,
        sender: DatapathSender,
        tuning: Tuning,
        forwarding: Forwarding,
        reconnect: Callable[[str], None],
        *,
        takes_over: bool = False,
    ) -> None:
        self.flows: dict[int, bytes] = {}
        self._takes_over = takes_over
        self._sender = sender
        self._datapaths = sender.datapaths
        self._tuning = tuning
        self._forwarding = forwarding
        self._reconnect = reconnect

    def answer_s(self, name: str) -> float:
        trouble = self._datapaths.troubles.get(name)
        tries = 0 if trouble is None else min(trouble.tries, 10)
        return float(min(LONGEST_S, ANSWER_S * 2**tries))

    def joined(self, plan: SwitchPlan, send: Send, now: float) -> None:
        known = plan.name in self._datapaths.connected or plan.name in self._datapaths.troubles
        if plan.name in self._datapaths.connected:
            self._begin(plan.name, "connected to the controller again", now)
        self._datapaths.connect(plan, send)
        if plan.name in self._datapaths.troubles:
            self._datapaths.troubles[plan.name].away_since = None
        if self._takes_over and not known and plan.kind == "ocs" and plan.mesh is None:
            self._sender.send(plan.name, "read", lambda xid: flows.flow_stats_request(xid) + flows.barrier(xid), now)
        else:
            self._fill(plan.name, now)

    def read(self, done: Transaction, now: float) -> None:
        """Take over the circuits of a switch whose flows have been read."""
        up, dark = flows.circuits_in(self.flows.pop(done.xid, b""))
        self._sender.engine.optical.switches[done.switch].take_over(Matching(up), dark)
        self._fill(done.switch, now)

    def left(self, name: str, now: float) -> list[Action]:
        self._datapaths.disconnect(name)
        trouble = self._begin(name, "lost its connection to the controller", now)
        trouble.away_since = now
        if trouble.asking:
            self._reconnect(name)  # a timer of an earlier loss asks again
        else:
            self._ask_back(name, trouble, RECONNECT_S, now)
        if not trouble.watched:
            self._watch_away(name, trouble, now)
        return [Note("left", now, fields={"rail": name}, source="switch")]

    def not_executed(self, failed: Transaction, problem: str, now: float, *, at_once: bool) -> None:
        """Send the flows of a switch again that has not executed a message, ``at_once`` or after a while."""
        name = failed.switch
        print(f"controller: {name} {problem}; its flows are sent again", file=sys.stderr)
        wait_s = self.answer_s(name)
        trouble = self._begin(name, problem, now)
        trouble.tries += 1
        if failed.step in ("darken", "end_dark"):
            self._tuning.not_executed(failed.reconfiguration_id, problem, now)
        datapath = self._datapaths.connected[name]
        datapath.filled = False
        self._datapaths.forget_transactions(name)
        if not at_once:
            self._sender.later(now + wait_s, lambda later: self._fill_again(name, datapath, later))
            return
        self._fill(name, now)
        if trouble.tries > 1:
            self._reconnect(name)  # perhaps nothing passes this connection any more

    def filled(self, name: str, now: float) -> Iterable[Action]:
        """Handle the confirmation of a switch that it has its flows: go on with what is under way on it."""
        datapath = self._datapaths.connected[name]
        refused = self._tuning.give_up_overdue(name, now - PATIENCE_S, now)
        if datapath.outdated or refused:
            self._fill(name, now)
            return refused
        datapath.filled = True
        datapath.circuits_to_caches_s(now)
        trouble = self._datapaths.troubles.pop(name, None)
        actions = [*self._forwarding.resumed(name, now), *self._tuning.resumed(name, now)]
        if trouble is None:
            return actions
        fields = {"rail": name, "problem": trouble.problem}
        back = self._sender.engine.bring_back(name, now)
        return [Note("recovered", trouble.since, now, fields, source="switch"), *actions, *back]

    def call_missing(self, wait_s: float, now: float) -> Iterable[Action]:
        """Have switches connect that never have, as after a restart of the controller, and again after a while."""
        missing = self._datapaths.expected()
        for name in missing:
            self._reconnect(name)
        if missing:
            self._sender.later(now + 2 * wait_s, lambda later: self.call_missing(2 * wait_s, later))
        return ()

    def _begin(self, name: str, problem: str, now: float) -> Trouble:
        trouble = self._datapaths.troubles.get(name)
        if trouble is None:
            trouble = self._datapaths.troubles[name] = Trouble(now, problem)
            begun = trouble
            self._sender.later(now + PATIENCE_S, lambda later: self._give_up(name, begun, later))
        trouble.problem = problem
        return trouble

    def _give_up(self, name: str, trouble: Trouble, now: float) -> Iterable[Action]:
        """Refuse all that waits for a switch which is still in the same trouble."""
        if self._datapaths.troubles.get(name) is not trouble or trouble.given_up:
            return ()
        print(f"controller: {name} {trouble.problem}, and was not back in time", file=sys.stderr)
        trouble.given_up = True
        self._datapaths.outdate(name)
        reason = f"{name} {trouble.problem}"
        return [*self._tuning.lost(name, reason, now), *self._forwarding.lost(name, reason, now)]

    def _watch_away(self, name: str, trouble: Trouble, now: float) -> Iterable[Action]:
        """Give a switch up that has been away for ``AWAY_S``; look again when that may be so."""
        since = trouble.away_since
        trouble.watched = since is not None and self._datapaths.troubles.get(name) is trouble and not trouble.given_up
        if since is None or not trouble.watched:
            return ()
        if now >= since + AWAY_S:
            return self._give_up(name, trouble, now)
        self._sender.later(since + AWAY_S, lambda later: self._watch_away(name, trouble, later))
        return ()

    def _ask_back(self, name: str, trouble: Trouble, wait_s: float, now: float) -> Iterable[Action]:
        """Have a switch connect again, and once more if it has not after a while."""
        away = self._datapaths.troubles.get(name) is trouble and name not in self._datapaths.connected
        if away:
            self._reconnect(name)
        trouble.asking = away and not trouble.given_up
        if trouble.asking:
            self._sender.later(now + wait_s, lambda later: self._ask_back(name, trouble, 2 * wait_s, later))
        return ()

    def _fill_again(self, name: str, datapath: Datapath, now: float) -> Iterable[Action]:
        if self._datapaths.connected.get(name) is datapath:
            self._fill(name, now)
        return ()

    def _fill(self, name: str, now: float) -> None:
        """Send a switch all the flows that the engine wants now, but those of reconfigurations under way."""
        datapath, engine = self._datapaths.connected[name], self._sender.engine
        datapath.filled = datapath.outdated = False
        device, routes = engine.optical.switches.get(name), engine.routing.held.get(name)
        circuits = [circuit.ports for circuit in device.up] if device is not None else []
        rotating = self._tuning.rotating(name)
        datapath.rotation_ports = {port: 0 for ports in circuits for port in ports if port in rotating}
        macs = {port.number: port.mac for port in datapath.plan.ports if port.number in datapath.rotation_ports}
        self._sender.send(name, "fill", lambda xid: flows.fill(datapath.plan, circuits, xid, routes, macs), now)


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

    After a connection has ended Open vSwitch waits for one to three seconds, however short the longest wait in its
    database is. To a new target it connects at once; so the target gets another spelling of its address.

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
