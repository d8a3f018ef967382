"""Lab opus-slope: step time against delay, and how many reconfigurations a step exposes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import yaml

from commands.exercises.exercise import Exercise, ExercisePart
from commands.exercises.model import gives, predicted
from railyard.ownership import temporary_folder
from workloads.catalog import job_keys

_LLAMA = "llama3-8b-16"
_DELAYS_MS = (0, 170, 730, 1600)


def _steps(workload: str) -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    """Of each delay in seconds the step, what it is over that without a delay, and its reconfigurations."""
    rows = predicted("rails", workload=workload, modes=["on-demand"], delays_ms=_DELAYS_MS)
    for row in rows:
        step_s = row["predicted_step_time_s"]
        model = {"step": step_s, "growth": step_s - rows[0]["predicted_step_time_s"]}
        changes = row["predicted_reconfigurations_per_step"]
        yield (row["reconfiguration_delay_ms"] / 1e3,), {**model, "changes": changes}


def _changed(arguments: int) -> Iterator[tuple[tuple[float, ...], dict[str, float]]]:
    """The same of the job with other numbers of microbatches; ``arguments``: 1, these alone, 2, also the delay."""
    keys = job_keys(_LLAMA)
    del keys["compute"]["native_step_s"]
    for microbatches in (3, 5):
        keys["batch"]["local_batch"] = microbatches * keys["batch"]["microbatch"]
        with temporary_folder() as folder:
            path = folder / "job.yaml"
            path.write_text(yaml.safe_dump(keys))
            for (delay_s,), model in _steps(str(path)):
                yield (microbatches, delay_s)[:arguments], model


PARTS = (
    ExercisePart(2, "the step of smoke", gives("smoke_s", partial(_steps, "smoke"), "step", 0.002)),
    ExercisePart(3, "the step of llama3-8b-16", gives("llama_s", partial(_steps, _LLAMA), "step", 0.002)),
    ExercisePart(2, "the reconfigurations of a changed job", gives("changes", partial(_changed, 1), "changes", 0.0)),
    ExercisePart(3, "what a delay adds to its step", gives("growth_s", partial(_changed, 2), "growth", 0.01)),
)
EXERCISE = Exercise("opus-slope", "Step time against delay: what a step exposes", "slope.py", PARTS)
