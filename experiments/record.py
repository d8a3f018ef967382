"""Results folder of a run under way: events are on disk after every point, rows soon after."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from experiments.acts import ACTS, acts_in, is_act
from experiments.rest_access import TOKEN_FILE
from measure.live.calibration import load_calibration
from measure.live.processor import Processor, machine_facts
from measure.metrics.point import Point
from measure.results.folder import MANIFEST, check_folder
from measure.results.manifest import REST, TIME, build_manifest
from measure.results.partial import COMPLETE, STOPPED, measured_in
from measure.results.results import Results
from measure.results.row import ResultRow, Row, columns
from measure.results.summary import Summary
from railyard.errors import from_os_error
from railyard.ownership import make_folder, remove_folders
from railyard.point_folder import BESIDE, NOTES, PREDICTED, lines_of, point_folder
from railyard.scale import Scale
from railyard.timeline import Event, events_in, write_events
from topos.plan import FabricPlan
from workloads.program import Group


class Recordable(Protocol):
    """Interface of an experiment for its results folder (``experiments.experiment.Experiment``)."""

    @property
    def name(self) -> str:
        """Name of the experiment, in its rows."""

    @property
    def identifier(self) -> str:
        """Name by which the experiment is found when its results are drawn again."""

    @property
    def settings(self) -> Any:
        """The settings, a pydantic model."""

    @property
    def packets(self) -> bool:
        """Whether the rows are measured points on a fabric."""

    @property
    def scale(self) -> Scale:
        """Scale between the real system and the emulated one."""

    @property
    def spared_share(self) -> float:
        """Share of the processors' time that the scale leaves to other programs."""

    @property
    def rows(self) -> Sequence[type[ResultRow]]:
        """Types of the rows that a run of the experiment gives."""

    def planned(self) -> int | None:
        """Measurements of rows in a complete run, each repeat counted; None if it is known only after the run."""


