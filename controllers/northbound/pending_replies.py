"""The replies that requesters on the job channel and over REST still wait for.

Operations enter the requester of each request here; actions of the engine then become answers, collected until the
controller core sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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
from controllers.northbound.answers import PendingReply, Requester, failure, fragment
from railyard.protocol import SlotWindow

ChangesSince = Callable[[str, int], dict[str, Any] | None]
"""The changes of membership of a job after a number, or None (``Engine.changes_since``)."""


class PendingReplies:
    """Pending replies by what they wait for; ``answers`` are those ready to be sent."""

    def __init__(self, changes_since: ChangesSince) -> None:
        self.answers: list[tuple[PendingReply, str]] = []
        self.check_ins: dict[tuple[int, str], PendingReply] = {}
        self.requests: dict[tuple[int, str, int], PendingReply] = {}
        self.registrations: dict[str, PendingReply] = {}
        self._watchers: dict[str, list[tuple[int, PendingReply]]] = {}
        self._changes_since = changes_since
        self._encoded: tuple[object, str] = (None, "")

    def reply(self, reply_to: PendingReply | None, text: str) -> None:
        """Answer with ``text`` (the inside of a JSON object), unless ``reply_to`` is None."""
        if reply_to is not None:
            self.answers.append((reply_to, text))

    def ok(self, reply_to: PendingReply) -> None:
        """Answer that the request was executed."""
        self.answers.append((reply_to, '"ok":true'))

    def watch(self, job: str, seen: int, reply_to: PendingReply) -> None:
        """Answer ``reply_to`` once ``job`` has had more than ``seen`` changes of membership."""
        self._watchers.setdefault(job, []).append((seen, reply_to))
        self._reply_to_watchers(job)

    def forget(self, requester: Requester) -> None:
        """Drop the pending replies of a connection that has ended."""
        tables: tuple[dict[Any, PendingReply], ...] = (self.check_ins, self.requests, self.registrations)
        for table in tables:
            for key in [key for key, (waiting, _) in table.items() if waiting is requester]:
                del table[key]
        for job, watchers in self._watchers.items():
            self._watchers[job] = [entry for entry in watchers if entry[1][0] is not requester]

    def forget_job(self, job: str, groups: Iterable[str], reason: str) -> None:
        """Refuse the pending check-ins and watches of a job that is forgotten."""
        names = set(groups)
        for key in [key for key in self.check_ins if key[1] in names]:
            self.reply(self.check_ins.pop(key), failure(reason))
        for _, reply_to in self._watchers.pop(job, ()):
            self.reply(reply_to, failure(reason, "ControlError"))

    def report(self, action: Action) -> None:
        """Answer the requests that ``action`` decides."""
        match action:
            case Ack(rank, group, index, paths, None):
                if self._encoded[0] is not paths:
                    self._encoded = paths, fragment(ok=True, group=group, index=index, paths=paths)
                self.reply(self.requests.pop((rank, group, index), None), self._encoded[1])
            case Ack(rank, group, index, paths, SlotWindow() as slot_window):
                if self._encoded[0] is not slot_window:
                    self._encoded = (
                        slot_window,
                        fragment(ok=True, group=group, index=index, paths=paths, slot_window=slot_window),
                    )
                self.reply(self.requests.get((rank, group, index)), self._encoded[1])
            case CheckedIn(rank, group, domain, asks, paths, rotates):
                text = fragment(ok=True, domain=domain, asks=asks, paths=paths, rotates=rotates)
                self.reply(self.check_ins.pop((rank, group), None), text)
            case Refuse(rank, group, index, reason, lost):
                if index is None:
                    reply_to = self.check_ins.pop((rank, group), None)
                else:
                    reply_to = self.requests.pop((rank, group, index), None)
                self.reply(reply_to, failure(f"group {group}: {reason}", "PeerLost" if lost else "ControlError"))
            case Registered(job):
                self.reply(self.registrations.pop(job, None), '"ok":true')
            case RegisterRefused(job, reason):
                self.reply(self.registrations.pop(job, None), failure(reason, "ControlError"))
                self.forget_job(job, (), reason)
            case MembersChanged(job):
                self._reply_to_watchers(job)
            case Rewired(ticket):
                self._reply_to_ticket(ticket, '"ok":true')
            case RewireRefused(ticket, reason):
                self._reply_to_ticket(ticket, failure(reason, "ControlError"))

    def _reply_to_ticket(self, ticket: object, text: str) -> None:
        self.reply(ticket, text)  # type: ignore[arg-type]  # the ticket of a rewiring is its pending reply

    def _reply_to_watchers(self, job: str) -> None:
        waiting = []
        for seen, reply_to in self._watchers.pop(job, ()):
            changes = self._changes_since(job, seen)
            if changes is None:
                waiting.append((seen, reply_to))
            else:
                self.reply(reply_to, fragment(ok=True, **changes))
        if waiting:
            self._watchers[job] = waiting
