"""A claim, the command that measures it, and whether the numbers that were measured last bear it out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.claims.numbers import Select
from measure.metrics.estimate import Estimate
from measure.published import Published, published
from measure.results.row import Row

Verdict = Literal["holds", "does not hold", "not faithful", "not measured"]
VERDICTS: Mapping[Verdict, str] = {
    "holds": "the median is within the tolerance",
    "does not hold": "it is not",
    "not faithful": "a point that the number needs is not faithful, so that it says nothing",
    "not measured": "there is no kept number",
}
Number = Callable[[Sequence[Row]], Estimate | float | None]


@dataclass(frozen=True)
class MeasuredRun:
    """A command of which rows are kept: ``railyard VERB ARGUMENTS``.

    ``minutes`` is about how long it takes, ``quick`` says that it takes seconds. Of the rows all columns of
    ``summary.csv`` are kept and the fields ``keep``. ``figures`` are names of figures of the results folder, with the
    file of the documents that each becomes. ``layers`` are the folders, beside that of the experiment, whose code makes
    the numbers.
    """

    name: str
    arguments: str
    minutes: float
    verb: Literal["run", "predict"] = "run"
    root: bool = True
    keep: tuple[str, ...] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ("controllers", "measure/live", "measure/model", "railyard", "topos", "workloads")

    @property
    def code(self) -> tuple[str, ...]:
        """Folders of a checkout whose code makes the numbers."""
        return (f"experiments/{self.words[1].replace('-', '_')}", *self.layers)

    @property
    def quick(self) -> bool:
        """Whether it needs no root and takes seconds."""
        return not self.root and self.minutes < 1

    @property
    def words(self) -> list[str]:
        """The arguments of ``railyard``."""
        return [self.verb, *shlex.split(self.arguments)]

    @property
    def command(self) -> str:
        """The command line, as a person types it."""
        return f"{'sudo ' if self.root else ''}railyard {self.verb} {self.arguments}"


@dataclass(frozen=True)
class Tolerance:
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
        """The tolerance in words."""
        parts = [f"{self.share * 100:g} %"] if self.share else []
        parts += [f"{self.points:g}"] if self.points else []
        room = " + ".join(parts)
        if self.side == "both":
            return f"±{room}" if room else "equal"
        return f"at {self.side}" + (f", {'+' if self.side == 'most' else '-'}{room}" if room else "")


@dataclass(frozen=True)
class Claim:
    """A number that this project states about a system.

    ``says`` is the claim as a sentence. The number is ``number`` of those rows of ``run`` that ``rows`` selects; it is
    compared with ``expected``, a number or what a function makes of these rows. ``source`` says whose that is: a key of
    ``measure.published`` (whose value is taken if ``expected`` is None), or ``model``, ``law`` or ``limit`` (ours).
    ``note`` is said beside it. ``why``: the claim is known not to hold, for this reason.
    """

    name: str
    system: str
    says: str
    run: str
    number: Number
    source: str
    tolerance: Tolerance
    rows: Select = lambda row: True
    expected: float | Number | None = None
    unit: str = ""
    form: str = ".3g"
    note: str = ""
    why: str = ""

    @property
    def of(self) -> Published | None:
        """The entry of the table of numbers from elsewhere that the claim is about; None for one of ours."""
        return None if self.source in ("model", "law", "limit") else published(self.source)

    @property
    def kind(self) -> str:
        """Whose the number is that it is compared with, and its kind: ``paper, measured``, ``model``, ``law``."""
        if self.of is not None:
            return self.of.label
        return "our limit" if self.source == "limit" else self.source


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
            return f"{name} does not hold, and the catalog gives no reason (experiments/claims)"
        if self.verdict == "holds" and why:
            return f"{name} holds, and the catalog says that it does not (experiments/claims): {why}"
        return None


def judge(claim: Claim, rows: Sequence[Row] | None) -> Judged:
    """Judge a claim by the kept rows of its run; None: there are none."""
    chosen = [row for row in rows or () if claim.rows(row)]
    found = _estimate(claim.number(chosen)) if chosen else None
    expected = _expected(claim, chosen) if chosen else None
    if found is None or expected is None:
        return Judged(claim, "not measured")
    if any(has_failed(row) for row in chosen):
        return Judged(claim, "not faithful", found, expected)
    good = claim.tolerance.holds(found.median, expected)
    return Judged(claim, "holds" if good else "does not hold", found, expected)


def has_failed(row: Row) -> bool:
    """Whether the row was measured on packets, and is not faithful."""
    return row.get("faithful") is False and not row.get("computed")


def _estimate(found: Estimate | float | None) -> Estimate | None:
    return found if found is None or isinstance(found, Estimate) else Estimate(float(found), None, None, 1)


def _expected(claim: Claim, rows: Sequence[Row]) -> tuple[float, float] | None:
    given: Any = claim.expected(rows) if callable(claim.expected) else claim.expected
    if given is None and claim.of is not None and claim.expected is None:
        values = list(claim.of.values.values())
        return min(values), max(values)
    if given is None:
        return None
    value = given.median if isinstance(given, Estimate) else float(given)
    return value, value
