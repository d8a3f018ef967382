"""The report of a results folder: tables and findings on the terminal, figures and trace in the folder.

An experiment says what its tables, findings and figures are (``Report``); this module prints and draws them. Rows are
those of ``summary.json``, so that a report looks the same at the end of a run and when it is made again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from experiments.acts import acted_on
from measure.metrics.estimate import Estimate
from measure.metrics.load import ADVICE
from measure.published import calibrations
from measure.results.estimates import estimate_of
from measure.results.manifest import scale_of
from measure.results.partial import cut_lines, measured_in
from measure.results.row import Row
from railyard.digits import alike, significant
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS
from railyard.scale import Scale, scale_in_words
from railyard.timeline import Event
from railyard.verdict import NOT_FAITHFUL, OTHERS, STEAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | Text
WIDTH = 80
"""Columns of a terminal for which tables are made; what has no room there is left out or goes on in the next line."""
ALL_COLUMNS_WIDTH = 400
GAP = 2
"""Columns of space between two columns of a table."""
_LEAST_TEXT = 12
"""Columns to which text is broken before numbers are."""
MODEL_ONLY = "MODEL ONLY, nothing was measured"


@dataclass(frozen=True)
class Column:
    """A column of a table: ``value`` is a key of the row, or a function of it; ``form`` formats a number.

    A value of None is shown as ``-``. A column that is ``wide`` is shown where the terminal has room for it, and with
    ``--wide``. Numbers stand on the right, text on the ``left``. In a table the form ``significant`` gives a measured
    and a ``predicted_`` number of the same name, in all rows, the same decimals (``railyard.digits.alike``).
    """

    name: str
    value: str | Callable[[Row], Any]
    form: str | Callable[[Any], str] = ""
    left: bool = False
    wide: bool = False

    def of(self, row: Row) -> Any:
        return row.get(self.value) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Row) -> Cell:
        value = self.of(row)
        if isinstance(value, Text):
            return value
        if isinstance(value, bool):
            return yes_or_no(value)
        if value is None:
            return "-"
        return self.form(value) if callable(self.form) else format(value, self.form)


def _quantity(column: Column) -> Any:
    """The field that a column shows, whether measured or predicted; a column with a function is its own."""
    if not isinstance(column.value, str):
        return column
    return column.value.removeprefix("predicted_").removeprefix("measured_")


@dataclass(frozen=True)
class Table:
    """A table of the report: ``title`` above it, one line for each of ``rows``."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def __post_init__(self) -> None:
        together = defaultdict[Any, list[Column]](list)
        for column in self.columns:
            if column.form is significant:
                together[_quantity(column)].append(column)
        forms = {
            column: alike(one.of(row) for one in columns for row in self.rows)
            for columns in together.values()
            for column in columns
        }
        made = [replace(column, form=forms.get(column, column.form)) for column in self.columns]
        object.__setattr__(self, "columns", made)

    def shown(self, width: int) -> dict[Column, int]:
        """The columns that are shown in ``width``, and how wide each is.

        Empty ones are left out always, and ``wide`` ones from the last on until the others fit. If they do not, the
        widest text goes on in the next line, after a whole word where that is enough, and then numbers with an
        interval do: nothing is cut.
        """
        texts = {
            column: "\n".join([column.name, *(str(column.cell(row)) for row in self.rows)]).split("\n")
            for column in self.columns
            if any(str(column.cell(row)) not in ("-", "") for row in self.rows)
        }
        widths = {column: min(width, max(map(len, lines))) for column, lines in texts.items()}

        def too_wide() -> bool:
            return sum(widths.values()) + GAP * (len(widths) - 1) > width

        for column in [each for each in reversed(widths) if each.wide]:
            if too_wide():
                del widths[column]
        words = {
            column: max((len(word) for line in texts[column] for word in line.split()), default=1) for column in widths
        }
        text = [column for column in widths if column.left]
        narrow = dict.fromkeys(text, _LEAST_TEXT)
        for columns, least in ((text, words), (text, narrow), (widths, words), (widths, {})):
            while too_wide() and (loose := [column for column in columns if widths[column] > least.get(column, 1)]):
                widths[max(loose, key=lambda column: widths[column])] -= 1
        return widths


