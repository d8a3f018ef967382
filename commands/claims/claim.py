"""Claims, the commands that measure them, and whether the numbers that were measured last bear them out.

They stand in ``claims.yaml`` of the documents, which is checked once, when it is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from experiments.registry import ENTRIES
from measure.metrics.estimate import Estimate, paired_ratio
from measure.published import Published, all_published, published
from measure.results.estimates import crossing_of, difference_of, estimate_of, ratio_of, slope_of, values_of
from measure.results.row import Row
from railyard.checkout import ROOT
from railyard.errors import ConfigError, nearest
from railyard.validation import Name, Seconds, Section, config_error, matching
from railyard.yaml_file import read_mapping

DOCS = ROOT / "docs"
FILE = "claims.yaml"
Verdict = Literal["holds", "does not hold", "not faithful", "not measured"]
OURS = ("model", "law", "limit")
"""Sources that are no key of the table of numbers from elsewhere."""
Where = Mapping[str, Any]
"""Rows whose columns have these values; a list is a choice of values."""
_COMPARED = ("column", "top", "base")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "value": ("column",),
    "ratio": _COMPARED,
    "difference": _COMPARED,
    "crossing": (*_COMPARED, "over"),
    "slope": ("column", "over"),
    "furthest": ("column", "over"),
    "total": ("column",),
    "share": ("top",),
    "count": (),
}
"""The keys that say what each number is made of."""


def is_where(where: Where, row: Row) -> bool:
    return all(row.get(key) in (value if isinstance(value, list) else [value]) for key, value in where.items())


class Number(Section):
    """A number of rows, times ``times``, and ``plus`` added.

    - ``value``: ``column`` of the only row; ``total``: its sum over all rows;
    - ``ratio``, ``difference``: ``column`` of the row ``top`` over, or less, that of the row ``base``;
    - ``crossing``: the value of column ``over`` from which on ``column`` of ``base`` is below that of ``top``;
    - ``slope``: of ``column`` over column ``over``;
    - ``furthest``: ``column`` over column ``over`` of that row in which it is furthest from 1;
    - ``share``: that of the rows ``top`` among all; ``count``: how many rows there are.

    Values are medians of repeats with an interval, paired within repeats (``measure.results.estimates``). If a value or
    a row that it needs is not there, there is no number.
    """

    take: Literal["value", "ratio", "difference", "crossing", "slope", "furthest", "total", "share", "count"]
    column: str = ""
    over: str = ""
    top: Where = Field(default={})
    base: Where = Field(default={})
    times: float = Field(default=1.0, gt=0)
    plus: float = 0.0

    @model_validator(mode="after")
    def _has_its_keys(self) -> Number:
        keys = _KEYS[self.take]
        given = self.model_fields_set - {"take", "times", "plus"}
        if given != set(keys) or not all(getattr(self, key) for key in keys):
            raise ValueError(f"{self.take} has {'the keys ' + ', '.join(keys) if keys else 'no other key than plus'}")
        return self

    def needs(self, row: Row) -> bool:
        """Whether the number is made of a row, if its claim selects that."""
        return "base" not in _KEYS[self.take] or is_where(self.top, row) or is_where(self.base, row)

    def of(self, rows: Sequence[Row]) -> Estimate | None:
        """The number of these rows; None if there is none."""
        made = self._made(rows)
        return None if made is None else made.times(self.times).plus(self.plus)

    def _made(self, rows: Sequence[Row]) -> Estimate | None:
        top, base = ([row for row in rows if is_where(where, row)] for where in (self.top, self.base))
        if self.take in ("ratio", "difference"):
            compare = ratio_of if self.take == "ratio" else difference_of
            return compare(top[0], base[0], self.column) if len(top) == len(base) == 1 else None
        if self.take == "value":
            return estimate_of(rows[0], self.column) if len(rows) == 1 else None
        if self.take == "crossing":
            return crossing_of(top, base, self.over, self.column)
        if self.take == "slope":
            return slope_of(rows, self.over, self.column)
        if self.take == "furthest":
            ratios = [self._ratio(row) for row in rows]
            known = [ratio for ratio in ratios if ratio is not None]
            return max(known, key=lambda ratio: abs(ratio.median - 1)) if known and len(known) == len(ratios) else None
        if self.take == "total":
            values = [row.get(self.column) for row in rows]
            return None if None in values else _exact(sum(map(float, values)))  # type: ignore[arg-type]
        return _exact(len(top) / len(rows) if self.take == "share" else len(rows))

    def _ratio(self, row: Row) -> Estimate | None:
        """``column`` over ``over`` of a row; an ``over`` without samples is the same in every repeat."""
        values, under = values_of(row, self.column), values_of(row, self.over)
        return paired_ratio(values, under if len(under) == len(values) else [row.get(self.over)] * len(values))


def _exact(value: float) -> Estimate:
    return Estimate(float(value), None, None, 1)


_SHARED_CODE = (
    *(":(glob)experiments/*.py", ":(glob)experiments/racks/*.py", ":(glob)experiments/collectives/*.py"),
    *("controllers", "measure", "railyard", "topos", "workloads"),
)


class MeasuredRun(Section):
    """A command of which rows are kept: ``railyard VERB ARGUMENTS``.

    ``minutes`` is about how long it takes, ``quick`` says that it takes seconds. Of the rows all columns of
    ``summary.csv`` are kept and the fields ``keep``. ``figures`` are names of figures of the results folder, with the
    file of the documents that each becomes.
    """

    name: Name
    arguments: Name
    minutes: Seconds
    verb: Literal["run", "predict"] = "run"
    root: bool = True
    keep: tuple[Name, ...] = ()
    figures: Mapping[Name, Name] = Field(default={})

    @property
    def code(self) -> tuple[str, ...]:
        """Paths of a checkout whose code makes the numbers, or may: too many rather than too few."""
        module = next(entry.place for entry in ENTRIES if entry.name == self.words[1]).partition(":")[0]
        return (module.rpartition(".")[0].replace(".", "/"), *_SHARED_CODE)

    @property
    def quick(self) -> bool:
        """Whether it needs no root and takes seconds."""
        return not self.root and self.minutes < 1

    @property
    def words(self) -> list[str]:
        return [self.verb, *shlex.split(self.arguments)]

    @property
    def command(self) -> str:
        return f"{'sudo ' if self.root else ''}railyard {self.verb} {self.arguments}"


class Tolerance(Section):
    """How far a number may be from the one it is compared with: by a ``share`` of it and by ``points``, on ``side``."""

    share: float = 0.0
    points: float = 0.0
    side: Literal["both", "most", "least"] = "both"

    def holds(self, value: float, expected: tuple[float, float]) -> bool:
        """Whether ``value`` is near enough to the range ``expected``, on the side or sides that count."""
        low, high = (abs(end) * self.share + self.points for end in expected)
        above, below = value >= expected[0] - low, value <= expected[1] + high
        return (above or self.side == "most") and (below or self.side == "least")

    def __str__(self) -> str:
        parts = [f"{self.share * 100:g} %"] if self.share else []
        parts += [f"{self.points:g}"] if self.points else []
        room = " + ".join(parts)
        if self.side == "both":
            return f"±{room}" if room else "equal"
        return f"at {self.side}" + (f", {'+' if self.side == 'most' else '-'}{room}" if room else "")


class Claim(Section):
    """A number that this project states about a system.

    ``says`` is the claim as a sentence. The number is ``number`` of those rows of ``run`` that ``rows`` selects; it is
    compared with ``expected``, a number or a column of the only row. ``source`` says whose that is: a key of
    ``measure.published``, or ``model``, ``law`` or ``limit`` (ours). Without ``expected`` it is the number of the
    source: its value ``at``, or the range of all its values; or that of the name in column ``by``, in the row whose
    number is furthest from it. ``note`` is said beside it. ``why``: the claim is known not to hold, for this reason.
    """

    name: Name
    system: Name
    says: Name
    run: Name
    rows: Where = Field(default={})
    number: Number
    source: Name
    expected: float | Name | None = None
    at: float | Name | None = None
    by: str = ""
    tolerance: Tolerance = Tolerance()
    unit: str = ""
    form: Annotated[str, matching(r"\.[0-9][fg]", "digits such as .3g or .2f")] = ".3g"
    note: str = ""
    why: str = ""

    @property
    def of(self) -> Published | None:
        """The entry of the table of numbers from elsewhere that the claim is about; None for one of ours."""
        return None if self.source in OURS else published(self.source)

    @property
    def kind(self) -> str:
        """Source and kind of the number that it is compared with: ``paper, measured``, ``model``, ``law``."""
        if self.of is not None:
            return self.of.label
        return "our limit" if self.source == "limit" else self.source

    def compared(self, rows: Sequence[Row]) -> tuple[Estimate | None, tuple[float, float] | None]:
        """The number of the selected rows, and the range that is expected; None for what is not known."""
        if not self.by:
            return self.number.of(rows), self._expected(rows)
        theirs = self.of.values if self.of else {}
        numbers = [(self.number.of([row]), theirs[row[self.by]]) for row in rows if row.get(self.by) in theirs]
        pairs = [(number, value) for number, value in numbers if number is not None]
        if not pairs:
            return None, None
        number, value = max(pairs, key=lambda pair: abs(pair[0].median / pair[1] - 1))
        return number, (value, value)

    def _expected(self, rows: Sequence[Row]) -> tuple[float, float] | None:
        if self.of is not None and self.expected is None:
            values = list(self.of.values.values()) if self.at is None else [self.of.values[self.at]]
            return min(values), max(values)
        if isinstance(self.expected, str):
            column = estimate_of(rows[0], self.expected) if len(rows) == 1 else None
            return None if column is None else (column.median, column.median)
        return None if self.expected is None else (self.expected, self.expected)


class Catalog(Section):
    """Runs in the order in which they are measured, and claims in that of the pages, by name."""

    runs: Mapping[str, MeasuredRun]
    claims: Mapping[str, Claim]

    @field_validator("*", mode="before")
    @classmethod
    def _named(cls, entries: Any) -> Any:
        if not isinstance(entries, dict):
            return entries
        return {key: {**entry, "name": key} if isinstance(entry, dict) else entry for key, entry in entries.items()}


def read_catalog(docs: Path = DOCS) -> Catalog:
    """The catalog of a folder of documents; ``ConfigError`` names the claim and its first wrong key."""
    file = docs / FILE
    data = read_mapping(file, "the folder docs of a checkout of Railyard", "runs, claims")
    try:
        catalog = Catalog.model_validate(data)
    except ValidationError as error:
        raise config_error(error, Catalog, "the catalog of claims", source=str(file)) from None
    sources = {number.key: number.values for number in all_published()}
    for name, claim in catalog.claims.items():
        needed: dict[str, tuple[Any, Collection[Any]]] = {
            "run": (claim.run, catalog.runs),
            "source": (claim.source, [*OURS, *sources]),
            "at": (claim.at, [None, *sources.get(claim.source, ())]),
        }
        for key, (value, known) in needed.items():
            if value not in known:
                near = nearest(str(value), map(str, known))
                raise ConfigError(f"there is no {value!r}{near}", key=f"claims.{name}.{key}", source=str(file))
        if claim.expected is None and claim.source in OURS:
            raise ConfigError("is missing; a claim of ours needs it", key=f"claims.{name}.expected", source=str(file))
    return catalog


# ---- verdicts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A claim with the number that was measured last, the range that was expected, and the verdict.

    ``predicted``: its run is a prediction, so that the number is that of the model, and nothing was measured.
    """

    claim: Claim
    verdict: Verdict
    number: Estimate | None = None
    expected: tuple[float, float] | None = None
    predicted: bool = False

    @property
    def unexpected(self) -> str | None:
        """The sentence about a claim that holds and should not, or should and does not; None for any other."""
        name, why = self.claim.name, self.claim.why
        if self.verdict == "does not hold" and not why:
            return f"{name} does not hold, and the catalog gives no reason (docs/claims.yaml)"
        if self.verdict == "holds" and why:
            return f"{name} holds, and the catalog says that it does not (docs/claims.yaml): {why}"
        return None


def judge(claim: Claim, rows: Sequence[Row] | None) -> Judged:
    """Judge a claim by the kept rows of its run; None: there are none."""
    chosen = [row for row in rows or () if is_where(claim.rows, row) and claim.number.needs(row)]
    number, expected = claim.compared(chosen) if chosen else (None, None)
    if number is None or expected is None:
        return Judged(claim, "not measured")
    if any(has_failed(row) for row in chosen):
        return Judged(claim, "not faithful", number, expected)
    good = claim.tolerance.holds(number.median, expected)
    return Judged(claim, "holds" if good else "does not hold", number, expected)


def has_failed(row: Row) -> bool:
    return row.get("faithful") is False and not row.get("computed")
