"""The results folder, which is written during the run, so that recorded data survives a crash.

It holds ``manifest.json`` (written first, to mark the folder as Railyard's), ``events.jsonl`` (appended after each
point), ``summary.json`` and ``summary.csv`` (replaced atomically after each point), ``trace.json`` and ``figures/``.
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
from measure.results.row import Row
from railyard.errors import ConfigError
from railyard.timeline import Event, read_events

MANIFEST, EVENTS, SUMMARY, TABLE, TRACE, CONTROLLER_LOG, FIGURES, CAPTURES, CHECKPOINTS = (
    "manifest.json",
    "events.jsonl",
    "summary.json",
    "summary.csv",
    "trace.json",
    "controller.log",
    "figures",
    "captures",
    "checkpoints",
)


class Results:
    """A results folder: ``create`` makes a new one, ``open`` reads an existing one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ---- making and opening ------------------------------------------------------------------------------------

    @staticmethod
    def create(folder: Path, manifest: Mapping[str, Any]) -> Results:
        """Make a folder with its manifest.

        In a results folder of an earlier run, the files that Railyard wrote are deleted. Raises ``ConfigError`` (key
        ``out``) for a folder with other content, for a file, and for a place that cannot be written.
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
        """Open an existing results folder; ``ConfigError`` for any other folder and for an unknown format."""
        found = _manifest_of(folder)
        if found is None:
            missing = f"it has no {MANIFEST} by Railyard" if folder.exists() else "it does not exist"
            raise ConfigError(f"{folder} is not a Railyard results folder; {missing}", key="results")
        if found[MARK] != FORMAT:
            raise ConfigError(
                f"{folder} has format {found[MARK]} and this version reads {FORMAT}; use the version that wrote it",
                key="results",
            )
        return Results(folder)

    def _clear(self) -> None:
        for name in (EVENTS, SUMMARY, TABLE, TRACE, CONTROLLER_LOG):
            with suppress(FileNotFoundError):
                (self.folder / name).unlink()
        for name in (FIGURES, CAPTURES, CHECKPOINTS):
            if (self.folder / name).is_dir() and not (self.folder / name).is_symlink():
                shutil.rmtree(self.folder / name)

    # ---- writing -----------------------------------------------------------------------------------------------

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, or replace it, since it may grow during the run."""
        self.write(MANIFEST, json.dumps(plain(manifest), indent=2) + "\n")

    def add_events(self, events: Iterable[Event]) -> None:
        """Append events to the file of events, which is closed again when this returns."""
        fd = os.open(
            self.folder / EVENTS,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
        )
        with open(fd, "a", encoding="utf-8") as out:
            hand_over_fd(out.fileno())
            for event in events:
                out.write(event.to_line() + "\n")

    def write_rows(self, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """Write ``summary.json`` with one entry per row, and ``summary.csv`` with its ``columns``."""
        rows = plain(list(rows))
        self.write(SUMMARY, json.dumps(rows, indent=2) + "\n")
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        self.write(TABLE, text.getvalue())

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file of the folder atomically and return its path: it has either its old or its new content."""
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
        """Give the folder and all files in it, also those of other tools, to the caller of sudo."""
        hand_over(self.folder)
        for path in self.folder.rglob("*"):
            hand_over(path)

    # ---- reading -----------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """Read the manifest of the folder."""
        return _manifest_of(self.folder) or {}

    @property
    def experiment(self) -> str:
        """Name of the experiment in the manifest; ``ConfigError`` for a manifest without it."""
        name = _experiment_in(self.manifest())
        if name is None:
            raise ConfigError("names no experiment; run it again", key="experiment", source=str(self.folder / MANIFEST))
        return name

    def events(self) -> list[Event]:
        """Read all recorded events, in order of time."""
        path = self.folder / EVENTS
        return read_events(path) if path.exists() else []

    def rows(self) -> list[Row]:
        """Read the rows of the summary; none if the run ended before its first point was measured."""
        path = self.folder / SUMMARY
        try:
            rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        except (OSError, ValueError):
            raise ConfigError("cannot be read; run the experiment again", source=str(path)) from None
        return rows


def check_folder(folder: Path, experiment: str | None = None) -> None:
    """Raise ``ConfigError`` (key ``out``) for a folder that results of ``experiment`` may not replace.

    That is a file, a folder with content of others, and the results of another experiment.
    """
    try:
        inside = [] if not folder.exists() else list(folder.iterdir())
    except NotADirectoryError:
        raise ConfigError(f"{folder} is a file; name a folder", key="out") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror}); name another folder", key="out") from None
    manifest = _manifest_of(folder)
    if inside and manifest is None:
        raise ConfigError(
            f"{folder} is not empty and is not a Railyard results folder; name a new folder or an empty one", key="out"
        )
    earlier = _experiment_in(manifest or {})
    if None not in (experiment, earlier) and earlier != experiment:
        raise ConfigError(f"{folder} holds results of {earlier}, not of {experiment}; name a new folder", key="out")


def plain(value: Any) -> Any:
    """Convert ``value`` for JSON: None for infinity and NaN, lists for tuples, text for paths, numbers to 12 digits."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)


def _experiment_in(manifest: Mapping[str, Any]) -> str | None:
    settings = manifest.get("experiment")
    name = settings.get("experiment") if isinstance(settings, Mapping) else None
    return name if isinstance(name, str) else None


def _manifest_of(folder: Path) -> dict[str, Any] | None:
    """The manifest of a Railyard results folder; None for any other folder."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and MARK in found else None
