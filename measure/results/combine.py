"""Rows of repeated measurements as one row: medians of the repeats that nothing disturbed. Pure.

What counts is decided by the checks of the machine alone, never by the numbers: a repeat that is far off the model, or
whose steps differ, makes the row NOT FAITHFUL, and its numbers stay in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from statistics import median, median_low
from typing import Any, TypeVar

from measure.metrics.checks import Check
from measure.results.row import MeasuredRow, described
from railyard.verdict import NOT_FAITHFUL

M = TypeVar("M", bound=MeasuredRow)
DIFFERS = "differs"
"""Outcome of a point that did not come out the same way in each repeat."""
NOT_MEASURED = ("predicted_", "paper_", "published_", "derived_", "authors_")
"""How fields begin whose numbers do not come from the measurement."""


def sampled(kind: type[MeasuredRow]) -> tuple[str, ...]:
    """The measured numbers of a type of rows: numbers that may be empty, unless they are given or of the model."""
    return tuple(
        each.name
        for each in described(kind)
        if each.name not in kind.given
        and not each.name.startswith(NOT_MEASURED)
        and each.optional
        and each.only(int, float)
    )


def combined(found: Sequence[M | None]) -> M:
    """The row of a point from the rows of its repeats, of which at least one is there; None where a repeat has no row.

    Numbers are medians over the repeats that nothing disturbed, or over all if there is none, and ``samples`` has their
    values; everything else is that of the repeat with the lower median of the main number. Of faults the most of all
    repeats counts, a truth value holds if it holds in all of them, and an outcome is that of all or ``DIFFERS``. The
    row is faithful if every repeat is. It has all checks of one repeat that counts, the first that is not faithful if
    there is any, and those of all others that failed; each has the number of its repeat.
    """
    measured = [row for row in found if row is not None]
    good = [None if row is None or row.disturbed else row for row in found]
    counting: Sequence[M | None] = good if any(good) else found
    rows = [row for row in counting if row is not None]
    shown = _typical(rows)
    whole = copy(shown)
    whole.repeats, whole.attempts = len(rows), sum(row.attempts for row in measured)
    if len(found) == 1:
        return whole
    whole.samples = {}
    for name in sampled(type(whole)):
        fault = name in whole.faults
        values = [None if row is None else getattr(row, name) for row in (found if fault else counting)]
        known = [value for value in values if value is not None]
        if known:
            whole.samples[name] = values
            middle = median_low if all(isinstance(value, int) for value in known) else median
            setattr(whole, name, max(known) if fault else middle(known))
    for name in (each.name for each in described(type(whole)) if each.optional and each.only(bool)):
        known = [getattr(row, name) for row in measured if getattr(row, name) is not None]
        setattr(whole, name, all(known) if known else None)
    for name, why in whole.outcomes.items():
        seen = Counter(str(getattr(row, name)) for row in measured)
        if len(seen) > 1:
            setattr(whole, name, DIFFERS)
            setattr(whole, why, "repeats: " + ", ".join(f"{count} {each}" for each, count in seen.most_common()))
    numbered = {number: row for number, row in enumerate(found, 1) if row is not None}
    counted = [number for number, row in enumerate(counting, 1) if row is not None]
    unfaithful = [number for number in counted if not numbered[number].faithful]
    typical = next(number for number in counted if numbered[number] is shown)
    _judge(whole, numbered, unfaithful[0] if unfaithful else typical)
    return whole


def _typical(rows: Sequence[M]) -> M:
    """The row with the lower median of the first main number that any of them has."""
    for name in type(rows[0]).main:
        known = [row for row in rows if getattr(row, name) is not None]
        if known:
            known.sort(key=lambda row: getattr(row, name))
            return known[(len(known) - 1) // 2]
    return rows[0]


def _judge(whole: MeasuredRow, repeats: Mapping[int, MeasuredRow], full: int) -> None:
    """Set the verdict, with the worst failure of each check, and the checks; of each name the worst comes first.

    The checks that were kept are those of the repeat ``full``.
    """
    bad = {number: row for number, row in repeats.items() if not row.faithful}
    failed = [replace(c, repeat=number) for number, row in bad.items() for c in row.checks if not c.ok]
    names = list(dict.fromkeys(check.name for check in failed))
    failed.sort(key=lambda check: (names.index(check.name), -check.excess))
    whole.checks = [*failed, *(replace(check, repeat=full) for check in repeats[full].checks if check.ok)]
    whole.faithful = not bad
    if bad:
        why = "; ".join(_worst([check for check in failed if check.name == name]) for name in names)
        whole.verdict = f"{NOT_FAITHFUL} in {len(bad)} of {len(repeats)} repeats: {why}"


def _worst(failed: Sequence[Check]) -> str:
    """The sentence of the first of some failed checks of one name, and the repeat it is of."""
    first, count = failed[0], len({check.repeat for check in failed})
    of_several = f", the worst of {count}" if first.value is not None else f", also in {count - 1} more"
    return f"{first.says} (repeat {first.repeat}{of_several if count > 1 else ''})"


def combined_rows(
    repeats: Sequence[Mapping[int, Sequence[MeasuredRow]]], same: Callable[[Any], Hashable] = lambda row: None
) -> list[MeasuredRow]:
    """One row for each point: ``repeats[i][piece]`` are the rows of a piece in repeat ``i``, in order.

    Rows of one piece are of the same point if they are of one type, equal in ``same``, and at one place among such
    rows. The rows of the result are in the order of pieces, and in each that of the first repeat.
    """
    found: list[MeasuredRow] = []
    for piece in sorted({piece for repeat in repeats for piece in repeat}):
        points: dict[Hashable, list[MeasuredRow | None]] = {}
        mine = [repeat[piece] for repeat in repeats if piece in repeat]
        for number, rows in enumerate(mine):
            seen: Counter[Hashable] = Counter()
            for row in rows:
                kind = (type(row), same(row))
                points.setdefault((kind, seen[kind]), [None] * len(mine))[number] = row
                seen[kind] += 1
        found += map(combined, points.values())
    return found
