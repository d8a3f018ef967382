"""Rows compare measured with predicted; runs count as faithful if every point is; a page costs what pairs show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands.bench import ModelRow, NotMeasured, runs
from commands.bench.bed import Bed
from commands.bench.command import Bench
from commands.bench.runs import LIMIT, LIMIT_64, PARTS, compared, model_parts
from railyard.errors import MachineError


def row(measured: float | None, **more: Any) -> dict[str, Any]:
    times = {"after_arrival_s": measured, "predicted_after_arrival_s": 1.0}
    return {**times, "faithful": True, "algorithm": "ring", "n": 8, **more}


def test_every_part_is_an_experiment_that_passes_its_checks() -> None:
    for name in ("rails-on-demand", "moe-smoke", "collectives-4", "stragglar-circuits", "all-to-all", "failover"):
        made = PARTS[name].made(2, "auto")
        made.check()
        assert made.settings.repeats == 2 and made.settings.datapath == "auto" and made.pieces()


def test_a_row_keeps_its_limit_or_not() -> None:
    part = PARTS["collectives-8"]
    near, far, none = (compared("a", part, row(seconds, repeats=3))[0] for seconds in (0.985, 1.03, None))
    assert (near.ok, far.ok, none.ok) == (True, False, False)
    assert near.value == pytest.approx(-0.015) and near.n == 3 and near.limit == LIMIT and none.value is None
    assert near.name == "a: ring 8 ranks"
    assert compared("a", PARTS["collectives-64"], row(1.03))[0].ok and PARTS["collectives-64"].limit == LIMIT_64


def test_steps_before_and_after_a_failure_are_compared_where_they_are_predicted() -> None:
    given = {"step_time_before_s": 1.0, "predicted_step_time_before_s": 1.0, "step_time_after_s": 2.0}
    part = PARTS["failover"]
    assert [one.ok for one in compared("f", part, {**given, "faithful": True})] == [True]
    both = compared("f", part, {**given, "predicted_step_time_after_s": 1.9, "faithful": True})
    assert [one.name for one in both] == ["f:", "f: after"] and not both[1].ok


def test_rows_over_the_limit_come_first_and_a_part_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_of(made: Any, repeats: int) -> list[dict[str, Any]]:
        if made.name == "rails":
            raise MachineError("no fabric")
        return [row(1.0), row(0.5), row(1.01)]

    monkeypatch.setattr(runs, "rows_of", rows_of)
    found = model_parts(Bed("bpf", parts=("smoke", "collectives-8")))
    assert [one.ok for one in found] == [False, False, True, True]
    assert {one.why_not for one in found if not isinstance(one, ModelRow)} == {"no fabric"}


# ---- quick runs ------------------------------------------------------------------------------------------------------


def point(faithful: bool | None, step_s: float = 1.02) -> dict[str, Any]:
    verdict = "faithful" if faithful else "NOT FAITHFUL: slow"
    times = {"step_time_s": step_s, "predicted_step_time_s": 1.0}
    return {"faithful": faithful, "verdict": verdict, **times, "checks": [{"name": "other processes", "value": 0.2}]}


def rows_of_runs(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of the benchmark where its runs end with such a status, and give such points."""
    left = list(found)

    def run(words: Sequence[str], log: Path, **_: object) -> int:
        assert list(words[:4]) == ["railyard", "run", "rails", "--quick"] and "bpf" in words
        status, points = left.pop(0)
        out = Path(words[list(words).index("--out") + 1])
        out.mkdir()
        (out / "summary.json").write_text(json.dumps(points))
        log.write_text("first\nrailyard: the fast path ended\n")
        return status

    monkeypatch.setattr(runs, "run_command", run)
    return [row.to_json() for row in runs.quick_runs(Bed("bpf", runs=len(found)))]


def test_only_runs_with_faithful_points_alone_count(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = point(True), point(False, 0.9)
    *each, whole = rows_of_runs(monkeypatch, (0, [good, good]), (8, [good, bad]), (3, []), (0, []), (8, [point(None)]))
    assert [row["ok"] for row in each] == [True, False, False, False, False]
    assert (whole["value"], whole["limit"], whole["ok"]) == (1, 5, False)
    assert [row["value"] for row in each] == [2, 1, None, 0, 0]
    assert each[0]["off"] == pytest.approx(0.02) and each[1]["off"] == pytest.approx(0.1)
    assert each[1]["verdict"] == "NOT FAITHFUL: slow" and 0 < each[0]["others"] <= 0.2
    assert each[2]["why_not"] == "run.sh --quick ended with status 3: the fast path ended"


def test_the_report_says_how_many_runs_were_faithful(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**row, "datapath": "bpf"} for row in rows_of_runs(monkeypatch, (0, [point(True)]), (8, [point(False)]))]
    report = Bench.report()
    tables = list(report.tables(rows))
    assert [len(table.rows) for table in tables] == [2, 1]
    assert len(tables[0].shown(80)) == 7
    findings = list(report.findings(rows, {}))
    assert "run.sh --quick (bpf): 1 of 2 faithful" in findings and "run 2 (bpf): NOT FAITHFUL: slow" in findings


def test_a_run_that_does_not_end_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, longest_s: float, **__: object) -> int:
        raise MachineError(f"it did not end within {longest_s:g} s")

    monkeypatch.setattr(runs, "run_command", run)
    (row, whole) = runs.quick_runs(Bed("bpf", runs=1))
    assert (row.value, row.why_not) == (None, "run.sh --quick: it did not end within 1800 s") and not whole.ok


# ---- a page beside a run ---------------------------------------------------------------------------------------------


def paged(step_s: float | None, *, faithful: bool = True, others: float = 0.1) -> dict[str, Any]:
    checks = [{"name": "other processes", "value": others}]
    return {"step_time_s": step_s, "faithful": faithful, "checks": checks}


def test_the_difference_is_taken_within_each_pair() -> None:
    alone = [paged(second) for second in (1.0, 2.0, 3.0, 4.0, 5.0)]
    found = {
        each.name: each for each in runs.rows_of_pairs(alone, [paged(each["step_time_s"] * 1.004) for each in alone])
    }
    assert found["watch_step_time"].value == pytest.approx(0.4) and found["watch_step_time"].ok
    slow = {
        each.name: each for each in runs.rows_of_pairs(alone, [paged(each["step_time_s"] * 0.99) for each in alone])
    }
    assert slow["watch_step_time"].value == pytest.approx(-1.0) and not slow["watch_step_time"].ok


def test_a_page_may_not_change_a_verdict() -> None:
    found = runs.rows_of_pairs(
        [paged(1.0), paged(1.0)], [paged(1.0, faithful=False, others=0.5), paged(1.0, others=0.3)]
    )
    named = {each.name: each for each in found}
    assert (named["watch_faithful_with"].value, named["watch_faithful_with"].ok) == (1, False)
    assert named["watch_other_processes"].value == pytest.approx(0.4)


def test_runs_without_steps_were_not_measured() -> None:
    with pytest.raises(NotMeasured, match="no pair"):
        runs.rows_of_pairs([paged(None)], [paged(1.0)])


def test_without_a_browser_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NotMeasured, match="apt-get install chromium"):
        runs.watched_runs(Bed("bpf"))


def test_a_page_that_was_never_named_was_not_open(tmp_path: Path) -> None:
    with runs.OpenPage(tmp_path) as page, pytest.raises(NotMeasured, match="showed 'nothing'"):
        (tmp_path / runs.LOG).write_text("fabric ocs is up\n")
        page.look()
        page.check()
