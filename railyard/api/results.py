"""The results of a call: rows of a summary, and the folder that has the rest of them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from railyard.api.command import WITH_RESULTS, railyard
from railyard.errors import ConfigError, MachineError, nearest
from railyard.point_folder import events_of, numbers_in, point_folder
from railyard.timeline import Event

_DISTURBED = ("other guests", "other processes")
"""Names of the checks that are told before others, as they may be their cause."""


class Row(dict[str, Any]):
    """A row of ``summary.json``: its columns (docs/results.md) by key or as attributes, ``row.step_time_s``."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"this row has no column {name}{nearest(name, self)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


class Figure:
    """A figure of results as PNG, which a notebook shows; ``path`` is its file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._image = path.read_bytes()

    def _repr_png_(self) -> bytes:
        return self._image

    def __repr__(self) -> str:
        return f"Figure({str(self.path)!r})"


class Results(list[Row]):
    """Rows in the order of their points, whose tables ``print`` shows; ``notes`` are what the command said about them.

    ``folder`` has the rest, such as figures. It is None for a prediction that is kept nowhere, which has a temporary
    one that is removed with this object. ``reads`` is the command line that prints the tables of the folder.
    """

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], reads: Sequence[str], notes: Sequence[str], *, kept: bool = True
    ) -> None:
        super().__init__(map(Row, rows))
        self._reads, self.notes = reads, tuple(notes)
        self._place = Path(reads[-1])
        self.folder = self._place if kept else None

    @property
    def faithful(self) -> bool | None:
        """True if all rows that were measured are faithful, else False; None if nothing was measured."""
        judged = [bool(row["faithful"]) for row in self if row.get("faithful") is not None]
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The verdict in a sentence: where it is not faithful, with what disturbed it or else the first reason."""
        if self.faithful is None:
            return "computed without packets" if any(row.get("computed") for row in self) else "predicted only"
        if self.faithful:
            return "faithful"
        bad = [row for row in self if row.get("faithful") is False]
        failed = [check for row in bad for check in row.get("checks", ()) if not check["ok"]]
        failed.sort(key=lambda check: check["name"] not in _DISTURBED)
        return f"NOT FAITHFUL ({len(bad)} of {len(self)} points): {failed[0]['says'] if failed else bad[0]['verdict']}"

    def frame(self) -> Any:
        """The rows as a ``pandas.DataFrame``."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MachineError("frame() needs pandas; pip install pandas") from None
        return pandas.DataFrame([*self])

    def figure(self, name: str) -> Figure:
        """The figure of this name, such as ``step-time``; ``ConfigError`` lists those that there are."""
        figures = self._figures()
        if not figures:
            railyard(*self._reads, "--quiet", fine=WITH_RESULTS)
            figures = self._figures()
        if name not in figures:
            known = nearest(name, figures) or f"; use {', '.join(figures)}" if figures else ""
            raise ConfigError(f"these results have no figure {name}{known}", key="figure")
        return Figure(figures[name])

    def _figures(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted((self._place / "figures").glob("*.png"))}

    def events(self) -> list[Event]:
        """All events of the measured points, in order of time; a prediction has none."""
        folders = (point_folder(self._place, number) for number in numbers_in(self._place))
        return sorted((event for folder in folders for event in events_of(folder)), key=lambda event: event.t)

    def explain(self, point: int | None = None) -> str:
        """Where measured and predicted steps differ, as ``railyard explain`` says it; of one point by operation."""
        one = [] if point is None else ["--point", point]
        return railyard("explain", self._place, *one, fine=WITH_RESULTS)[0]

    def __str__(self) -> str:
        return railyard(*self._reads, "--no-figures", fine=WITH_RESULTS)[0].rstrip("\n")

    def __repr__(self) -> str:
        return f"<Results of {len(self)} points, {self.verdict}; print shows the tables>"

    def _repr_html_(self) -> str:
        tables = railyard(*self._reads, "--no-figures", "--html", fine=WITH_RESULTS)[0]
        look = ' style="color:#c0392b"' if self.faithful is False else ""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{tables}<p><b{look}>{html.escape(self.verdict)}</b></p>{notes}"
