"""The results of a sweep: its tables and figures as files, and its report on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from commands.sweep.folder import ROWS, SweepFolder
from commands.sweep.merge import (
    HOST,
    Collected,
    Columns,
    MachineNumber,
    all_rows,
    combined,
    mains,
    places,
    ratios,
    sentences,
)
from commands.sweep.spec import RESULTS, attempt_folder, in_words
from experiments.experiment import Experiment
from experiments.repeats import RepeatedExperiment
from experiments.report import (
    FAITHFUL,
    MODEL_ONLY,
    Column,
    Drawn,
    Table,
    as_rich,
    judged,
    left_out_lines,
    off_percent,
    repeat_lines,
    scale_lines,
    spread,
    verdict_lines,
)
from experiments.settings import validated
from measure.results.foreign import reading
from measure.results.partial import PARTIAL
from measure.results.results import FIGURES, SUMMARY, Results
from measure.results.row import Row
from measure.results.summary import Summary
from railyard.digits import significant
from railyard.errors import ConfigError
from railyard.reading import read_bytes
from railyard.scale import Scale
from railyard.verdict import why_not_faithful

_MOST_LINES = 60
"""Rows of the table on the terminal."""
_MOST_BYTES = 256 << 20
_MOST_SAID = 5
_MOST_SCALES = 3


class Merged:
    """The rows of all points of a sweep that are done, read once; ``kind`` is its experiment."""

    def __init__(self, folder: SweepFolder, kind: type[Experiment[Any]]) -> None:
        self.folder, self.kind = folder, kind
        self.names = Columns.of(folder.spec.swept, kind.rows)
        self.counts = folder.states()
        with reading(folder.path):
            self.rows = list(combined(self._collected(), self.names, self._same()))

    def _collected(self) -> Iterator[Collected]:
        for point, ended in self.folder.done():
            at = attempt_folder(self.folder.place(point), ended.attempt)
            rows = _rows(at / ROWS if point.predict else at / RESULTS / SUMMARY, at.parent)
            yield Collected(point, rows, ended.host, ended.attempts)

    def _same(self) -> Callable[[Any], Hashable]:
        if not issubclass(self.kind, RepeatedExperiment) or not self.folder.points:
            return lambda row: None
        return self.kind(validated(self.kind.Settings, self.folder.points[0].values)).same

    @property
    def partial(self) -> str | None:
        missing = self.counts.total - self.counts.done
        why = f"{self.counts.failed} failed, {missing - self.counts.failed} to be run"
        return f"{PARTIAL} {self.counts.done} of {self.counts.total} points: {why}" if missing else None

    def write(self, *, figures: bool = True) -> list[Path]:
        """Write the tables ``rows.json``, ``rows.csv`` and ``table.json``, ``table.csv``, and the figures."""
        files = Results(self.folder.path)
        written = []
        with reading(self.folder.path):
            for name, rows, whole in (
                ("rows", Summary(all_rows(self._collected(), self.names)), False),
                ("table", Summary(self.rows), True),
            ):
                own = self.names.of_rows(combined=whole)
                written += [files.write(f"{name}.json", rows.json()), files.write(f"{name}.csv", rows.csv(own))]
            return [*written, *(self._draw(files) if figures else ())]

    def _draw(self, files: Results) -> Iterator[Path]:
        from commands.sweep.figures import sweep_figures
        from measure.figures.style import png

        for drawn in (*sweep_figures(self.rows, self.names), *self._machines_drawn()):
            scales = {Scale(row["rate_scale"], row["time_scale"]) for row in judged(drawn.rows) if "rate_scale" in row}
            model = self.folder.spec.file.predict
            scale = None if model or not self.kind.packets or not scales else min(scales, key=lambda each: each.rate)
            faithful = scale is None or all(row.get("faithful") for row in judged(drawn.rows))
            more = f"Scales of points differ: {len(scales)}." if scale is not None and len(scales) > 1 else ""
            said = (f"{MODEL_ONLY}." if model else "", drawn.note, more, why_not_faithful(drawn.rows))
            note = " ".join(filter(None, said))
            if drawn.figure is not None:
                image = png(drawn.figure, scale, faithful=faithful, note=note, partial=self.partial)
                yield files.write(f"{FIGURES}/{drawn.name}.png", image)

    @cached_property
    def _machines(self) -> tuple[Mapping[str, Sequence[float]], str]:
        """The measured main number of each machine against that of all (``outliers.ratios``), and its name."""
        main = next(iter(mains(self.rows, self.names)), "")
        if self.folder.spec.file.predict or not main:
            return {}, main
        keys = (*self.names.swept.values(), *places(self.rows, self.names))
        measured = judged(list(all_rows(self._collected(), self.names)))
        rows = [row for row in measured if isinstance(row.get(main), (int, float))]
        numbers = [MachineNumber(repr([row.get(key) for key in keys]), row[HOST], row[main]) for row in rows]
        return ratios(numbers), main.removesuffix("_s").replace("_", " ")

    def _machines_drawn(self) -> Iterator[Drawn]:
        from commands.sweep.figures import outlier_figure

        found, what = self._machines
        if len(found) > 1:
            yield Drawn("machines", outlier_figure(found, what), self.rows, " ".join(sentences(found, what)))

    # ---- on the terminal ---------------------------------------------------------------------------------------

    def show(self, console: Console, *, figures: bool = True) -> None:
        """Print how the points ended, the table, the verdict, and where the files are; with ``figures`` why none is."""
        from commands.sweep.figures import why_no_figure

        counts, file = self.counts, self.folder.spec.file
        words = f"{counts.done} of {counts.total} points done, {counts.failed} failed"
        words += f", {counts.unfaithful} not faithful" if self.kind.packets and not file.predict else ""
        model = f" ({MODEL_ONLY})" if file.predict else ""
        console.print(Text(f"{file.sweep}: {file.experiment}, {words}{model}", style="bold"))
        if self.rows:
            table = self.table()
            for line in (
                *filter(None, [table.title]),
                as_rich(table, console.width),
                *left_out_lines([table], console.width),
            ):
                console.print(line, highlight=False, markup=False)
        if len(self.rows) > _MOST_LINES:
            console.print(f"and {len(self.rows) - _MOST_LINES} more rows in table.csv")
        lines: list[Any] = []
        if self.rows and self.kind.packets:
            scales = scale_lines(self.rows)
            differ = f"Scaled by {len(scales)} different scales (rate_scale and time_scale of table.csv)."
            lines += scales if len(scales) <= _MOST_SCALES else [differ]
            lines += [] if file.predict else [*repeat_lines(judged(self.rows)), *self._verdict()]
            lines += sentences(*self._machines)
        failed = [(point, ended) for point, ended in self.folder.failed()]
        lines += [
            Text(f"failed: {point.name} ({point.title()}): {ended.said}", "bold red")
            for point, ended in failed[:_MOST_SAID]
        ]
        lines += [Text(self.partial, "bold red")] if self.partial else []
        lines += filter(None, [why_no_figure(self.rows, self.names)] if figures else [])
        for line in lines:
            console.print(line, highlight=False, markup=False)
        console.print(f"Results in {self.folder.path}", highlight=False, markup=False, soft_wrap=True)

    def _verdict(self) -> list[Text]:
        rows = judged(self.rows)
        return verdict_lines(rows, self._place) if rows else []

    def _place(self, row: Row) -> str:
        return ", ".join(f"{key} {in_words(row[key])}" for key in self._keys if key in row)

    @cached_property
    def _own(self) -> Mapping[Any, Column]:
        """The columns of the experiment's own tables, by the field that they show."""
        columns = [column for table in self.kind.report().tables(self.rows) for column in table.columns]
        return {column.value: column for column in reversed(columns)}

    @cached_property
    def _keys(self) -> list[str]:
        """The columns that tell rows apart: swept keys, and fields such as a mode, as few as will do.

        Lists, and fields that the experiment's own tables leave out, are the first that others stand for.
        """
        rows, swept = self.rows, self.names.swept.values()
        keys = list(dict.fromkeys((*swept, *places(rows, self.names))))
        if len(rows) < 2:
            return keys

        def kinds(of: Sequence[str]) -> int:
            return len({repr([row.get(key) for key in of]) for row in rows})

        lists = [key for key in swept if kinds([key]) == 1 or any("," in str(row.get(key)) for row in rows)]
        fields = [key for key in reversed(keys) if key not in swept]
        fields.sort(key=lambda key: key in self._own and not self._own[key].wide)
        for key in (*lists, *fields):
            rest = [other for other in keys if other != key]
            keys = rest if kinds(rest) == kinds(keys) else keys
        return keys

    def table(self) -> Table:
        rows = self.rows
        columns = [self._key_column(key) for key in self._keys]
        main = mains(rows, self.names)
        for number, name in enumerate(main):
            model, wide = f"predicted_{name}", number > 0
            columns += [
                Column(self._header(name), name, significant, wide=wide),
                spread(name, wide=wide),
                Column(self._header(model, f"model\n{_lines(name)}"), model, significant, wide=wide),
                Column("off\n%", _off(name, model), "+.1f", wide=wide),
            ]
        if not main:
            known = {*self._keys, *self.names.swept.values()}
            more = [name for name in self.names.of_rows(combined=True) if name not in known and "sweep." not in name]
            columns += [Column(_lines(name), name, wide=True) for name in more if name != "experiment"]
        if len({row.get(HOST) for row in rows}) > 1:
            columns.append(Column("host", HOST, left=True, wide=True))
        if self.kind.packets and not self.folder.spec.file.predict:
            columns.append(FAITHFUL)
        same = [
            key
            for key in self.names.swept.values()
            if key not in self._keys and len({repr(row.get(key)) for row in rows}) == 1
        ]
        title = f"In all rows: {', '.join(f'{key} {in_words(rows[0].get(key))}' for key in same)}" if same else ""
        return Table(title, columns, rows[:_MOST_LINES])

    def _key_column(self, key: str) -> Column:
        text = any(isinstance(row.get(key), str) for row in self.rows)
        return Column(self._header(key), lambda row: _as_cell(row.get(key)), left=text)

    def _header(self, name: str, other: str | None = None) -> str:
        return self._own[name].name if name in self._own else other or _lines(name)


def _as_cell(value: Any) -> Any:
    """A value as a cell; a list has room to go on in the next line."""
    return value if value is None or isinstance(value, bool) else in_words(value).replace(",", ", ")


def _off(name: str, model: str) -> Callable[[Row], float | None]:
    return lambda row: off_percent(row.get(name), row.get(model))


def _lines(name: str) -> str:
    """A column's name in lines that are short."""
    return name.replace("_", "\n") if len(name) > 12 else name


def _rows(path: Path, place: Path) -> Sequence[Row]:
    """The rows that a point left, whose folder is ``place``; ``ConfigError`` for a file that was changed."""
    try:
        rows = json.loads(read_bytes(path, _MOST_BYTES, "a file of rows"))
    except (ValueError, RecursionError):
        rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(
            f"is no list of rows; remove the folder of its point, {place}, and resume the sweep", source=str(path)
        ) from None
    return rows
