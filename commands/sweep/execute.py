"""Runs points of a sweep one after another, each as a process of its own: the same command as a person would type."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from commands.command_process import last_line, run_command
from commands.sweep.folder import COMPLETE, LOG, ROWS, Ended, SweepFolder, host_name
from commands.sweep.model import ModelProcess
from commands.sweep.scales import SweepScales
from commands.sweep.spec import RESULTS, SweepPoint, attempt_folder
from measure.live.processor import machine_facts
from measure.results.results import SUMMARY, Results
from railyard.errors import PARTIAL_EXIT_STATUS


@dataclass(frozen=True)
class Attempt:
    """How one attempt of a point ended, after ``seconds``; ``said`` is the last line of its log if it gave no rows."""

    status: int
    seconds: float
    said: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a point ended: ``status`` 0, 8 if no attempt was faithful, else that of the error that it ``said``."""

    status: int
    attempts: int
    seconds: float
    said: str = ""

    def __str__(self) -> str:
        took = f"{self.seconds:.1f} s" + (f", {self.attempts} attempts" if self.attempts > 1 else "")
        if self.status in COMPLETE:
            return f"{'NOT FAITHFUL' if self.status else 'done'} ({took})"
        return f"FAILED with status {self.status} ({took}): {self.said}"


def run_point(
    folder: SweepFolder, point: SweepPoint, model: ModelProcess | None = None, scales: SweepScales | None = None
) -> Outcome:
    """Run a point that this process has claimed until it has ended, and record it; returns how.

    An attempt that is not faithful (status 8) is followed by another, up to the sweep's ``tries``. Any other error ends
    the point as failed. If this process is stopped, so is the run, and the point is released as it was. ``scales`` are
    those of the folder, if they were read already.
    """
    began, host, machine = time.monotonic(), host_name(), this_machine_facts()
    try:
        point = (scales or SweepScales(folder)).as_run(point)
        while True:
            number = folder.begin(point)
            attempt = run_attempt(point, folder.place(point), number, model)
            ended = Ended(number, attempt.status, host, attempt.seconds, machine, attempt.said)
            if folder.end_attempt(point, ended):
                return Outcome(attempt.status, number, time.monotonic() - began, attempt.said)
    except BaseException:
        folder.release(point)
        raise


def run_attempt(point: SweepPoint, place: Path, number: int, model: ModelProcess | None = None) -> Attempt:
    """Measure or predict a point once; ``place`` is its folder, with its experiment file and that of the attempt."""
    at = attempt_folder(place.absolute(), number)
    began = time.monotonic()
    if point.predict:
        with _one(model) as process:
            found = process.predict(point.experiment, point.values)
        if found.status == 0:
            Results(at).write(ROWS, json.dumps(found.rows) + "\n")
        else:
            Results(at).write(LOG, found.log)
        return Attempt(found.status, time.monotonic() - began, found.said)
    status = run_command(point.command(place.absolute(), number), at / LOG)
    seconds = time.monotonic() - began
    if status not in COMPLETE:
        return Attempt(status, seconds, last_line(at / LOG))
    if not (at / RESULTS / SUMMARY).is_file():
        return Attempt(PARTIAL_EXIT_STATUS, seconds, "the run left no rows")
    return Attempt(status, seconds)


@contextmanager
def _one(model: ModelProcess | None) -> Iterator[ModelProcess]:
    if model is not None:
        yield model
        return
    with ModelProcess() as process:
        yield process


@cache
def this_machine_facts() -> Mapping[str, Any]:
    """Facts by which machines differ: processor, clock, cores, kernel."""
    facts = machine_facts()
    return {
        "cpu": facts["cpu"],
        "cores": os.cpu_count(),
        "clock_source": facts["clock_source"],
        "kernel": platform.release(),
    }


def run_all(
    folder: SweepFolder,
    limit: int | None = None,
    told: Callable[[SweepPoint, Outcome], None] = lambda *_: None,
    model: ModelProcess | None = None,
) -> None:
    """Run the pending points of a sweep, ``limit`` at most, one after another; ``told`` hears of each as it ends."""
    scales = SweepScales(folder)
    with _one(model) as process:
        for point in folder.pending()[:limit]:
            if folder.claim(point):
                told(point, run_point(folder, point, process, scales))