@dataclass(frozen=True)
class Drawn:
    """A figure of a results folder: ``rows`` are those that it shows, whose verdicts decide about its stamp."""

    name: str
    figure: Figure | None
    rows: Sequence[Row]
    note: str = ""


@dataclass(frozen=True)
class Recorded:
    """The content of a results folder, for its figures."""

    manifest: Mapping[str, Any]
    rows: Sequence[Row]
    events: Sequence[Event]
    partial: str | None = None
    """The sentence about a run that did not end (``measure.results.partial``)."""

    @property
    def notes(self) -> list[str]:
        """Sentences about what was left out, what is missing in the folder, and acts on its run."""
        omitted, load = self.manifest.get("omitted"), self.manifest.get("gave_up")
        gave_up = "After the first point none was measured again, as one load disturbed every attempt at it"
        notes = [
            *map(str, omitted if isinstance(omitted, list) else ()),
            cut_lines(self.events),
            load and f"{gave_up}: {load}.",
        ]
        notes += self.acted_on, self.partial
        return [note if note.isprintable() else ascii(note) for note in notes if note]

    @property
    def acted_on(self) -> str | None:
        return acted_on(self.manifest)

    @property
    def predicted(self) -> bool:
        """Whether the rows are those of the model alone (``railyard predict --out``)."""
        return bool(self.manifest.get("predicted"))

    @cached_property
    def scale(self) -> Any:
        return scale_of(self.manifest)


@dataclass(frozen=True)
class Report:
    """The report of one kind of experiment.

    ``tables`` makes the tables from all rows, measured or predicted; ``findings`` sentences from measured rows and the
    experiment's settings as in the manifest; ``point`` names the point of a row in the verdict; ``figures`` draws.
    ``text`` gives lines for other programs, which follow the tables where all columns are asked for. ``calibrated``
    gives the keys of the calibrations to numbers from elsewhere (``measure.published``) that hold for these rows and
    settings; None if nobody said.
    """

    tables: Callable[[Sequence[Row]], Iterable[Table]]
    point: Callable[[Row], str] = lambda row: ""
    findings: Callable[[Sequence[Row], Mapping[str, Any]], Iterable[Cell]] = lambda rows, settings: ()
    figures: Callable[[Recorded], Iterable[Drawn]] = field(default=lambda recorded: ())
    text: Callable[[Sequence[Row], Mapping[str, Any]], Iterable[str]] | None = None
    calibrated: Callable[[Sequence[Row], Mapping[str, Any]], Iterable[str]] | None = None


