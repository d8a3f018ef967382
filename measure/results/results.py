"""The results folder, which is written during the run, so that recorded data survives a crash.

It holds ``manifest.json`` (written first, to mark the folder as Railyard's), ``events.jsonl`` (appended after each
point), ``predicted.jsonl`` (the timeline that the model predicted for it, appended before it), ``summary.json`` and
``summary.csv`` (replaced atomically as rows come), ``trace.json``, ``figures/`` and ``report.html``.
While the run goes on, ``running/`` has what its processes write: a folder for the point under way, and the
controller's events and log; ``point.jsonl`` in that folder is what the run itself notes of the point. A run that was
killed leaves it, and its events are read from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from measure.results.folder import MANIFEST, MOST_BYTES, FolderLock, manifest_of, not_writable
from measure.results.manifest import FORMAT, MARK, Manifest
from measure.results.plain import plain
from measure.results.row import Row
from measure.results.summary import Summary
from railyard.errors import ConfigError
from railyard.ownership import naming, open_binary, replace_file
from railyard.reading import files_below, read_bytes
from railyard.timeline import Event, events_in
from railyard.validation import config_error

EVENTS, PREDICTED, SUMMARY, TABLE, TRACE, REPORT, CONTROLLER_LOG, FIGURES, CAPTURES, CHECKPOINTS, RUNNING, POINT = (
    "events.jsonl",
    "predicted.jsonl",
    "summary.json",
    "summary.csv",
    "trace.json",
    "report.html",
    "controller.log",
    "figures",
    "captures",
    "checkpoints",
    "running",
    "point.jsonl",
)
SWEEP, POINTS = "sweep.json", "points"
"""What the folder of a sweep (``commands.sweep``) holds: its record, and the results of its points."""


class Results:
    """A results folder: ``create`` makes a new one, ``open`` reads an existing one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder.resolve()
        """The folder without symbolic links, for what is written: none that is put there later is followed."""
        self._lock: FolderLock | None = None

    # ---- making and opening ------------------------------------------------------------------------------------

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

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write(MANIFEST, json.dumps(plain(manifest), indent=2) + "\n")

    def add_events(self, events: Iterable[Event], name: str = EVENTS) -> None:
        """Append events to the file of events (or to ``name``): all of them, or none if that raises ``OSError``."""
        data = "".join(event.to_line() + "\n" for event in events).encode()
        path = self._place / name
        with naming(path), open_binary(path, "ab", buffering=0) as out:
            before = os.fstat(out.fileno()).st_size
            try:
                while data:
                    data = data[os.write(out.fileno(), data) :]
            except OSError:
                os.ftruncate(out.fileno(), before)
                raise

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

    def remove_running(self, name: str) -> None:
        self._locked.remove_folder(Path(RUNNING, name))

    def end_running(self, *, log: bool) -> None:
        """Remove ``running/``, whose events have been added; ``log``: keep the controller's log in the folder."""
        if log:
            with suppress(OSError):
                self._locked.move_up(Path(RUNNING, CONTROLLER_LOG))
        self._locked.remove_folder(Path(RUNNING))

    @property
    def _locked(self) -> FolderLock:
        """The lock of a folder that ``create`` made, until ``free``."""
        assert self._lock is not None
        return self._lock

    # ---- reading -----------------------------------------------------------------------------------------------

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
                f"{folder} has format {found[MARK]} and this version reads {FORMAT}; use the version that wrote it",
                key="results",
            )
        try:
            Manifest.model_validate(found, strict=True)
        except ValidationError as error:
            raise config_error(error, Manifest, "the manifest of a run", source=str(folder / MANIFEST)) from None
        return found

    @property
    def experiment(self) -> str:
        """Name of the experiment in the manifest."""
        return str(self.manifest()["experiment"]["experiment"])

    def events(self) -> list[Event]:
        """Read all recorded events, in order of time, also those that a killed run left in ``running/``.

        An event ``run cut`` tells of lines that a crash cut short; ``ConfigError`` for any other one that is no event.
        """
        path = self.folder / EVENTS
        events = events_in(_lines(path), path)
        running = sorted(files_below(self.folder / RUNNING, ".jsonl"))
        if running:
            added = set(_lines(path))
            events += events_in(line for file in running for line in _lines(file) if line not in added)
        return sorted(events, key=lambda event: event.t)

    def predicted(self) -> list[Event]:
        """Read the predicted timelines, one after another; each begins with an event ``run predicted``."""
        path = self.folder / PREDICTED
        return events_in(_lines(path), path)

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


def _lines(path: Path) -> Iterator[str]:
    with suppress(FileNotFoundError), path.open(encoding="utf-8", errors="replace") as lines:
        yield from lines
