"""Report of the faults experiment: a table of the faults that did not go well, and counts of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.faults.soak_row import Growth, growths
from experiments.report import Column, Report, Table, to_nothing
from measure.results.row import Row

_SENTENCE_WIDTH = 60


def _seen(row: Row) -> str:
    """How a run ended: its status, or that it hung or was not tried."""
    if row["ok"] is None:
        return "not made"
    return "hung" if row["status"] is None else str(row["status"])


_FAULTS = (
    Column("no", "number", "d"),
    Column("fault", "fault", left=True),
    Column("phase", "phase", left=True),
    Column("expected", "expected", left=True),
    Column("seen", _seen),
    Column("left", lambda row: "yes" if row["left_behind"] else "no", left=True),
    Column("clean\ns", "cleaned_s", ".1f"),
    Column("ok", "ok", left=True),
    Column("records\nlost", "records_lost", "d", wide=True),
    Column("verdict", "verdict", left=True, wide=True),
    Column("sentence", lambda row: row["sentence"][:_SENTENCE_WIDTH], left=True, wide=True),
)
_GROWTH = (
    Column("process", lambda row: row["growth"].process, left=True),
    Column("uses", lambda row: row["growth"].what.replace("_", " "), left=True),
    Column("after\nwarm-up", lambda row: row["growth"].first, ".0f"),
    Column("at the\nend", lambda row: row["growth"].last, ".0f"),
    Column("a\npoint", lambda row: row["growth"].per_point, ".3g"),
    Column("change\n%", lambda row: row["growth"].share * 100, "+.1f"),
    Column("flat", lambda row: row["growth"].flat, left=True),
)


def soaked(rows: Sequence[Row]) -> list[Growth]:
    """How the use of the machine grew in a long run; empty for a campaign."""
    return growths([row for row in rows if "descriptors" in row])


def failed(rows: Sequence[Row]) -> bool:
    """Whether a run did not end as documented, or used more and more of the machine."""
    return any(row.get("ok") is False for row in rows) or any(not growth.flat for growth in soaked(rows))


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """The table of the faults in their order, or of the use of the machine."""
    made = _in_order(rows)
    if made:
        yield Table("faults", _FAULTS, made)
    found = soaked(rows)
    if found:
        yield Table(f"use of the machine in {len(rows)} points", _GROWTH, [{"growth": growth} for growth in found])


def findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    """The counts of all faults, and for each that failed what was wrong and the command that repeats it."""
    rows = _in_order(rows)
    made = [row for row in rows if row["ok"] is not None]
    if not made:
        return
    slowest = max((row["cleaned_s"] or 0.0 for row in made), default=0.0)
    yield (
        f"{_counted(len(made), 'fault')}: {sum(row['ok'] for row in made)} ok; "
        f"{_counted(sum(map(_hung, made)), 'hang')}, {_counted(sum(row['traceback'] for row in made), 'traceback')}, "
        f"{sum(bool(row['left_behind']) for row in made)} with leftovers (slowest clean after {slowest:.1f} s), "
        f"{_counted(sum(row['records_lost'] for row in made), 'acknowledged record')} lost, "
        f"{sum(_false(row) for row in made)} falsely faithful."
    )
    missing = [row for row in rows if row["ok"] is None]
    for sentence in dict.fromkeys(row["sentence"] for row in missing):
        count = sum(row["sentence"] == sentence for row in missing)
        yield f"{_counted(count, 'fault')} {sentence}"
    for row in made:
        if not row["ok"]:
            repeat = f"railyard run faults --seed {row['seed']} --only {row['number']}"
            yield f"{row['number']}: {'; '.join(row['wrong'])}. Again: {repeat}"


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """The rows of faults by number: they are kept as their runs ended, some of them at the same time."""
    return sorted((row for row in rows if "fault" in row), key=lambda row: int(row["number"]))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _hung(row: Row) -> bool:
    return "hang" in row["wrong"]


def _false(row: Row) -> bool:
    return any(text.startswith("faithful") for text in row["wrong"])


REPORT = Report(tables=tables, findings=findings, calibrated=to_nothing)
