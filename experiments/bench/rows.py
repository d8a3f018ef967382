"""Rows of an experiment that a benchmark runs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.experiment import Experiment
from experiments.runner import Runner
from measure.results.row import Row


def rows_of(experiment: Experiment[Any]) -> list[Row]:
    """Run ``experiment`` without leaving a results folder, and return its rows; needs root."""
    with TemporaryDirectory(prefix="railyard-") as folder:
        with Runner(experiment, Path(folder) / "results") as runner:
            experiment.check()
            experiment.run(runner)
        return runner.rows
