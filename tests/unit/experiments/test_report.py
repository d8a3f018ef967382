"""Tables fit a terminal of 80 columns, rows are written by type, and the page of results is that of the types."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from checkout import ROOT
from rich.console import Console

from experiments.registry import ENTRIES, find
from experiments.report import FAITHFUL, Column, Report, Table, as_rich, exit_status, show, verdict_lines
from experiments.schema import markdown
from measure.results.row import MeasuredRow, columns, described


@dataclass(kw_only=True)
class Row(MeasuredRow):
    """A row of a test."""

    mode: Annotated[str, "mode"] = "on-demand"
    step_s: Annotated[float | None, "step time"] = None
    parts: Annotated[dict[str, float], "parts"] = None  # type: ignore[assignment]


TABLE = (
    Column("mode", "mode", left=True),
    Column("step\ns", "step_s", ".3f"),
    Column("none", "never"),
    Column("much", lambda row: "x" * 70, wide=True),
    FAITHFUL,
)
REPORT = Report(
    tables=lambda rows: [Table("a title", TABLE, rows)],
    point=lambda row: row["mode"],
    findings=lambda rows, settings: [f"{len(rows)} rows of seed {settings['seed']}"],
)


def printed(rows: list[Row], width: int = 80, **more: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True)
    show(REPORT, [row.to_json() for row in rows], {"seed": 3}, console=console, **more)
    return out.getvalue()


def test_wide_and_empty_columns_are_left_out_where_there_is_no_room() -> None:
    row = Row(step_s=1.5, faithful=True, checks=[])
    text = printed([row])
    assert "xxx" not in text
    assert "none" not in text
    assert text.splitlines()[-2:] == ["1 rows of seed 3", "Faithful: every point keeps every limit."]
    assert "x" * 70 in printed([row], width=200)


def test_a_prediction_is_marked_and_has_no_verdict() -> None:
    text = printed([Row(step_s=1.5)])
    assert text.startswith("a title (MODEL ONLY, nothing was measured)")
    assert "aithful" not in text
    assert "rows of seed" not in text


def test_a_failed_check_is_named_once_with_its_first_point() -> None:
    bad = {"name": "timers", "value": 1.0, "limit": 0.5, "unit": "s", "ok": False, "says": "timers were late"}
    rows: list[dict[str, Any]] = [{"mode": m, "faithful": False, "checks": [bad, bad]} for m in ("a", "b")]
    lines = [str(line) for line in verdict_lines(rows, lambda row: row["mode"])]
    assert lines == [
        "NOT FAITHFUL: 2 of 2 points; do not trust their numbers.",
        "  a: timers were late (and 1 more point)",
    ]
    assert exit_status(rows) == exit_status([]) == 8


def test_csv_has_what_is_one_value() -> None:
    assert {"mode", "step_s", "seed", "faithful"} <= set(columns(Row))
    assert not {"parts", "checks"} & set(columns(Row))


KINDS = [(entry.name, kind) for entry in ENTRIES for kind in find(entry.name).rows]


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=[f"{name}-{kind.__name__}" for name, kind in KINDS])
def test_every_field_is_described(name: str, kind: Any) -> None:
    for each in described(kind):
        assert each.text, f"{kind.__name__}.{each.name} has no description"
        assert (
            each.text[0].islower()
            or not each.text[0].isalpha()
            or each.text.split()[0].isupper()
            or (each.text.split()[0] in ("Opus", "TCP", "MTU"))
        ), each.text


def test_the_page_of_results_is_that_of_the_types() -> None:
    assert (ROOT / "docs" / "results.md").read_text() == markdown(), "run: python -m experiments.schema"


def test_a_table_keeps_its_columns_without_room_to_spare() -> None:
    rows = [{"mode": "x" * 30, "step_s": 1.0, "faithful": True}]
    out = io.StringIO()
    Console(file=out, width=80, no_color=True).print(as_rich(Table("", TABLE, rows)))
    assert "…" not in out.getvalue()
