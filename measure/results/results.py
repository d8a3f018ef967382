"""The results folder: written as the run goes, so that what was recorded stays whatever happens.

``manifest.json`` (first, so a folder is known as ours from the start), ``events.jsonl`` (appended point by point),
``summary.json`` and ``summary.csv`` (written anew, atomically, after every point), ``trace.json`` and ``figures/``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from measure.results.manifest import FORMAT, MARK
from measure.results.ownership import hand_over, hand_over_fd, make_folder
from measure.results.row import Row, flat
from railyard.errors import ConfigError
from railyard.timeline import Event, read_events

MANIFEST, EVENTS, SUMMARY, TABLE, TRACE, FIGURES = (
    "manifest.json",
    "events.jsonl",
    "summary.json",
    "summary.csv",
    "trace.json",
    "figures",
)


class Results:
    """A results folder; make one with ``create``, read one with ``open``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ---- making and opening ------------------------------------------------------------------------------------

    @staticmethod
    def create(folder: Path, manifest: Mapping[str, Any]) -> Results:
        """A new folder with its manifest.

        A results folder of an earlier run is emptied of what Railyard wrote. Raises ``ConfigError`` (key ``out``)
        for a folder with anything else in it, a file, and a place that cannot be written.
        """
        try:
            check_folder(folder)
            make_folder(folder)
            results = Results(folder)
            results._clear()
            results.write_manifest(manifest)
        except OSError as error:
            place = error.filename or folder
            raise ConfigError(f"{place} cannot be written ({error.strerror}); name another folder", key="out") from None
        return results

    @staticmethod
    def open(folder: Path) -> Results:
        """An existing results folder; ``ConfigError`` if it is none, or of a format that is not known here."""
        found = _manifest_of(folder)
        if found is None:
            raise ConfigError(f"{folder} is not a Railyard results folder; it has no {MANIFEST} of ours", key="results")
        if found[MARK] != FORMAT:
            raise ConfigError(
                f"{folder} has format {found[MARK]} and this version reads {FORMAT}; use the version that wrote it",
                key="results",
            )
        return Results(folder)

    def _clear(self) -> None:
        for name in (EVENTS, SUMMARY, TABLE, TRACE):
            with suppress(FileNotFoundError):
                (self.folder / name).unlink()
        if (self.folder / FIGURES).is_dir() and not (self.folder / FIGURES).is_symlink():
            shutil.rmtree(self.folder / FIGURES)

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest (again: it may grow during the run)."""
        self.write(MANIFEST, json.dumps(plain(manifest), indent=2) + "\n")

    def add_events(self, events: Iterable[Event]) -> None:
        """Append events; they are on disk when this returns, as far as the kernel is concerned."""
        fd = os.open(
            self.folder / EVENTS,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        with open(fd, "a", encoding="utf-8") as out:
            hand_over_fd(out.fileno())
            for event in events:
                out.write(event.to_line() + "\n")

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Write ``summary.json`` and ``summary.csv``."""
        rows = plain(list(rows))
        self.write(SUMMARY, json.dumps(rows, indent=2) + "\n")
        columns = list(dict.fromkeys(key for row in rows for key in flat(row)))
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(flat(row) for row in rows)
        self.write(TABLE, text.getvalue())

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the folder in one go: it has its old content or the new, never half of either."""
        path = self.folder / name
        make_folder(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        data = content.encode() if isinstance(content, str) else content
        with suppress(FileNotFoundError):
            draft.unlink()
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with open(fd, "wb") as out:
                hand_over_fd(out.fileno())
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return path

    def hand_over(self) -> None:
        """Give everything in the folder to who called sudo (also what other tools wrote there)."""
        hand_over(self.folder)
        for path in self.folder.rglob("*"):
            hand_over(path)

    # ---- reading -----------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return _manifest_of(self.folder) or {}

    def events(self) -> list[Event]:
        """All events that were recorded, in order of time."""
        path = self.folder / EVENTS
        return read_events(path) if path.exists() else []

    def rows(self) -> list[Row]:
        """The rows of the summary; none if the run died before its first point was measured."""
        path = self.folder / SUMMARY
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        return rows


def check_folder(folder: Path) -> None:
    """Refuse, before anything runs, a folder that results must not be written to (``ConfigError``, key ``out``)."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder", key="out")
    if folder.is_dir() and any(folder.iterdir()) and _manifest_of(folder) is None:
        raise ConfigError(
            f"{folder} is not empty and is not a Railyard results folder; name a new folder or an empty one", key="out"
        )


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it: no infinity, no NaN, no tuple, no path; numbers to twelve digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _manifest_of(folder: Path) -> dict[str, Any] | None:
    """The manifest of a Railyard results folder, or None if the folder is none."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and MARK in found else None
