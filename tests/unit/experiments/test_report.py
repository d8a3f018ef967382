"""Tables fit a terminal of 80 columns, rows are written by type, and the page of results is that of the types."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from checkout import ROOT
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from experiments.registry import ENTRIES, find
from experiments.report import (
    FAITHFUL,
    Column,
    Report,
    Table,
    as_rich,
    calibration_lines,
    exit_status,
    scale_lines,
    show,
    to_nothing,
    verdict_lines,
)
from experiments.schema import markdown
from experiments.settings import validated
from measure.metrics.checks import Check, Verdict, not_judged
from measure.metrics.load import ADVICE
from measure.results.row import MeasuredRow, columns, described
from railyard.digits import significant


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
    assert text.splitlines()[-4:] == [
        "1 rows of seed 3",
        "Calibrated to: not said by this experiment.",
        "Scaled by: nothing; all numbers are those of the real system.",
        "Faithful: every point keeps every limit.",
    ]
    assert "1 column has no room here; --wide shows it." in text.splitlines()
    assert "x" * 70 in (wide := printed([row], width=200)) and "no room" not in wide


def test_a_prediction_is_marked_and_has_no_verdict() -> None:
    text = printed([Row(step_s=1.5)])
    assert text.startswith("a title (MODEL ONLY, nothing was measured)")
    assert "aithful" not in text
    assert "rows of seed" not in text


def test_a_summary_says_what_was_calibrated_to_what_and_by_what_it_was_scaled() -> None:
    fitted = replace(REPORT, calibrated=lambda rows, settings: ["llama-forward"])
    (line,) = calibration_lines(fitted, [], {})
    assert line.startswith("Calibrated: arithmetic of a layer and microbatch of llama3-8b-16 = 45.4987 ms to step")
    assert "10.178 s (Opus: authors' files, measured)" in line
    assert calibration_lines(replace(REPORT, calibrated=to_nothing), [], {}) == [
        "Calibrated to numbers from elsewhere: nothing."
    ]
    scaled = [Row(rate_scale=1 / 800).to_json(), Row(rate_scale=1 / 800).to_json(), Row(computed=True).to_json()]
    assert scale_lines(scaled) == ["Scaled by: link rate 1/800, time x1; all numbers are those of the real system."]
    assert "Calibrated" in printed([Row(step_s=1.5)]), "a prediction rests on the same parameters"


@pytest.mark.parametrize(
    ("name", "rows", "changes", "keys"),
    [
        ("rails", [{"workload": "llama3-8b-16"}, {"workload": "llama3-8b-16"}], {}, ["llama-forward"]),
        ("rails", [{"workload": "smoke"}], {}, []),
        ("failover", [{"fabric": "photonic"}, {"fabric": "migrate"}], {}, ["rack-compute"]),
        ("failover", [], {"stages": "morphlux", "fabrics": "photonic"}, ["rack-compute", "rack-stages"]),
        ("failover", [], {"job": {"compute_s": 1.5}, "fabrics": "e1"}, []),
        ("server-fabric", [{"measure": "epoch"}, {"tenant": "A"}], {}, ["epoch-compute", "rack-stages"]),
        ("server-fabric", [{"measure": "iperf3"}], {}, []),
        ("propius", [{"layer": "packets"}], {}, ["propius-population"]),
        (
            "propius",
            [{"layer": "virtual"}],
            {},
            [f"propius-{key}" for key in ("population", "speed-by-rank", "speed-share", "online", "online-plentiful")],
        ),
        ("bench", [{"name": "llama_on_demand_slope"}], {}, ["llama-forward"]),
    ],
)
def test_the_calibrations_are_those_of_the_settings(
    name: str, rows: list[dict[str, Any]], changes: dict[str, Any], keys: list[str]
) -> None:
    settings = validated(find(name).Settings, changes).model_dump(mode="json")
    calibrated = find(name).report().calibrated
    assert calibrated is not None and list(calibrated(rows, settings)) == keys


def test_a_failed_check_is_named_once_with_its_first_point() -> None:
    bad = {"name": "timers", "value": 1.0, "limit": 0.5, "unit": "s", "ok": False, "says": "timers were late"}
    rows: list[dict[str, Any]] = [{"mode": m, "faithful": False, "checks": [bad, bad]} for m in ("a", "b")]
    lines = [str(line) for line in verdict_lines(rows, lambda row: row["mode"])]
    assert lines == [
        "NOT FAITHFUL: 2 of 2 points; do not trust their numbers.",
        "  a: timers were late (and 1 more point)",
    ]
    assert exit_status(rows) == exit_status([]) == 8


def test_what_others_took_comes_before_what_failed_with_it() -> None:
    late = Check("timer lag", 0.02, 0.002, "s", False, "timers were late")
    took = Check("other processes", 1.0, 0.2, "", False, "other processes kept 1.00 of 2 processors busy")
    rows = [_judged("a", late), _judged("b", took, late)]
    assert [str(line) for line in verdict_lines(rows, lambda row: row["mode"])][1:] == [
        "  b: other processes kept 1.00 of 2 processors busy",
        "  a: timers were late (and 1 more point)",
        ADVICE,
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/scale.md"])
def test_documents_advise_beside_others_what_a_run_advises(page: str) -> None:
    assert ADVICE.lower() in " ".join((ROOT / page).read_text().replace("`", "").lower().split())


def test_a_verdict_names_what_it_did_not_judge_and_calls_it_not_kept() -> None:
    rate = Check("link rate", 0.98, 0.9, "", True, "98 %")
    latency = not_judged("link rate", 0.9, "", "a round took 0.9 ms more than its few bytes, which is latency")
    rows = [_judged("a", rate), _judged("b", latency), _judged("c", latency)]
    said = [str(line) for line in verdict_lines(rows, lambda row: row["mode"])]
    assert said == [
        "Faithful: every point keeps every limit that applies; links reached 98.0% of line rate or more.",
        "Not judged: link rate in 2 of 3 points (a round took 0.9 ms more than its few bytes, which is latency).",
    ]
    assert "line rate" not in str(verdict_lines(rows[1:], lambda row: row["mode"])[0])


def _judged(mode: str, *checks: Check) -> dict[str, Any]:
    row = Row(mode=mode)
    row.judge(Verdict(all(check.ok for check in checks), checks))
    return row.to_json()


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


NAME = "opus-slope-250-1000"
NARROW = (
    Column("claim", "claim", left=True),
    Column("here", "here", left=True),
    Column("interval", lambda row: "5.9 to 6.1", left=True, wide=True),
    Column("compared with", "source", left=True),
    Column("verdict", "verdict", left=True),
)
CLAIM = {
    "claim": NAME,
    "here": "6 s/s, predicted",
    "source": "1.22 to 1.25 (paper, measured)",
    "verdict": "does not hold",
}


def lines_of(table: Table, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(as_rich(table, width))
    return out.getvalue().splitlines()


def test_a_table_without_room_wraps_its_longest_text_and_keeps_names_and_verdicts_whole() -> None:
    lines = lines_of(Table("", NARROW, [CLAIM]), 80)
    assert max(map(len, lines)) <= 80
    assert len(lines) == 3 and lines[1].startswith(f"{NAME}  6 s/s, predicted  1.22 to 1.25 (paper,")
    assert lines[1].endswith("does not hold") and lines[2].strip() == "measured)"


@given(
    st.lists(st.lists(st.text("ab 1", min_size=1, max_size=40), min_size=4, max_size=4), min_size=1, max_size=4),
    st.integers(20, 120),
)
@example([["1", "a", "1", "1" * 12]], 20)  # even the words have no room
def test_no_cell_of_a_table_is_ever_cut(rows: list[list[str]], width: int) -> None:
    table = Table("", NARROW, [dict(zip(CLAIM, row, strict=True)) for row in rows])
    lines = lines_of(table, width)
    text = "\n".join(lines)
    assert "…" not in text and max(map(len, lines)) <= width
    for letter in "ab":
        body = sum(cell.count(letter) for row in rows for cell in row)
        assert text.count(letter) - sum("".join(c.name for c in table.shown(width)).count(letter) for _ in "x") == body


def test_measured_and_predicted_numbers_of_all_rows_have_the_same_decimals() -> None:
    columns = (Column("step", "step_s", significant), Column("model", "predicted_step_s", significant))
    rows: list[dict[str, Any]] = [
        {"step_s": 0.001, "predicted_step_s": 0.00060228},
        {"step_s": None, "predicted_step_s": 0.0007},
    ]
    table = Table("", columns, rows)
    cells = [[column.cell(row) for column in table.columns] for row in rows]
    assert cells == [["0.0010000", "0.0006023"], ["-", "0.0007000"]]


def test_lines_for_other_programs_follow_the_tables_where_all_columns_are_asked_for() -> None:
    rows = [Row(step_s=1.5, faithful=True, checks=[]).to_json()]
    report = replace(REPORT, text=lambda rows, settings: ["# of nccl-tests"])
    for wide in (False, True):
        out = io.StringIO()
        console = Console(file=out, width=400 if wide else 80, no_color=True)
        show(report, rows, {"seed": 3}, console=console, wide=wide)
        assert ("# of nccl-tests" in out.getvalue()) is wide and "1.5" in out.getvalue()
