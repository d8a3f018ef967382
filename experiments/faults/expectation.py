"""How a run must end after a fault, as documented, and the judgement of how it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiments.faults.fault import SIGNALS, Fault, Place
from measure.metrics.load import OTHERS, STEAL
from railyard.errors import AgentError, ConfigError, ControlError, MachineError

STOPPED = 130
KILLED = -9
RAN = frozenset((0, 8))
"""Exit statuses of a run that was finished: faithful, or not."""
CLEAN_S = 5.0
"""Nothing of a run may be left on the machine so long after its end."""
_DEADLY = frozenset(SIGNALS) - {"STOP"}
_FAILURES: Mapping[str, tuple[int, str]] = {
    "controller": (ControlError.exit_status, "controller"),
    "ovs-vswitchd": (MachineError.exit_status, "ovs-vswitchd"),
    "ovsdb-server": (MachineError.exit_status, "ovsdb-server"),
    "fast path": (MachineError.exit_status, "fast path"),
    "agent launcher": (AgentError.exit_status, "process that starts the agents"),
    "agent": (AgentError.exit_status, "rank [0-9]"),
    "sampler": (MachineError.exit_status, "sampler"),
    "probe": (MachineError.exit_status, "probe"),
    "delay relay": (MachineError.exit_status, "relay of delayed links"),
    "watcher": (MachineError.exit_status, "watche[rs]"),
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
    if place.kind == "resource":
        return _short(place.what)
    if place.kind != "signal":
        return Expected(RAN)
    if place.process == "main":
        by_signal = {"KILL": frozenset((KILLED,)), "STOP": RAN}
        return Expected(by_signal.get(place.what, frozenset((STOPPED,))), "stopped")
    status, names = _FAILURES[place.process]
    goes_on = (
        place.what == "STOP"
        or (place.what == "INT INT" and place.process in _IGNORE_INT)
        or (place.phase == "splice" and place.process in _RESTARTED)
        or place.phase == "tear-down"
        or place.process in _NOT_NEEDED
    )
    return Expected(RAN | {status} if goes_on else frozenset((status,)), names)


def _short(resource: str) -> Expected:
    """How a run may end that has too little of a resource: in its own words, with the status of the first part hit."""
    failed = frozenset((MachineError.exit_status, ControlError.exit_status, AgentError.exit_status))
    if resource == "memory":
        return Expected(RAN | failed | {KILLED})
    if resource.endswith("disk"):
        return Expected(RAN | failed | {ConfigError.exit_status}, _NO_ROOM)
    return Expected(RAN | failed | {ConfigError.exit_status})


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
    other: Sequence[str] = field(default_factory=tuple)

    @property
    def sentence(self) -> str:
        """The last sentence of the run on standard error; empty if there is none."""
        said = [line.strip() for line in self.errors.splitlines() if line.startswith("railyard: ")]
        return said[-1].removeprefix("railyard: ") if said else ""

    @property
    def traceback(self) -> bool:
        """Whether the run printed a traceback."""
        return "Traceback (most recent call last)" in self.errors

    @property
    def verdict(self) -> str:
        """The verdict of the points that the fault may have cut: ``faithful``, ``not faithful``, or empty."""
        cut = self.cut_rows
        return "" if not cut else "faithful" if any(row.get("faithful") for row in cut) else "not faithful"

    @property
    def cut_rows(self) -> list[Mapping[str, Any]]:
        """The rows of points that were measured when the fault happened."""
        return [row for row, (start, end) in zip(self.rows, self.points, strict=False) if start <= self.at <= end]


def cuts(fault: Fault) -> bool:
    """Whether a fault in a measured point takes away a part of the measurement, so that it must not be faithful."""
    place = fault.place
    if place.kind != "signal" or place.phase not in ("step", "dark", "splice"):
        return False
    if place.what == "STOP":
        return place.process in _STOPPED_MEASURING
    if place.what == "INT INT" and place.process in _IGNORE_INT:
        return False
    if place.phase == "splice" and place.process in _RESTARTED:
        return False
    return place.what in _DEADLY and place.process in _MEASURING


def falsely_faithful(fault: Fault, outcome: Outcome) -> bool:
    """Whether a point is called faithful whose measurement was cut, or would be on a machine that is not busy."""
    return cuts(fault) and any(
        not [check for check in row.get("checks", ()) if not check["ok"] and not _busy(check)]
        for row in outcome.cut_rows
    )


def _busy(check: Mapping[str, Any]) -> bool:
    """Whether a failed check is due to a busy machine: it has a value, and is of those that measure the machine."""
    return check["value"] is not None and check["name"] in _BUSY_CHECKS


def complaints(fault: Fault, outcome: Outcome) -> list[str]:
    """All that is wrong with the end of a run after a fault; empty if it ended as documented."""
    want = expected(fault.place)
    if outcome.status is None:
        return ["hang"]
    found = ["traceback"] if outcome.traceback else []
    if outcome.status not in want.statuses:
        found.append(f"status {outcome.status}, not {want}")
    found += _about_sentence(outcome, want)
    if outcome.left:
        found.append(f"left behind for {outcome.cleaned_s:.1f} s: " + "; ".join(outcome.left))
    if outcome.lost:
        found.append(f"{outcome.lost} acknowledged records lost")
    found += _about_results(fault, outcome)
    if falsely_faithful(fault, outcome):
        found.append("faithful although the measurement was cut")
    return [*found, *outcome.other]


def _about_sentence(outcome: Outcome, want: Expected) -> list[str]:
    """What is wrong with the sentence of a run that ended with an error: none, or one that does not name the cause."""
    if outcome.status in RAN or outcome.status == KILLED:
        return []
    if not outcome.sentence:
        return ["no sentence"]
    named = re.search("stopped" if outcome.status == STOPPED else want.names, outcome.sentence)
    return [] if named else [f"the sentence does not name {want.names}"]


def _about_results(fault: Fault, outcome: Outcome) -> list[str]:
    """What is wrong with the results folder: unreadable, or marked as whole although it is not (or the reverse)."""
    if outcome.unreadable:
        return [f"results unreadable: {outcome.unreadable}"]
    if not outcome.has_results:
        return ["no results"] if outcome.status in RAN else []
    whole = outcome.ended == "complete" and outcome.planned in (None, len(outcome.rows))
    if outcome.status in RAN:
        return [] if whole else [f"the manifest says {outcome.ended}, {len(outcome.rows)} of {outcome.planned} points"]
    marked = outcome.ended is None or outcome.ended.startswith("stopped")
    late = whole and fault.place.phase == "tear-down"  # after the last record
    return [] if marked or late else [f"the manifest says {outcome.ended}"]
