"""How a run may end after a fault, and what is complained about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.campaign.expectation import Outcome, complaints, cuts, expected, falsely_faithful
from tests.campaign.fault import CONTROL_PLACES, SIGNAL_PLACES, START_PLACES, Fault, Kind, Phase, Place

WHOLE: dict[str, Any] = {"has_results": True, "ended": "complete"}


def fault(what: str, process: str = "", phase: Phase = "step", kind: Kind = "signal") -> Fault:
    return Fault(0, 1, Place(kind, process, what, phase))


def check(name: str, value: float | None, ok: bool) -> dict[str, Any]:
    return {"name": name, "value": value, "ok": ok}


def test_every_fault_has_an_expectation() -> None:
    for place in (*SIGNAL_PLACES, *CONTROL_PLACES, *START_PLACES):
        assert expected(place).statuses
        assert str(expected(place))


@pytest.mark.parametrize(
    ("made", "outcome", "complaint"),
    [
        (fault("KILL", "main"), Outcome(-9, ""), None),
        (fault("KILL", "main"), Outcome(None, ""), "hang"),
        (fault("TERM", "main"), Outcome(130, "railyard: stopped\n"), None),
        (fault("TERM", "main"), Outcome(130, ""), "no sentence"),
        (fault("TERM", "main"), Outcome(1, "railyard: stopped\n"), "status 1, not 130"),
        (fault("STOP", "main"), Outcome(0, "", **WHOLE), None),
        (fault("TERM", "main", "tear-down"), Outcome(130, "railyard: stopped\n", planned=1, rows=[{}], **WHOLE), None),
        (fault("TERM", "main", "tear-down"), Outcome(130, "railyard: stopped\n", planned=2, **WHOLE), "says complete"),
        (fault("TERM", "main"), Outcome(130, "railyard: stopped\n", planned=1, rows=[{}], **WHOLE), "says complete"),
        (fault("STOP", "main"), Outcome(0, ""), "no results"),
        (fault("STOP", "main"), Outcome(0, "", planned=2, rows=[{}], **WHOLE), "complete, 1 of 2 points"),
        (fault("STOP", "main"), Outcome(8, "", has_results=True, ended="stopped: x"), "the manifest says stopped"),
        (fault("KILL", "agent"), Outcome(6, "railyard: rank 3 was killed\n", **WHOLE), "the manifest says complete"),
        (fault("KILL", "agent"), Outcome(6, "railyard: it failed\n"), "does not name rank"),
        (fault("results disk", kind="resource"), Outcome(3, "railyard: /o/x cannot be written: No\n"), None),
        (fault("results disk", kind="resource"), Outcome(5, "railyard: the controller ended\n"), "does not name"),
        (fault("KILL", "main"), Outcome(-9, "", left=["process 7"], cleaned_s=9.0), "left behind for 9.0 s: process 7"),
        (fault("KILL", "main"), Outcome(-9, "", lost=2), "2 acknowledged records lost"),
        (fault("KILL", "main"), Outcome(-9, "Traceback (most recent call last):\n"), "traceback"),
        (fault("KILL", "main"), Outcome(-9, "", unreadable="cut", has_results=True), "results unreadable: cut"),
        (fault("KILL", "main"), Outcome(-9, "", other=["plot ends with 1"]), "plot ends with 1"),
    ],
)  # fmt: skip
def test_a_complaint_says_what_is_wrong(made: Fault, outcome: Outcome, complaint: str | None) -> None:
    found = list(complaints(made, outcome))
    if complaint is None:
        assert found == []
    else:
        assert any(complaint in text for text in found), found


def test_a_point_without_samples_must_not_be_faithful_also_where_the_machine_is_busy() -> None:
    made = fault("KILL", "sampler")
    point = Outcome(8, "", at=5.0, points=[(1.0, 4.0), (4.5, 6.0)], **WHOLE)
    faithful = {"faithful": True, "checks": [check("cores", 0.1, True)]}
    busy = {"faithful": False, "checks": [check("cores", 1.0, False)]}
    missed = {"faithful": False, "checks": [check("cores", None, False)]}
    assert cuts(made.place) and not cuts(fault("KILL", "watcher").place)
    assert not cuts(fault("INT INT", "sampler").place)
    assert falsely_faithful(made, replace(point, rows=[missed, faithful]))
    assert falsely_faithful(made, replace(point, rows=[missed, busy]))
    assert not falsely_faithful(made, replace(point, rows=[faithful, missed]))
    assert not falsely_faithful(made, replace(point, rows=[faithful]))
