"""The page ``docs/results.md``: every field of the rows of every experiment, made from their types.

``python -m experiments.schema`` prints it; a test compares it with the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.registry import ENTRIES, find
from measure.results.row import MeasuredRow, ResultRow, described

_HEAD = """# Results

A run writes a results folder: `manifest.json` (experiment, scale, versions, plans), `points` (everything that
happened, in wall-clock seconds), `summary.json` and `summary.csv` (one row for each measured point), `trace.json` (for
Perfetto), `figures/` and `report.html` (all of it in one page for a browser); [run.md](run.md) says more about it. This
page lists the fields of a row, by experiment. It is made from the types of the rows by
`python -m experiments.schema > docs/results.md`.

A row combines the repeats of a point: its numbers are medians of the repeats that nothing disturbed (else of all), and
`samples` has the value in each repeat, in the same order in all rows, so that differences can be taken within a repeat.
Everything else is that of the repeat with the lower median. The row is faithful if every repeat is. All measurements
are in `points`, and listed under `attempts` of `manifest.json` with their points and verdicts. Columns `.._low`
and `.._high` are the ends of the 95 % interval, empty for a single value. Where other processes took the processors,
the failed check names the largest of them (`largest`: pairs of a command's name and the processors that it kept busy).

Times are seconds of the real system, except in fields named `..wall..`; the unit is at the end of a name. A field is
empty where it was not measured or does not apply. Text, numbers and truth values are columns of `summary.csv`; lists,
tables and records are in `summary.json` alone."""


def markdown() -> str:
    lines = [_HEAD, "", "## Fields of every experiment with packets", *_table(MeasuredRow, frozenset())]
    shared = {each.name for each in described(MeasuredRow)}
    for entry in ENTRIES:
        for kind in find(entry.name).rows:
            about = (kind.__doc__ or "").split("\n\n")[0].replace("\n    ", " ").replace("``", "`").strip()
            lines += ["", f"## {entry.name}: {kind.__name__}", "", about, *_table(kind, shared)]
    return "\n".join(lines) + "\n"


def _table(kind: type[ResultRow], without: frozenset[str] | set[str]) -> Iterator[str]:
    yield from ("", "| field | type | CSV | meaning |", "|---|---|---|---|")
    for each in described(kind):
        if each.name not in without:
            yield f"| `{each.name}` | {each.type} | {'yes' if each.column else ''} | {each.text} |"
    for name in getattr(kind, "main", ()):
        yield f"| `{name}_low`, `{name}_high` | number or empty | only | 95 % interval of `{name}` |"


if __name__ == "__main__":
    print(markdown(), end="")
