"""Answers to requests on the job channel and over REST: their encoding, and those that requesters still wait for.

Operations enter the requester of each request here; actions of the engine then become answers, collected until the
controller core sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from controllers.engine.actions import (
    Ack,
    Action,
    CheckedIn,
    MembersChanged,
    Refuse,
    Registered,
    RegisterRefused,
    Rewired,
    RewireRefused,
)
from railyard.errors import ControlError, RailyardError
from railyard.protocol import Hop, SlotWindow, to_json


class Requester(Protocol):
    """A sender of requests: one connection of the job channel, or one REST call."""

    trusted: bool
    """Whether the sender may name code to be loaded (it runs as the same user)."""

    def answer(self, request_id: object, answer: bytes) -> None:
        """Send ``answer``, a JSON object, with the key ``id`` added."""


PendingReply = tuple[Requester, object]
"""The requester that waits for an answer, and the id of its request."""

ChangesSince = Callable[[str, int], dict[str, Any] | None]
"""The changes of membership of a job after a number, or None (``Engine.changes_since``)."""

Waiting = tuple[int, str, int | None]
"""A rank that waits, with the group and the index of its request (None: its check-in)."""

OK = b'{"ok":true}'
MOST_WATCHES = 100
"""Requests of one connection that may wait for changes of one job."""


def success(**fields: Any) -> bytes:
    """The answer to an executed request."""
    return to_json({"ok": True, **fields})


def failure(reason: str | RailyardError, kind: str = "ControlError") -> bytes:
    """The answer to a refused request, with the reason and the class of the error (``kind`` for one in words)."""
    name = type(reason).__name__ if isinstance(reason, RailyardError) else kind
    return to_json({"ok": False, "error": str(reason), "kind": name})


class PendingReplies:
    """Pending replies by what they wait for; ``answers`` are those ready to be sent.

    ``waiting`` are those of agents, ``registrations`` those of jobs, by name.
    """

    def __init__(self, changes_since: ChangesSince) -> None:
        self.answers: list[tuple[PendingReply, bytes]] = []
        self.waiting: dict[Waiting, PendingReply] = {}
        self._together: dict[Waiting, list[Waiting]] = {}
        """The keys that one answer answers, by each of them."""
        self.registrations: dict[str, PendingReply] = {}
        self._watchers: dict[str, list[tuple[int, PendingReply]]] = {}
        self._changes_since = changes_since
        self._encoded: tuple[object, bytes] = None, b""
        """What an acknowledgement says, and the same for the wire: it is the same for all members of a group."""

    def reply(self, reply_to: PendingReply | None, answer: bytes = OK) -> None:
        if reply_to is not None:
            self.answers.append((reply_to, answer))

    def wait(self, keys: list[Waiting], reply_to: PendingReply) -> None:
        """Have ``reply_to`` wait for the first of ``keys`` that gets an answer."""
        self.waiting |= dict.fromkeys(keys, reply_to)
        self._together |= dict.fromkeys(keys, keys)

    def take(self, key: Waiting) -> PendingReply | None:
        """The reply that waits for a key, and for no other of its keys any more; None if there is none."""
        reply_to = self.waiting.pop(key, None)
        for other in self._together.pop(key, ()):
            self._together.pop(other, None)
            self.waiting.pop(other, None)
        return reply_to

    def watch(self, job: str, seen: int, reply_to: PendingReply) -> None:
        """Answer ``reply_to`` once ``job`` has had more than ``seen`` changes of membership.

        ``ControlError`` if the requester has ``MOST_WATCHES`` such requests pending.
        """
        watching = sum(entry[1][0] is reply_to[0] for entry in self._watchers.get(job, ()))
        if watching >= MOST_WATCHES:
            raise ControlError(f"{watching} requests of this connection wait for job {job} already; one is enough")
        self._watchers.setdefault(job, []).append((seen, reply_to))
        self._reply_to_watchers(job)

    def forget(self, requester: Requester) -> None:
        self.waiting = {key: reply_to for key, reply_to in self.waiting.items() if reply_to[0] is not requester}
        self._together = {key: keys for key, keys in self._together.items() if key in self.waiting}
        self.registrations = {
            job: reply_to for job, reply_to in self.registrations.items() if reply_to[0] is not requester
        }
        for job, watchers in self._watchers.items():
            self._watchers[job] = [entry for entry in watchers if entry[1][0] is not requester]

    def forget_job(self, job: str, groups: Iterable[str], reason: str) -> None:
        """Refuse the pending check-ins and watches of a job that is forgotten."""
        names = set(groups)
        for key in [key for key in self.waiting if key[1] in names and key[2] is None]:
            self.reply(self.take(key), failure(reason))
        for _, reply_to in self._watchers.pop(job, ()):
            self.reply(reply_to, failure(reason))

    def report(self, action: Action) -> None:
        match action:
            case Ack(rank, group, index, paths, slot_window):
                take = self.take if slot_window is None else self.waiting.get
                self.reply(take((rank, group, index)), self._acknowledgement(group, index, paths, slot_window))
            case CheckedIn(rank, group, domain, asks, paths, rotates):
                answer = success(domain=domain, asks=asks, paths=paths, rotates=rotates)
                self.reply(self.take((rank, group, None)), answer)
            case Refuse(rank, group, index, reason, lost):
                answer = failure(reason, "PeerLost" if lost else "ControlError")
                self.reply(self.take((rank, group, index)), answer)
            case Registered(job):
                self.reply(self.registrations.pop(job, None))
            case RegisterRefused(job, reason):
                self.reply(self.registrations.pop(job, None), failure(reason))
                self.forget_job(job, (), reason)
            case MembersChanged(job):
                self._reply_to_watchers(job)
            case Rewired(ticket):
                self.reply(cast("PendingReply", ticket))
            case RewireRefused(ticket, reason):
                self.reply(cast("PendingReply", ticket), failure(reason))

    def _acknowledgement(self, group: str, index: int, paths: tuple[Hop, ...], slot_window: SlotWindow | None) -> bytes:
        told = group, index, paths, slot_window
        if self._encoded[0] != told:
            slot = {} if slot_window is None else {"slot_window": slot_window}
            self._encoded = told, success(group=group, index=index, paths=paths, **slot)
        return self._encoded[1]

    def _reply_to_watchers(self, job: str) -> None:
        waiting = []
        for seen, reply_to in self._watchers.pop(job, ()):
            changes = self._changes_since(job, seen)
            if changes is None:
                waiting.append((seen, reply_to))
            else:
                self.reply(reply_to, success(**changes))
        if waiting:
            self._watchers[job] = waiting
