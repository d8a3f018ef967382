"""Injection of stragglers into a program, described by a short text such as ``fixed:0.3``.

Sources: StragglAR (arXiv 2505.23523) for persistent stragglers, seen at 0.77 to 0.98 of the steps; Falcon for slow
computing and links, 1.34 times the usual step time on average.

The lateness of a straggler, a gap, is fixed, log-normal, or replayed from a measurement: the time in seconds between
the arrivals of the straggler and of the last rank before it. Gaps of 4 A100s that train Llama-3.2-3B: median 7, mean
9.5, p90 19, max 22 ms beside an all-reduce of 118 ms (StragglAR, arXiv 2505.23523, and the log published with it); a
log-normal distribution with sigma 0.78 has these median, mean and p90.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Literal, NamedTuple

from railyard.errors import ConfigError, nearest
from railyard.reading import read_text
from workloads.program import Communication, Compute, Operation, Program

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_MOST_FILE_BYTES = 1 << 20
_DURATION = re.compile(r"([0-9.]+(?:e-?[0-9]+)?)\s*(s|ms|us)?", re.ASCII | re.IGNORECASE)


def seconds(text: str, key: str) -> float:
    """Parse ``0.3``, ``300ms`` or ``7us`` to seconds; raises ``ConfigError`` naming ``key``."""
    match = _DURATION.fullmatch(text.strip())
    try:
        value = float(match[1]) * UNITS[(match[2] or "s").lower()] if match else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise ConfigError(f"must be a time of 0 or more such as 0.3, 300ms or 7us, not {text!r}", key=key)
    return value


@dataclass(frozen=True)
class Fixed:
    """The same gap in every step."""

    seconds: float

    def draw(self, source: random.Random) -> Iterator[float]:
        return repeat(self.seconds)


@dataclass(frozen=True)
class LogNormal:
    """Gaps exp(N(ln ``median_s``, ``sigma``)), limited to ``most_s``."""

    median_s: float
    sigma: float
    most_s: float = math.inf

    def draw(self, source: random.Random) -> Iterator[float]:
        while True:
            gap = self.median_s * math.exp(self.sigma * source.gauss(0.0, 1.0))
            yield min(gap, self.most_s)


@dataclass(frozen=True)
class Replay:
    """A list of gaps that is repeated when there are more steps."""

    gaps_s: tuple[float, ...]

    def draw(self, source: random.Random) -> Iterator[float]:
        return cycle(self.gaps_s)

    @staticmethod
    def read(path: Path, unit: str | None = None, factor: float = 1.0) -> Replay:
        """Read the gaps of a file, times ``factor``.

        JSON: a list under ``gaps_s``, ``gaps_ms`` or ``gaps_us``, whose name gives the unit. Any other file: one number
        per line (``#`` begins a comment) in ``unit``. Raises ``ConfigError`` with file and place.
        """
        if unit is not None and unit not in UNITS:
            raise ConfigError(f"must be one of {', '.join(UNITS)}, not {unit}", key="unit")
        text = read_text(path, _MOST_FILE_BYTES, "a file of JSON, or of text with one number per line,")
        gaps = _from_json(text, unit, path) if text.lstrip().startswith("{") else _from_lines(text, unit, path)
        if not gaps:
            raise ConfigError("must hold at least one gap", source=str(path))
        return Replay(tuple(gap * factor for gap in gaps))


def _from_json(text: str, unit: str | None, path: Path) -> list[float]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", source=f"{path}:{error.lineno}") from None
    except (ValueError, RecursionError):  # too many digits or too deep nesting
        raise ConfigError("is not readable JSON", source=str(path)) from None
    keys = [f"gaps_{name}" for name in UNITS if f"gaps_{name}" in data]
    if len(keys) != 1 or not isinstance(data[keys[0]], list):
        raise ConfigError("must have one list, gaps_s, gaps_ms or gaps_us", source=str(path))
    own = keys[0].removeprefix("gaps_")
    if unit not in (None, own):
        raise ConfigError(f"{keys[0]} is in {own}, which the option contradicts with {unit}", key="unit")
    return [_gap(value, own, f"{path}: {keys[0]}[{place}]") for place, value in enumerate(data[keys[0]])]


def _from_lines(text: str, unit: str | None, path: Path) -> list[float]:
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    gaps = [(number, line) for number, line in lines if line]
    if gaps and unit is None:
        raise ConfigError(f"a file without a unit needs one, for example replay:{path.name},unit=ms", source=str(path))
    return [_gap(line, unit or "s", f"{path}:{number}") for number, line in gaps]


def _gap(value: object, unit: str, place: str) -> float:
    """One gap in seconds; raises ``ConfigError`` with its place where it is invalid."""
    try:
        gap = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        gap = -1.0
    if not 0 <= gap < math.inf:
        raise ConfigError(f"a gap is a number of {unit}, 0 or more, not {value!r:.40}", source=place)
    return gap * UNITS[unit]


INJECTIONS = {
    "none": "none",
    "fixed": "fixed:0.3",
    "persistent": "persistent:0.3@0.9",
    "lognormal": "lognormal:7ms,0.78",
    "replay": "replay:gaps.json,factor=10",
    "two": "two:0.3,0.2",
    "wrong": "wrong:0.3",
    "slow-compute": "slow-compute:1.5",
    "slow-link": "slow-link:0.5",
    "background": "background:0.4",
}
"""Every kind of injection with an example."""
_JOINT = re.compile(r"\+(?=\s*[a-z])")
"""A plus before a word, not one inside a number (1e+3)."""
Otherwise = Literal["another", "none"]
Delays = tuple[tuple[float, ...], ...]
"""``delays[rank][step]``, in seconds."""


@dataclass(frozen=True)
class Injection:
    """Description of lateness for one rank (or two).

    ``gaps``: lateness in each step. With probability ``persistence`` the persistent rank is late, else ``otherwise``:
    ``another`` rank, drawn evenly, or ``none``. ``second``: another rank is late too. ``wrong``: all of this applies to
    another rank than the predicted one. ``compute_factor`` multiplies the rank's computes, ``link_share`` is the share
    of the rate that its rail ports have left, ``background_share`` the share of it that other traffic takes. "Another
    rank" of ``second`` and ``wrong`` is ``other_rank``.
    """

    text: str = "none"
    gaps: Fixed | LogNormal | Replay | None = None
    persistence: float = 1.0
    otherwise: Otherwise = "another"
    second: Fixed | None = None
    wrong: bool = False
    compute_factor: float = 1.0
    link_share: float = 1.0
    background_share: float = 0.0

    @property
    def varies(self) -> bool:
        """Whether steps differ on purpose."""
        return self.persistence < 1 or not isinstance(self.gaps, Fixed | None)

    def late_rank(self, n: int, rank: int) -> int:
        """The rank that is slow or (persistently) late when ``rank`` is the predicted one."""
        _check_rank(n, rank)
        return other_rank(n, rank) if self.wrong else rank

    def delays(self, n: int, steps: int, rank: int, seed: int) -> Delays:
        """Lateness of each of ``n`` ranks in each of ``steps`` steps; the same for the same seed.

        A larger number of steps extends the same sequence, and the lengths of the gaps do not depend on the late ranks.
        """
        late = self.late_rank(n, rank)
        by_rank = [[0.0] * steps for _ in range(n)]
        if self.gaps is not None:
            chance = random.Random(f"straggler rank {seed}")
            gaps = self.gaps.draw(random.Random(f"straggler gap {seed}"))
            for step, gap in enumerate(islice(gaps, steps)):
                late_now = self._late_in_step(chance, n, late)
                if late_now is not None:
                    by_rank[late_now][step] += gap
        if self.second is not None:
            by_rank[other_rank(n, late)] = [gap + self.second.seconds for gap in by_rank[other_rank(n, late)]]
        return tuple(tuple(gaps) for gaps in by_rank)

    def _late_in_step(self, chance: random.Random, n: int, late: int) -> int | None:
        """The late rank of one step; two numbers are always drawn, so that steps stay independent."""
        is_late, other = chance.random() < self.persistence, chance.randrange(1, n)
        if is_late:
            return late
        return (late + other) % n if self.otherwise == "another" else None

    def slow_links(self, n: int, rank: int) -> dict[int, float]:
        """Share of the rate by rank, as ``RailTopo(slow=...)`` takes it; empty where no link is slow."""
        return {self.late_rank(n, rank): self.link_share} if self.link_share < 1 else {}


def other_rank(n: int, rank: int) -> int:
    """The rank half-way round from ``rank``: the second straggler, and the late rank of ``wrong``."""
    return (rank + n // 2) % n


def _check_rank(n: int, rank: int) -> None:
    if n < 2:
        raise ConfigError(f"a straggler needs at least 2 ranks, not {n}", key="ranks")
    if not 0 <= rank < n:
        raise ConfigError(f"must be a rank from 0 to {n - 1}, not {rank}", key="straggler")


def parse_injection(text: str) -> Injection:
    """Parse an injection: kinds of ``INJECTIONS``, joined by ``+`` (``fixed:0.3+slow-link:0.5``).

    Times are seconds unless given in ``ms`` or ``us``. Raises ``ConfigError`` naming the kind and valid values.

    ``fixed:T``: late by T in every step. ``persistent:T@P``: with probability P, else another rank; ``@P/none``: else
    no rank. ``lognormal:MEDIAN,SIGMA[,MOST][@P]``. ``replay:FILE[,unit=ms][,factor=X][,persistence=P]``. ``two:T,T2``:
    another rank too, by T2. ``wrong[:T]``: not the predicted rank. ``slow-compute:X``: computes take X times as long.
    ``slow-link:F``: its ports at F of their rate. ``background:F``: other traffic takes F of the rate of its ports.
    """
    parsed = Injection(text=text.strip())
    given: set[str] = set()
    for part in _JOINT.split(text):
        word, _, value = part.strip().partition(":")
        if word not in INJECTIONS:
            known = f"{', '.join(INJECTIONS.values())}{nearest(word, INJECTIONS)}"
            raise ConfigError(f"unknown injection {part.strip()!r}; known: {known}", key="inject")
        changes = _parsed(word, value.strip(), f"inject: {word}")
        again = given & changes.keys()
        if again:
            raise ConfigError(f"{word} in {text!r} repeats an earlier setting; give it once", key="inject")
        given |= changes.keys()
        parsed = replace(parsed, **changes)  # type: ignore[arg-type]
    return parsed


class LateRank(NamedTuple):
    """A rank of a job and what makes it late, or slow."""

    rank: int
    injection: Injection


def parse_late_rank(text: str) -> LateRank:
    """Parse ``RANK:SECONDS``, or ``RANK:CAUSE`` with a cause of ``parse_injection``; ``ConfigError`` names ``late``."""
    rank, _, cause = text.partition(":")
    if not re.fullmatch("[0-9]{1,6}", rank) or not cause:
        raise ConfigError(
            f"must be RANK:SECONDS or RANK:CAUSE, such as 3:0.5 or 3:slow-link:0.5, not {text!r:.60}", key="late"
        )
    try:
        return LateRank(int(rank), parse_injection(cause if cause[0].isalpha() else f"fixed:{cause}"))
    except ConfigError as error:
        raise ConfigError(error.message, key="late", source=error.source) from None


def _parsed(word: str, value: str, key: str) -> dict[str, object]:
    if word in _NUMBERS:
        field, least, most = _NUMBERS[word]
        return {field: _number(value, least, most, key)}
    if word in _PARSERS:
        return _PARSERS[word](value, key)
    if word == "none" and value:
        raise ConfigError(f"takes no value, not {value!r}", key=key)
    changes: dict[str, object] = {"wrong": True} if word == "wrong" else {}
    if value or word == "fixed":
        changes["gaps"] = Fixed(seconds(value, key))
    return changes


def _persistent(value: str, key: str) -> dict[str, object]:
    gap, at, chance = value.partition("@")
    if not at:
        raise ConfigError(f"must say how often, for example {INJECTIONS['persistent']}, not {value!r}", key=key)
    return {"gaps": Fixed(seconds(gap, key)), **_persistence(chance, key)}


def _persistence(text: str, key: str) -> dict[str, object]:
    chance, _, otherwise = text.partition("/")
    if otherwise not in ("", "another", "none"):
        raise ConfigError(f"after the slash comes another or none, not {otherwise!r}", key=key)
    return {"persistence": _number(chance, 0, 1, key), "otherwise": otherwise or "another"}


def _log_normal(value: str, key: str) -> dict[str, object]:
    numbers, at, chance = value.partition("@")
    parts = numbers.split(",")
    if len(parts) not in (2, 3):
        raise ConfigError(f"must be median,sigma or median,sigma,most, as in 7ms,0.78,22ms, not {value!r}", key=key)
    median_s, sigma = seconds(parts[0], key), _number(parts[1], 0, 5, key)
    most_s = seconds(parts[2], key) if len(parts) == 3 else math.inf
    if not 0 < median_s <= most_s:
        raise ConfigError(f"needs a median above 0 and at most the longest gap, not {value!r}", key=key)
    return {"gaps": LogNormal(median_s, sigma, most_s), **(_persistence(chance, key) if at else {})}


def _replay(value: str, key: str) -> dict[str, object]:
    file, *options = value.split(",")
    given = dict.fromkeys(("unit", "factor", "persistence"), "")
    for option in options:
        name, _, setting = option.partition("=")
        if name.strip() not in given or not setting.strip():
            raise ConfigError(f"takes unit=ms, factor=10 and persistence=0.9, not {option!r}", key=key)
        given[name.strip()] = setting.strip()
    if not file:
        raise ConfigError(f"must name a file, for example {INJECTIONS['replay']}", key=key)
    factor = _number(given["factor"] or "1", 0, 1e6, key)
    gaps = Replay.read(Path(file), given["unit"] or None, factor)
    return {"gaps": gaps, **(_persistence(given["persistence"], key) if given["persistence"] else {})}


def _two(value: str, key: str) -> dict[str, object]:
    first, _, second = value.partition(",")
    if not second:
        raise ConfigError(f"must be two times, for example {INJECTIONS['two']}, not {value!r}", key=key)
    return {"gaps": Fixed(seconds(first, key)), "second": Fixed(seconds(second, key))}


def _number(text: str, least: float, most: float, key: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ConfigError(f"must be a number from {least:g} to {most:g}, not {text!r}", key=key)
    return number


_NUMBERS = {
    "slow-compute": ("compute_factor", 1, 1000),
    "slow-link": ("link_share", 1e-3, 1),
    "background": ("background_share", 0, 1),
}
"""Injections of one number: the field of ``Injection``, its least and its greatest value."""
_PARSERS = {"persistent": _persistent, "lognormal": _log_normal, "replay": _replay, "two": _two}


def inject(program: Program, injection: Injection, rank: int, steps: int, seed: int) -> Program:
    """Put stragglers into ``program``, with ``rank`` as the predicted one.

    Slow links and background traffic are not part of a program. A late rank gets ``Compute.late`` on the last Compute
    that its first communication waits for; where it waits for none, a Compute of 0 s is put before it. That
    communication is the first that is not on the front-end network (barriers are).
    Raises ``ConfigError`` where a late rank has no such communication, or a slow rank no compute.
    """
    delays = injection.delays(program.ranks, steps, rank, seed)
    operations = list(program.operations)
    for late, gaps in enumerate(delays):
        if any(gaps):
            operations[late] = _delayed(program, late, gaps)
    if injection.compute_factor != 1:
        slow = injection.late_rank(program.ranks, rank)
        operations[slow] = _slowed(operations[slow], slow, injection.compute_factor)
    return replace(program, operations=tuple(operations))


def _slowed(operations: tuple[Operation, ...], rank: int, factor: float) -> tuple[Operation, ...]:
    """Multiply the duration of all computes by ``factor``; their lateness stays."""
    if not any(isinstance(op, Compute) and op.seconds > 0 for op in operations):
        raise ConfigError(f"rank {rank} has no compute that could be slow; give it compute time", key="inject")
    return tuple(replace(op, seconds=op.seconds * factor) if isinstance(op, Compute) else op for op in operations)


def _delayed(program: Program, rank: int, gaps: tuple[float, ...]) -> tuple[Operation, ...]:
    """The operations of a rank whose first relevant communication comes late."""
    operations = program.operations[rank]
    first = _first_communication(program, rank)
    computes = [operations[dep] for dep in first.deps if isinstance(operations[dep], Compute)]
    if not computes:
        operations, place = _with_pause(operations, first), first.id
    else:
        place = max(compute.id for compute in computes)
    compute = operations[place]
    assert isinstance(compute, Compute)
    both = tuple(a + b for a, b in zip(gaps, _repeated(compute.late, len(gaps)), strict=True))
    return (*operations[:place], replace(compute, late=both), *operations[place + 1 :])


def _repeated(late: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """Lateness of a Compute before the injection, step by step."""
    return tuple(late[step % len(late)] if late else 0.0 for step in range(steps))


def _first_communication(program: Program, rank: int) -> Communication:
    for op in program.communications(rank):
        if program.groups[op.group].domain != "front-end":
            return op
    raise ConfigError(
        f"rank {rank} does not communicate outside the front-end network, so no rank waits for it", key="inject"
    )


def _with_pause(operations: tuple[Operation, ...], before: Communication) -> tuple[Operation, ...]:
    """Insert a Compute of 0 s before ``before``, which then waits for it; later ids move by one."""
    place = before.id

    def moved(op: Operation) -> Operation:
        return replace(op, id=op.id + 1, deps=tuple(dep + (dep >= place) for dep in op.deps))

    pause = Compute(place, "straggler", 0.0, before.deps)
    waiting = replace(moved(before), deps=(place,))
    later = (moved(op) for op in operations[place + 1 :])
    earlier = (replace(op, deps=tuple(dep + (dep >= place) for dep in op.deps)) for op in operations[:place])
    return (*earlier, pause, waiting, *later)
