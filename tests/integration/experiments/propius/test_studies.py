"""Studies of the Propius experiment on packets, small: what happens counts, not how fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.progress import RunProgress
from experiments.propius.experiment import Propius
from experiments.propius.settings import PropiusSettings
from experiments.runner import Runner
from experiments.settings import validated
from measure.results.results import Results
from measure.results.row import Row

pytestmark = [pytest.mark.root, pytest.mark.beside]

SMALL: dict[str, Any] = {
    "clients": 12,
    "regions": 2,
    "loads": [8],
    "policies": ["irs"],
    "demand": 1,
    "rounds": 1,
    "model_mb": 4,
    "trunk_delay_ms": 10,
    "access_delay_ms": 10,
    "virtual_clients": [],
    "verify": True,
    "scale": {"time": 0.03},
}


def rows(folder: Path, **settings: Any) -> list[Row]:
    """The rows of a run with these settings, as its results folder has them."""
    experiment = Propius(validated(PropiusSettings, {**SMALL, **settings}))
    experiment.check()
    with Runner(experiment, folder, RunProgress()) as runner:
        experiment.run(runner)
    return list(Results.open(folder).rows())


def test_policy_studies_move_every_byte_and_every_sum_is_right(tmp_path: Path) -> None:
    found = rows(tmp_path / "out", studies=["jct", "delays"])
    assert [row["study"] for row in found] == ["jct", "delays"]
    row = found[0]
    assert (row["finished"], row["starved"], row["updates_lost"], row["updates_twice"]) == (5, None, 0, 0)
    assert row["updates_acknowledged"] >= 5
    assert row["sums_checked"] >= 5 and row["wrong_sums"] == 0
    assert row["root_bytes"] >= 5 * 120_000  # each job's model leaves the root once at least
    assert row["response_time_s"] > 0 and row["predicted_response_time_s"] > 0


def test_faults_lose_no_acknowledged_update_in_mode_fixed(tmp_path: Path) -> None:
    cases = ["leaf-killed", "trunk-loss"]
    found = rows(tmp_path / "out", studies=["trouble"], modes=["fixed"], cases=cases, kills=2, losses=[1])
    assert [row["case"] for row in found] == ["leaf killed", "trunk loss 1 %"]
    for row in found:
        assert (row["updates_lost"], row["updates_twice"], row["wrong_sums"]) == (0, 0, 0), row["case"]
        assert row["updates_acknowledged"] > 0 and row["sums_checked"] > 0
        assert row["finished"] == 5 or row["case"] == "leaf killed"
    assert [row["kills"] for row in found] == [2, None]


def test_regions_take_turns_on_an_optical_trunk_(tmp_path: Path) -> None:
    trunk = rows(tmp_path / "out", studies=["trunk"], delays_ms=[200], turns=["phase", "rotor"])
    events = Results.open(tmp_path / "out").events()
    assert [e["title"] for e in events if e.kind == "begun"] == [e["mode"] for e in events if e.kind == "point"]
    assert [e["rail"] for e in events if e.kind == "circuits"] == ["trunk", "trunk"], "of the optical points"
    assert [row["policy"] for row in trunk] == ["electrical", "phase", "rotor"]
    for row in trunk:
        assert row["root_bytes"] / (2 * 120_000) == pytest.approx(1, abs=0.02)
        assert row["time_s"] > 0 and row["predicted_time_s"] > 0
        assert "logs" not in row["verdict"], "no journal of a leaf server is read as a log"
