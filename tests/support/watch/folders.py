"""Results folders of synthetic jobs, finished and under way, for tests of what a page shows of them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from synthetic_job import Job, build_groups, build_point

from measure.metrics.point import Point
from measure.results.manifest import build_manifest
from measure.results.plain import plain
from railyard.point_folder import EVENTS, NOTES, point_folder
from railyard.scale import Scale
from railyard.timeline import Event, write_events

SCALE = Scale(1 / 4000, 2.0)

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""


def synthetic(
    number: int = 0, mode: str = "on-demand", steps: int = 3, samples: bool = True
) -> tuple[Point, list[Event]]:
    """A point of the synthetic job and its events: first the line that begins its block, then ``run begun``."""
    point = build_point(mode, number=number, scale=SCALE, delay_s=0.04)
    job = Job(point, steps, start=1000.0 + 100 * number)
    events = (job.with_samples() if samples else job).timeline()
    start = job.start - 0.2
    told = {"point": number, "mode": mode, "plan": point.plan.fabric, "title": "live", "delay_s": 0.04}
    begun = Event(start - 1.5, "run", "begun", None, {**told, "steps": steps, "expected_s": 4.0})
    return point, [point.event(start, job.end), begun, *events]


def write_manifest(folder: Path, points: Sequence[Point], *, ended: bool = True) -> None:
    """The manifest of a run on rails with the plans of ``points``."""
    plans = {point.plan.fabric: point.plan for point in points}.values()
    settings = {"experiment": "rails"}
    manifest = build_manifest(experiment=settings, seed=1, scale=SCALE, plans=plans, groups=build_groups())
    manifest["versions"] = {}
    more = {"ended": "complete"} if ended else {}
    (folder / "manifest.json").write_text(json.dumps(plain({**manifest, **more})), encoding="utf-8")


def finished_folder(folder: Path, points: int = 2, steps: int = 3, *, samples: bool = True) -> list[list[Event]]:
    """A folder with ``points`` points; returns the events of each, of which the first is ``run point``."""
    made = [synthetic(number, steps=steps, samples=samples) for number in range(points)]
    write_manifest(folder, [point for point, _ in made])
    for point, events in made:
        write_events(folder_of(folder, point.number) / EVENTS, events)
    return [events for _, events in made]


def folder_of(folder: Path, number: int = 0) -> Path:
    """The folder of a point, which is made if it is not there."""
    made = point_folder(folder, number)
    made.mkdir(parents=True, exist_ok=True)
    return made


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def running_files(folder: Path, number: int, events: Sequence[Event]) -> dict[Path, list[Event]]:
    """The files that the processes of a point write, with their events in the order of writing."""
    point = folder_of(folder, number)
    head, begun, *rest = events
    started = Event(head.t, "run", "started", None, {"point": number})
    files = {point / NOTES: [begun, started]}
    for event in sorted(rest, key=lambda e: e.t if e.end is None else e.end):
        name = f"g{event['rank']}" if event.source == "agent" else "controller"
        files.setdefault(point / f"{'sampler' if event.source == 'link' else name}.jsonl", []).append(event)
    return files
