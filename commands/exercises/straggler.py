"""Lab straggler: what a late rank costs an all-reduce and a training step, and what StragglAR gains."""

from __future__ import annotations

from collections.abc import Iterator

from commands.exercises.exercise import Exercise, ExercisePart
from commands.exercises.model import chooses, gives, predicted
from experiments.collectives.straggler.experiment import StragglerSettings

_DELAYS_MS = (0, 90, 250, 350, 700, 2500)


def _points() -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    for ranks in (4, 16):
        rows = predicted("straggler", algorithms=["ring", "stragglar"], ranks=[ranks], delays_ms=_DELAYS_MS)
        times_s = {(row["straggler_delay_s"], row["algorithm"]): row["predicted_time_s"] for row in rows}
        wire_s = StragglerSettings().law(ranks, rows[0]["bytes"]).wire_s
        for late_s in (delay_ms / 1e3 for delay_ms in _DELAYS_MS):
            yield (ranks, wire_s, late_s), {name: times_s[late_s, name] for name in ("ring", "stragglar")}


def _steps() -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    for rank in (0, 1, 4, 7):
        for late_s in (0.2, 0.45, 1.3):
            late = f"{rank}:{late_s}"
            rows = predicted("rails", workload="smoke", late=late, modes=["electrical"], delays_ms=[0], steps=3)
            yield (rank, late_s), {"adds": rows[-1]["predicted_late_adds_s"]}


PARTS = (
    ExercisePart(2, "the time of a ring with a late rank", gives("ring_s", _points, "ring", 0.02)),
    ExercisePart(3, "the time of StragglAR", gives("stragglar_s", _points, "stragglar", 0.02)),
    ExercisePart(2, "the faster of both, at delays that you have not seen", chooses("faster", _points, 1.02)),
    ExercisePart(3, "what a late rank adds to a training step", gives("adds_s", _steps, "adds", 0.01)),
)
EXERCISE = Exercise("straggler", "What a late rank costs, and what StragglAR gains", "late.py", PARTS)
