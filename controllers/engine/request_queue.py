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
from controllers.policies.policy import Path
from railyard.errors import RailyardError

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

    def ask(self, intent: PendingRequest, now: float) -> list[Action]:
        """Somebody waits from now on."""
        if isinstance(intent, GroupRequest):
            self._rounds[intent.group.name, intent.turn.index] = intent
        self._pending.append(intent)
        return self._try(intent, now)

    def release(self, group: str, index: int, now: float) -> list[Action]:
        """The last member of ``group`` has let go of its ``index``-th grant."""
        intent = self._rounds.pop((group, index))
        self.withdraw(intent)
        return [*_turn_note(intent, now), *self.advance(now)]

    def turning(self, group: str, index: int) -> RunningRotation | None:
        """The rotation of this grant of ``group``; None if its circuits stand, or if there is none (any more)."""
        intent = self._rounds.get((group, index))
        return None if intent is None else intent.rotating

    def turn_over(self, group: str, index: int, now: float) -> list[Action]:
        """The slot of a rotation (``turning``) that stands is over: on to the next."""
        intent = self._rounds[group, index]
        assert intent.rotating is not None
        notes = _turn_note(intent, now)
        intent.rotating.advance()
        intent.asked, intent.tries, intent.said_why = now, 0, False
        self._pending.append(intent)
        return [*notes, *self._try(intent, now)]

    def port_failed(self, switch: str, port: int, now: float) -> list[Action]:
        """A port broke: a rotation whose slot uses it now would wait for ever for what was under way there."""
        actions: list[Action] = []
        for intent in list(self._rounds.values()):
            rotating = intent.rotating
            if rotating is not None and rotating.turn is not None and rotating.slot.uses(switch, port):
                actions += self._refuse(intent, f"port {port} of {switch} has failed while its slot stood", now)
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
        for intent in list(self._pending):
            if intent in self._pending:
                actions += self._try(intent, now)
        return actions

    def refuse_start(self, job: str, reason: str, now: float) -> list[Action]:
        """If ``job`` still waits for its starting circuits it is refused; nothing otherwise."""
        for intent in self._pending:
            if isinstance(intent, StartRequest) and intent.job.name == job:
                return self._refuse(intent, reason, now)
        return []

    def refuse_round(self, readiness: Readiness, turn: Round, reason: str, *, lost: bool = False) -> list[Action]:
        """Forget a round; those who asked and were not acknowledged are told why (``lost``: a member is gone)."""
        group = readiness.group.name
        readiness.rounds.pop(turn.index, None)
        intent = self._rounds.pop((group, turn.index), None)
        if intent is not None:
            self.withdraw(intent)
        waits = not turn.acked or (intent is not None and intent.rotating is not None)
        told = sorted(turn.asked - turn.released) if waits else []
        return [Refuse(rank, group, turn.index, reason, lost) for rank in told]

    def withdraw(self, intent: PendingRequest) -> None:
        """Take ``intent`` off the books; ports of its reconfigurations under way stay taken until they are lit."""
        if intent in self._pending:
            self._pending.remove(intent)
        if not intent.awaiting:
            self._fabric.let_go(intent)

    # ---- inside -----------------------------------------------------------------------------------------------

    def _try(self, intent: PendingRequest, now: float) -> list[Action]:
        if intent.awaiting:
            return []
        try:
            changes = self._fabric.changes(intent.wanted(self._fabric.target()))
        except RailyardError as error:
            return self._refuse(intent, str(error), now)
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(intent, f"the policy failed with {type(error).__name__}: {error}", now)
        if changes:
            return self._begin(intent, changes, now)
        if intent.reroutes:
            intent.reroutes = False
            if self._routing.exists and (self._routing.stale or intent.delay_s > 0):
                return [self._routing.begin(intent, intent.delay_s)]
        return self._grant(intent, now)

    def _begin(self, intent: PendingRequest, changes: dict[str, Change], now: float) -> list[Action]:
        for name, change in changes.items():
            if change.ports & self._fabric.switches[name].dark:
                return _waits(intent, f"ports of {name} are still tuning", now)
            users = self._fabric.users(name, change.ports, but=intent)
            if users:
                reason = f"{users[0].label()} has traffic on the ports of {name} that would go dark"
                by_hand = isinstance(intent, RewireRequest) and not any(user.awaiting for user in users)
                return self._refuse(intent, reason, now) if by_hand else _waits(intent, reason, now)
        if intent.tries >= MAX_TRIES:
            return self._refuse(
                intent,
                f"the policy asked for other circuits {intent.tries} times for {intent.label()}; it never settles",
                now,
            )
        intent.tries += 1
        intent.changed.update((name, port) for name, change in changes.items() for port in change.ports)
        self._hold(intent, [(name, port) for name, change in changes.items() for port in change.tuned])
        return [
            self._fabric.begin(name, change, intent, intent.delay_s, intent.asked, now)
            for name, change in changes.items()
        ]

    def _hold(self, intent: PendingRequest, ports: Iterable[SwitchPort]) -> None:
        """``intent`` has ``ports`` in use, and those of all its slots if its circuits take turns."""
        turning = intent.turning if isinstance(intent, GroupRequest) else ()
        self._fabric.hold(intent, dict.fromkeys([*ports, *turning]))

    def _grant(self, intent: PendingRequest, now: float) -> list[Action]:
        if isinstance(intent, GroupRequest):
            return self._ack(intent, now)
        if any(matching.ports & self._fabric.switches[name].dark for name, matching in intent.own().items()):
            return []
        self.withdraw(intent)
        return intent.done(now)

    def _ack(self, intent: GroupRequest, now: float) -> list[Action]:
        try:
            meant = intent.paths(self._fabric.target())
            ports = self._fabric.ports_of(meant)
            if any(port in self._fabric.switches[name].dark for name, port in ports):
                return []
            paths = intent.paths(self._fabric.light())
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(intent, f"the policy failed with {type(error).__name__}: {error}", now)
        if not paths and len(intent.group.members) > 1:
            return self._refuse(intent, f"the policy gave group {intent.label()} no path", now)
        self._pending.remove(intent)
        first, intent.turn.acked = not intent.turn.acked, True
        self._hold(intent, ports)
        acks = self._tell(intent, paths, now)
        if not first:
            return acks
        group, index = intent.group.name, intent.turn.index
        fields = {
            "group": group,
            "index": index,
            "ranks": list(intent.group.members),
            "asked": intent.turn.asked_first,
            "ready": intent.turn.asked_last,
        }
        return [Note("ack", now, fields=fields), *acks]

    def _tell(self, intent: GroupRequest, paths: tuple[Path, ...], now: float) -> list[Action]:
        """Every member that has not let go yet of its paths, and of the turn that has come."""
        group, index, rotating = intent.group.name, intent.turn.index, intent.rotating
        turn = rotating.begin(now) if rotating is not None else None
        present = [rank for rank in intent.group.members if rank not in intent.turn.released]
        acks: list[Action] = [Ack(rank, group, index, paths, turn) for rank in present]
        if rotating is not None and turn is not None and turn.until is not None:
            acks.append(SlotEnds(group, index, turn, turn.until, tuple(rotating.slot.wiring)))
        return acks

    def _refuse(self, intent: PendingRequest, reason: str, now: float) -> list[Action]:
        """Give up on ``intent`` and tell whoever waits for it."""
        if isinstance(intent, GroupRequest):
            note = _waits(intent, reason, now, final=True)
            return [*note, *self.refuse_round(intent.readiness, intent.turn, reason)]
        self.withdraw(intent)
        return intent.given_up(reason, now)


def _waits(intent: PendingRequest, reason: str, now: float, *, final: bool = False) -> list[Action]:
    """Note once why ``intent`` has to wait (or, ``final``, gets nothing)."""
    if intent.said_why and not final:
        return []
    intent.said_why = True
    index = intent.turn.index if isinstance(intent, GroupRequest) else None
    return [Note("refused", now, fields={"group": intent.label(), "index": index, "reason": reason, "final": final})]


def _turn_note(intent: GroupRequest, now: float) -> list[Action]:
    """The slot of a rotation that ends now, for the timeline."""
    turn = intent.rotating.turn if intent.rotating is not None else None
    if turn is None or intent.rotating is None:
        return []
    pairs = [[path[0], path[2]] for path in intent.rotating.slot.paths]
    fields = {"group": intent.group.name, "index": intent.turn.index, "slot": turn.number, "pairs": pairs}
    return [Note("slot", turn.began, now, fields=fields)]
