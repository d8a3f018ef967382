"""The connected switches (datapaths) and the OpenFlow transactions under way with them. Sends bytes, decides nothing.

A transaction is a message that ends in a barrier request; it is over with the barrier reply or an error. Open vSwitch
answers a barrier when its tables have changed. Where it forwards packets itself, its flow caches follow a little later,
unseen by a controller (``CacheTimes``). Where the kernel forwards for it (``topos.kernel.fastpath``), the reply is held
until the kernel has followed, so nothing is left to wait for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Protocol

from controllers.engine.actions import Action
from controllers.engine.engine import Engine
from topos.plan import FabricPlan, SwitchPlan


@dataclass(frozen=True)
class CacheTimes:
    """Times of a datapath in seconds.

    - ``settle_s``: from a barrier reply until packets follow, if the tables had been quiet;
    - ``revalidation_s``: the least time between two updates of the caches, which adds to ``settle_s`` where changes
      follow each other closely;
    - ``early_s``: how long before the end of a dark time its end may be ordered, of a switch that keeps the time itself
      (``topos.kernel.fastpath.lasting``); None for others, which end it when they have executed the order;
    - ``notice_s``: how long before the circuits of a slot are up its ranks are told, so that all of them know in time.
    """

    settle_s: float
    revalidation_s: float
    notice_s: float
    early_s: float | None = None

    @property
    def quiet_lead_s(self) -> float:
        """Time before the end of a delay at which circuits are installed if no rank sends before it is told.

        The caches have then followed at the end of the delay, whatever the switch did before.
        """
        return self.settle_s + self.revalidation_s + self.notice_s


OPEN_VSWITCH = CacheTimes(settle_s=0.004, revalidation_s=0.005, notice_s=0.0)
"""Of Open vSwitch itself. Its caches follow within two milliseconds (measured), but only every five
(``udpif_revalidator`` in ofproto/ofproto-dpif-upcall.c). Ranks are told that long before anyway."""
EXACT = CacheTimes(settle_s=0.0, revalidation_s=0.0, notice_s=0.002, early_s=0.002)
"""Of a switch whose barrier reply means that packets follow. Open vSwitch removes the flows of 64 ports in 1.3 ms."""


Send = Callable[[bytes], bool]
Step = Literal["read", "fill", "darken", "end_dark", "route"]
Decide = Callable[[float], Iterable[Action]]
"""A function of the time that returns the actions to execute."""

FIRST_XID = 0x5259_0001
FIRST_GUESS_S = 0.0004
"""The round trip that is assumed for a barrier before one was measured."""


@dataclass(frozen=True)
class Transaction:
    """A message sent to a switch whose barrier reply is awaited. ``reconfiguration_id`` is 0 without one."""

    xid: int
    step: Step
    switch: str
    reconfiguration_id: int
    sent_at: float


@dataclass
class Trouble:
    """A switch that is away or did not execute what it was sent, ``since`` when, and the latest ``problem`` in words.

    ``tries``: how often it was sent its flows since then. ``away_since``: when it lost its connection, until it has
    another. ``given_up``: nothing waits for it any more. ``asking``, ``watched``: a timer is set to have it connect
    again, or to give it up if it is away.
    """

    since: float
    problem: str
    tries: int = 0
    away_since: float | None = None
    given_up: bool = False
    asking: bool = False
    watched: bool = False


@dataclass
class Datapath:
    """One connected switch; ``filled`` once it holds the flows that the engine expects of it.

    ``outdated``: these flows have changed since they were sent, so they must be sent again.
    """

    plan: SwitchPlan
    send: Send
    caches: CacheTimes = OPEN_VSWITCH
    filled: bool = False
    outdated: bool = False
    trips: dict[Step, list[float]] = field(default_factory=dict)
    """The last round trips of the messages of each step, in seconds."""
    changed_at: float = float("-inf")
    """The time at which its tables changed last."""
    rotation_ports: dict[int, int] = field(default_factory=dict)
    """Ports that may hold a flow of a rotation (``flows.rotation_circuit_flow``), with the last reconfiguration that
    may have put it there."""

    def trip_s(self, step: Step) -> float:
        return median(self.trips.get(step, [FIRST_GUESS_S]))

    def learn(self, step: Step, round_trip_s: float) -> None:
        self.trips[step] = [*self.trips.get(step, [])[-8:], round_trip_s]

    def circuits_to_caches_s(self, now: float) -> float:
        """Record a change of the tables at ``now``; the longest time until the switch begins to update its caches.

        0 s if the tables did not change shortly before. Otherwise the caches may just have been updated, or that update
        may itself still wait.
        """
        quiet = now - self.changed_at >= 2 * self.caches.revalidation_s
        self.changed_at = now
        return 0.0 if quiet else self.caches.revalidation_s


class Datapaths:
    """The connected switches by name, and the transactions under way by xid; ``caches`` is how fast packets follow."""

    def __init__(self, plan: FabricPlan, caches: CacheTimes = OPEN_VSWITCH) -> None:
        self.caches = caches
        self._by_dpid = {switch.dpid: switch for switch in plan.switches}
        self._xids = itertools.count(FIRST_XID)
        self.connected: dict[str, Datapath] = {}
        self.transactions: dict[int, Transaction] = {}
        self.troubles: dict[str, Trouble] = {}

    def next_xid(self) -> int:
        return next(self._xids)

    def plan_of(self, dpid: int) -> SwitchPlan | None:
        return self._by_dpid.get(dpid)

    @property
    def complete(self) -> bool:
        """True once all switches of the plan are connected and have their starting flows."""
        return len(self.connected) == len(self._by_dpid) and all(
            datapath.filled for datapath in self.connected.values()
        )

    def expected(self) -> list[str]:
        names = (switch.name for switch in self._by_dpid.values())
        return [name for name in names if name not in self.connected and name not in self.troubles]

    def missing(self) -> list[str]:
        """The switches that have not joined, or were away for too long; not those that are expected back."""
        return [s.name for s in self._by_dpid.values() if not self.is_filled(s.name) and self.hopeless(s.name)]

    def is_filled(self, name: str) -> bool:
        """Whether switch ``name`` is connected and holds the flows that the engine expects of it."""
        return name in self.connected and self.connected[name].filled

    def hopeless(self, name: str) -> str:
        """The reason in words why nothing can wait for ``name``, which is not filled; empty if it is expected back."""
        trouble = self.troubles.get(name)
        if trouble is not None:
            return trouble.problem if trouble.given_up else ""
        return "has not joined the controller"

    def connect(self, plan: SwitchPlan, send: Send) -> Datapath:
        self.disconnect(plan.name)
        self.connected[plan.name] = Datapath(plan, send, self.caches)
        return self.connected[plan.name]

    def outdate(self, name: str) -> None:
        """Have switch ``name`` be sent its flows again if they are on their way: they have changed since."""
        if name in self.connected:
            self.connected[name].outdated = True

    def disconnect(self, name: str) -> None:
        self.connected.pop(name, None)
        self.forget_transactions(name)

    def forget_transactions(self, name: str) -> None:
        """Forget the transactions with switch ``name``: a reply to one of them means nothing any more."""
        self.transactions = {x: t for x, t in self.transactions.items() if t.switch != name}

    def send(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> int:
        """Send ``build(xid)`` to switch ``name``; the xid, or 0 if the switch is not connected and filled."""
        datapath = self.connected.get(name)
        if datapath is None or not (datapath.filled or step in ("read", "fill")):
            return 0
        xid = self.next_xid()
        self.transactions[xid] = Transaction(xid, step, name, reconfiguration_id, now)
        if not datapath.send(build(xid)):
            self.transactions.pop(xid, None)
            return 0
        return xid


class DatapathSender(Protocol):
    """The controller core as ``Tuning`` and ``Forwarding`` use it. All methods are called under its lock."""

    engine: Engine
    datapaths: Datapaths

    def send(
        self, name: str, step: Step, build: Callable[[int], bytes], now: float, reconfiguration_id: int = 0
    ) -> bool:
        """Send ``build(xid)`` to switch ``name``; False if it cannot be sent now (``Recovery``)."""

    def later(self, moment: float, decide: Decide) -> None:
        """Call ``decide`` at time ``moment``, under the lock, and execute the actions that it returns."""
