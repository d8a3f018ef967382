from __future__ import annotations

import pytest

from measure.calibrate import pick_scale
from railyard.survey import survey

pytestmark = pytest.mark.root


def test_a_quick_survey_finds_a_rate_that_picks_a_scale() -> None:
    said: list[str] = []
    found = survey(quick=True, say=said.append)
    assert found.datapath in ("system", "netdev")
    assert found.aggregate_mbps > 10
    assert 1e-6 < found.alpha_s < 0.05
    assert found.timer_idle.p50_s < 0.05
    assert len(said) >= 4
    assert 0 < pick_scale(32, 400, 0, calibration=found).rate < 1
