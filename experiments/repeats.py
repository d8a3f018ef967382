"""Repeats and attempts: the pieces of an experiment are measured several times, and their rows combined.

A repeat measures every piece once, in an order drawn for it, so that a disturbance or a drift of the machine does not
hit the same piece each time (Abedi and Brecht, ICPE'17). A piece of which a check of the machine failed (others took
its processors, timers were late, a record is missing) is measured again in the same repeat. The result is no reason:
neither how far a step is from the model nor how much steps differ. With ``give_up`` one load that disturbs every
attempt at the first piece is taken to stay: all others are then measured once.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.experiment import Experiment
from experiments.settings import RepeatedSettings
from measure.metrics.checks import Check
from measure.metrics.load import ADVICE, same_load
from measure.results.combine import combined_rows
from measure.results.row import MeasuredRow

if TYPE_CHECKING:
    from experiments.runner import Runner

R = TypeVar("R", bound=RepeatedSettings)
_PAUSE_S, _PAUSE = 10.0, 20.0
"""Least time between two writings of the summary, in seconds and in times of the last one, as it has all rows."""


@dataclass(frozen=True)
class Piece:
    """A part of an experiment that is measured as one unit and gives some rows; ``of`` is the experiment's own."""

    name: str
    of: Any


class RepeatedExperiment(Experiment[R]):
    """An experiment whose pieces are measured several times (keys ``repeats`` and ``attempts``)."""

    @abstractmethod
    def pieces(self) -> Sequence[Piece]:
        """All pieces in the order of their rows."""

    @abstractmethod
    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        """Measure a piece once; its rows."""

    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        """Set the fields of rows that depend on other rows of the same repeat; called again when there are more."""

    def same(self, row: MeasuredRow) -> Hashable:
        """The value by which rows of one piece are told apart in different repeats, where their number may differ."""
        return None

    def begin(self, runner: Runner) -> None:
        """Do what comes before the first piece."""

    def planned(self) -> int | None:
        rows = self.points()
        return None if rows is None else rows * self.settings.repeats

    def run(self, runner: Runner) -> None:
        self.begin(runner)
        play(self, runner)


def order(pieces: int, seed: int, repeat: int, repeats: int) -> list[int]:
    """The order of pieces in a repeat, drawn with the seed; of a single repeat as declared, so that fabrics stay up."""
    found = list(range(pieces))
    if repeats > 1:
        Random(f"{seed} {repeat}").shuffle(found)
    return found


def play(experiment: RepeatedExperiment[Any], runner: Runner) -> None:
    """Measure the pieces of every repeat; the summary has all that was measured, at the latest at the end."""
    settings, pieces = experiment.settings, experiment.pieces()
    kept = _Kept(experiment, runner)
    total, number, began = len(pieces) * settings.repeats, 0, time.monotonic()
    attempts = settings.attempts
    try:
        for repeat in range(settings.repeats):
            if repeat:
                took_s = (time.monotonic() - began) / repeat
                runner.progress.say(f"repeat {repeat + 1} of {settings.repeats} (about {took_s:.0f} s)")
            for place in order(len(pieces), settings.seed, repeat, settings.repeats):
                number += 1
                runner.progress.place = f"[{number}/{total}] "
                checks = _attempts(kept, repeat, place, pieces[place], attempts)
                if settings.give_up and number == 1 < total and (load := _that_stays(checks, attempts)):
                    _give_up(runner, load, attempts)
                    attempts = 1
    finally:
        kept.write()


def _that_stays(checks: Sequence[Sequence[Check]], attempts: int) -> str | None:
    """The load that disturbed all ``attempts`` at a piece, in words; None if there was none, or only one attempt."""
    return same_load(checks) if len(checks) == attempts > 1 else None


def _give_up(runner: Runner, load: str, attempts: int) -> None:
    """Say that no point is measured again from now on, in the progress and in the manifest."""
    runner.progress.say(
        f"  the first point was disturbed {attempts} times by the same load ({load}): no point is measured again for "
        f"it. {ADVICE}"
    )
    runner.record.describe(gave_up=load)


def _attempts(kept: _Kept, repeat: int, place: int, piece: Piece, attempts: int) -> list[list[Check]]:
    """Measure a piece until nothing disturbs it, or as often as it may be; the rows of the last attempt are kept.

    Returns the checks of each attempt.
    """
    runner, checks = kept.runner, list[list[Check]]()
    for attempt in range(1, attempts + 1):
        first = runner.number
        rows = kept.experiment.measure(runner, piece)
        checks.append([check for row in rows for check in row.checks])
        bad = [row for row in rows if not row.faithful]
        disturbed = any(row.disturbed for row in rows)
        runner.record.add_attempt(
            piece=piece.name,
            place=place,
            repeat=repeat,
            attempt=attempt,
            points=list(range(first, runner.number)),
            faithful=not bad,
            disturbed=disturbed,
            verdict=next((row.verdict for row in (*bad, *rows)), ""),
        )
        for row in rows:
            row.attempts = attempt
        kept.add(repeat, place, rows)
        if not disturbed:
            break
        if attempt < attempts:
            runner.progress.say(f"  disturbed, so it is measured again (attempt {attempt + 1} of {attempts})")
    return checks


class _Kept:
    """The rows of all repeats; the summary has them combined.

    It is written as the first rows come, then whenever ``_PAUSE_S`` and ``_PAUSE`` times the last writing have passed.
    """

    def __init__(self, experiment: RepeatedExperiment[Any], runner: Runner) -> None:
        self.experiment, self.runner = experiment, runner
        self._repeats: list[dict[int, Sequence[MeasuredRow]]] = [{} for _ in range(experiment.settings.repeats)]
        self._unrelated: set[int] = set()
        """Repeats with rows that are not in the summary."""
        self._next_at = 0.0

    def add(self, repeat: int, place: int, rows: Sequence[MeasuredRow]) -> None:
        """Add the rows of a piece, in place of those of an earlier attempt."""
        self._repeats[repeat][place] = rows
        self._unrelated.add(repeat)
        if time.monotonic() >= self._next_at:
            self.write()

    def write(self) -> None:
        if not self._unrelated:
            return
        began = time.monotonic()
        for repeat in self._unrelated:
            found = self._repeats[repeat]
            self.experiment.relate([row for place in sorted(found) for row in found[place]])
        self.runner.replace(combined_rows(self._repeats, self.experiment.same))
        self._unrelated.clear()
        self._next_at = time.monotonic() + max(_PAUSE_S, _PAUSE * (time.monotonic() - began))
