"""Timetables: what is done to a fabric at times or at steps of a job, as text, as data, and by a loop. Pure.

An act is ``2s fail rail0:3`` or ``step 3.5 set g0-rail0 rate=50Mbps delay=2ms loss=1%``; several are separated by
semicolons or lines, or are the list ``events`` of a YAML file.
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
from railyard.reading import read_text
from railyard.yaml_file import MOST_BYTES, read_mapping
from topos.options import link_parameters, rate
from topos.plan import FabricPlan

MOST_ACTS = 10_000
MOST_CHANGES_PER_S = 100
EVENTS = "events"
"""Key of a timetable in a file."""
_FORMS = {
    "fail": (r"\S+", "fail TARGET, with a host, a switch, a port (rail0:3) or a link (g0-rail0)"),
    "restore": (r"\S+", "restore TARGET, with what has failed"),
    "set": (r"\S+( (rate|delay|loss)=\S+)+", "set LINK rate=50Mbps delay=2ms loss=1%, with one of these or more"),
    "connect": (r"\S+(( \d{1,6}-\d{1,6})+|( \d{1,6} \d{1,6})+)", "connect SWITCH PORT-PORT PORT-PORT, or PORT PORT"),
    "disconnect": (r"\S+( \d{1,6})+", "disconnect SWITCH PORT PORT"),
    "flap": (r"\S+ every=\S+ for=\S+", "flap TARGET every=200ms for=2s"),
    "replay": (r"\S+ \S+", "replay LINK FILE.csv, with a trace of the link"),
}
"""Form of what follows each verb, and in words."""
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_ACT = re.compile(rf"(?:step (?P<step>{_NUMBER})|(?P<time>{_NUMBER} ?[a-z]+)) (?P<verb>\S+) ?(?P<words>.*)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_VALUES: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "rate": ("rate_mbps", {"kbps": 1e-3, "mbps": 1.0, "gbps": 1e3, "": 1.0}),
    "delay": ("delay_ms", {"us": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}),
    "loss": ("loss_percent", {"%": 1.0, "": 1.0}),
}
_TRACED = {"rate_mbps": "rate={}Mbps", "delay_ms": "delay={}ms", "loss_percent": "loss={}%"}
_A = TypeVar("_A")


@dataclass(frozen=True)
class TimedAct:
    """An act at ``at_s`` seconds, or after ``step`` steps (3.5: in the middle of the step after the third).

    ``values`` of ``set`` are arguments of ``Emulation.set_link``; those of ``connect`` and ``disconnect`` are the
    ``circuits`` or ``ports`` as text. ``text`` is the act as it was written.
    """

    at_s: float | None
    step: float | None
    verb: str
    target: str
    values: Mapping[str, float | str] = field(default_factory=dict)
    text: str = field(default="", compare=False)

    @property
    def ports(self) -> list[int]:
        """The ports that ``connect`` joins, a pair after the other, or that ``disconnect`` frees."""
        words = "" if self.verb == "set" else " ".join(map(str, self.values.values()))
        return [int(port) for port in re.findall(r"\d+", words)]

    def __str__(self) -> str:
        return self.text

    def wrong(self, reason: str) -> ConfigError:
        return _wrong(self.text, reason)


def written(given: object) -> list[str]:
    """The texts of acts in a text, in a list of texts, or at the key ``events`` of the YAML file that a text names."""
    if file := _file(given):
        with in_file(file):
            return written(read_mapping(Path(file), "a timetable", EVENTS).get(EVENTS))
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise ConfigError("must be acts such as '2s fail rail0:3', as text or in a list", key=EVENTS)
    return [text for part in re.split(r"[;\n]", ";".join(listed)) if (text := " ".join(part.split()))]


def parse(given: object, *, traces: bool = True) -> tuple[TimedAct, ...]:
    """The acts of ``written``, those at times in order, then those at steps. ``ConfigError`` names the first wrong one.

    Neither times nor steps may decrease. Without ``traces`` no act may name a file.
    """
    with in_file(_file(given)):
        return _parsed(written(given), traces)


def _file(given: object) -> str | None:
    return given.strip() if isinstance(given, str) and given.strip().endswith((".yaml", ".yml")) else None


def _parsed(texts: Iterable[str], traces: bool) -> tuple[TimedAct, ...]:
    acts, latest = list[TimedAct](), {True: 0.0, False: 0.0}
    for text in texts:
        first, *more = _read(text, traces)
        moment = first.at_s or first.step or 0.0
        if moment < latest[first.step is None]:
            raise _wrong(text, "comes before the act in front of it; sort the acts by their times")
        latest[first.step is None] = moment
        acts += [first, *more]
        if len(acts) > MOST_ACTS:
            raise ConfigError(f"has more than {MOST_ACTS} acts, the most that are read", key=EVENTS)
    return tuple(sorted(acts, key=lambda act: inf if act.at_s is None else act.at_s))


def _read(text: str, traces: bool = False) -> list[TimedAct]:
    """The acts of one text: of a flap each failure and repair, of a replay each change."""
    found = _ACT.fullmatch(text)
    if found is None:
        raise _wrong(text, "must begin with a time such as 2s, or 'step 3', and say what to do: 2s fail rail0:3")
    verb, (target, *words) = found["verb"], found["words"].split(" ")
    if verb not in _FORMS:
        near = nearest(verb, _FORMS) or f"; use one of {', '.join(_FORMS)}"
        raise _wrong(text, f"has the unknown verb {shortened(verb)}{near}")
    form, in_words = _FORMS[verb]
    if not re.fullmatch(form, found["words"]) or (verb in ("flap", "replay") and found["step"]):
        raise _wrong(text, f"must be: {'TIME' if verb in ('flap', 'replay') else 'TIME or step N'} {in_words}")
    at_s = None if found["time"] is None else _amount(text, found["time"], _SECONDS)
    if at_s is not None and verb == "flap":
        return _flap(text, at_s, target, *(_amount(text, word.partition("=")[2], _SECONDS) for word in words))
    if at_s is not None and verb == "replay":
        if not traces:
            raise _wrong(text, "names a file, which is read where a person types it: railyard at")
        return _replay(at_s, target, words[0])
    values: dict[str, float | str] = {}
    if verb == "connect":
        values["circuits"] = re.sub(r"(\d+)[ -](\d+)", r"\1-\2", " ".join(words))
    if verb == "disconnect":
        values["ports"] = " ".join(words)
    for name, _, amount in (word.partition("=") for word in words if verb == "set"):
        key, units = _VALUES[name]
        values[key] = _amount(text, amount, units)
    return [TimedAct(at_s, None if found["step"] is None else float(found["step"]), verb, target, values, text)]


def _flap(text: str, at_s: float, target: str, every_s: float, for_s: float) -> list[TimedAct]:
    if not 0 < every_s <= for_s or 2 * for_s / every_s > MOST_ACTS:
        raise _wrong(text, f"must flap once or more, and fail and restore {MOST_ACTS} times at most")
    moments = [round(at_s + half * every_s / 2, 9) for half in range(2 * int(for_s / every_s + 1e-9))]
    acts = zip(moments, ("fail", "restore") * len(moments), strict=False)
    return [TimedAct(t, None, verb, target, text=f"{t * 1e3:.9g}ms {verb} {target}") for t, verb in acts]


def _replay(begin_s: float, link: str, file: str) -> list[TimedAct]:
    """The changes of a trace, a CSV file: names of columns in its first line, and in each other one a change."""
    lines = read_text(Path(file), MOST_BYTES, "a trace of a link").replace(" ", "").splitlines()
    (first, *columns), *rows = [line.split(",") for line in lines] or [[""]]
    acts = list[TimedAct]()
    with in_file(file):
        if first != "time_s" or not columns or columns != [name for name in _TRACED if name in columns]:
            raise ConfigError(f"must begin with the line time_s,{','.join(_TRACED)} or fewer of these columns")
        for number, row in enumerate(rows, 2):
            if len(row) != len(columns) + 1 or not all(re.fullmatch(_NUMBER, cell) for cell in row):
                raise ConfigError(f"must be {len(columns) + 1} numbers with commas between", source=f"{file}:{number}")
            values = " ".join(_TRACED[name].format(cell) for name, cell in zip(columns, row[1:], strict=True))
            acts += _read(f"{(begin_s + float(row[0])) * 1e3:.9g}ms set {link} {values}")
        times = [act.at_s or 0.0 for act in acts]
        close = (late - early < 1 - 1e-9 for early, late in zip(times, times[MOST_CHANGES_PER_S:], strict=False))
        if not times or times != sorted(times) or any(close):
            raise ConfigError(f"must have changes in order of time, at most {MOST_CHANGES_PER_S} in a second")
    return acts


def _amount(text: str, amount: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(rf"({_NUMBER}) ?([A-Za-z%]*)", amount)
    if found is None or found[2].lower() not in units:
        known = ", ".join(filter(None, units))
        raise _wrong(text, f"has {shortened(amount)} where a number with one of {known} is expected")
    return round(float(found[1]) * units[found[2].lower()], 9)


def _wrong(text: str, reason: str) -> ConfigError:
    return ConfigError(f"the act '{shortened(text)}' {reason}", key=EVENTS)


def check(acts: Iterable[TimedAct], plan: FabricPlan, steps: float = inf) -> None:
    """Raise ``ConfigError`` for an act on what a fabric of ``plan`` lacks, or after the last of the job's ``steps``."""
    links, nodes = _links(plan), {*plan.hosts, *(switch.name for switch in plan.switches)}
    optical = {switch.name: {port.number for port in switch.ports} for switch in plan.switches if switch.kind == "ocs"}
    for act in acts:
        known, kind = optical.keys() | set[str](), "optical switch"
        if act.verb in ("fail", "restore", "set"):
            known, kind = (links, "link") if act.verb == "set" else (links | nodes, "host, switch, port or link")
        if act.target not in known:
            near = nearest(act.target, sorted(known)) or f"; use one such as {', '.join(sorted(known)[:3]) or 'none'}"
            raise act.wrong(f"names no {kind} of fabric {plan.fabric}{near}")
        if act.verb == "set":
            try:
                rate("rate", act.values.get("rate_mbps", 1))
                link_parameters(act.values.get("delay_ms", 0), 0, act.values.get("loss_percent", 0))
            except ConfigError as error:
                raise act.wrong(f"has a value that no link can have: {error}") from None
        for number, port in enumerate(act.ports):
            if port not in optical[act.target] or port in act.ports[:number]:
                raise act.wrong(f"must name ports from 1 to {max(optical[act.target])} of {act.target}, each once")
        if act.step is not None and act.step >= steps:
            raise act.wrong(f"is after the last step of the job, which has {steps:g} steps")