def to_nothing(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterable[str]:
    """The calibrations of an experiment of which no parameter is set to a number from elsewhere."""
    return ()


# ---- on the terminal -----------------------------------------------------------------------------------------------


def console_for_tables(*, wide: bool = False) -> Console:
    """A console of the terminal's width; of 80 columns if the output is no terminal, wider for all columns."""
    console = Console()
    if console.is_terminal and not wide:
        return console
    return Console(width=ALL_COLUMNS_WIDTH if wide else WIDTH, no_color=None if console.is_terminal else True)


def show(
    report: Report,
    rows: Sequence[Row],
    settings: Mapping[str, Any],
    *,
    packets: bool = True,
    wide: bool = False,
    console: Console | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Print the tables of ``rows``, the findings, what was calibrated and scaled, the verdict and ``notes``.

    Of predictions only the tables are printed, and what was calibrated and scaled.
    """
    console = console or console_for_tables(wide=wide)
    missing = [Text(note, "bold red") for note in notes]
    if not rows:
        said = verdict_lines(rows, report.point) if packets else [Text("No row was computed.")]
        console.print(*said, *missing, sep="\n")
        return
    predicted = packets and all(row.get("faithful") is None for row in rows)
    tables = list(report.tables(rows))
    for table in tables:
        title = f"{table.title} ({MODEL_ONLY})" if predicted else table.title
        console.print(Text(title, style="bold"))
        console.print(as_rich(table, console.width))
        if not packets:
            console.print()
    for line in left_out_lines(tables, console.width):
        console.print(line, highlight=False)
    if report.text is not None and not predicted and wide:
        for line in report.text(rows, settings):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    inputs = [*calibration_lines(report, rows, settings), *scale_lines(rows)]
    if predicted:
        rows = [row for row in rows if row.get("computed")]
    measured = judged(rows)
    verdict = [*repeat_lines(measured), *verdict_lines(measured, report.point)] if packets and measured else ()
    for finding in (*(report.findings(rows, settings) if rows else ()), *inputs, *verdict, *missing):
        console.print(finding, highlight=False, markup=False)


def calibration_lines(report: Report, rows: Sequence[Row], settings: Mapping[str, Any]) -> list[str]:
    """A line for each parameter that was calibrated to numbers from elsewhere."""
    if report.calibrated is None:
        return ["Calibrated to: not said by this experiment."]
    found = calibrations(report.calibrated(rows, settings))
    return [f"Calibrated: {each}." for each in found] or ["Calibrated to numbers from elsewhere: nothing."]


def scale_lines(rows: Sequence[Row]) -> list[str]:
    """By what rates and times were scaled; nothing for rows without packets."""
    sent = [row for row in judged(rows) if "rate_scale" in row]
    scales = dict.fromkeys(Scale(row["rate_scale"], row["time_scale"]) for row in sent)
    words = [scale_in_words(each) if each != Scale(1.0, 1.0) else "nothing" for each in scales]
    return [f"Scaled by: {each}; all numbers are those of the real system." for each in words]


def as_rich(table: Table, width: int = WIDTH) -> RichTable:
    """The table for ``rich``, without frames: what is shown of it in ``width``, of which no cell is cut."""
    made = RichTable(header_style="bold", pad_edge=False, box=None, padding=(0, GAP, 0, 0))
    columns = table.shown(width)
    for column, columns_wide in columns.items():
        justify: Literal["left", "right"] = "left" if column.left else "right"
        made.add_column(Text(column.name), justify=justify, width=columns_wide, overflow="fold")
    for row in table.rows:
        made.add_row(*(column.cell(row) for column in columns))
    return made


def left_out_lines(tables: Iterable[Table], width: int) -> Iterator[str]:
    """A sentence about columns for which ``width`` has no room; nothing if all are shown."""
    count = len({c.name for table in tables for c in {*table.shown(ALL_COLUMNS_WIDTH)} - {*table.shown(width)}})
    if count:
        has, them = ("s have", "them") if count > 1 else (" has", "it")
        yield f"{count} column{has} no room here; --wide shows {them}."


def yes_or_no(value: bool | None) -> Cell:
    """A truth value as a cell: green yes, red NO."""
    return "-" if value is None else Text("yes", "green") if value else Text("NO", "bold red")


def off_percent(measured: float | None, model: float | None) -> float | None:
    """How far ``measured`` is from ``model``, in percent."""
    return None if measured is None or not model else (measured / model - 1) * 100


def spread_percent(found: Estimate | None) -> str | None:
    """Half of the 95 % interval of an estimate as a percentage of its median, in three characters or less; or None."""
    if found is None or found.half_width is None or not found.median:
        return None
    percent = abs(found.half_width / found.median) * 100
    return f"{percent:.1f}" if percent < 9.95 else f"{percent:.0f}"


def spread(key: str, *, wide: bool = False) -> Column:
    """The column beside field ``key`` with half of its 95 % interval; it is left out where nothing was repeated."""
    return Column("±\n%", lambda row: spread_percent(estimate_of(row, key)), wide=wide)


def in_words(found: Estimate, form: str = ".3g") -> str:
    """An estimate in a sentence: ``6.02 ± 0.05``, where half of the 95 % interval stands behind the median."""
    half = "" if found.half_width is None else f" ± {found.half_width:.2g}"
    return f"{found.median:{form}}{half}"


def repeat_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Sentences on the repeats of which numbers are medians, and on those that were measured again; none for one."""
    repeats = sorted({row.get("repeats", 1) for row in rows})
    if repeats and repeats[-1] > 1:
        count = " to ".join(str(n) for n in dict.fromkeys((repeats[0], repeats[-1])))
        yield f"Medians of {count} repeats; ±: half of the 95 % interval. Differences are taken within a repeat."
    again = [row for row in rows if row.get("attempts", 1) > measured_in(row)]
    if again:
        count = str(sum(row["attempts"] - measured_in(row) for row in again))
        yield (
            f"Measured again, as something disturbed them: {count} measurements of {len(again)} of {len(rows)} points "
            "(attempts in manifest.json)."
        )


FAITHFUL = Column("faithful", "faithful", left=True)
"""The column of the verdict."""


def exit_status(rows: Iterable[Row]) -> int:
    """0 if every point is faithful, else ``NOT_FAITHFUL_EXIT_STATUS``; a run without rows is not faithful.

    Rows that were computed without packets have no verdict.
    """
    rows = list(rows)
    if rows and all(row.get("computed") for row in rows):
        return 0
    rows = judged(rows)
    return 0 if rows and all(row["faithful"] for row in rows) else NOT_FAITHFUL_EXIT_STATUS


def judged(rows: Iterable[Row]) -> list[Row]:
    """The rows that have a verdict: those that were measured on packets."""
    return [row for row in rows if not row.get("computed")]


def verdict_lines(rows: Sequence[Row], place: Callable[[Row], str]) -> list[Text]:
    """Lines of the verdict: what was kept and what was not judged, or one line for each failed check, causes first.

    ``place`` names the point of a row; a failed check is named with its first point, and of repeats with the worst one.
    """
    if not rows:
        return [Text(f"{NOT_FAITHFUL}: no point was measured.", "bold red")]
    if all(row["faithful"] for row in rows):
        shares = [c["value"] for r in rows for c in r["checks"] if c["name"] == "link rate" and c["value"] is not None]
        reached = f"; links reached {min(shares):.1%} of line rate or more" if shares else ""
        open_ones = _not_judged(rows)
        applies = " that applies" if open_ones else ""
        return [Text(f"Faithful: every point keeps every limit{applies}{reached}.", "green"), *open_ones]
    failed: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        for name, check in _by_name(row, lambda check: not check["ok"]).items():
            repeat = f", repeat {check['repeat']}" if check.get("repeat") else ""
            failed.setdefault(name, []).append((f"{place(row)}{repeat}", check["says"]))
    count = sum(not row["faithful"] for row in rows)
    lines = [Text(f"{NOT_FAITHFUL}: {count} of {len(rows)} points; do not trust their numbers.", "bold red")]
    for name in sorted(failed, key=lambda name: name not in (STEAL, OTHERS)):
        (where, says), more = failed[name][0], len(failed[name]) - 1
        others = f" (and {more} more point{'s' if more > 1 else ''})" if more else ""
        lines.append(Text(f"  {where}: {says}{others}", "red"))
    lines += [Text(ADVICE)] if {STEAL, OTHERS} & failed.keys() else []
    return lines


def _by_name(row: Row, wanted: Callable[[Mapping[str, Any]], bool]) -> dict[str, Mapping[str, Any]]:
    """The first check of each name among those of a row that are ``wanted``."""
    found: dict[str, Mapping[str, Any]] = {}
    for check in filter(wanted, row["checks"]):
        found.setdefault(check["name"], check)
    return found


def _not_judged(rows: Sequence[Row]) -> list[Text]:
    """A line for each check that says nothing of some points: of how many, and why not of the first of them."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, check in _by_name(row, lambda check: not check.get("judged", True)).items():
            found.setdefault(name, []).append(check["says"].removeprefix(f"{name}: "))
    return [Text(f"Not judged: {name} in {len(why)} of {len(rows)} points ({why[0]}).") for name, why in found.items()]
