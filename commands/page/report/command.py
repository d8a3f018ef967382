"""``railyard report``: a run in one file, or two runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from commands.page.report.comparison import COLUMNS, LETTERS, Side, check_comparable, comparison
from commands.page.report.file import write_report
from experiments.parser import Parser, folder
from experiments.progress import wrapped
from experiments.registry import find
from experiments.report import WIDTH, Table, as_rich, console_for_tables, exit_status, left_out_lines
from measure.results.foreign import reading
from railyard.errors import PARTIAL_EXIT_STATUS, ConfigError

_MOST = 2


def main(arguments: Sequence[str]) -> int:
    """Write the report; returns 0, or the exit status of a partial or an unfaithful run."""
    parser = Parser(
        prog="railyard report",
        description="Write one HTML file with tables, figures, verdict, claims and time lines of a\n"
        "run. It needs no network and no server: open it with a double click. Two\n"
        "FOLDERs of one experiment are compared: what differs between the runs, and\n"
        "every number of both with the difference and its 95 % interval.",
    )
    parser.add_argument("results", type=folder, nargs="+", metavar="FOLDER", help="results folder of a run (its --out)")
    parser.add_argument(
        "--out", type=folder, metavar="FILE", help="the file (default report.html in FOLDER; of two comparison.html)"
    )
    parser.add_argument("--all", action="store_true", help="with two folders: tables of all numbers, not the main ones")
    parser.add_argument("--wide", action="store_true", help="with two folders: all columns of the tables")
    parser.add_argument("--experiment", metavar="FILE.py:Class", help="the experiment, if its code is yours")
    options = parser.read(arguments)
    folders: list[Path] = options.results
    if len(folders) > _MOST:
        raise ConfigError(f"compares two folders at most, not {len(folders)}", key="report")
    kind = find(options.experiment) if options.experiment else None
    if len(folders) == _MOST:
        check_comparable(folders, kind)
    sides = [Side.read(each, kind) for each in folders]
    compared = None
    if len(sides) == _MOST:
        with reading(folders[1]):
            compared = comparison(*sides)
        _print(compared, everything=options.all, wide=options.wide)
    elif options.all or options.wide:
        raise ConfigError("is about two folders; name another one", key="--all" if options.all else "--wide")
    print(write_report(folders, options.out, kind, compared))
    if any(side.recorded.partial for side in sides):
        return PARTIAL_EXIT_STATUS
    return max(
        exit_status(side.recorded.rows) if side.kind.packets and not side.recorded.predicted else 0 for side in sides
    )


def _print(compared: Mapping[str, Any], *, everything: bool, wide: bool) -> None:
    """Print the comparison: names, what differs, the tables, and points of one run alone."""
    console = console_for_tables(wide=wide)

    def say(line: str) -> None:
        console.print(wrapped(line, WIDTH if wide else console.width), highlight=False, markup=False, soft_wrap=True)

    for letter, name in zip(LETTERS, compared["names"], strict=True):
        say(f"{letter}: {name}")
    for each in compared["differs"]:
        say(f"differs: {each['key']} ({each['group']}): {' | '.join(each['values'])}")
    chosen = [each for each in compared["tables"] if each["main"] or everything]
    tables = [Table(each["title"], COLUMNS, each["rows"]) for each in chosen]
    for table in tables:
        console.print(table.title, style="bold", highlight=False, markup=False)
        console.print(as_rich(table, console.width))
    for line in left_out_lines(tables, console.width):
        say(line)
    for each in compared["unmatched"]:
        say(f"only in {LETTERS[each['run']]}: {each['title']}")
    for note in (*compared["notes"], *compared["remarks"]):
        say(note)
