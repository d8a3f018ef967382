"""A late rank on rails, in the model: what it adds to a step of each mode."""

from __future__ import annotations

import pytest

from experiments.rails.experiment import Rails
from experiments.rails.settings import make_settings

MODES = ["electrical", "on-demand", "provisioned"]


def added(late: str, delays_ms: list[float], steps: int = 3) -> dict[tuple[str, float], float]:
    """Seconds that a late rank adds to the step of job smoke, by mode and delay."""
    values = {"workload": "smoke", "modes": MODES, "delays_ms": delays_ms, "late": late, "steps": steps}
    experiment = Rails(make_settings(values))
    return {
        (row.mode, row.reconfiguration_delay_ms): row.predicted_late_adds_s or 0.0
        for row in experiment.predict()
        if row.late
    }


def test_a_rank_that_all_wait_for_makes_the_step_as_much_longer() -> None:
    """Rank 3 is of the first stage; while all wait for it the circuits of the next phase change."""
    for (mode, delay_ms), added_s in added("3:0.5", [0, 100]).items():
        if mode != "provisioned":
            assert added_s == pytest.approx(0.5 - delay_ms / 1e3)


def test_a_rank_of_the_last_stage_may_be_late_while_it_waits_for_the_first() -> None:
    """On demand it may be later, by the delay of the circuits of the pipeline; longer lateness is seen whole."""
    slack_s = 5 - added("5:5", [0])["electrical", 0]
    assert slack_s == pytest.approx(0.334, abs=0.01)
    for late_s in (0.2, 0.5):
        by_point = added(f"5:{late_s}", [0, 100])
        for (mode, delay_ms), added_s in by_point.items():
            if mode != "provisioned":
                assert added_s == pytest.approx(max(0.0, late_s - slack_s - delay_ms / 1e3), abs=1e-3)
            else:
                on_demand_s = by_point["on-demand", delay_ms]
                assert on_demand_s - 1e-3 <= added_s <= by_point["electrical", 0] + 1e-3


def test_a_run_of_one_step_has_the_slack_of_its_first_step() -> None:
    """Until the first activations: 0.11 s of compute."""
    assert added("5:1", [0], steps=1)["electrical", 0] == pytest.approx(1 - 0.112, abs=0.005)


def test_other_causes() -> None:
    slow, taken = added("5:slow-link:0.5", [0]), added("5:background:0.5", [0])
    assert taken == pytest.approx(slow), "the model takes other traffic as a port of a lower rate"
    assert slow["electrical", 0] > 0
    assert added("5:slow-compute:1.2", [0])["electrical", 0] > 0
