"""The faults of a point, as data: which ranks, servers and ports fail and when, and when the controller is killed.

What a timetable does to the fabric is in ``experiments.timetable``; both are carried out alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from experiments.timetable import TimedAct
from railyard.errors import ConfigError
from topos.plan import FabricPlan

_NUMBER = r"\d{1,6}(?:\.\d{1,6})?"
_PLACE = r"\d{1,6}|server\d{1,6}|[a-z]+\d{0,6}:\d{1,6}"
_WRITTEN = re.compile(rf"(?P<place>{_PLACE})@(?:(?P<step>{_NUMBER})|\+(?P<after>{_NUMBER}))")


@dataclass(frozen=True)
class Kill:
    """The kill of ``rank`` after ``step`` steps of its job (4.5: in the middle of the step after the fourth).

    ``place`` is what dies, where it is not one chip: ``server1``, all ranks of a server, of which ``rank`` is the
    first, or ``rail0:3``, a port of an optical switch, which is that of ``rank``.
    ``after_s`` instead of ``step`` is the time after the kill before it in real seconds, for a second failure during
    the recovery. For a spare, which is in no job, the steps of the first job count.
    """

    rank: int
    step: float | None = None
    after_s: float | None = None
    place: str = ""

    def ranks(self, plan: FabricPlan) -> tuple[int, ...]:
        """The ranks that die: ``rank``, or all of its server."""
        whole = self.place.startswith("server")
        return tuple(plan.on_server(self.rank // plan.gpus_per_server)) if whole else (self.rank,)

    def __str__(self) -> str:
        return f"{self.place or self.rank}@" + (f"{self.step:g}" if self.step is not None else f"+{self.after_s:g}")


@dataclass(frozen=True)
class Faults:
    """The faults of a point: ``kills`` happen in order.

    The controller is killed ``controller_dies_after_s`` real seconds after the first kill, unless that is None, or
    after ``controller_dies_step`` steps of the first job, as in ``Kill``; jobs without training outlive that.
    ``acts`` are those of a timetable, in real seconds from the start of the first job, or at its steps.
    """

    kills: tuple[Kill, ...] = ()
    controller_dies_after_s: float | None = None
    controller_dies_step: float | None = None
    acts: tuple[TimedAct, ...] = ()

    @property
    def controller_dies(self) -> tuple[Kill, ...]:
        """The end of the controller as a kill, if it is to die."""
        never = self.controller_dies_step is None and self.controller_dies_after_s is None
        return () if never else (Kill(-1, self.controller_dies_step, self.controller_dies_after_s),)


NO_FAULTS = Faults()


def parse_kills(text: str, plan: FabricPlan) -> tuple[Kill, ...]:
    """Parse kills such as ``1@4.5,16@+0.5,server1@7,rail0:3@9`` on ``plan``; ``ConfigError`` names a wrong one."""
    kills: list[Kill] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _WRITTEN.fullmatch(word)
        if found is None:
            raise ConfigError(
                f"must be RANK@STEP such as 1@4.5 (or serverN@STEP, SWITCH:PORT@STEP), or RANK@+SECONDS after the kill "
                f"before it, not {word[:40]}",
                key="kill",
            )
        if found["after"] is not None and not kills:
            raise ConfigError(
                f"{word} is relative to the kill before it, and there is none; begin with RANK@STEP", key="kill"
            )
        step, after = (None if number is None else float(number) for number in (found["step"], found["after"]))
        place = found["place"]
        kills.append(Kill(_rank_at(place, plan), step, after, "" if place.isdecimal() else place))
    return tuple(kills)


def _rank_at(place: str, plan: FabricPlan) -> int:
    if place.isdecimal():
        return int(place)
    switch, _, number = place.partition(":")
    if not number:
        server = int(switch.removeprefix("server"))
        if server >= plan.servers:
            raise ConfigError(f"names server{server}; this fabric has server0 to server{plan.servers - 1}", key="kill")
        return plan.on_server(server)[0]
    optical = [each for each in plan.switches if each.kind == "ocs"]
    ports = [port.rank for each in optical if each.name == switch for port in each.ports if port.number == int(number)]
    if not ports:
        known = ", ".join(f"{each.name}:1 to {each.name}:{len(each.ports)}" for each in optical) or "none"
        raise ConfigError(f"names port {place}; the ports of optical switches here are {known}", key="kill")
    return ports[0]


def check_kills(kills: Iterable[Kill], plan: FabricPlan, steps: int, known: Sequence[int], *, port: bool) -> None:
    """Raise ``ConfigError`` for kills that cannot happen, or not be noticed (``port``: a dark port is).

    These are kills of ranks that do not exist, that are not in ``known`` (members and spares) or are dead already, and
    kills after the last of ``steps``.
    """
    dead: set[int] = set()
    for kill in kills:
        if kill.rank >= plan.ranks:
            raise ConfigError(f"{kill} names rank {kill.rank}; this fabric has ranks 0 to {plan.ranks - 1}", key="kill")
        dying = set(kill.ranks(plan))
        if dying.isdisjoint(known):
            raise ConfigError(
                f"{kill} names rank {kill.rank}, which is neither a member of a job nor a spare; use one of "
                f"{', '.join(map(str, sorted(known)))}",
                key="kill",
            )
        if again := dying & dead:
            raise ConfigError(f"{kill} names rank {min(again)}, which is already dead; name another", key="kill")
        dead |= dying
        if ":" in kill.place and not port:
            raise ConfigError("of a port is noticed by its light alone; add detection.detect port", key="kill")
        if kill.step is not None and kill.step >= steps:
            raise ConfigError(f"{kill} is after the last step of the job, which has {steps} steps", key="kill")


def random_kill(seed: int, members: Sequence[int], steps: int) -> Kill:
    """A kill of a random member at a random moment of the job; the same for the same seed."""
    dice = Random(f"kill-{seed}")
    return Kill(dice.choice(list(members)), round(dice.uniform(0.05, steps - 0.2), 3))
