"""Faults to be made in runs: all possible ones, and the draw of a campaign from a seed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Literal

Kind = Literal["signal", "control", "resource", "start"]
Phase = Literal["bring-up", "register", "check-in", "step", "dark", "splice", "tear-down"]
PHASES: tuple[Phase, ...] = ("bring-up", "register", "check-in", "step", "dark", "splice", "tear-down")
SIGNALS = ("KILL", "STOP", "TERM", "HUP", "INT INT")
"""Signals to a process: STOP is followed by CONT after ``STOP_S`` seconds, and INT is sent twice."""
STOP_S = 5.0
_POINT_PHASES: tuple[Phase, ...] = ("register", "check-in", "step", "dark", "splice")
_ALL: tuple[Phase, ...] = PHASES
LIVES: dict[str, tuple[Phase, ...]] = {
    "main": _ALL,
    "controller": _ALL,
    "ovs-vswitchd": _ALL,
    "ovsdb-server": _ALL,
    "fast path": _ALL,
    "agent launcher": _ALL,
    "watcher": _ALL,
    "delay relay": ("bring-up", "check-in", "step", "tear-down"),
    "agent": ("check-in", "step", "dark", "splice"),
    "sampler": ("step", "dark", "splice"),
    "probe": ("step",),
}
"""Processes of a run, and the phases in which they exist."""
CONTROL = ("stall", "reset")
"""Faults of the OpenFlow connections: the loopback interface that they cross is down for a while, or all are reset."""
RESOURCES = {
    "results disk": (65_536.0, 1_572_864.0),
    "run folder disk": (65_536.0, 1_572_864.0),
    "open files": (12.0, 80.0),
    "memory": (100e6, 500e6),
    "file size": (2_000.0, 60_000.0),
}
"""Resources that are short from the start of a run on, with the least and the largest amount (bytes, or number)."""
STARTS = ("foreign folder", "second checkout", "caller of sudo", "clock offset")
"""Unusual ways to start a run, in which it must work as always."""
STALL_S = (0.3, 2.0)
_LATE_S = 0.15
_TEAR_DOWN_S = 0.01
"""All processes but the main one end soon after the tear-down has begun."""
_IN_EACH_POINT = ("check-in", "step", "dark")
_ONE_POINT = ("probe", "delay relay")
"""Processes of a run that has one point."""
_CYCLE: tuple[Kind, ...] = ("signal", "signal", "signal", "control", "signal", "signal", "signal", "resource")
"""Kinds of the faults of a campaign, over and over; those of kind ``start`` take turns with ``resource``."""


@dataclass(frozen=True)
class Place:
    """A fault without its amounts: the ``process`` that it hits (empty: the run), ``what`` is done, and the phase."""

    kind: Kind
    process: str
    what: str
    phase: Phase


@dataclass(frozen=True)
class Fault:
    """The fault ``number`` of the campaign of ``seed``.

    It happens ``after_s`` after its phase has begun, in point ``point`` of the run (0 or 1). ``amount`` is the length
    of a stall in seconds, or the size of a resource.
    """

    number: int
    seed: int
    place: Place
    point: int = 0
    after_s: float = 0.0
    amount: float = 0.0

    @property
    def says(self) -> str:
        """The fault in words: ``KILL agent``, ``stall 0.8 s``, ``open files 64``."""
        place = self.place
        if place.kind == "resource":
            return f"{place.what} {_round(self.amount)}"
        return f"stall {self.amount:.1f} s" if place.what == "stall" else f"{place.what} {place.process}".strip()

    @property
    def command(self) -> str:
        """The command line that makes this fault alone again."""
        return f"railyard run faults --seed {self.seed} --only {self.number}"


def _round(amount: float) -> str:
    if amount >= 1e6:
        return f"{amount / 1e6:.1f}M" if amount < 1e7 else f"{amount / 1e6:.0f}M"
    return f"{amount / 1e3:.0f}k" if amount >= 1e3 else f"{amount:.0f}"


def signal_places() -> list[Place]:
    """Every signal to every process in every phase in which it exists."""
    return [
        Place("signal", process, name, phase) for process, lives in LIVES.items() for name in SIGNALS for phase in lives
    ]


def control_places() -> list[Place]:
    """Every fault of the OpenFlow connections in every phase in which they are needed."""
    return [Place("control", "", what, phase) for what in CONTROL for phase in _POINT_PHASES]


def start_places() -> list[Place]:
    """Every short resource, and every unusual start. They are there from the start of a run on, the bring-up."""
    resources = [Place("resource", "", what, "bring-up") for what in RESOURCES]
    return [*resources, *(Place("start", "", what, "bring-up") for what in STARTS)]


def evenly(places: Sequence[Place], random: Random) -> Iterator[Place]:
    """Draw for ever: each place once in every ``len(places)``, processes, actions and phases as evenly as possible.

    The next place is the one whose process, action and phase were drawn least often so far; equal ones by chance.
    """
    drawn: Counter[str] = Counter()
    while True:
        left = random.sample(list(places), len(places))
        while left:
            best = min(left, key=lambda place: drawn[place.process] + drawn[place.what] + drawn[place.phase])
            left.remove(best)
            drawn.update((best.process, best.what, best.phase))
            yield best


def faults(seed: int) -> Iterator[Fault]:
    """The faults of the campaign of ``seed``, without end: a longer campaign begins with the faults of a shorter."""
    random = Random(f"railyard faults {seed}")
    streams = {"signal": evenly(signal_places(), random), "control": evenly(control_places(), random)}
    streams["resource"] = evenly(start_places(), random)
    for number in count():
        yield _drawn(number, seed, next(streams[_CYCLE[number % len(_CYCLE)]]))


def _drawn(number: int, seed: int, place: Place) -> Fault:
    """The fault at ``place``, with amounts that depend on the seed and the number alone."""
    random = Random(f"railyard fault {seed} {number}")
    point = random.randrange(2) if place.phase in _IN_EACH_POINT and place.process not in _ONE_POINT else 0
    late_s = _LATE_S if place.phase != "tear-down" or place.process == "main" else _TEAR_DOWN_S
    after_s = round(random.uniform(0.0, late_s), 3)
    least, most = STALL_S if place.what == "stall" else RESOURCES.get(place.what, (0.0, 0.0))
    amount = least * (most / least) ** random.random() if least else 0.0
    return Fault(number, seed, place, point, after_s, amount)


def chosen(seed: int, count: int, only: Sequence[int] = ()) -> list[Fault]:
    """The first ``count`` faults of the campaign of ``seed``, or those numbered ``only``."""
    if not only:
        return list(islice(faults(seed), count))
    return [fault for fault in islice(faults(seed), max(only) + 1) if fault.number in only]