class Record:
    """The results folder ``out`` of a run of ``experiment``, a path without links, which ``open`` makes.

    ``origin`` are the keys of the manifest about the command line and its inputs (``commands.origin``).
    """

    def __init__(
        self, out: Path, experiment: Recordable, scale: Scale, origin: Mapping[str, Any] | None = None
    ) -> None:
        check_folder(out)
        self._out = out
        self._experiment = experiment
        self._scale = scale
        self._origin = {"command": None, "inputs": []} if origin is None else origin
        self._processor = Processor()
        self._rows = Summary()
        self._kinds = dict.fromkeys(experiment.rows)
        self._manifest: dict[str, Any] = {}
        self._results: Results | None = None
        self._folder, self._title = Path(), ""
        """The folder and the title of the last point."""
        self._untidy: int | None = None
        """The point whose events are written, and whose folder still has what its processes left."""
        self._predicted: dict[bytes, int] = {}
        """Hashes of the predicted timelines that were added, with the first point of each."""
        self.cuts: list[Event] = []
        """The events ``run cut`` among those that were added."""

    @property
    def results(self) -> Results:
        """The results folder; only after ``open``."""
        assert self._results is not None
        return self._results

    @property
    def exists(self) -> bool:
        """Whether there is a results folder of this run: not before ``open``, and not after ``close`` removed it."""
        return self._results is not None and (self._results.folder / MANIFEST).exists()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run as in the manifest, with the name of the experiment."""
        return {"experiment": self._experiment.identifier, **self._experiment.settings.model_dump(mode="json")}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows)

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self._manifest

    def open(self) -> None:
        """Create and lock the folder, with its manifest, which holds the calibration of this machine if there is one.

        Raises ``ConfigError`` for a folder that is not new or empty.
        """
        calibration = load_calibration() if self._experiment.packets else None
        self._manifest = build_manifest(
            experiment=self.settings,
            seed=getattr(self._experiment.settings, "seed", 0),
            scale=self._scale,
            plans=[],
            groups={},
            calibration=asdict(calibration) if calibration else None,
            planned=self._experiment.planned(),
            process=os.getpid(),
            machine={**machine_facts(), "steal": None},
            **self._origin,
        )
        self._results = Results.create(self._out, self._manifest)

    def describe(
        self, *, plans: Iterable[FabricPlan] = (), groups: Mapping[str, Group] | None = None, **more: Any
    ) -> None:
        """Add keys to the manifest, in memory; ``add_plan`` writes it."""
        self._manifest["plans"] |= {plan.fabric: asdict(plan) for plan in plans}
        if groups is not None:
            self._manifest["groups"] = [asdict(group) for group in groups.values()]
        self._manifest |= more

    def add_plan(self, name: str, plan: FabricPlan, described: Mapping[str, Any]) -> None:
        """Add the plan of fabric ``name`` to the manifest, and keys about it once it is up (``Session.described``).

        ``link_delay``, how the packets of delayed links are held, stays that of the fabrics that have some.
        """
        self._manifest["plans"][name] = asdict(plan)
        self._manifest |= {key: value for key, value in described.items() if (key, value) != ("link_delay", "none")}
        self.results.write_manifest(self._manifest)

    def add_attempt(self, **attempt: Any) -> None:
        """Add to the manifest, in memory, what was measured as one unit, once; ``replace`` writes it."""
        self._manifest.setdefault("attempts", []).append(attempt)

    def point_folder(
        self,
        number: int,
        *,
        mode: str,
        plan: str,
        title: str,
        delay_s: float = 0.0,
        steps: int | None = None,
        expected_s: float | None = None,
    ) -> Path:
        """The folder of a point, in which its processes write (``railyard.point_folder``); ``add_events`` ends it.

        Its first event is ``run begun`` with these fields (``railyard.timeline``).
        """
        self.tidy()
        self._folder, self._title = folder, title = point_folder(self.results.folder, number), title
        made = make_folder(folder)
        fields = {"point": number, "mode": mode, "plan": plan, "title": title, "delay_s": delay_s}
        fields |= {"steps": steps, "expected_s": expected_s}
        if self._experiment.spared_share:
            fields["spared_cores"] = self._experiment.spared_share * (os.cpu_count() or 1)
        begun = Event(time.monotonic(), "run", "begun", None, fields)
        try:
            write_events(folder / NOTES, [begun])
        except OSError:
            self.results.tidy_point(number)
            remove_folders(made)
            raise
        return folder

    def add_events(self, events: Sequence[Event], folder: Path | None = None) -> None:
        """Write the events of the point of ``folder``, the first of them ``run point``, in place of its other files.

        Without ``folder`` they are what was measured beside the jobs of the point under way. If somebody acted on the
        point over REST, the manifest is written, which counts it (``experiments.acts``).
        """
        if folder is None:
            write_events(self._folder / BESIDE, events)
            return
        number = int(folder.name)
        self.results.write_point(number, [*events, *events_in(lines_of(folder / BESIDE))])
        self._untidy = number
        self.cuts += [event for event in events if (event.source, event.kind) == ("run", "cut")]
        if acts := [event for event in events if is_act(event)]:
            self._manifest.setdefault(ACTS, []).append(acts_in(acts, number, self._title))
            self.results.write_manifest(self._manifest)

    def add_prediction(self, point: Point, plan: str, events: Sequence[Event]) -> None:
        """Write the predicted timeline of ``point``, on plan ``plan`` of the manifest, unless it is there already."""
        content = sha256(f"{plan}\0{point.name}\0".encode())
        for event in events:
            content.update(event.to_line().encode())
        first = self._predicted.setdefault(content.digest(), point.number)
        fields = {"point": point.number, "same_as": first, "plan": plan, "title": point.name}
        fields |= {"warmup_steps": point.warmup_steps, "stale_step": point.stale_step}
        head = Event(0.0, "run", "predicted", None, fields)
        self.results.write_point(point.number, [head, *(events if first == point.number else ())], PREDICTED)

    def tidy(self) -> None:
        """Remove what the processes of the last point have left beside its events, once these are written."""
        if self._untidy is not None:
            self.results.tidy_point(self._untidy)
            self._untidy = None

    def add(self, rows: Sequence[ResultRow]) -> None:
        for row in rows:
            row.experiment = self._experiment.name
            self._rows.add(row.to_json())
        self._kinds |= dict.fromkeys(map(type, rows))
        names = dict.fromkeys(name for kind in self._kinds for name in columns(kind))
        self.results.write_rows(self._rows, list(names))

    def replace(self, rows: Sequence[ResultRow]) -> None:
        """Write the summary with these rows, in place of all that were added, and the manifest."""
        self._rows = Summary()
        self.add(rows)
        self.results.write_manifest(self._manifest)

    def close(self, error: BaseException | None) -> None:
        """Write in the manifest how the run ended, and free the folder; remove it after an error if it has no record.

        Where the number of measurements was not known before, it is that of a run that ended without an error. After an
        error the log of the controller is kept, and the files of a point whose events could not be written together.
        """
        if self._results is None:
            return
        self._manifest["ended"] = COMPLETE if error is None else f"{STOPPED}{_reason(error)}"
        self._manifest["ended_at"] = time.strftime(TIME)
        self._manifest["machine"]["steal"] = round(self._processor.read(1.0).steal, 6)
        self._manifest.pop(REST, None)
        if error is None and self._manifest["planned"] is None:
            self._manifest["planned"] = sum(map(measured_in, self._rows))
        try:
            self.tidy()
            if error is None:
                self._results.remove_log()
            if error is not None and self._results.has_only(MANIFEST, TOKEN_FILE):
                self._results.remove(MANIFEST, TOKEN_FILE)
            else:
                self._results.write_manifest(self._manifest)
        finally:
            self._results.free()


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "by a signal"
    if isinstance(error, OSError):
        return str(from_os_error(error))
    return str(error) or type(error).__name__
