"""Finds the agent that hangs among those of one launch, from their heartbeats to the launcher. No clock, no I/O.

Ranks that wait for one another all stand still when one of them hangs. Their loops still answer, and its loop does not.
"""

from __future__ import annotations

from typing import NamedTuple

from railyard.liveness import Liveness

MISSES = 3
"""Heartbeats that may be missing in a row."""
_LATE_S = 0.1
_GRACE_S = 0.5
"""A check that is later than ``_LATE_S`` was delayed with the whole machine; it is put off once, so that heartbeats
that were delayed too may come."""


class Hang(NamedTuple):
    """What hangs (``subject``, with its verb), since when in words (``what``), and the ``rank`` whose step tells when.

    Rank -1: that of no single agent.
    """

    rank: int
    subject: str
    what: str


class HangWatch:
    """The heartbeats of the agents of one launch."""

    def __init__(self) -> None:
        self._liveness = Liveness()
        self._not_before = 0.0
        self._checked = 0.0

    def heard(self, rank: int, every_s: float, answers: int, now: float) -> None:
        """Take a heartbeat of ``rank``, whose loop has answered so often; the next one comes in ``every_s``."""
        if not self._liveness.heard(rank, now, answers):
            self._liveness.watch(rank, every_s, MISSES, now, answers)

    def ended(self, rank: int) -> None:
        """Forget an agent that has ended."""
        self._liveness.forget([rank])

    def next_check(self) -> float:
        """When to ask ``complaint`` next; infinity if no agent is watched."""
        moment = self._liveness.next_check(self._checked)
        return float("inf") if moment is None else max(moment, self._not_before)

    def complaint(self, now: float) -> Hang | None:
        """What hangs; None if nothing does.

        If no agent sends heartbeats any more, it is the process that starts them and passes their messages on.
        """
        due = self._liveness.next_check(self._checked)
        if due is None or now < max(due, self._not_before):
            return None
        if now > max(due, self._not_before) + _LATE_S:
            self._not_before = now + _GRACE_S
            return None
        silent, self._checked = self._liveness.silent(now), now
        if not silent:
            return None
        first = silent[0]
        if len(silent) == self._liveness.watched > 1 and not any(each.hangs for each in silent):
            what = f"no agent has sent a heartbeat for {now - silent[-1].since:.1f} s"
            return Hang(-1, "the process that starts the agents hangs", what)
        newest = self._liveness.newest()
        if not first.hangs and newest <= first.since + first.heartbeat_s:  # perhaps all agents stopped together
            self._not_before = newest + first.heartbeat_s * first.misses
            if now < self._not_before:
                return None
        for_s = now - first.since
        subject = f"the agent of rank {first.rank} hangs"
        if not first.hangs:
            return Hang(first.rank, subject, f"it has sent no heartbeat for {for_s:.1f} s")
        still = f"stood still for {for_s:.1f} s, perhaps for a disk that takes no data"
        if len(silent) == self._liveness.watched > 1 and all(each.hangs for each in silent):
            return Hang(-1, f"all {len(silent)} agents hang", f"their loops have {still}")
        return Hang(first.rank, subject, f"its loop has {still}")
