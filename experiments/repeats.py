"""Repeats and attempts: the pieces of an experiment are measured several times, and their rows combined.

A repeat measures every piece once, in an order drawn for it, so that a disturbance or a drift of the machine does not
hit the same piece each time (Abedi and Brecht, ICPE'17). A piece of which a point is NOT FAITHFUL is measured again in
the same repeat: the criterion is the verdict, never the result.
"""

from __future__ import annotations

import pickle
import time
import zlib
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from experiments.experiment import Experiment
from experiments.settings import RepeatedSettings
from measure.results.combine import combined_rows
from measure.results.row import MeasuredRow

if TYPE_CHECKING:
    from experiments.runner import Runner

R = TypeVar("R", bound=RepeatedSettings)


@dataclass(frozen=True)
class Piece:
    """What is measured as one unit and gives some rows; ``of`` says what it is to the experiment."""

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
        """Set the fields of rows that depend on other rows of the same repeat, of which some may be missing."""

    def same(self, row: MeasuredRow) -> Hashable:
        """What rows of one piece in different repeats are told apart by, where their number may differ."""
        return None

    def begin(self, runner: Runner) -> None:
        """Do what comes before the first piece."""

    def planned(self) -> int | None:
        """Every row is measured in each repeat."""
        rows = self.points()
        return None if rows is None else rows * self.settings.repeats

    def run(self, runner: Runner) -> None:
        """Measure all pieces in every repeat."""
        self.begin(runner)
        play(self, runner)


def order(pieces: int, seed: int, repeat: int, repeats: int) -> list[int]:
    """The order of pieces in a repeat, drawn with the seed; of a single repeat as declared, so that fabrics stay up."""
    found = list(range(pieces))
    if repeats > 1:
        Random(f"{seed} {repeat}").shuffle(found)
    return found


def play(experiment: RepeatedExperiment[Any], runner: Runner) -> None:
    """Measure the pieces of every repeat; after each of them the summary has all that was measured so far."""
    settings, pieces = experiment.settings, experiment.pieces()
    kept = _Kept(experiment, runner)
    total, number, began = len(pieces) * settings.repeats, 0, time.monotonic()
    for repeat in range(settings.repeats):
        if repeat:
            took_s = (time.monotonic() - began) / repeat
            runner.progress.say(f"repeat {repeat + 1} of {settings.repeats} (about {took_s:.0f} s)")
        for place in order(len(pieces), settings.seed, repeat, settings.repeats):
            number += 1
            runner.progress.place = f"[{number}/{total}] "
            kept.add(repeat, place, _attempts(experiment, runner, pieces[place], repeat))


def _attempts(experiment: RepeatedExperiment[Any], runner: Runner, piece: Piece, repeat: int) -> Sequence[MeasuredRow]:
    """The rows of a piece in a repeat: of the first attempt that is faithful, or of the last."""
    attempts = experiment.settings.attempts
    for attempt in range(1, attempts + 1):
        first = runner.number
        rows = experiment.measure(runner, piece)
        bad = [row for row in rows if not row.faithful]
        runner.record.add_attempt(
            piece=piece.name,
            repeat=repeat,
            attempt=attempt,
            points=list(range(first, runner.number)),
            faithful=not bad,
            verdict=next((row.verdict for row in (*bad, *rows)), ""),
        )
        for row in rows:
            row.attempts = attempt
        if not bad:
            break
        if attempt < attempts:
            runner.progress.say(f"  not faithful, so it is measured again (attempt {attempt + 1} of {attempts})")
    return rows


class _Kept:
    """The rows of all repeats, compressed, as those of a long run take much memory; the summary has them combined."""

    def __init__(self, experiment: RepeatedExperiment[Any], runner: Runner) -> None:
        self._experiment, self._runner = experiment, runner
        self._repeats: list[dict[int, bytes]] = [{} for _ in range(experiment.settings.repeats)]
        related = type(experiment).relate is not RepeatedExperiment.relate
        self._alone = not related and experiment.settings.repeats == 1

    def add(self, repeat: int, place: int, rows: Sequence[MeasuredRow]) -> None:
        """Add the rows of a piece, and write the summary."""
        if self._alone:
            self._runner.add(*rows)
            return
        self._repeats[repeat][place] = zlib.compress(pickle.dumps(rows))
        self._runner.replace(combined_rows([self._related(each) for each in self._repeats], self._experiment.same))

    def _related(self, repeat: Mapping[int, bytes]) -> Mapping[int, Sequence[MeasuredRow]]:
        found = {place: pickle.loads(zlib.decompress(repeat[place])) for place in sorted(repeat)}
        self._experiment.relate([row for rows in found.values() for row in rows])
        return found
