"""The rows of all points of a sweep as one table, with repeats combined, and whether a machine is an outlier. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from commands.sweep.spec import SweepPoint, in_words
from measure.metrics.checks import Check
from measure.results.combine import combined_rows, sampled
from measure.results.plain import plain
from measure.results.row import MeasuredRow, ResultRow, Row, columns, described

POINT, REPEAT, HOST, ATTEMPTS, REPEATS = "sweep.point", "sweep.repeat", "sweep.host", "sweep.attempts", "sweep.repeats"
"""Columns of the sweep beside those of its swept keys and of the rows."""
_NO_PLACE = {"experiment", *(each.name for each in dataclasses.fields(MeasuredRow))}
"""Fields that do not tell rows of a point apart."""


@dataclass(frozen=True)
class Collected:
    """The rows of a point that is done, the machine they are from, and the attempts that it took."""

    point: SweepPoint
    rows: Sequence[Row]
    host: str
    attempts: int


@dataclass(frozen=True)
class Columns:
    """The columns of the tables of a sweep: those of its swept keys, by key, and of the types of its rows."""

    swept: Mapping[str, str]
    kinds: Sequence[type[ResultRow]]

    @staticmethod
    def of(swept: Iterable[str], kinds: Sequence[type[ResultRow]]) -> Columns:
        """A column is called as its swept key, or ``sweep.KEY`` where rows have a field of that name."""
        taken = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        return Columns({key: f"sweep.{key}" if key in taken else key for key in swept}, kinds)

    def values(self, point: SweepPoint) -> dict[str, Any]:
        """The values of the swept keys of a point, each as one number, truth value or text."""
        return {self.swept[key]: single(value) for key, value in point.swept.items()}

    def of_rows(self, *, combined: bool) -> list[str]:
        """The columns of the table of all rows, or of the ``combined`` one."""
        own = (*self.swept.values(), *((REPEATS,) if combined else (POINT, REPEAT)), HOST, ATTEMPTS)
        return list(dict.fromkeys((*own, *(name for kind in self.kinds for name in columns(kind)))))


def single(value: Any) -> Any:
    """A swept value as one number, truth value or text: what is in a list of one, other lists with commas."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return single(value[0])
    return value if isinstance(value, (bool, int, float, str)) or value is None else in_words(value)


def all_rows(collected: Iterable[Collected], names: Columns) -> Iterator[Row]:
    for result in collected:
        own = {POINT: result.point.name, REPEAT: result.point.repeat + 1, HOST: result.host, ATTEMPTS: result.attempts}
        for row in result.rows:
            yield {**names.values(result.point), **own, **row}


def combined(
    found: Iterable[Collected], names: Columns, same: Callable[[Any], Hashable] = lambda row: None
) -> Iterator[Row]:
    """The rows with the repeats of the same values combined: medians, and the values of all repeats as ``samples``.

    ``found`` has repeats beside each other. Measured rows are combined as within a run (``measure.results.combine``),
    where ``same`` tells rows of one point apart; of computed and predicted ones the numbers that differ are medians.
    """
    for _, group in groupby(found, key=lambda each: in_words(dict(each.point.swept))):
        repeats = list(group)
        hosts = ", ".join(sorted({each.host for each in repeats}))
        own = {REPEATS: len(repeats), HOST: hosts, ATTEMPTS: sum(each.attempts for each in repeats)}
        for row in _together(repeats, names.kinds, same):
            yield {**names.values(repeats[0].point), **own, **row}


def _together(
    repeats: Sequence[Collected], kinds: Sequence[type[ResultRow]], same: Callable[[Any], Hashable]
) -> list[Row]:
    rows = [row for each in repeats for row in each.rows]
    measured = [kind for kind in kinds if issubclass(kind, MeasuredRow)]
    if not rows or not measured or any(row.get("faithful") is None and not row.get("computed") for row in rows):
        return _computed([each.rows for each in repeats])
    by_repeat: list[Sequence[MeasuredRow]] = [()] * (max(each.point.repeat for each in repeats) + 1)
    for each in repeats:
        by_repeat[each.point.repeat] = [_typed(row, measured) for row in each.rows]
    return [plain(row.to_json()) for row in combined_rows([{0: rows} for rows in by_repeat], same)]


def _typed(row: Row, kinds: Sequence[type[MeasuredRow]]) -> MeasuredRow:
    """The row as an object of the type that has the most of its fields."""
    kind = max(kinds, key=lambda each: len({field.name for field in dataclasses.fields(each)} & row.keys()))
    known = {field.name: row[field.name] for field in dataclasses.fields(kind) if field.name in row}
    return kind(**{**known, "checks": [Check(**check) for check in row.get("checks", ())]})


