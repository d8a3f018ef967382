"""The cost of an open page is the paired difference of step times, and its verdicts are those of the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands.bench import NotMeasured, watched
from commands.bench.bed import Bed


def row(step_s: float | None, *, faithful: bool = True, others: float = 0.1) -> dict[str, Any]:
    checks = [{"name": "other processes", "value": others}]
    return {"step_time_s": step_s, "faithful": faithful, "checks": checks}


def test_the_difference_is_taken_within_each_pair() -> None:
    alone = [row(second) for second in (1.0, 2.0, 3.0, 4.0, 5.0)]
    found = {each.name: each for each in watched.rows_of(alone, [row(each["step_time_s"] * 1.004) for each in alone])}
    assert found["watch_step_time"].value == pytest.approx(0.4) and found["watch_step_time"].ok
    slow = {each.name: each for each in watched.rows_of(alone, [row(each["step_time_s"] * 0.99) for each in alone])}
    assert slow["watch_step_time"].value == pytest.approx(-1.0) and not slow["watch_step_time"].ok


def test_a_page_may_not_change_a_verdict() -> None:
    found = watched.rows_of([row(1.0), row(1.0)], [row(1.0, faithful=False, others=0.5), row(1.0, others=0.3)])
    named = {each.name: each for each in found}
    assert (named["watch_faithful_with"].value, named["watch_faithful_with"].ok) == (1, False)
    assert named["watch_other_processes"].value == pytest.approx(0.4)


def test_runs_without_steps_were_not_measured() -> None:
    with pytest.raises(NotMeasured, match="no pair"):
        watched.rows_of([row(None)], [row(1.0)])


def test_without_a_browser_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(NotMeasured, match="apt-get install chromium"):
        watched.watched_runs(Bed("bpf"))


def test_a_page_that_was_never_named_was_not_open(tmp_path: Path) -> None:
    with watched.OpenPage(tmp_path) as page, pytest.raises(NotMeasured, match="showed 'nothing'"):
        page.heard("fabric ocs is up\n")
        page.check()
