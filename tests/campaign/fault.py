"""Faults to be made in runs: all possible ones, the draw of a campaign from a seed, and the runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
LIVES: dict[str, tuple[Phase, ...]] = {
    **dict.fromkeys(
        ("main", "controller", "ovs-vswitchd", "ovsdb-server", "fast path", "agent launcher", "watcher"), PHASES
    ),
    "delay relay": ("bring-up", "check-in", "step", "tear-down"),
    "agent": ("check-in", "step", "dark", "splice"),
    "sampler": ("step", "dark", "splice"),
    "probe": ("step",),
}
"""Processes of a run, and the phases in which they exist."""
CONTROL = ("stall", "reset")
"""Faults of the OpenFlow connections: the loopback interface that they cross is down for a while, or all are reset."""
STALL_S = (0.3, 2.0)
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
_LATE_S = 0.15
_TEAR_DOWN_S = 0.01
"""All processes but the main one end soon after the tear-down has begun."""
_CYCLE: tuple[Kind, ...] = ("signal", "signal", "signal", "control", "signal", "signal", "signal", "resource")
"""Kinds of the faults of a campaign, over and over; those of kind ``start`` take turns with ``resource``."""


@dataclass(frozen=True)
class Victim:
    """A small run that faults are made in: arguments of ``railyard run``, and how many points it measures."""

    arguments: tuple[str, ...]
    points: int
    plot_arguments: tuple[str, ...] = ()


_ONCE = ("--repeats", "1", "--attempts", "1")
CIRCUITS = Victim(
    (
        *("collective", "--op", "all_to_all", "--algorithms", "pairwise", "--ranks", "3", "--fabric", "ocs"),
        *("--sizes", "1K,4K", "--iterations", "3", "--reconfiguration-delay", "100", "--ack-timeout", "15"),
        *_ONCE,
    ),
    points=2,
)
"""An all-to-all over circuits that change before each round, so that it is dark most of the time."""
SPLICE = Victim(
    (
        *("failover", "--fabrics", "photonic", "--alone", "--torus", "2x2", "--server", "2x1", "--slice", "2x1@0,0"),
        *("--steps", "4", "--kill", "1@1.5", "--checkpoint-every", "1", "--time", "0.1", "--job-compute", "0.5"),
        *("--job-gradient-bytes", "1e8", "--job-state-bytes", "1e8", "--ack-timeout", "15"),
        *_ONCE,
    ),
    points=1,
)
"""A job of two chips of which one is killed: a spare chip is spliced in, and takes up the checkpoint."""
_PROBED_LINK = "tests.campaign.probed_link:ProbedLink"
PROBED = Victim((_PROBED_LINK,), points=1, plot_arguments=("--experiment", _PROBED_LINK))
"""A job over delayed links, with a train of probes beside it."""


@dataclass(frozen=True)
class Place:
    """A fault without its amounts: the ``process`` that it hits (empty: the run), ``what`` is done, and the phase."""

    kind: Kind
    process: str
    what: str
    phase: Phase


@dataclass(frozen=True)
class Fault:
    """The fault ``number`` of the campaign of ``seed``, made ``after_s`` after its phase began in ``point`` of the run.

    ``amount`` is the length of a stall in seconds, or the size of a resource.
    """

    number: int
    seed: int
    place: Place
    point: int = 0
    after_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        """``KILL agent``, ``stall 0.8 s``, ``open files 64``."""
        place = self.place
        if place.kind == "resource":
            return f"{place.what} {_round(self.amount)}"
        return f"stall {self.amount:.1f} s" if place.what == "stall" else f"{place.what} {place.process}".strip()

    @property
    def command(self) -> str:
        """The command line that makes this fault alone again."""
        return f"sudo scripts/test.sh --fault {self.number} --seed {self.seed}"

    @property
    def victim(self) -> Victim:
        """The run in which it is made: one that has its process and its phase."""
        if self.place.phase == "splice":
            return SPLICE
        return PROBED if self.place.process in ("probe", "delay relay") else CIRCUITS


def _round(amount: float) -> str:
    if amount >= 1e6:
        return f"{amount / 1e6:.1f}M" if amount < 1e7 else f"{amount / 1e6:.0f}M"
    return f"{amount / 1e3:.0f}k" if amount >= 1e3 else f"{amount:.0f}"


SIGNAL_PLACES = [
    Place("signal", process, name, phase) for process, phases in LIVES.items() for name in SIGNALS for phase in phases
]
CONTROL_PLACES = [
    Place("control", "", what, phase) for what in CONTROL for phase in PHASES if phase not in ("bring-up", "tear-down")
]
START_PLACES = [
    *(Place("resource", "", what, "bring-up") for what in RESOURCES),
    *(Place("start", "", what, "bring-up") for what in STARTS),
]


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
    streams = {
        "signal": evenly(SIGNAL_PLACES, random),
        "control": evenly(CONTROL_PLACES, random),
        "resource": evenly(START_PLACES, random),
    }
    for number in count():
        yield _drawn(number, seed, next(streams[_CYCLE[number % len(_CYCLE)]]))


def _drawn(number: int, seed: int, place: Place) -> Fault:
    """The fault at ``place``, with amounts that depend on the seed and the number alone."""
    random = Random(f"railyard fault {seed} {number}")
    in_each_point = place.phase in ("check-in", "step", "dark") and place.process not in ("probe", "delay relay")
    point = random.randrange(2) if in_each_point else 0
    late_s = _LATE_S if place.phase != "tear-down" or place.process == "main" else _TEAR_DOWN_S
    after_s = round(random.uniform(0.0, late_s), 3)
    least, most = STALL_S if place.what == "stall" else RESOURCES.get(place.what, (0.0, 0.0))
    amount = least * (most / least) ** random.random() if least else 0.0
    return Fault(number, seed, place, point, after_s, amount)


def chosen(seed: int, numbers: Collection[int]) -> list[Fault]:
    """The faults of the campaign of ``seed`` with these ``numbers``."""
    return [fault for fault in islice(faults(seed), max(numbers) + 1) if fault.number in numbers]
