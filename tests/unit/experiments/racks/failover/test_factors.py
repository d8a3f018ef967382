"""The two factors of the step on an electrical rack after a failure: steering and splice."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.racks.failover.report import REPORT, factor_findings, factor_tables, factors
from experiments.racks.row import NEIGHBOUR, FailoverRow
from measure.results.row import Row

STEPS = {"photonic": (2.0, 2.0), "fixed": (3.4, 3.4), "e1": (3.4, 4.0)}


def row(fabric: str, event: str = "kill 1", **changed: Any) -> Row:
    before, after = STEPS[fabric]
    values: dict[str, Any] = {"step_time_before_s": before, "step_time_after_s": after, **changed}
    predicted: dict[str, Any] = {"predicted_step_time_before_s": before, "predicted_step_time_after_s": after}
    return FailoverRow(fabric=fabric, tenant="A", event=event, **predicted, **values).to_json()


ROWS = [row(fabric) for fabric in STEPS]


def test_the_factors_multiply() -> None:
    steering, splice, both = factors([row("photonic", NEIGHBOUR, step_time_after_s=9.0), *ROWS])
    assert [line["racks"] for line in (steering, splice, both)] == ["fixed / photonic", "e1 / fixed", "e1 / photonic"]
    assert [line["before"] for line in (steering, splice, both)] == pytest.approx([1.7, 1.0, 1.7])
    assert steering["after"] * splice["after"] == pytest.approx(both["after"]) == 2.0
    assert splice["after_model"] == pytest.approx(4.0 / 3.4)


def test_the_finding_says_both_and_whose_the_published_ones_are() -> None:
    ours, theirs = factor_findings(ROWS)
    assert "takes 2.00 times" in ours and "1.70 as the ports" in ours and "1.18 as the spare" in ours
    assert "1.57 to 1.72 for steering alone" in theirs and theirs.count("(paper, measured)") == 2


def test_repeats_are_paired_and_give_an_interval() -> None:
    repeated = [
        row(fabric, samples={"step_time_after_s": [after, 2 * after, after]}) for fabric, (_, after) in STEPS.items()
    ]
    ours, _ = factor_findings(repeated)  # a machine that was slow in one repeat was slow for all racks
    assert "2.00 [2.00, 2.00] times" in ours


def test_without_fixed_ports_or_a_measurement_nothing_is_claimed() -> None:
    assert not list(factor_tables([row("photonic"), row("e1")]))
    assert not list(factor_findings(ROWS[:2]))
    unmeasured = [row(fabric, "predicted", step_time_before_s=None, step_time_after_s=None) for fabric in STEPS]
    assert not list(factor_findings(unmeasured))
    (table,) = factor_tables(unmeasured)
    assert [line["after_model"] for line in table.rows] == pytest.approx([1.7, 4.0 / 3.4, 2.0])
    assert len(list(factor_findings([ROWS[0], ROWS[1], row("e1", step_time_after_s=None)]))) == 0


def test_the_time_of_the_preset_is_said_to_be_morphluxs() -> None:
    assert not any("reprogrammed" in str(said) for said in REPORT.findings(ROWS, {"reconfiguration_delay_ms": 10.0}))
    *_, said = REPORT.findings(ROWS, {"reconfiguration_delay_ms": 1100.0})
    assert "1.1 s is the time in which MORPHLUX's mesh is reprogrammed (paper, measured)" in str(said)