def _links(plan: FabricPlan) -> set[str]:
    """All names of links: by the port of a switch, by the interface of a host, and by the nodes at both ends."""
    ends = [(switch.name, port.number, port.host) for switch in plan.switches for port in switch.ports]
    ends += [end for link in plan.links for end in ((link.a, link.a_port, link.b), (link.b, link.b_port, link.a))]
    named = {name for node, port, far in ends for name in (f"{node}:{port}", f"{node}-{far}", f"{far}-{node}")}
    return named | {port.interface for switch in plan.switches for port in switch.ports}


class Timetable(Generic[_A]):
    """Things to do one after the other, each when its time has come, in a loop that waits until ``next_time``.

    ``due`` gives the time of a thing on the loop's clock, or None as long as that is not known, as of a step that has
    not begun. ``act`` gets a thing and its time; what it raises, the loop gets, and the thing counts as done.
    """

    def __init__(self, things: Sequence[_A], due: Callable[[_A], float | None], act: Callable[[_A, float], None]):
        self.left = deque(things)
        self._due, self._act = due, act
        self._at: float | None = None

    def next_time(self) -> float:
        """When the next thing is due; infinity if that is not known yet, or if none is left."""
        if self._at is None and self.left:
            self._at = self._due(self.left[0])
        return inf if self._at is None else self._at

    def run_due(self, now: float) -> None:
        while (at := self.next_time()) <= now:
            self._at = None
            self._act(self.left.popleft(), at)
