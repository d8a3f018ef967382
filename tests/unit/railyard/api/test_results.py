"""Verdicts of results, their figures and events, and how a notebook shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railyard.api import results
from railyard.api.results import Results

OTHERS = {"name": "other processes", "ok": False, "says": "other processes took a core"}
STEPS = {"name": "steps", "ok": False, "says": "steps differ"}
GOOD: dict[str, Any] = {"faithful": True, "verdict": "faithful", "checks": [], "computed": False}
BAD: dict[str, Any] = {
    "faithful": False,
    "verdict": "NOT FAITHFUL: x",
    "checks": [{**STEPS, "ok": True}, STEPS, OTHERS],
}
MODEL: dict[str, Any] = {"faithful": None, "verdict": "not measured", "checks": []}


Of = Callable[..., Results]


@pytest.fixture
def of(tmp_path: Path) -> Of:
    """Makes results with these rows."""

    def made(*rows: dict[str, Any]) -> Results:
        (tmp_path / "summary.json").write_text(json.dumps(rows))
        return Results(tmp_path, "plot")

    return made


def test_the_verdict_is_never_faithful_where_nothing_was_measured(of: Of) -> None:
    assert (of(GOOD, GOOD).faithful, of(GOOD, GOOD).verdict) == (True, "faithful")
    assert (of(MODEL).faithful, of(MODEL).verdict) == (None, "predicted only")
    assert (of().faithful, of().verdict) == (None, "predicted only")
    assert of({**MODEL, "computed": True}).verdict == "computed without packets"
    assert of({"pairs": 3}).faithful is None


def test_the_first_reason_is_the_disturbance(of: Of) -> None:
    assert of(GOOD, BAD).faithful is False
    assert of(GOOD, BAD).verdict == "NOT FAITHFUL (1 of 2 points): other processes took a core"
    assert of({**BAD, "checks": []}).verdict == "NOT FAITHFUL"


def test_a_notebook_shows_tables_and_the_verdict_escaped(of: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "railyard", lambda *words, fine: "<table>of the command</table>")
    evil = "<script>alert(1)</script>"
    shown = of({**BAD, "checks": [{**STEPS, "says": evil}]})._repr_html_()
    assert shown.startswith("<table>of the command</table>") and "NOT FAITHFUL" in shown
    assert "<script" not in shown and shown.count("&lt;script&gt;") == 1
    assert "<script" in repr(of(BAD | {"checks": [{**STEPS, "says": evil}]})), "which no browser reads"


def test_a_figure_that_is_there_is_not_drawn_again(of: Of, tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "one.png").write_bytes(b"png")
    assert of().figure("one")._repr_png_() == b"png"
