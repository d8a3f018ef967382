"""Results folder of a run under way: manifest, events and rows are on disk after every point."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.session import Session
from experiments.settings import Settings
from measure.live.calibration import load_calibration
from measure.results.manifest import build_manifest
from measure.results.results import Results, check_folder
from measure.results.row import Row
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group


def run_manifest(
    settings: Settings,
    scale: Scale,
    datapath: str,
    *,
    plans: Iterable[FabricPlan] = (),
    groups: Mapping[str, Group] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The manifest of a run on this machine, with its calibration if there is one.

    ``datapath`` is the emulation's name of it: ``system`` or ``netdev``. ``more`` are further keys of the manifest.
    """
    calibration = load_calibration()
    return build_manifest(
        experiment=settings.model_dump(mode="json"),
        seed=settings.seed,
        scale=scale,
        plans=plans,
        groups=groups or {},
        calibration=asdict(calibration) if calibration else None,
        datapath="kernel" if datapath == "system" else datapath,
        **more,
    )


class Record:
    """The results folder of a run; ``rows`` are the rows measured so far. Nothing is written before ``open``."""

    def __init__(self, out: Path) -> None:
        check_folder(out)
        self.rows: list[Row] = []
        self._out = out
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

    def open(self, manifest: dict[str, Any]) -> None:
        """Create the results folder with its manifest."""
        self._manifest = manifest
        self._results = Results.create(self._out, manifest)

    def add_plan(self, name: str, plan: FabricPlan) -> None:
        """Add the plan of fabric ``name`` to the manifest."""
        self._manifest["plans"][name] = plan.to_json()
        self.results.write_manifest(self._manifest)

    def add_events(self, events: Iterable[Event]) -> None:
        """Append events to the timeline of the results folder."""
        self.results.add_events(events)

    def add_row(self, row: Row) -> None:
        """Add a row and write the summary with all rows."""
        self.rows.append(row)
        self.results.write_rows(self.rows)

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
            shutil.copyfile(session.controller.files.log, self._results.folder / "controller.log")
