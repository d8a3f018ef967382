"""Everybody who waits for circuits, the oldest first: granted, started, refused, or left waiting. No clock, no I/O.

Order of a reconfiguration, always: all members asked -> nothing in flight on the ports concerned -> dark -> installed
-> ack. A request that can be granted is granted, even if an older one still waits for other ports.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.circuits.ocs import Change
from controllers.circuits.rotation import RunningRotation
from controllers.engine.actions import Ack, Action, Note, Refuse, SlotEnds
from controllers.engine.optical_state import OpticalState, SwitchPort
from controllers.engine.readiness import Readiness, Round
from controllers.engine.requests import GroupRequest, PendingRequest, RewireRequest, StartRequest
from controllers.engine.routing import Routing
from railyard.errors import RailyardError
from railyard.protocol import Hop

MAX_TRIES = 8
"""Reconfigurations one request may take before its policy is held to be going round in circles."""


class RequestQueue:
    """The queue in front of ``fabric`` and ``routing``. Each method returns what must be done, in order."""

    def __init__(self, fabric: OpticalState, routing: Routing) -> None:
        self._fabric = fabric
        self._routing = routing
        self._pending: list[PendingRequest] = []
        self._rounds: dict[tuple[str, int], GroupRequest] = {}

    # ---- in ---------------------------------------------------------------------------------------------------

    def ask(self, pending: PendingRequest, now: float) -> list[Action]:
        """Somebody waits from now on."""
        if isinstance(pending, GroupRequest):
            self._rounds[pending.group.name, pending.slot_window.index] = pending
        self._pending.append(pending)
        return self._try(pending, now)

    def release(self, group: str, index: int, now: float) -> list[Action]:
        """The last member of ``group`` has let go of its ``index``-th grant."""
        pending = self._rounds.pop((group, index))
        self.withdraw(pending)
        return [*_slot_note(pending, now), *self.advance(now)]

    def turning(self, group: str, index: int) -> RunningRotation | None:
        """The rotation of this grant of ``group``; None if its circuits stand, or if there is none (any more)."""
        pending = self._rounds.get((group, index))
        return None if pending is None else pending.rotating

    def end_slot(self, group: str, index: int, now: float) -> list[Action]:
        """The slot of a rotation (``turning``) that stands is over: on to the next."""
        pending = self._rounds[group, index]
        assert pending.rotating is not None
        notes = _slot_note(pending, now)
        pending.rotating.advance()
        pending.asked, pending.tries, pending.said_why = now, 0, False
        self._pending.append(pending)
        return [*notes, *self._try(pending, now)]

    def port_failed(self, switch: str, port: int, now: float) -> list[Action]:
        """A port broke: a rotation whose slot uses it now would wait for ever for what was under way there."""
        actions: list[Action] = []
        for pending in list(self._rounds.values()):
            rotating = pending.rotating
            if rotating is not None and rotating.slot_window is not None and rotating.slot.uses(switch, port):
                actions += self._refuse(pending, f"port {port} of {switch} has failed while its slot stood", now)
        return actions

    def ended(self, owner: PendingRequest | None, now: float) -> list[Action]:
        """A reconfiguration of ``owner`` has ended well (None: it was nobody's)."""
        actions: list[Action] = []
        if owner is not None and owner in self._pending:
            actions += self._try(owner, now)
        elif owner is not None and not owner.awaiting:
            self._fabric.let_go(owner)
        return actions + self.advance(now)

    def failed(self, owner: PendingRequest | None, reason: str, now: float) -> list[Action]:
        """A reconfiguration of ``owner`` was not done."""
        actions: list[Action] = []
        if owner is not None and owner in self._pending:
            actions += self._refuse(owner, reason, now)
        elif owner is not None and not owner.awaiting:
            self._fabric.let_go(owner)
        return actions + self.advance(now)

    # ---- out --------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Action]:
        """Try everybody who waits, the oldest first."""
        actions: list[Action] = []
        for pending in list(self._pending):
            if pending in self._pending:
                actions += self._try(pending, now)
        return actions

    def refuse_start(self, job: str, reason: str, now: float) -> list[Action]:
        """If ``job`` still waits for its starting circuits it is refused; nothing otherwise."""
        for pending in self._pending:
            if isinstance(pending, StartRequest) and pending.job.name == job:
                return self._refuse(pending, reason, now)
        return []

    def refuse_round(
        self, readiness: Readiness, slot_window: Round, reason: str, *, lost: bool = False
    ) -> list[Action]:
        """Forget a round; those who asked and were not acknowledged are told why (``lost``: a member is gone)."""
        group = readiness.group.name
        readiness.rounds.pop(slot_window.index, None)
        pending = self._rounds.pop((group, slot_window.index), None)
        if pending is not None:
            self.withdraw(pending)
        waits = not slot_window.acked or (pending is not None and pending.rotating is not None)
        told = sorted(slot_window.asked - slot_window.released) if waits else []
        return [Refuse(rank, group, slot_window.index, reason, lost) for rank in told]

    def withdraw(self, pending: PendingRequest) -> None:
        """Take ``pending`` off the books; ports of its reconfigurations under way stay taken until they are lit."""
        if pending in self._pending:
            self._pending.remove(pending)
        if not pending.awaiting:
            self._fabric.let_go(pending)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _try(self, pending: PendingRequest, now: float) -> list[Action]:
        if pending.awaiting:
            return []
        try:
            changes = self._fabric.changes(pending.wanted(self._fabric.target()))
        except RailyardError as error:
            return self._refuse(pending, str(error), now)
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(pending, f"the policy failed with {type(error).__name__}: {error}", now)
        if changes:
            return self._begin(pending, changes, now)
        if pending.reroutes:
            pending.reroutes = False
            if self._routing.exists and (self._routing.stale or pending.delay_s > 0):
                return [self._routing.begin(pending, pending.delay_s)]
        return self._grant(pending, now)

    def _begin(self, pending: PendingRequest, changes: dict[str, Change], now: float) -> list[Action]:
        for name, change in changes.items():
            if change.ports & self._fabric.switches[name].dark:
                return _waits(pending, f"ports of {name} are still tuning", now)
            users = self._fabric.users(name, change.ports, but=pending)
            if users:
                reason = f"{users[0].label()} has traffic on the ports of {name} that would go dark"
                by_hand = isinstance(pending, RewireRequest) and not any(user.awaiting for user in users)
                return self._refuse(pending, reason, now) if by_hand else _waits(pending, reason, now)
        if pending.tries >= MAX_TRIES:
            return self._refuse(
                pending,
                f"the policy asked for other circuits {pending.tries} times for {pending.label()}; it never settles",
                now,
            )
        pending.tries += 1
        pending.changed.update((name, port) for name, change in changes.items() for port in change.ports)
        self._hold(pending, [(name, port) for name, change in changes.items() for port in change.tuned])
        return [
            self._fabric.begin(name, change, pending, pending.delay_s, pending.asked, now)
            for name, change in changes.items()
        ]

    def _hold(self, pending: PendingRequest, ports: Iterable[SwitchPort]) -> None:
        """``pending`` has ``ports`` in use, and those of all its slots if its circuits take turns."""
        turning = pending.turning if isinstance(pending, GroupRequest) else ()
        self._fabric.hold(pending, dict.fromkeys([*ports, *turning]))

    def _grant(self, pending: PendingRequest, now: float) -> list[Action]:
        if isinstance(pending, GroupRequest):
            return self._ack(pending, now)
        if any(matching.ports & self._fabric.switches[name].dark for name, matching in pending.own().items()):
            return []
        self.withdraw(pending)
        return pending.done(now)

    def _ack(self, pending: GroupRequest, now: float) -> list[Action]:
        try:
            meant = pending.paths(self._fabric.target())
            ports = self._fabric.ports_of(meant)
            if any(port in self._fabric.switches[name].dark for name, port in ports):
                return []
            paths = pending.paths(self._fabric.light())
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(pending, f"the policy failed with {type(error).__name__}: {error}", now)
        if not paths and len(pending.group.members) > 1:
            return self._refuse(pending, f"the policy gave group {pending.label()} no path", now)
        self._pending.remove(pending)
        first, pending.slot_window.acked = not pending.slot_window.acked, True
        self._hold(pending, ports)
        acks = self._tell(pending, paths, now)
        if not first:
            return acks
        group, index = pending.group.name, pending.slot_window.index
        fields = {
            "group": group,
            "index": index,
            "ranks": list(pending.group.members),
            "asked": pending.slot_window.asked_first,
            "ready": pending.slot_window.asked_last,
        }
        return [Note("ack", now, fields=fields), *acks]

    def _tell(self, pending: GroupRequest, paths: tuple[Hop, ...], now: float) -> list[Action]:
        """Every member that has not let go yet of its paths, and of the turn that has come."""
        group, index, rotating = pending.group.name, pending.slot_window.index, pending.rotating
        slot_window = rotating.begin(now) if rotating is not None else None
        present = [rank for rank in pending.group.members if rank not in pending.slot_window.released]
        acks: list[Action] = [Ack(rank, group, index, paths, slot_window) for rank in present]
        if rotating is not None and slot_window is not None and slot_window.until is not None:
            acks.append(SlotEnds(group, index, slot_window, slot_window.until, tuple(rotating.slot.wiring)))
        return acks

    def _refuse(self, pending: PendingRequest, reason: str, now: float) -> list[Action]:
        """Give up on ``pending`` and tell whoever waits for it."""
        if isinstance(pending, GroupRequest):
            note = _waits(pending, reason, now, final=True)
            return [*note, *self.refuse_round(pending.readiness, pending.slot_window, reason)]
        self.withdraw(pending)
        return pending.given_up(reason, now)


def _waits(pending: PendingRequest, reason: str, now: float, *, final: bool = False) -> list[Action]:
    """Note once why ``pending`` has to wait (or, ``final``, gets nothing)."""
    if pending.said_why and not final:
        return []
    pending.said_why = True
    index = pending.slot_window.index if isinstance(pending, GroupRequest) else None
    return [Note("refused", now, fields={"group": pending.label(), "index": index, "reason": reason, "final": final})]


def _slot_note(pending: GroupRequest, now: float) -> list[Action]:
    """The slot of a rotation that ends now, for the timeline."""
    slot_window = pending.rotating.slot_window if pending.rotating is not None else None
    if slot_window is None or pending.rotating is None:
        return []
    pairs = [[path[0], path[2]] for path in pending.rotating.slot.paths]
    fields = {
        "group": pending.group.name,
        "index": pending.slot_window.index,
        "slot": slot_window.number,
        "pairs": pairs,
    }
    return [Note("slot", slot_window.began, now, fields=fields)]
