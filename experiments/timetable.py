"""Timetables: what is done to a fabric at times or at steps of a job, as text, as data, and by a loop. Pure.

An act is ``2s fail rail0:3``, ``step 3.5 set g0-rail0 rate=50Mbps delay=2ms loss=1%``, ``0.5s connect rail0 1-3 2-4``,
``4s disconnect rail0 1 2`` or ``1s flap rail0:3 every=200ms for=2s``; several are separated by semicolons or lines, or
are the list ``events`` of a YAML file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Generic, TypeVar

from railyard.errors import ConfigError, in_file, nearest, shortened
from railyard.yaml_file import read_mapping
from topos.plan import FabricPlan

MOST_ACTS = 1000
EVENTS = "events"
"""Key of a timetable in a file."""
VERBS = ("fail", "restore", "set", "connect", "disconnect", "flap")
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_WHEN = re.compile(rf"(?:step\s+(?P<step>{_NUMBER})|(?P<time>{_NUMBER}\s?(?:us|ms|s|min)))\s+(?P<act>\S.*)")
_QUANTITY = re.compile(rf"({_NUMBER})\s?([A-Za-z%/]*)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_MBPS = {"kbps": 1e-3, "mbps": 1.0, "gbps": 1e3, "kb/s": 1e-3, "mb/s": 1.0, "gb/s": 1e3, "": 1.0}
_UNITS: Mapping[str, tuple[str, str, Mapping[str, float]]] = {
    "rate": ("rate_mbps", "Mbps", _MBPS),
    "delay": ("delay_ms", "ms", {"us": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}),
    "loss": ("loss_percent", "%", {"%": 1.0, "": 1.0}),
}
_A = TypeVar("_A")


@dataclass(frozen=True)
class TimedAct:
    """An act at ``at_s`` seconds, or after ``step`` steps (3.5: in the middle of the step after the third).

    ``values`` of ``set`` are arguments of ``Emulation.set_link`` in its units, those of ``connect`` and ``disconnect``
    the ``circuits`` and ``ports`` as text.
    """

    at_s: float | None
    step: float | None
    verb: str
    target: str
    values: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def circuits(self) -> list[tuple[int, int]]:
        """The pairs of ports that ``connect`` joins."""
        pairs = (pair.partition("-") for pair in str(self.values.get("circuits", "")).split())
        return [(int(a), int(b)) for a, _, b in pairs]

    @property
    def ports(self) -> list[int]:
        """The ports that ``disconnect`` or ``connect`` changes."""
        return [int(port) for port in re.findall(r"\d+", " ".join(map(str, self.values.values())))]

    def __str__(self) -> str:
        when = f"{_plain(self.at_s)}s" if self.at_s is not None else f"step {_plain(self.step or 0.0)}"
        words = [
            f"{name}={_plain(float(self.values[key]))}{unit}"
            for name, (key, unit, _) in _UNITS.items()
            if key in self.values
        ]
        return " ".join([when, self.verb, self.target, *(words or map(str, self.values.values()))])


def parse(given: str | Sequence[object]) -> tuple[TimedAct, ...]:
    """The acts of a text, of a list of texts, or of the list ``events`` of a YAML file, those at steps last.

    Times, and steps, must not decrease. ``ConfigError`` names the first wrong act.
    """
    source = given.strip() if isinstance(given, str) and given.strip().endswith((".yaml", ".yml")) else None
    with in_file(source):
        listed = read_mapping(Path(source), "a timetable", EVENTS).get(EVENTS, "") if source else given
        if not isinstance(listed, (str, list, tuple)) or not all(isinstance(each, str) for each in listed):
            raise ConfigError("must be acts such as '2s fail rail0:3', as text or in a list", key=EVENTS)
        lines = re.split(r"[;\n]", listed if isinstance(listed, str) else ";".join(listed))
        acts, latest = list[TimedAct](), {True: 0.0, False: 0.0}
        for text in filter(None, (" ".join(line.split()) for line in lines)):
            found = _read(text)
            timed, moment = found[0].at_s is not None, found[0].at_s or found[0].step or 0.0
            if moment < latest[timed]:
                raise _wrong(text, "comes before the act in front of it; sort the acts by their times")
            latest[timed] = moment
            acts += found
            if len(acts) > MOST_ACTS:
                raise ConfigError(f"has more than {MOST_ACTS} acts, the most that are read", key=EVENTS)
    return tuple(sorted(acts, key=lambda act: inf if act.at_s is None else act.at_s))


def _read(text: str) -> list[TimedAct]:
    """The acts of one text: of a flap each failure and repair."""
    when = _WHEN.fullmatch(text)
    if when is None:
        raise _wrong(text, "must begin with a time such as 2s or 'step 3', and say what to do: 2s fail rail0:3")
    at_s = None if when["time"] is None else _amount(text, when["time"], _SECONDS)
    step = None if when["step"] is None else float(when["step"])
    verb, *words = when["act"].split()
    if verb not in VERBS:
        near = nearest(verb, VERBS) or f"; use one of {', '.join(VERBS)}"
        raise _wrong(text, f"has the unknown verb {shortened(verb)}{near}")
    if not words or (verb in ("fail", "restore")) != (len(words) == 1):
        raise _wrong(text, f"must be: {_FORMS[verb]}")
    target, *more = words
    if verb == "flap":
        return _flap(text, at_s, target, more)
    return [TimedAct(at_s, step, verb, target, _values(text, verb, more))]


_FORMS = {
    "fail": "TIME fail TARGET, with a host, switch, port (rail0:3) or link (g0-rail0)",
    "restore": "TIME restore TARGET, with what has failed",
    "set": "TIME set LINK rate=50Mbps delay=2ms loss=1%, with one of them or more",
    "connect": "TIME connect SWITCH A-B C-D, with ports",
    "disconnect": "TIME disconnect SWITCH PORT PORT",
    "flap": "TIME flap TARGET every=200ms for=2s",
}


def _values(text: str, verb: str, words: Sequence[str]) -> dict[str, float | str]:
    if verb in ("fail", "restore"):
        return {}
    if verb != "set":
        form, key = (r"\d{1,6}-\d{1,6}", "circuits") if verb == "connect" else (r"\d{1,6}", "ports")
        if not all(re.fullmatch(form, word) for word in words):
            raise _wrong(text, f"must be: {_FORMS[verb]}")
        return {key: " ".join(words)}
    found: dict[str, float | str] = {}
    for word in words:
        name, _, amount = word.partition("=")
        key, _, units = _UNITS.get(name, ("", "", {}))
        if not key or key in found:
            raise _wrong(text, f"must be: {_FORMS[verb]}")
        found[key] = _amount(text, amount, units)
    return found


def _flap(text: str, at_s: float | None, target: str, words: Sequence[str]) -> list[TimedAct]:
    given = dict(word.partition("=")[::2] for word in words)
    if given.keys() != {"every", "for"} or at_s is None:
        raise _wrong(text, f"must be, with a time and not a step: {_FORMS['flap']}")
    every_s, for_s = (_amount(text, given[key], _SECONDS) for key in ("every", "for"))
    if not 0 < every_s <= for_s or for_s / every_s * 2 > MOST_ACTS:
        raise _wrong(text, f"must flap once or more, and fail and restore {MOST_ACTS} times at most")
    halves = range(2 * int(for_s / every_s + 1e-9))
    verbs = ("fail", "restore")
    return [TimedAct(round(at_s + half * every_s / 2, 9), None, verbs[half % 2], target) for half in halves]


def _amount(text: str, written: str, units: Mapping[str, float]) -> float:
    found = _QUANTITY.fullmatch(written)
    if found is None or (unit := found[2].lower()) not in units:
        known = ", ".join(filter(None, units))
        raise _wrong(text, f"has {shortened(written) or 'nothing'} where a number with one of {known} is expected")
    return round(float(found[1]) * units[unit], 9)


def _wrong(text: str, reason: str) -> ConfigError:
    return ConfigError(f"the act '{shortened(text)}' {reason}", key=EVENTS)


def _plain(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


# ---- a fabric ------------------------------------------------------------------------------------------------------


def check(
    acts: Iterable[TimedAct],
    plan: FabricPlan,
    *,
    steps: float = inf,
    failed: Iterable[str] = (),
    circuits: bool = True,
) -> None:
    """Raise ``ConfigError`` for an act that is impossible on a fabric of ``plan`` on which ``failed`` has failed.

    ``steps`` are those of the job; ``circuits``: a controller of ours is there to change circuits.
    """
    acts = list(acts)
    nodes, links, down = {*plan.hosts, *(switch.name for switch in plan.switches)}, _links(plan), set(failed)
    ordered = len({act.at_s is None for act in acts}) == 1  # of times and steps it is not known which come first
    for act in acts:
        known = links if act.verb == "set" else nodes | links if act.verb in ("fail", "restore") else _optical(plan)
        if act.target not in known:
            near = nearest(act.target, sorted(known)) or f"; use one such as {', '.join(sorted(known)[:3]) or 'none'}"
            kind = {"set": "link", "connect": "optical switch", "disconnect": "optical switch"}.get(act.verb)
            raise _wrong(str(act), f"names no {kind or 'host, switch, port or link'} of fabric {plan.fabric}{near}")
        if act.step is not None and act.step >= steps:
            raise _wrong(str(act), f"is after the last step of the job, which has {steps:g} steps")
        if act.verb in ("connect", "disconnect"):
            _check_circuits(act, plan, circuits)
        elif ordered and act.verb == "fail" and act.target in down:
            raise _wrong(str(act), "fails what has failed already; restore it first")
        elif ordered and act.verb == "restore" and act.target not in down:
            raise _wrong(str(act), "restores what has not failed; fail it before")
        down = down | {act.target} if act.verb == "fail" else down - {act.target} if act.verb == "restore" else down


def _check_circuits(act: TimedAct, plan: FabricPlan, controlled: bool) -> None:
    if not controlled:
        raise _wrong(str(act), "is for Railyard's controller, and controller is remote; leave it out")
    (switch,) = (each for each in plan.switches if each.name == act.target)
    known, seen = {port.number for port in switch.ports}, set[int]()
    for port in act.ports:
        if port not in known:
            raise _wrong(str(act), f"names port {port}; {act.target} has ports {min(known)} to {max(known)}")
        if port in seen:
            raise _wrong(str(act), f"names port {port} twice; a port holds one circuit")
        seen.add(port)


def _optical(plan: FabricPlan) -> set[str]:
    return {switch.name for switch in plan.switches if switch.kind == "ocs"}


def _links(plan: FabricPlan) -> set[str]:
    """All names of links: by the port of a switch, by the interface of a host, and by the nodes at both ends."""
    found = set[str]()
    for switch in plan.switches:
        for port in switch.ports:
            ends = port.host, switch.name
            found.update((f"{switch.name}:{port.number}", port.interface, "-".join(ends), "-".join(reversed(ends))))
    for link in plan.links:
        found.update((f"{link.a}:{link.a_port}", f"{link.b}:{link.b_port}", f"{link.a}-{link.b}", f"{link.b}-{link.a}"))
    return found


# ---- a loop --------------------------------------------------------------------------------------------------------


class Timetable(Generic[_A]):
    """Things to do one after the other, each when its time has come, in a loop that waits until ``next_time``.

    ``due`` gives the time of a thing on the loop's clock, or None as long as that is not known, as of a step that has
    not begun. ``act`` gets a thing and its time; what it raises, the loop gets, and the thing counts as done.
    """

    def __init__(
        self, things: Iterable[_A], due: Callable[[_A], float | None], act: Callable[[_A, float], None]
    ) -> None:
        self.left = deque(things)
        self._due, self._act = due, act
        self._at: float | None = None

    def next_time(self) -> float:
        """When the next thing is due; infinity if that is not known yet, or if none is left."""
        if self._at is None and self.left:
            self._at = self._due(self.left[0])
        return inf if self._at is None else self._at

    def run_due(self, now: float) -> None:
        """Do all that is due ``now``."""
        while (at := self.next_time()) <= now:
            self._at = None
            self._act(self.left.popleft(), at)
