"""The same ring all-reduce, written by another project as MSCCL XML and as a Chakra trace."""

from __future__ import annotations

import pytest
from checkout import CASES
from reports import forecast

from experiments.rails.job import load_job
from experiments.rails.settings import make_settings
from railyard.scale import Scale
from workloads.inspection import traffic_of

RING = CASES / "astra-sim/custom_ring_allreduce_8npus_1MB"


@pytest.mark.parametrize("mode", ["native", "electrical", "on-demand", "provisioned"])
def test_both_files_send_the_same_and_take_the_same_time(mode: str) -> None:
    times = []
    for name in (RING / "custom_allreduce.xml", RING):
        experiment = make_settings(
            {"workload": str(name), "modes": [mode], "scale": {"rate": 1}, "fabric": {"rate_gbps": 0.05}}
        )
        workload = load_job(experiment)
        sent = traffic_of(workload.program)
        assert sent == {(rank, (rank + 1) % 8): 1_835_008 for rank in range(8)}
        times.append(forecast(experiment, workload, mode, 0.0, Scale(1.0)).step_time_s)  # type: ignore[arg-type]
    assert times[0] == pytest.approx(times[1], rel=0.05)
    assert times[0] == pytest.approx(14 * 131_072 * 8 / 50e6, rel=0.03)
