"""The queue of pending requests for circuits, oldest first. No clock, no I/O.

Each try grants a request, begins its reconfigurations, refuses it, or leaves it waiting. The order is always: all
members have requested -> nothing is in flight on the ports concerned -> dark -> installed -> ack. A request that can be
granted is granted, even if an older one still waits for other ports.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.circuits.ocs import Change
from controllers.circuits.rotation import RunningRotation
from controllers.engine.actions import Ack, Action, Note, Refuse, SlotEnds
from controllers.engine.membership import Readiness, Round
from controllers.engine.optical_state import OpticalState, PortFailed, SwitchPort
from controllers.engine.requests import GroupRequest, PendingRequest, RewireRequest, StartRequest
from controllers.engine.routing import Routing
from railyard.errors import ControlError, RailyardError
from railyard.protocol import Hop

MAX_TRIES = 8
"""The most reconfigurations for one request; a policy that wants more is taken to alternate for ever."""


MAX_REWIRINGS = 64
"""The most rewirings by hand that may wait or be under way."""


class RequestQueue:
    """The pending requests for ``optical`` and ``routing``. Each method returns the actions to execute, in order."""

    def __init__(self, optical: OpticalState, routing: Routing) -> None:
        self._optical = optical
        self._routing = routing
        self._pending: list[PendingRequest] = []
        self._rounds: dict[tuple[str, int], GroupRequest] = {}

    def add(self, pending: PendingRequest, now: float) -> list[Action]:
        """Queue a request and try it at once; ``ControlError`` for too many rewirings by hand."""
        if isinstance(pending, GroupRequest):
            self._rounds[pending.group.name, pending.round.index] = pending
        if (
            isinstance(pending, RewireRequest)
            and sum(isinstance(other, RewireRequest) for other in self._pending) >= MAX_REWIRINGS
        ):
            raise ControlError(f"{MAX_REWIRINGS} rewirings wait for their turn already; wait until some are done")
        self._pending.append(pending)
        return self._try(pending, now)

    def take_up(self, granted: GroupRequest) -> None:
        """Hold the ports of what an earlier controller granted."""
        self._rounds[granted.group.name, granted.round.index] = granted
        self._hold(granted, self._optical.ports_of(granted.paths(self._optical.circuits_up())))

    def acknowledge_again(self, rank: int, group: str, index: int) -> list[Action]:
        """Ack what was granted to a member that has not heard of it."""
        return [Ack(rank, group, index, self._rounds[group, index].paths(self._optical.circuits_up()))]

    def release(self, group: str, index: int, now: float) -> list[Action]:
        """End the ``index``-th grant of ``group``, which its last member has released."""
        pending = self._rounds.pop((group, index))
        self.withdraw(pending)
        return [*_slot_note(pending, now), *self.advance(now)]

    def rotation(self, group: str, index: int) -> RunningRotation | None:
        """The rotation of the ``index``-th grant of ``group``; None without a rotation or such a grant."""
        pending = self._rounds.get((group, index))
        return None if pending is None else pending.rotation

    def end_slot(self, group: str, index: int, now: float) -> list[Action]:
        """End the current slot of a rotation (``rotation``) and queue the next one."""
        pending = self._rounds[group, index]
        assert pending.rotation is not None
        notes = _slot_note(pending, now)
        pending.rotation.advance()
        pending.asked, pending.tries, pending.reason_noted = now, 0, False
        self._pending.append(pending)
        return [*notes, *self._try(pending, now)]

    def port_failed(self, switch: str, port: int, now: float) -> list[Action]:
        """Refuse rotations whose current slot uses a port that failed: they would wait for ever for lost data."""
        how = self._optical.how_failed(switch, port)
        actions: list[Action] = []
        for pending in list(self._rounds.values()):
            rotation = pending.rotation
            if rotation is not None and rotation.slot_window is not None and rotation.slot.uses(switch, port):
                actions += self._refuse(pending, f"port {port} of {switch} {how} during a slot that uses it", now)
        return actions

    def ended(self, owner: PendingRequest | None, now: float) -> list[Action]:
        """Go on after a successful reconfiguration of ``owner`` (None: a repair that no request waits for)."""
        actions: list[Action] = []
        if owner is not None and owner in self._pending:
            actions += self._try(owner, now)
        elif owner is not None and not owner.awaiting:
            self._optical.release(owner)
        return actions + self.advance(now)

    def failed(self, owner: PendingRequest | None, reason: str, now: float) -> list[Action]:
        """Refuse ``owner``, whose reconfiguration was not executed, if it is still pending."""
        actions: list[Action] = []
        if owner is not None and owner in self._pending:
            actions += self._refuse(owner, reason, now)
        elif owner is not None and not owner.awaiting:
            self._optical.release(owner)
        return actions + self.advance(now)

    def advance(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for pending in list(self._pending):
            if pending in self._pending:
                actions += self._try(pending, now)
        return actions

    def refuse_start(self, job: str, reason: str, now: float) -> list[Action]:
        """Refuse ``job`` if it still waits for its starting circuits; no actions otherwise."""
        for pending in self._pending:
            if isinstance(pending, StartRequest) and pending.job == job:
                return self._refuse(pending, reason, now)
        return []

    def refuse_round(self, readiness: Readiness, refused: Round, reason: str, *, lost: bool = False) -> list[Action]:
        """Forget a round and refuse the members that wait for it (``lost``: because a member is gone)."""
        group = readiness.group.name
        readiness.rounds.pop(refused.index, None)
        pending = self._rounds.pop((group, refused.index), None)
        if pending is not None:
            self.withdraw(pending)
        is_awaited = not refused.acked or (pending is not None and pending.rotation is not None)
        ranks = sorted(refused.asked - refused.released) if is_awaited else []
        return [Refuse(rank, group, refused.index, reason, lost) for rank in ranks]

    def withdraw(self, pending: PendingRequest) -> None:
        """Remove ``pending``; ports of its reconfigurations under way stay held until those have ended."""
        if pending in self._pending:
            self._pending.remove(pending)
        if not pending.awaiting:
            self._optical.release(pending)

    def _try(self, pending: PendingRequest, now: float) -> list[Action]:
        if pending.awaiting:
            return []
        try:
            changes = self._optical.changes(pending.wanted(self._optical.target()))
        except RailyardError as error:
            if isinstance(error, PortFailed) and isinstance(pending, GroupRequest) and pending.watched:
                return _waits(pending, str(error), now)  # until its chip is replaced
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
            if change.ports & self._optical.switches[name].dark:
                return _waits(pending, f"ports of {name} are still tuning", now)
            users = self._optical.users(name, change.ports, but=pending)
            if users:
                reason = f"{users[0].what} has traffic on the ports of {name} that would go dark"
                if not isinstance(pending, RewireRequest) or any(user.awaiting for user in users):
                    return _waits(pending, reason, now)
                works = "ask again when that traffic has ended, such as between two phases"
                return self._refuse(pending, f"the {pending.what} was refused: {reason}; {works}", now)
        if pending.tries >= MAX_TRIES:
            return self._refuse(
                pending,
                f"the policy changed the circuits {pending.tries} times for {pending.what} and never settles",
                now,
            )
        pending.tries += 1
        pending.changed.update((name, port) for name, change in changes.items() for port in change.ports)
        self._hold(pending, [(name, port) for name, change in changes.items() for port in change.tuned])
        return [
            *(pending.begun(now) if pending.tries == 1 else ()),
            *(
                self._optical.begin(name, change, pending, pending.delay_s, pending.asked, now)
                for name, change in changes.items()
            ),
        ]

    def _hold(self, pending: PendingRequest, ports: Iterable[SwitchPort]) -> None:
        rotation_ports = pending.rotation_ports if isinstance(pending, GroupRequest) else ()
        self._optical.hold(pending, dict.fromkeys([*ports, *rotation_ports]))

    def _grant(self, pending: PendingRequest, now: float) -> list[Action]:
        if isinstance(pending, GroupRequest):
            return self._ack(pending, now)
        if any(matching.ports & self._optical.switches[name].dark for name, matching in pending.own_circuits().items()):
            return []
        self.withdraw(pending)
        return pending.done(now)

    def _ack(self, pending: GroupRequest, now: float) -> list[Action]:
        try:
            ports = self._optical.ports_of(pending.paths(self._optical.target()))
            if not self._optical.dark_ports.isdisjoint(ports):
                return []
            paths = pending.paths(self._optical.circuits_up())
        except Exception as error:  # a user's policy may raise anything
            return self._refuse(pending, f"the policy failed with {type(error).__name__}: {error}", now)
        if not paths and len(pending.group.members) > 1:
            return self._refuse(pending, f"the policy gave group {pending.what} no path", now)
        self._pending.remove(pending)
        is_first, pending.round.acked = not pending.round.acked, True
        self._hold(pending, ports)
        acks = self._acks(pending, paths, now)
        if not is_first:
            return acks
        group, index = pending.group.name, pending.round.index
        fields = {
            "group": group,
            "index": index,
            "ranks": list(pending.group.members),
            "asked": pending.round.asked_first,
            "ready": pending.round.asked_last,
        }
        return [Note("ack", now, fields=fields), *acks]

    def _acks(self, pending: GroupRequest, paths: tuple[Hop, ...], now: float) -> list[Action]:
        """Acks with ``paths`` (and the new slot of a rotation) for the members that have not released the round."""
        group, index, rotation = pending.group.name, pending.round.index, pending.rotation
        slot_window = rotation.begin(now) if rotation is not None else None
        present = [rank for rank in pending.group.members if rank not in pending.round.released]
        acks: list[Action] = [Ack(rank, group, index, paths, slot_window) for rank in present]
        if rotation is not None and slot_window is not None and slot_window.until is not None:
            acks.append(SlotEnds(group, index, slot_window, slot_window.until, tuple(rotation.slot.wiring)))
        return acks

    def _refuse(self, pending: PendingRequest, reason: str, now: float) -> list[Action]:
        if isinstance(pending, GroupRequest):
            note = _waits(pending, reason, now, final=True)
            return [*note, *self.refuse_round(pending.readiness, pending.round, reason)]
        self.withdraw(pending)
        return pending.given_up(reason, now)


def _waits(pending: PendingRequest, reason: str, now: float, *, final: bool = False) -> list[Action]:
    """Note why ``pending`` has to wait, once, or (``final``) why it is refused."""
    if pending.reason_noted and not final:
        return []
    pending.reason_noted = True
    index = pending.round.index if isinstance(pending, GroupRequest) else None
    return [Note("refused", now, fields={"group": pending.what, "index": index, "reason": reason, "final": final})]


def _slot_note(pending: GroupRequest, now: float) -> list[Action]:
    """A note on the slot of a rotation that ends now; empty if none is up."""
    slot_window = pending.rotation.slot_window if pending.rotation is not None else None
    if slot_window is None or pending.rotation is None:
        return []
    pairs = [[path[0], path[2]] for path in pending.rotation.slot.paths]
    fields = {
        "group": pending.group.name,
        "index": pending.round.index,
        "slot": slot_window.number,
        "pairs": pairs,
    }
    return [Note("slot", slot_window.began, now, fields=fields)]
