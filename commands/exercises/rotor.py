"""Lab rotor: an all-to-all over circuits that rotate against circuits that stand, by ranks, bytes and delay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from commands.exercises.exercise import Exercise, ExercisePart
from commands.exercises.model import chooses, gives, predicted
from experiments.collectives.all_to_all.experiment import AllToAllSettings


def _points(arguments: int) -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    """The first ``arguments`` of ranks, seconds of a pair's bytes through a port, delay in seconds."""
    grid = AllToAllSettings(
        studies=("grid",),
        policies=("rotor", "multi-hop"),
        ranks=(6, 12),
        sizes=(200_000, 2_000_000),
        delays_ms=(1, 60, 800),
    )
    times_s: dict[tuple[float, ...], dict[str, float]] = defaultdict(dict)
    for row in predicted("all-to-all", **grid.model_dump(exclude_unset=True)):
        pair_s = row["bytes"] / row["n"] / grid.bytes_per_s
        name = "rotor" if row["policy"] == "rotor" else "ring"
        times_s[row["n"], pair_s, row["reconfiguration_delay_ms"] / 1e3][name] = row["predicted_time_s"]
    for point, model in times_s.items():
        yield point[:arguments], model


def _experts() -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    times_s: dict[tuple[float, ...], dict[str, float]] = defaultdict(dict)
    for row in predicted("rails", workload="moe-smoke", modes=["on-demand", "rotor"], delays_ms=[3, 23, 29, 70]):
        times_s[row["reconfiguration_delay_ms"] / 1e3,][row["mode"]] = row["predicted_step_time_s"]
    yield from times_s.items()


PARTS = (
    ExercisePart(2, "the time of an all-to-all over a rotation", gives("rotor_s", partial(_points, 3), "rotor", 0.05)),
    ExercisePart(3, "the time hop by hop over a ring that stands", gives("ring_s", partial(_points, 2), "ring", 0.15)),
    ExercisePart(2, "the faster of both, where you have not seen it", chooses("faster", partial(_points, 3), 1.3)),
    ExercisePart(3, "rotor or on-demand for experts", chooses("mode_for_experts", _experts, 1.0)),
)
EXERCISE = Exercise("rotor", "Circuits that rotate against circuits that stand", "rotation.py", PARTS)
