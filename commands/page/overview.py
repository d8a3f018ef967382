"""What a page shows of a results folder beside its events: points, tables, verdicts, findings, figures and drawings.

A folder may be of another version, of an experiment whose code is not here, or changed by anybody: each part that
cannot be made is left out, and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from commands.page.follow import MOST_POINTS
from commands.page.rows import MOST_ROWS, RowPoints, table_payload, titles, uncounted_verdicts, verdicts
from commands.page.view.drawing import drawing
from commands.page.view.kinds import looks
from experiments.acts import ACTED_ON
from experiments.experiment import Experiment
from experiments.redraw import kind_of, read_folder
from experiments.report import (
    Recorded,
    Report,
    calibration_lines,
    judged,
    repeat_lines,
    scale_lines,
    verdict_lines,
)
from measure.metrics.checks import NOT_FAITHFUL
from measure.results.folder import MANIFEST, is_locked
from measure.results.foreign import reading
from measure.results.manifest import left_out, scale_of
from measure.results.partial import COMPLETE, PARTIAL, STOPPED, measured_in
from measure.results.partial import partial as what_lacks
from measure.results.plain import plain
from measure.results.results import FIGURES, SUMMARY, Results
from railyard.errors import ConfigError
from railyard.scale import Scale, scale_in_words
from railyard.validation import from_plain
from topos.plan import FabricPlan

FORMAT = 1
MOST_FIGURES = 200
"""The most figures of an overview."""

T = TypeVar("T")
State = Literal["live", "complete", "stopped", "killed", "predicted"]


class Overview:
    """The overview of a folder; what is made of its files is kept until one of them changes.

    ``kind`` is its experiment, for code that is not part of Railyard. ``ConfigError`` for a folder that is not one of
    Railyard's, and for a format of another version.
    """

    def __init__(self, folder: Path, kind: type[Experiment[Any]] | None = None) -> None:
        self.folder = folder
        self._kind = kind
        self._results = Results.open(folder)
        self._made: _Made | None = None
        self._seen: tuple[Any, ...] = ()

    def payload(
        self, points: Sequence[Mapping[str, Any]], *, unreadable: int = 0, control: bool = False, further: int = 0
    ) -> dict[str, Any]:
        """The overview as plain data.

        ``points`` are those that the events tell of, as in the overview (``RunView.points``); here they get the titles
        of their rows, and whether they count. ``unreadable`` is the number of lines that are no events, ``control``
        whether the page may act on the run, ``further`` how many points there are beside ``points``.
        """
        locked = is_locked(self.folder)
        seen = (locked, *map(self._state_of, (MANIFEST, SUMMARY, FIGURES)))
        if self._made is None or seen != self._seen:
            self._made, self._seen = _Made(self._results, self._kind, live=locked), seen
        made = self._made
        notes = [*made.notes]
        if len(points) + further > MOST_POINTS:
            notes.append(f"The list has the first {MOST_POINTS} of {len(points) + further} points.")
        running = [point["number"] for point in points if point["state"] == "running"] if made.live else []
        return {
            **made.payload,
            "notes": notes,
            "unreadable": unreadable,
            "points": plain([made.point(point) for point in points[:MOST_POINTS]]),
            "progress": {**made.payload["progress"], "running": running[-1] if running else None},
            "control": control,
        }

    def _state_of(self, name: str) -> tuple[int, int] | None:
        try:
            found = (self.folder / name).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


class _Made:
    """What is made of the files of a folder, without its events; what cannot be made is left out, with a note."""

    def __init__(self, results: Results, kind: type[Experiment[Any]] | None, *, live: bool) -> None:
        self._results = results
        self.notes: list[str] = []
        self.manifest = results.manifest()
        self.live = live and "ended" not in self.manifest
        """Whether the run is under way: one that ends holds its lock a little longer."""
        self.kind = kind or self._try(lambda: kind_of(results), None)
        self.recorded = self._try(self._read, Recorded(self.manifest, (), ()))
        self._scale = self._try(lambda: scale_of(self.manifest), Scale(1.0))
        self._points = self._try(lambda: RowPoints.of(self.manifest), RowPoints({}))
        self._uncounted = self._try(lambda: left_out(self.manifest), set[int]())
        self._titles = self._try(self._titles_of_points, dict[int, str]())
        self.payload: dict[str, Any] = plain(self._payload())

    def point(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """A point with the title of its rows, if it has some, and whether any row counts it."""
        number = point["number"]
        title = self._titles.get(number) or point["title"]
        counts = point["state"] == "measured" and number not in self._uncounted
        return {**point, "title": title, "counts": counts}

    def _try(self, make: Callable[[], T], otherwise: T) -> T:
        """What ``make`` gives; ``otherwise``, and a note, where the folder holds what this version cannot read."""
        try:
            with reading(self._results.folder):
                return make()
        except ConfigError as error:
            says = str(error)
        except Exception as error:  # the code of somebody's experiment may raise anything
            says = f"A part of the overview cannot be made ({type(error).__name__}: {error})."
        if says not in self.notes:
            self.notes.append(says)
        return otherwise

    def _list(self, make: Callable[[], Iterable[T]]) -> list[T]:
        """All that ``make`` gives; nothing, and a note, where that cannot be made."""
        empty: list[T] = []
        return self._try(lambda: list(make()), empty)

    def _read(self) -> Recorded:
        recorded = read_folder(self._results, self.kind, events=())
        self.notes += [note for note in recorded.notes if note not in (recorded.partial, recorded.acted_on)]
        return recorded

    def _titles_of_points(self) -> dict[int, str]:
        return {} if self.kind is None else titles(self.recorded.rows, self.kind.report(), self._points)

    # ---- the payload -------------------------------------------------------------------------------------------------

    def _payload(self) -> dict[str, Any]:
        manifest = self.manifest
        settings = manifest.get("experiment")
        plans = self._try(self._plans, dict[str, Any]())
        found = {
            "format": FORMAT,
            "name": self._results.folder.resolve().name,
            "experiment": str(settings.get("experiment", "") if isinstance(settings, Mapping) else ""),
            "command": _text(manifest.get("command")),
            "written": _text(manifest.get("written")) or "",
            "ended": _text(manifest.get("ended")),
            "state": self._state(),
            "seed": manifest.get("seed"),
            "machine": _flat(manifest.get("machine")),
            "versions": _flat(manifest.get("versions")),
            "scale": self._try(self._scale_in_words, {"rate": 1.0, "time": 1.0, "says": ""}),
            "progress": self._try(self._progress, {"planned": None, "measured": 0}),
            "figures": list(_figures(self._results.folder / FIGURES)),
            "plans": plans,
            "looks": looks(),
            "tables": [],
            "verdicts": [],
            "findings": [],
            "calibrated": [],
        }
        if self.kind is not None and self.recorded.rows:
            self._add_report(found, self.kind, self.kind.report())
        found["stamps"] = self._list(self._stamps)
        return found

    def _add_report(self, found: dict[str, Any], kind: type[Experiment[Any]], report: Report) -> None:
        """The parts of the report of the experiment: the same tables and lines as on the terminal."""
        rows, settings = self.recorded.rows, self.manifest.get("experiment", {})
        tables = self._list(lambda: (table_payload(table, self._points) for table in report.tables(rows)))
        found["tables"] = [table for table in tables if table["rows"]]
        if any(len(table["rows"]) == MOST_ROWS for table in tables):
            self.notes.append(f"Tables have their first {MOST_ROWS} rows; summary.csv has all.")
        found["verdicts"] = self._list(lambda: verdicts(rows, report, kind.rows, self._points))
        found["verdicts"] += self._list(lambda: uncounted_verdicts(rows, self._uncounted, self._points))
        found["calibrated"] = self._list(lambda: calibration_lines(report, rows, settings))
        if not self._model_only:
            said = self._list(lambda: map(str, report.findings(rows, settings)))
            found["findings"] = [*said, *self._list(lambda: repeat_lines(judged(rows)))]

    def _state(self) -> State:
        ended = self.manifest.get("ended")
        if self.live:
            return "live"
        if self.manifest.get("predicted"):
            return "predicted"
        if ended == COMPLETE:
            return "complete"
        return "stopped" if isinstance(ended, str) and ended.startswith(STOPPED) else "killed"

    @property
    def _model_only(self) -> bool:
        """Whether no row was measured, although the experiment measures packets."""
        packets = self.kind is not None and self.kind.packets
        rows = self.recorded.rows
        return self.recorded.predicted or (packets and bool(rows) and all(row.get("faithful") is None for row in rows))

    def _stamps(self) -> Iterator[dict[str, str]]:
        """What must be seen before any number: not faithful, partial, or of the model alone."""
        rows = judged(self.recorded.rows)
        if self._model_only:
            yield _stamp("MODEL ONLY", "Nothing was measured: all numbers are those of the model.")
        elif any(row.get("faithful") is False for row in rows):
            report = Report(tables=lambda rows: ()) if self.kind is None else self.kind.report()
            first, *failed = [str(line).strip() for line in verdict_lines(rows, report.point)]
            yield _stamp(NOT_FAITHFUL, " ".join([first, *(f"{each}." for each in failed)]))
        if self.recorded.acted_on is not None:
            yield _stamp(ACTED_ON, self.recorded.acted_on)
        sentence = what_lacks(self.manifest, self.recorded.rows, under_way=self.live)
        if sentence is not None:
            yield _stamp(PARTIAL, sentence)

    def _progress(self) -> dict[str, Any]:
        """How many measurements were planned (None: not known before the end), and how many were made."""
        planned = self.manifest.get("planned")
        measured = sum(map(measured_in, self.recorded.rows))
        return {"planned": planned if type(planned) is int else None, "measured": measured}

    def _scale_in_words(self) -> dict[str, Any]:
        words = " ".join(scale_lines(self.recorded.rows))
        if not words and (self.kind is None or self.kind.packets):
            words = f"Scaled by: {scale_in_words(self._scale)}."
        return {"rate": self._scale.rate, "time": self._scale.time, "says": words}

    def _plans(self) -> dict[str, Any]:
        """The drawing of each fabric; one whose plan cannot be read is left out, with a note."""
        drawn = {
            str(key): self._try(partial(self._drawing, plan), None) for key, plan in self.manifest["plans"].items()
        }
        return {key: found for key, found in drawn.items() if found is not None}

    def _drawing(self, plan: Any) -> dict[str, Any]:
        return _drawn(from_plain(FabricPlan, plan, "a fabric plan"), self._scale)


_drawn = lru_cache(maxsize=64)(drawing)
"""Drawings by plan, as the manifest is written again after each point."""


def _figures(folder: Path) -> Iterator[dict[str, str]]:
    """The figures of a results folder: those that are files of it, not links."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".png" and not path.is_symlink())
    except OSError:
        return
    for path in [path for path in files if path.is_file()][:MOST_FIGURES]:
        yield {"name": path.stem, "file": path.name}


def _stamp(kind: str, says: str) -> dict[str, str]:
    """A stamp; its sentence does not say its kind again."""
    return {"kind": kind, "says": says.removeprefix(kind).lstrip(": ")}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _flat(value: Any) -> dict[str, Any]:
    """A table of the manifest with one value for each key; what is no single value is written as text."""
    if not isinstance(value, Mapping):
        return {}
    simple = (str, int, float, bool, type(None))
    return {str(key): each if isinstance(each, simple) else str(each) for key, each in value.items()}
