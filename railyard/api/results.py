"""The results of a call: rows of a summary, and the folder that has the rest of them."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from railyard.api.command import WITH_RESULTS, railyard
from railyard.errors import ConfigError, nearest
from railyard.point_folder import POINTS, events_of, numbers_in, point_folder
from railyard.timeline import Event
from railyard.verdict import NOT_FAITHFUL, why_not_faithful


class Row(dict[str, Any]):
    """A row of ``summary.json``: its columns (docs/results.md) by key or as attributes, ``row.step_time_s``."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"this row has no column {name}{nearest(name, self)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


@dataclass(frozen=True)
class Figure:
    """A figure of results as PNG, which a notebook shows; ``path`` is its file."""

    path: Path
    image: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        return self.image


class Results(list[Row]):
    """Rows in the order of their points, whose tables ``print`` shows.

    ``folder`` has the rest, such as figures. It is None for a prediction that is kept nowhere, which has a temporary
    one that is removed with this object. ``reads`` are the words of the command that prints the tables of a folder.
    """

    def __init__(self, folder: str | Path, *reads: str, kept: bool = True) -> None:
        self._place, self._of_sweep = Path(folder).resolve(), reads[0] == "sweep"
        table = self._place / ("table.json" if self._of_sweep else "summary.json")
        super().__init__(map(Row, json.loads(table.read_text(encoding="utf-8"))))
        self._reads = *reads, str(self._place)
        self.folder = self._place if kept else None

    @property
    def faithful(self) -> bool | None:
        """True if all rows that were measured are faithful, else False; None if nothing was measured."""
        judged = [bool(row["faithful"]) for row in self if row.get("faithful") is not None]
        return all(judged) if judged else None

    @property
    def verdict(self) -> str:
        """The verdict in a sentence: where it is not faithful, with what disturbed it or else the first reason."""
        if self.faithful is not None:
            return "faithful" if self.faithful else why_not_faithful(self).removesuffix(".") or NOT_FAITHFUL
        computed = any(row.get("computed", "faithful" not in row) for row in self)
        return "computed without packets" if computed else "predicted only"

    def frame(self) -> Any:
        """The rows as a ``pandas.DataFrame``; ``ImportError`` without pandas."""
        return import_module("pandas").DataFrame([*self])

    def figure(self, name: str) -> Figure:
        """The figure of this name, such as ``step-time``; ``ConfigError`` lists those that there are."""
        folder = self._place / "figures"
        if not any(folder.glob("*.png")):
            railyard(*self._reads, fine=WITH_RESULTS)
        figures = sorted(path.stem for path in folder.glob("*.png"))
        if name not in figures:
            known = nearest(name, figures) or f"; use {', '.join(figures)}" if figures else ""
            raise ConfigError(f"these results have no figure {name}{known}", key="figure")
        return Figure(folder / f"{name}.png", (folder / f"{name}.png").read_bytes())

    def events(self) -> list[Event]:
        """All events of the measured points, in order of time; a prediction has none. ``ConfigError`` of a sweep."""
        if self._of_sweep:
            each = self._place / POINTS / "NAME/attempt-1"
            raise ConfigError(f"a sweep has events by point; load one, such as {each}", key="events")
        folders = (point_folder(self._place, number) for number in numbers_in(self._place))
        return sorted((event for folder in folders for event in events_of(folder)), key=lambda event: event.t)

    def explain(self, point: int | None = None) -> str:
        """Where measured and predicted steps differ, as ``railyard explain`` says it; of one point by operation."""
        return railyard("explain", self._place, *(() if point is None else ("--point", point)), fine=WITH_RESULTS)

    def __str__(self) -> str:
        return railyard(*self._reads, "--no-figures", fine=WITH_RESULTS).rstrip("\n")

    def __repr__(self) -> str:
        return f"<Results of {len(self)} points, {self.verdict}; print shows the tables>"

    def _repr_html_(self) -> str:
        tables = railyard(*self._reads, "--no-figures", "--html", fine=WITH_RESULTS)
        look = ' style="color:#c0392b"' if self.faithful is False else ""
        return f"{tables}<p><b{look}>{html.escape(self.verdict)}</b></p>"
