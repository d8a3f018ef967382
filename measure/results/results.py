"""The results folder, which is written during the run, so that recorded data survives a crash.

It holds ``manifest.json`` (written first, to mark the folder as Railyard's), a folder of each point in ``points/``
(``railyard.point_folder``), ``summary.json`` and ``summary.csv`` (replaced atomically as rows come), ``trace.json``,
``figures/`` and ``report.html``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from measure.results.folder import MANIFEST, MOST_BYTES, FolderLock, manifest_of, not_writable
from measure.results.manifest import FORMAT, MARK, Manifest, other_version
from measure.results.plain import plain
from measure.results.row import Row
from measure.results.summary import Summary
from railyard.errors import ConfigError
from railyard.ownership import replace_file
from railyard.point_folder import EVENTS, POINTS, PREDICTED, events_of, lines_of, numbers_in, point_folder
from railyard.reading import read_bytes
from railyard.timeline import Event, events_in
from railyard.validation import config_error

SUMMARY, TABLE, TRACE, REPORT, CONTROLLER_LOG, FIGURES, CAPTURES, CHECKPOINTS, SCRIPTS = (
    "summary.json",
    "summary.csv",
    "trace.json",
    "report.html",
    "controller.log",
    "figures",
    "captures",
    "checkpoints",
    "scripts",
)
SWEEP = "sweep.json"
"""The record of a sweep (``commands.sweep``), whose folder has the results of its points in ``points/``, too."""


class Results:
    """A results folder: ``create`` makes a new one, ``open`` reads an existing one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder.resolve()
        """The folder without symbolic links, for what is written: none that is put there later is followed."""
        self._lock: FolderLock | None = None

    @staticmethod
    def create(folder: Path, manifest: Mapping[str, Any]) -> Results:
        """Make a folder with its manifest, locked until ``free`` or the end of this process.

        Raises ``ConfigError`` (key ``out``) for a folder with content or in use, for a file, and for a place that
        cannot be written; nothing is left there then.
        """
        results = Results(folder)
        results._lock = FolderLock.claim(folder)
        try:
            results.write_manifest(manifest)
        except OSError as error:
            results._lock.abandon()
            raise not_writable(folder, error) from None
        return results

    @staticmethod
    def open(folder: Path) -> Results:
        """Open an existing results folder; ``ConfigError`` for any other folder (``manifest``)."""
        results = Results(folder)
        results.manifest()
        return results

    def free(self) -> None:
        if self._lock is not None:
            self._lock.free()

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write(MANIFEST, json.dumps(plain(manifest), indent=2) + "\n")

    def write_point(self, number: int, events: Iterable[Event], name: str = EVENTS) -> None:
        """Write the events of a point (or file ``name`` of its folder): all of them, or none if that is an error."""
        lines = (f"{event.to_line()}\n".encode() for event in events)
        replace_file(point_folder(self._place, number) / name, lines)

    def write_rows(self, rows: Summary, columns: Sequence[str]) -> None:
        """Write ``summary.json`` with one entry per row, and ``summary.csv`` with its ``columns``."""
        self.write(SUMMARY, rows.json())
        self.write(TABLE, rows.csv(columns))

    def write(self, name: str, content: str | bytes | Iterable[bytes]) -> Path:
        """Write a file of the folder atomically and return its path: it has either its old or its new content.

        The ``content`` may come in pieces.
        """
        replace_file(self._place / name, content)
        return self.folder / name

    def has_only(self, *names: str) -> bool:
        return set(self._locked.names()) <= set(names)

    def remove(self, *names: str) -> None:
        """Remove these files, and the folder if ``create`` made it; it is then free."""
        for name in names:
            self._locked.remove_file(name)
        self._locked.abandon()

    def tidy_point(self, number: int) -> None:
        """Remove what the processes of a point have left beside its events, which are written."""
        self._locked.remove_rest(point_folder(Path(), number), (EVENTS, PREDICTED))

    def remove_log(self) -> None:
        self._locked.remove_file(CONTROLLER_LOG)

    @property
    def _locked(self) -> FolderLock:
        """The lock of a folder that ``create`` made, until ``free``."""
        assert self._lock is not None
        return self._lock

    def manifest(self) -> dict[str, Any]:
        """Read the manifest, as it was written; ``ConfigError`` for another format or key (``manifest.Manifest``)."""
        folder, found = self.folder, manifest_of(self.folder)
        if found is None:
            missing = f"it has no {MANIFEST} by Railyard" if folder.exists() else "it does not exist"
            if (folder / SWEEP).is_file():
                missing = f"it is that of a sweep, whose results are in the folders below {folder / POINTS}"
            raise ConfigError(f"{folder} is not a Railyard results folder; {missing}", key="results")
        if found[MARK] != FORMAT:
            raise ConfigError(
                f"{folder} has format {found[MARK]} and this version reads {FORMAT}; "
                f"{other_version(found) or 'use the version that wrote it'}",
                key="results",
            )
        try:
            Manifest.model_validate(found, strict=True)
        except ValidationError as error:
            refused = config_error(error, Manifest, "the manifest of a run", source=str(folder / MANIFEST))
            if remedy := other_version(found):
                refused = ConfigError(f"{refused.message}; {remedy}", key=refused.key, source=refused.source)
            raise refused from None
        return found

    @property
    def experiment(self) -> str:
        return str(self.manifest()["experiment"]["experiment"])

    def events(self) -> list[Event]:
        """Read the events of all points so far, in order of time (``railyard.point_folder.events_of``)."""
        folders = (point_folder(self.folder, number) for number in numbers_in(self.folder))
        return sorted((event for folder in folders for event in events_of(folder)), key=lambda event: event.t)

    def predicted(self) -> list[Event]:
        """Read the predicted timelines, one after another; each begins with an event ``run predicted``."""
        paths = [point_folder(self.folder, number) / PREDICTED for number in numbers_in(self.folder)]
        return [event for path in paths for event in events_in(lines_of(path), path)]

    def rows(self) -> list[Row]:
        """Read the rows of the summary; none if the run ended before its first point was measured."""
        path = self.folder / SUMMARY
        try:
            data = read_bytes(path, MOST_BYTES, "the summary of a run", pipes=False) if path.exists() else b"[]"
            rows: list[Row] = json.loads(data)
        except (OSError, ValueError, RecursionError):
            raise ConfigError("cannot be read; run the experiment again", source=str(path)) from None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError("is no list of rows; run the experiment again", source=str(path))
        return rows
