"""Results folder of a run under way: manifest, events and rows are on disk after every point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from experiments.session import Session
from measure.live.calibration import load_calibration
from measure.results.manifest import build_manifest
from measure.results.results import CONTROLLER_LOG, Results, check_folder, plain
from measure.results.row import ResultRow, Row, columns
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan


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
    def rows(self) -> Sequence[type[ResultRow]]:
        """Types of the rows that a run of the experiment gives."""


class Record:
    """The results folder ``out`` of a run of ``experiment``. Nothing is written before ``open``."""

    def __init__(self, out: Path, experiment: Recordable, scale: Scale) -> None:
        check_folder(out, experiment.identifier)
        self._out = out
        self._experiment = experiment
        self._scale = scale
        self._typed: list[ResultRow] = []
        self._manifest: dict[str, Any] = {}
        self._results: Results | None = None

    @property
    def opened(self) -> bool:
        """Whether the results folder has been created."""
        return self._results is not None

    @property
    def results(self) -> Results:
        """The results folder; only after ``open``."""
        assert self._results is not None
        return self._results

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run as in the manifest, with the name of the experiment."""
        return {"experiment": self._experiment.identifier, **self._experiment.settings.model_dump(mode="json")}

    @property
    def rows(self) -> list[Row]:
        """The rows so far, as in ``summary.json``."""
        found: list[Row] = plain([row.to_json() for row in self._typed])
        return found

    def open(self, datapath: str = "", **more: Any) -> None:
        """Create the results folder with its manifest, which holds the calibration of this machine if there is one.

        ``datapath`` is how the emulation forwards: ``bpf``, ``mirred`` or ``ovs``. ``more`` are further keys.
        """
        calibration = load_calibration() if self._experiment.packets else None
        self._manifest = build_manifest(
            experiment=self.settings,
            seed=getattr(self._experiment.settings, "seed", 0),
            scale=self._scale,
            calibration=asdict(calibration) if calibration else None,
            datapath=datapath,
            **{"plans": [], "groups": {}, **more},
        )
        self._results = Results.create(self._out, self._manifest)

    def add_plan(self, name: str, plan: FabricPlan, link_delay: str = "none") -> None:
        """Add the plan of fabric ``name`` to the manifest, and how the packets of its delayed links are held."""
        self._manifest["plans"][name] = asdict(plan)
        if link_delay != "none":
            self._manifest["link_delay"] = link_delay
        self.results.write_manifest(self._manifest)

    def add_events(self, events: Iterable[Event]) -> None:
        """Append events to the timeline of the results folder."""
        self.results.add_events(events)

    def add(self, rows: Sequence[ResultRow], revise: Callable[[list[Any]], None] = lambda rows: None) -> None:
        """Add rows and write the summary with all rows; ``revise`` may change all rows so far, in place."""
        for row in rows:
            row.experiment = self._experiment.name
        self._typed += rows
        revise(self._typed)
        kinds = dict.fromkeys((*self._experiment.rows, *map(type, self._typed)))
        names = dict.fromkeys(name for kind in kinds for name in columns(kind))
        self.results.write_rows(self.rows, list(names))

    def close(self, error: BaseException | None) -> None:
        """Write in the manifest how the run ended, and give the folder to the user who called sudo."""
        if self._results is None:
            return
        said = str(error) or type(error).__name__
        self._manifest["ended"] = "complete" if error is None else f"stopped: {said}"
        self._results.write_manifest(self._manifest)
        self._results.hand_over()

    def keep_logs(self, session: Session) -> None:
        """Copy the controller's log into the results folder: the session's folder is deleted with the session."""
        if session.controller is None or self._results is None:
            return
        with suppress(OSError):
            self._results.write(CONTROLLER_LOG, session.controller.files.log.read_bytes())
