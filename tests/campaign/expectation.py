"""How a run must end after a fault, as documented, and the judgement of how it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railyard.errors import AgentError, ConfigError, ControlError, MachineError
from railyard.verdict import OTHERS, STEAL
from tests.campaign.fault import Fault, Place

STOPPED = 130
KILLED = -9
RAN = frozenset((0, 8))
"""Exit statuses of a run that was finished: faithful, or not."""
CLEAN_S = 5.0
"""Nothing of a run may be left on the machine so long after its end."""
_MACHINE, _CONTROL, _AGENT = MachineError.exit_status, ControlError.exit_status, AgentError.exit_status
_FAILURES: Mapping[str, tuple[int, str]] = {
    "controller": (_CONTROL, "controller"),
    "ovs-vswitchd": (_MACHINE, "ovs-vswitchd"),
    "ovsdb-server": (_MACHINE, "ovsdb-server"),
    "fast path": (_MACHINE, "fast path"),
    "agent launcher": (_AGENT, "process that starts the agents"),
    "agent": (_AGENT, "rank [0-9]"),
    "sampler": (_MACHINE, "sampler"),
    "probe": (_MACHINE, "probe"),
    "delay relay": (_MACHINE, "relay of delayed links"),
    "watcher": (_MACHINE, "watche[rs]"),
}
"""Exit status of a run whose process of a role has ended, and the words of its sentence that name the process."""
_NO_ROOM = r"/\S+ cannot be (written|made)|are free in /"
"""Words of the sentence of a run whose disk is full: it names the file, or says how much is free where."""
_IGNORE_INT = frozenset(_FAILURES) - {"ovs-vswitchd", "ovsdb-server"}
"""Processes that Ctrl-C does not reach."""
_RESTARTED = frozenset(("agent", "controller"))
"""A job that survives dead chips survives the end of these, where there is a spare."""
_NOT_NEEDED = frozenset(("watcher", "sampler"))
"""A run whose process of these roles has ended may go on; without samples it is not faithful."""
_MEASURING = frozenset(("agent", "sampler", "probe", "delay relay", "controller", "ovs-vswitchd", "fast path"))
_STOPPED_MEASURING = frozenset(("agent", "sampler"))
_BUSY_CHECKS = frozenset(
    (STEAL, OTHERS, "cores", "datapath thread", "timer lag", "timer lag of a step", "control plane")
)
"""Checks that fail on a busy machine; a point that fails only these counts as one that is faithful on another."""


@dataclass(frozen=True)
class Expected:
    """The ``statuses`` with which a run may end; the sentence of an error ``names`` (a pattern) what went wrong."""

    statuses: frozenset[int]
    names: str = ""

    def __str__(self) -> str:
        return "/".join(map(str, sorted(self.statuses)))


def expected(place: Place) -> Expected:
    """How a run may end after a fault at ``place``."""
    if place.kind == "resource":  # in its own words, with the status of the first part that is hit
        failed = RAN | {_MACHINE, _CONTROL, _AGENT}
        if place.what == "memory":
            return Expected(failed | {KILLED})
        return Expected(failed | {ConfigError.exit_status}, _NO_ROOM if place.what.endswith("disk") else "")
    if place.kind != "signal":
        return Expected(RAN)
    if place.process == "main":
        by_signal = {"KILL": frozenset((KILLED,)), "STOP": RAN}
        return Expected(by_signal.get(place.what, frozenset((STOPPED,))), "stopped")
    status, names = _FAILURES[place.process]
    goes_on = _spared(place) or place.what == "STOP" or place.phase == "tear-down" or place.process in _NOT_NEEDED
    return Expected(RAN | {status} if goes_on else frozenset((status,)), names)


def _spared(place: Place) -> bool:
    """Whether a run survives a signal to one of its processes: it does not reach it, or the process starts again."""
    ignored = place.what == "INT INT" and place.process in _IGNORE_INT
    return ignored or (place.phase == "splice" and place.process in _RESTARTED)


@dataclass(frozen=True)
class Outcome:
    """How a run ended after a fault.

    - ``status``: its exit status (minus a signal's number), None if it had to be killed because it hung;
    - ``errors``: all that it printed on standard error; ``at``: when the fault happened, in monotonic seconds;
    - ``left``: what was left of it on the machine ``CLEAN_S`` after its end; ``cleaned_s``: when all was gone, or when
      that was no longer waited for;
    - ``lost``: acknowledged records that are gone; ``rows``: of its summary; ``points``: (start, end) of each point;
    - ``planned``, ``ended``: of its manifest, None without; ``has_results``: whether there is a manifest;
    - ``unreadable``: why the results folder cannot be read; ``other``: further things that are wrong.
    """

    status: int | None
    errors: str
    at: float = 0.0
    left: Sequence[str] = ()
    cleaned_s: float = 0.0
    lost: int = 0
    rows: Sequence[Mapping[str, Any]] = ()
    points: Sequence[tuple[float, float]] = ()
    planned: int | None = None
    ended: str | None = None
    has_results: bool = False
    unreadable: str = ""
    other: Sequence[str] = ()

    @property
    def sentence(self) -> str:
        """The last sentence of the run on standard error; empty if there is none."""
        sentences = [line.strip() for line in self.errors.splitlines() if line.startswith("railyard: ")]
        return sentences[-1].removeprefix("railyard: ") if sentences else ""

    @property
    def cut_rows(self) -> list[Mapping[str, Any]]:
        """The rows of points that were measured when the fault happened."""
        return [row for row, (start, end) in zip(self.rows, self.points, strict=False) if start <= self.at <= end]


def cuts(place: Place) -> bool:
    """Whether a fault in a measured point takes away a part of the measurement, so that it must not be faithful."""
    if place.kind != "signal" or place.phase not in ("step", "dark", "splice"):
        return False
    if place.what == "STOP":
        return place.process in _STOPPED_MEASURING
    return place.process in _MEASURING and not _spared(place)


def falsely_faithful(fault: Fault, outcome: Outcome) -> bool:
    """Whether a point is called faithful whose measurement was cut, or would be on a machine that is not busy."""
    return cuts(fault.place) and any(
        all(check["ok"] or _busy(check) for check in row.get("checks", ())) for row in outcome.cut_rows
    )


def _busy(check: Mapping[str, Any]) -> bool:
    """Whether a failed check is due to a busy machine: it has a value, and is of those that measure the machine."""
    return check["value"] is not None and check["name"] in _BUSY_CHECKS


def complaints(fault: Fault, outcome: Outcome) -> Iterator[str]:
    """All that is wrong with the end of a run after a fault; nothing if it ended as documented."""
    want, status = expected(fault.place), outcome.status
    if status is None:
        yield "hang"
        return
    if "Traceback (most recent call last)" in outcome.errors:
        yield "traceback"
    if status not in want.statuses:
        yield f"status {status}, not {want}"
    if status not in RAN and status != KILLED:
        names = "stopped" if status == STOPPED else want.names
        if not outcome.sentence:
            yield "no sentence"
        elif not re.search(names, outcome.sentence):
            yield f"the sentence does not name {names}"
    if outcome.left:
        yield f"left behind for {outcome.cleaned_s:.1f} s: {'; '.join(outcome.left)}"
    if outcome.lost:
        yield f"{outcome.lost} acknowledged records lost"
    yield from _about_results(fault.place, outcome)
    if falsely_faithful(fault, outcome):
        yield "faithful although the measurement was cut"
    yield from outcome.other


def _about_results(place: Place, outcome: Outcome) -> Iterator[str]:
    """What is wrong with the results folder: unreadable, or marked as whole although it is not (or the reverse)."""
    whole = outcome.ended == "complete" and outcome.planned in (None, len(outcome.rows))
    if outcome.unreadable:
        yield f"results unreadable: {outcome.unreadable}"
    elif outcome.status in RAN:
        if not outcome.has_results:
            yield "no results"
        elif not whole:
            yield f"the manifest says {outcome.ended}, {len(outcome.rows)} of {outcome.planned} points"
    elif outcome.has_results:
        marked = outcome.ended is None or outcome.ended.startswith("stopped")
        late = whole and place.phase == "tear-down"  # after the last record
        if not (marked or late):
            yield f"the manifest says {outcome.ended}"
