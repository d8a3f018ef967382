"""Who waits for what on the job channel and over REST."""

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

News = Callable[[str, int], dict[str, Any] | None]
"""What is known of the members of a job beyond a number of changes (``Engine.news``)."""


class PendingReplies:
    """``answers`` are those that are ready to be sent."""

    def __init__(self, news: News) -> None:
        self.answers: list[tuple[PendingReply, str]] = []
        self.check_ins: dict[tuple[int, str], PendingReply] = {}
        self.requests: dict[tuple[int, str, int], PendingReply] = {}
        self.registrations: dict[str, PendingReply] = {}
        self._watchers: dict[str, list[tuple[int, PendingReply]]] = {}
        self._news = news
        self._encoded: tuple[object, str] = (None, "")

    def tell(self, reply_to: PendingReply | None, text: str) -> None:
        """Answer, if anybody waits."""
        if reply_to is not None:
            self.answers.append((reply_to, text))

    def ok(self, reply_to: PendingReply) -> None:
        """Answer that it was done."""
        self.answers.append((reply_to, '"ok":true'))

    def watch(self, job: str, seen: int, reply_to: PendingReply) -> None:
        """``reply_to`` is told when more than ``seen`` changes of ``job`` are known."""
        self._watchers.setdefault(job, []).append((seen, reply_to))
        self._tell_watchers(job)

    def forget(self, requester: Requester) -> None:
        """A connection has ended; nothing that it waited for is of use any more."""
        tables: tuple[dict[Any, PendingReply], ...] = (self.check_ins, self.requests, self.registrations)
        for table in tables:
            for key in [key for key, (who, _) in table.items() if who is requester]:
                del table[key]
        for job, watchers in self._watchers.items():
            self._watchers[job] = [entry for entry in watchers if entry[1][0] is not requester]

    def forget_job(self, job: str, groups: Iterable[str], reason: str) -> None:
        """A job is no more: whoever still waits for it is told."""
        names = set(groups)
        for key in [key for key in self.check_ins if key[1] in names]:
            self.tell(self.check_ins.pop(key), failure(reason))
        for _, reply_to in self._watchers.pop(job, ()):
            self.tell(reply_to, failure(reason, "ControlError"))

    def report(self, action: Action) -> None:
        """Tell whoever waits for what ``action`` says."""
        match action:
            case Ack(rank, group, index, paths, None):
                if self._encoded[0] is not paths:
                    self._encoded = paths, fragment(ok=True, group=group, index=index, paths=paths)
                self.tell(self.requests.pop((rank, group, index), None), self._encoded[1])
            case Ack(rank, group, index, paths, SlotWindow() as slot_window):
                if self._encoded[0] is not slot_window:
                    self._encoded = (
                        slot_window,
                        fragment(ok=True, group=group, index=index, paths=paths, slot_window=slot_window),
                    )
                self.tell(self.requests.get((rank, group, index)), self._encoded[1])
            case CheckedIn(rank, group, domain, asks, paths, rotates):
                text = fragment(ok=True, domain=domain, asks=asks, paths=paths, rotates=rotates)
                self.tell(self.check_ins.pop((rank, group), None), text)
            case Refuse(rank, group, index, reason, lost):
                if index is None:
                    reply_to = self.check_ins.pop((rank, group), None)
                else:
                    reply_to = self.requests.pop((rank, group, index), None)
                self.tell(reply_to, failure(f"group {group}: {reason}", "PeerLost" if lost else "ControlError"))
            case Registered(job):
                self.tell(self.registrations.pop(job, None), '"ok":true')
            case RegisterRefused(job, reason):
                self.tell(self.registrations.pop(job, None), failure(reason, "ControlError"))
                self.forget_job(job, (), reason)
            case MembersChanged(job):
                self._tell_watchers(job)
            case Rewired(ticket):
                self._tell_ticket(ticket, '"ok":true')
            case RewireRefused(ticket, reason):
                self._tell_ticket(ticket, failure(reason, "ControlError"))

    def _tell_ticket(self, ticket: object, text: str) -> None:
        self.tell(ticket, text)  # type: ignore[arg-type]  # the ticket of a rewiring is who waits for it

    def _tell_watchers(self, job: str) -> None:
        still = []
        for seen, reply_to in self._watchers.pop(job, ()):
            news = self._news(job, seen)
            if news is None:
                still.append((seen, reply_to))
            else:
                self.tell(reply_to, fragment(ok=True, **news))
        if still:
            self._watchers[job] = still
