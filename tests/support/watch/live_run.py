"""A results folder that grows as that of a run under way: agents, sampler and controller write into it in real time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from synthetic_job import Job, build_point
from watch.rail_results import begun, row_of, stretched

from experiments.rails.row import RailRow
from measure.metrics.point import Point
from measure.results.manifest import build_manifest
from measure.results.results import Results
from measure.results.row import columns
from measure.results.summary import Summary
from railyard.ownership import make_folder
from railyard.point_folder import CONTROLLER, NOTES, point_folder
from railyard.timeline import Event, write_events

SAMPLE_S = 0.1
"""How often the sampler writes, as in a run."""


class LiveRun:
    """A run of on-demand points on ``gpus`` rails of 4 servers, which holds the lock of its folder until ``end``."""

    def __init__(self, folder: Path, gpus: int = 2, **manifest: Any) -> None:
        self.folder = folder
        self.point = build_point("on-demand", 0.2, gpus=gpus)
        given = {"experiment": {"experiment": "rails"}, "seed": 1, "planned": 1, **manifest}
        groups = self.point.groups
        self.manifest = build_manifest(scale=self.point.scale, plans=[self.point.plan], groups=groups, **given)
        self._results = Results.create(folder, self.manifest)
        self._numbers = itertools.count()
        self._sampling: threading.Thread | None = None
        self._over = threading.Event()
        self._ended = False
        self.began = 0.0

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    @property
    def place(self) -> Path:
        return point_folder(self.folder, self.point.number)

    def begin(self, title: str = "on-demand, 200 ms") -> None:
        """Begin the point: its folder is made, its circuits are noted, and the sampler starts."""
        make_folder(self.place)
        self.began = time.monotonic()
        noted = list(begun(self.point, self.began, steps=100))
        noted[0].fields["title"] = title
        write_events(self.place / NOTES, noted)
        self._sampling = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._sampling.start()

    def agent(self, rank: int, *events: Event) -> None:
        write_events(self.place / f"g{rank}.jsonl", events)

    def note(self, event: Event) -> None:
        """Write an event of the controller, which numbers its events."""
        numbered = replace(event, fields={**event.fields, "n": next(self._numbers)})
        write_events(self.place / CONTROLLER, [numbered])

    def rewire(self, rail: str, ports: Sequence[int], circuits: Sequence[Sequence[int]], group: str | None) -> float:
        """Note a change of circuits that is complete now; returns the moment of the clock just before the write."""
        now = time.monotonic()
        fields = {"rail": rail, "ports": ports, "circuits": circuits, "asked": now - 0.03, "group": group}
        event = Event(now - 0.02, "controller", "reconfigure", now, fields)
        began = time.time()
        self.note(event)
        return began

    def finish_point(self, factor: float = 0.1) -> Point:
        """Replace the point under way by a synthetic one that is over, of ``factor`` times its usual length."""
        self._stop_sampling()
        job = stretched(Job(self.point, 3, self.began), factor).with_samples()
        events = job.timeline()
        blocks = [self.point.event(job.start, job.end), *begun(self.point, job.start, 3), *events]
        self._results.write_point(self.point.number, blocks)
        self._results.tidy_point(self.point.number)
        self._results.write_rows(Summary([row_of(self.point, events).to_json()]), columns(RailRow))
        return self.point

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._stop_sampling()
        self._results.write_manifest({**self.manifest, "ended": "complete"})
        self._results.free()

    def _stop_sampling(self) -> None:
        self._over.set()
        if self._sampling is not None:
            self._sampling.join()
            self._sampling = None

    def _sample(self) -> None:
        ports = [port for switch in self.point.plan.switches for port in switch.ports]
        sent = 0
        while not self._over.wait(SAMPLE_S):
            t, sent = time.monotonic(), sent + 400_000
            cpu = {"busy": 0.4, "cores": 2, "steal": 0.0, "other": 0.0, "softirq": 0.2, "switch_busy": 0.3}
            events = [Event(t - SAMPLE_S, "link", "cpu", t, {**cpu, "switch_thread": 0.3})]
            for port in ports:
                link = {"interface": port.interface, "rank": port.rank, "lane": port.lane, "tx_bytes": sent}
                events.append(Event(t, "link", "bytes", None, {**link, "rx_bytes": sent, "dropped": 0}))
            write_events(self.place / "sampler.jsonl", events)