def _computed(repeats: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each place in the rows of repeats: the first one's, with medians of the numbers that differ."""
    found = list[Row]()
    for place in range(max(map(len, repeats), default=0)):
        mine = [rows[place] for rows in repeats if place < len(rows)]
        whole, samples = dict(mine[0]), dict[str, list[Any]]()
        for key in whole:
            values: list[Any] = [row.get(key) for row in mine]
            if any(value != values[0] for value in values) and all(map(_is_number, values)) and key != "seed":
                samples[key], whole[key] = values, median(values)
        found.append({**whole, **({"samples": samples} if samples else {})})
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ---- what a table shows --------------------------------------------------------------------------------------------


def places(rows: Sequence[Row], names: Columns) -> list[str]:
    """The columns by which the rows of one point are told apart, such as a mode: words and given numbers."""
    given = dict[str, None]()
    for kind in names.kinds:
        numbers = sampled(kind) if issubclass(kind, MeasuredRow) else ()
        for each in described(kind):
            text = each.type.startswith("text") or (issubclass(kind, MeasuredRow) and each.name not in numbers)
            if each.column and text and each.name not in _NO_PLACE and not each.name.startswith("predicted_"):
                given[each.name] = None
    found = dict[str, None]()
    for _, group in groupby(rows, key=lambda row: [row.get(name) for name in names.swept.values()]):
        mine = list(group)
        found |= {name: None for name in given if len({repr(row.get(name)) for row in mine}) > 1}
    return list(found)


def numeric(rows: Sequence[Row], column: str) -> bool:
    """Whether a column has numbers alone, and more than one of them."""
    values = {row.get(column) for row in rows if column in row}
    return len(values) > 1 and all(map(_is_number, values))


def mains(rows: Sequence[Row], names: Columns) -> list[str]:
    """The main numbers of the rows, of which some were measured or predicted."""
    known = dict.fromkeys(name for kind in names.kinds for name in getattr(kind, "main", ()))
    return [
        name for name in known if any(row.get(each) is not None for row in rows for each in (name, f"predicted_{name}"))
    ]


# ---- outliers among machines -----------------------------------------------------------------------------------------


LEAST_REPEATS = 3
"""Fewest numbers of a machine, and of the others, from which it is judged."""
LEAST_OFF = 0.02
"""Difference that is never named: a step may be off its model by as much on a good machine."""
_Z = 3.5
_NORMAL = 1.4826
"""Standard deviation of a normal distribution in multiples of its median absolute deviation."""


@dataclass(frozen=True)
class MachineNumber:
    """One measured number of a point, on a machine; ``point`` names what is the same in all its repeats."""

    point: str
    machine: str
    value: float


def ratios(numbers: Sequence[MachineNumber]) -> Mapping[str, list[float]]:
    """For each machine the ratios of its numbers to the median over machines of the same point.

    The number of a machine at a point is the median of its repeats there. Points that one machine alone measured say
    nothing about machines and are left out, and so are those whose median is not above 0.
    """
    by_point: dict[str, dict[str, list[float]]] = {}
    for number in numbers:
        by_point.setdefault(number.point, {}).setdefault(number.machine, []).append(number.value)
    by_machine: dict[str, list[float]] = {}
    for machines in by_point.values():
        middle = median(map(median, machines.values()))
        if len(machines) > 1 and middle > 0:
            for machine, values in machines.items():
                by_machine.setdefault(machine, []).extend(value / middle for value in values)
    return dict(sorted(by_machine.items()))


def off(machine: str, by_machine: Mapping[str, Sequence[float]]) -> float | None:
    """By how much a machine differs from the others if it is an outlier, as a share; else None.

    Its median ratio is compared with the ratios of all others: it is an outlier where it is more than 3.5 standard
    deviations from their median, these estimated by the median absolute deviation (Iglewicz and Hoaglin, How to Detect
    and Handle Outliers, 1993, modified z-score), and more than ``LEAST_OFF``. The machine itself is left out of both:
    among few it would hide itself.
    """
    mine = by_machine[machine]
    others = [value for name, values in by_machine.items() if name != machine for value in values]
    if len(mine) < LEAST_REPEATS or len(others) < LEAST_REPEATS:
        return None
    middle = median(others)
    deviation = _NORMAL * median(abs(value - middle) for value in others)
    difference = median(mine) - middle
    if abs(difference) <= max(_Z * deviation, LEAST_OFF * middle):
        return None
    return difference / middle


def sentences(by_machine: Mapping[str, Sequence[float]], number: str) -> list[str]:
    """Sentences on how the machines differ in ``number``, a number in words, by its ratios; nothing of one machine."""
    if len(by_machine) < 2:
        return []
    differing = {machine: share for machine in by_machine if (share := off(machine, by_machine)) is not None}
    if not differing:
        few = [machine for machine, values in by_machine.items() if len(values) < LEAST_REPEATS]
        if few:
            return [f"Too few repeats to say whether a machine is an outlier: {', '.join(few)}."]
        return [f"No machine is an outlier: {number} agrees between {', '.join(by_machine)}."]
    if len(by_machine) == 2:
        first, second = (median(values) for values in by_machine.values())
        names = " and ".join(by_machine)
        return [f"{names} differ by {abs(first / second - 1):.1%} in {number}; a third machine would say which is off."]
    return [
        f"{machine} is an outlier: its {number} is {abs(share):.1%} {side} that of the others."
        for machine, share in differing.items()
        for side in ("above" if share > 0 else "below",)
    ]
