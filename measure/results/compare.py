"""Two runs of one experiment beside each other: which rows are of the same point, and how their numbers differ. Pure.

The runs are independent: repeat 1 of one has nothing to do with repeat 1 of the other, so that differences are those of
medians (``measure.metrics.independent``) and not paired within repeats.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from measure.metrics.estimate import Estimate
from measure.metrics.independent import Difference, difference, relative
from measure.results.combine import NOT_MEASURED, sampled
from measure.results.estimates import estimate_of, values_of
from measure.results.row import MeasuredRow, ResultRow, Row, described, kind_of

_NAMES_NOTHING = {each.name for each in described(MeasuredRow)} - {"seed"} | {
    "steps",
    "warmup_steps",
    "unit",
    "why_not",
}
"""Fields that name no point: those of the verdict and of the repeats, and counts of what was done."""
_MODEL = "predicted_"


@dataclass(frozen=True)
class Pair:
    """The rows of one point in both runs."""

    kind: type[ResultRow]
    a: Row
    b: Row


@dataclass(frozen=True)
class Matched:
    """The points of two runs: those that both have, and for each run the rows without a partner."""

    pairs: Sequence[Pair]
    alone: tuple[Sequence[Row], Sequence[Row]]
    names: Mapping[type[ResultRow], Sequence[str]]
    """The fields that the points of each type of rows were matched by."""


@dataclass(frozen=True)
class Compared:
    """One number of a point in both runs: ``b`` less ``a``, and the same as a share of ``a``.

    Either both intervals hold 0 or neither does: the one is of values and the other of logarithms, so that one of them
    may just reach 0 where the other does not; that one is then widened to it.
    """

    a: Estimate
    b: Estimate
    difference: Difference
    relative: Difference | None


def match(a: Sequence[Row], b: Sequence[Row], kinds: Sequence[type[ResultRow]]) -> Matched:
    """Match the rows of two runs, whose types are among ``kinds``, by the fields that name a point.

    Those are the given fields that tell rows of one run apart. A field that has one value in all rows of either run is
    a setting of the run, and one that follows from the others says nothing more: neither has to be equal, so that runs
    with another rate, workload or policy are compared point by point. Rows that no field tells apart are matched in
    their order.
    """
    pairs, alone, matched_by = list[Pair](), (list[Row](), list[Row]()), dict[type[ResultRow], Sequence[str]]()
    for kind in kinds:
        mine, theirs = ([row for row in rows if kind_of(row, kinds) is kind] for rows in (a, b))
        names = telling(given_fields(kind), mine, theirs)
        matched_by[kind] = names
        free = defaultdict[Any, list[Row]](list)
        for row in theirs:
            free[_key(row, names)].append(row)
        for row in mine:
            partners = free[_key(row, names)]
            if partners:
                pairs.append(Pair(kind, row, partners.pop(0)))
            else:
                alone[0].append(row)
        left = {id(row) for rows in free.values() for row in rows}
        alone[1].extend(row for row in theirs if id(row) in left)
    return Matched(pairs, alone, matched_by)


def given_fields(kind: type[ResultRow]) -> list[str]:
    """The fields of a type of rows that are given and not measured: texts, numbers that every row has, and ``given``.

    An outcome, and the text that says why, is measured.
    """
    given = getattr(kind, "given", frozenset[str]())
    outcomes: dict[str, str] = dict(getattr(kind, "outcomes", {}))
    measured = _NAMES_NOTHING | {*outcomes, *outcomes.values()}
    return [
        each.name
        for each in described(kind)
        if each.name not in measured
        and (each.name in given or each.only(str) or (each.only(int, float) and not each.optional))
    ]


def telling(names: Sequence[str], a: Sequence[Row], b: Sequence[Row]) -> list[str]:
    """The fields of ``names`` that are needed to tell apart, within each run, all rows that they tell apart.

    Of fields that say the same, the first one is kept.
    """
    kept = list(names)
    for name in reversed(names):
        fewer = [each for each in kept if each != name]
        if all(_groups(rows, fewer) == _groups(rows, kept) for rows in (a, b)):
            kept = fewer
    return kept


def _groups(rows: Sequence[Row], names: Sequence[str]) -> int:
    return len({_key(row, names) for row in rows})


def _key(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(repr(row.get(name)) for name in names)


def main_numbers(kind: type[ResultRow]) -> list[str]:
    """The numbers that a point is measured for, each with that of the model if there is one."""
    known = {each.name for each in described(kind)}
    names = [name for main in getattr(kind, "main", ()) for name in (main, f"{_MODEL}{main}")]
    return [name for name in names if name in known]


def other_numbers(kind: type[ResultRow], rows: Iterable[Row]) -> list[str]:
    """The other numbers of a type of rows that may differ.

    Of measured rows they are those that are measured; of computed ones all numbers but those that name the point.
    """
    main = main_numbers(kind)
    if issubclass(kind, MeasuredRow):
        return [name for name in sampled(kind) if name not in main]
    found = list(rows)
    named = {*telling(given_fields(kind), found, []), *_NAMES_NOTHING, *getattr(kind, "given", ()), "seed"}
    return [
        each.name
        for each in described(kind)
        if each.name not in named and not each.name.startswith(NOT_MEASURED) and each.only(int, float)
    ]


def compared(pair: Pair, name: str) -> Compared | None:
    """Number ``name`` of a point in both runs; None if one of them does not have it."""
    a, b = estimate_of(pair.a, name), estimate_of(pair.b, name)
    found = difference(values_of(pair.a, name), values_of(pair.b, name))
    if a is None or b is None or found is None:
        return None
    share = relative(values_of(pair.a, name), values_of(pair.b, name))
    if share is not None and (found.holds_zero or share.holds_zero):
        found, share = found.widened_to_zero(), share.widened_to_zero()
    return Compared(a, b, found, share)
