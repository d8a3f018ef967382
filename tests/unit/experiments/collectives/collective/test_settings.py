"""The cases of a collective experiment, their rows by the model, and what is refused before a packet is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.collectives.collective.experiment import Collectives, CollectiveSettings
from experiments.collectives.trial import Trial, TrialFabric
from experiments.settings import validated
from railyard.errors import ConfigError
from railyard.scale import Scale
from workloads.collectives.catalog import schedule
from workloads.formats.msccl_writer import write_msccl


def experiment(**values: object) -> CollectiveSettings:
    return validated(CollectiveSettings, values)


def foreseen(made: CollectiveSettings) -> list[dict[str, Any]]:
    return [row.to_json() for row in Collectives(made).predict()]


def test_every_algorithm_at_every_size() -> None:
    trials = list(experiment(algorithms=["ring", "tree"], sizes=["4K", "1M"], ranks=4).trials())
    assert [(c.schedule.algorithm, c.bytes) for c in trials] == [
        ("ring", 4096), ("ring", 1 << 20), ("tree", 4096), ("tree", 1 << 20)
    ]  # fmt: skip


def test_a_file_is_a_schedule_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "mine.xml"
    file.write_text(write_msccl(schedule("all_reduce", 4, "ring")))
    (row,) = foreseen(experiment(algorithms=[str(file)], sizes=["1M"]))
    (ring,) = foreseen(experiment(algorithms=["ring"], ranks=4, sizes=["1M"]))
    assert row["predicted_time_s"] == pytest.approx(ring["predicted_time_s"], rel=1e-3)


def test_the_model_is_near_the_bound_and_circuits_cost_their_delay() -> None:
    (packets,) = foreseen(experiment(algorithms=["stragglar"], sizes=["4M"]))
    assert 1.0 < packets["predicted_time_s"] / packets["bound_s"] < 1.02
    ocs = {"kind": "ocs", "reconfiguration_delay_ms": 50}
    (circuits,) = foreseen(experiment(algorithms=["stragglar"], sizes=["4M"], fabric=ocs))
    more = circuits["predicted_time_s"] - packets["predicted_time_s"]
    assert 9 * 0.050 < more < 11 * 0.075


def test_every_delay_with_circuits_of_each_kind_and_a_ring_once() -> None:
    ocs = {"kind": "ocs", "reconfiguration_delay_ms": [0, 50], "circuits": ["provisioned", "on-demand"]}
    trials = experiment(algorithms=["ring", "recursive-doubling"], fabric=ocs).trials()
    assert [(t.schedule.algorithm, t.reconfiguration_delay_s, t.circuits) for t in trials] == [
        ("ring", 0.0, "static"), ("ring", 0.05, "static"),
        *(("recursive-doubling", d, kind) for d in (0.0, 0.05) for kind in ("on-demand", "provisioned")),
    ]  # fmt: skip


def test_a_scaled_case_predicts_real_times() -> None:
    (real,) = foreseen(experiment(sizes=["4M"]))
    (scaled,) = foreseen(experiment(sizes=["400M"], fabric={"port_gbps": 5}, scale={"rate": "1/100"}))
    assert scaled["predicted_time_s"] == pytest.approx(real["predicted_time_s"], rel=0.01)


def test_more_ranks_than_the_fabric_has_are_refused() -> None:
    trial = Trial(schedule("all_reduce", 8), 1 << 20, TrialFabric(ranks=4))
    with pytest.raises(ConfigError, match="made for 8 ranks and the fabric has 4"):
        trial.program(Scale(1.0), 2, 1)


def test_more_than_can_be_checked_is_refused_before_it_is_built() -> None:
    settings = experiment(algorithms=["ring"], ranks=128, sizes=list(range(1, 101)), fabric={"kind": "ocs"})
    with pytest.raises(ConfigError, match=r"ranks: .*: 16 of their combinations have more than 500,000 transfers"):
        Collectives(settings).check()
