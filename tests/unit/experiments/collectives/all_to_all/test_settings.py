"""The cases of an all-to-all experiment, and what is refused before a packet is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.collectives.all_to_all.experiment import FULL_CYCLES, LAST_CYCLE, STUDIES, AllToAll, AllToAllSettings
from experiments.collectives.trial import Trial
from experiments.settings import validated
from railyard.errors import ConfigError
from railyard.scale import Scale
from workloads.check import check


def experiment(**values: Any) -> AllToAllSettings:
    return validated(AllToAllSettings, {"guard_ms": 2, **values})


def trials(**values: Any) -> list[Trial]:
    return list(experiment(**values).trials())


def label(trial: Trial, name: str) -> Any:
    return dict(trial.tags)[name]


def foreseen(**values: Any) -> list[dict[str, Any]]:
    return [row.to_json() for row in AllToAll(experiment(**values)).predict()]


# ---- studies ---------------------------------------------------------------------------------------------------------


def test_every_study_goes_through_its_list_and_keeps_the_first_of_the_others() -> None:
    lists = {"ranks": [4, 6], "sizes": [1000, 2000], "delays_ms": [10, 30], "slots_ms": [20, 50]}
    found = {
        study: [
            (c.schedule.n, label(c, "bytes_per_pair"), c.reconfiguration_delay_s, label(c, "slot_ms"))
            for c in trials(studies=[study], policies=["rotor"], **lists)
        ]
        for study in STUDIES
    }
    assert found["bytes"] == [(4, 1000, 0.01, 20), (4, 2000, 0.01, 20)]
    assert found["ranks"] == [(4, 1000, 0.01, 20), (6, 1000, 0.01, 20)]
    assert found["delay"] == [(4, 1000, 0.01, 20), (4, 1000, 0.03, 20)]
    assert [(n, delay, slot) for n, _, delay, slot in found["slot"]] == [(4, 0.01, 20), (4, 0.01, 50)]
    assert found["skew"] == [(4, 1000, 0.01, 20)]
    assert len(found["grid"]) == len(set(found["grid"])) == 16


def test_ways_are_compared_with_the_same_bandwidth_for_a_rank() -> None:
    found = {label(c, "policy"): c for c in trials(studies=["skew"], port_gbps=0.1)}
    assert set(found) == {"electrical", "rotor", "valiant", "demand", "multi-hop"}
    ports = {way: (c.fabric.kind, c.fabric.ports_per_rank, c.fabric.port_gbps) for way, c in found.items()}
    assert ports == {
        "electrical": ("electrical", 1, 0.1),
        "rotor": ("ocs", 1, 0.1),
        "valiant": ("ocs", 1, 0.1),
        "demand": ("ocs", 1, 0.1),
        "multi-hop": ("ocs", 2, 0.05),
    }
    assert {way for way, c in found.items() if c.cycle is not None} == {"rotor", "valiant", "demand"}
    assert {way for way, c in found.items() if c.cycle and c.cycle.demand} == {"demand"}
    assert found["electrical"].reconfiguration_delay_s == 0
    assert [found[w].policy_name for w in ("rotor", "valiant", "demand", "multi-hop")] == [
        "rotor", "rotor", "demand", "opus"
    ]  # fmt: skip


def test_a_packet_switch_is_measured_once_however_many_delays_and_slots_there_are() -> None:
    found = trials(studies=["grid"], delays_ms=[10, 20], slots_ms=[0, 100], ranks=[4], sizes=[1000])
    assert [label(c, "policy") for c in found] == ["electrical"] + ["rotor"] * 4


def test_in_study_slot_slots_are_full_for_some_cycles() -> None:
    rows = foreseen(studies=["slot"], ranks=[4], slots_ms=[50, 200], iterations=2)
    for row, slot_s in zip(rows, (0.05, 0.2), strict=True):
        sent_s = row["bytes_per_pair"] / (FULL_CYCLES + LAST_CYCLE) / experiment().bytes_per_s
        assert slot_s - 0.002 - 0.003 < sent_s < slot_s - 0.002
        longest = (FULL_CYCLES + 1) * 3 * (slot_s + 0.012)
        assert row["predicted_time_s"] <= longest, "not a slot more than there are partners in each cycle"
        assert row["ideal_duty_cycle"] == pytest.approx((slot_s - 0.002) / (slot_s + 0.01))


def test_a_scaled_experiment_says_the_same_of_the_real_system() -> None:
    (real,) = foreseen(studies=["grid"], policies=["rotor"], ranks=[4], sizes=["1250000"])
    (scaled,) = foreseen(
        studies=["grid"], policies=["rotor"], ranks=[4], sizes=["125M"], port_gbps=5, scale={"rate": "1/100"}
    )
    assert scaled["formula_s"] == pytest.approx(real["formula_s"], rel=0.05)
    assert scaled["predicted_time_s"] == pytest.approx(real["predicted_time_s"], rel=0.05)
    slots = [
        foreseen(studies=["slot"], ranks=[4], slots_ms=[100], port_gbps=rate, scale={"rate": scale})[0]
        for rate, scale in ((0.05, 1), (5, "1/100"))
    ]
    assert slots[1]["bytes_per_pair"] == pytest.approx(100 * slots[0]["bytes_per_pair"], rel=0.001)


# ---- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["electrical", "rotor", "valiant", "demand", "multi-hop"])
@pytest.mark.parametrize("demand", ["uniform", "skewed"])
def test_every_way_brings_the_same_bytes_to_the_same_places(way: str, demand: str) -> None:
    (trial,) = trials(studies=["grid"], policies=[way], ranks=[4], sizes=[30_000], demand=demand)
    check(trial.program(Scale(1.0), 2, 1))  # the prover: everything arrives where it should
    everything = 4 * 4 * 30_000 if demand == "uniform" else 4 * 3 * 30_000  # a uniform one has a share for oneself
    assert trial.bytes * 4 == pytest.approx(everything, abs=4 * 16)


def test_the_skew_is_drawn_from_the_seed() -> None:
    first, again, other = (trials(studies=["skew"], policies=["demand"], seed=s)[0].cycle for s in (1, 1, 2))
    assert first == again != other


def test_a_demand_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text("0,3\n1,0\n")
    (trial,) = trials(studies=["skew"], policies=["demand"], ranks=[2], sizes=[1000], demand=str(file))
    assert trial.cycle is not None and trial.cycle.demand == ((0.0, 1500.0), (500.0, 0.0))
    assert trial.schedule.weights[1:3] == (1500, 500)


def test_slots_without_a_length_are_for_all_studies_but_that_of_their_length() -> None:
    made = trials(studies=["delay", "slot"], policies=["rotor"], slots_ms=[0, 50, 100])
    slots = {study: [label(trial, "slot_ms") for trial in made if trial.study == study] for study in ("delay", "slot")}
    assert slots == {"delay": [None] * 4, "slot": [50, 100]}


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def test_a_demand_of_another_shape_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "demand.csv"
    file.write_text("0,3\n1,0\n")
    with pytest.raises(ConfigError, match="demand: must be a matrix of 4 x 4"):
        trials(studies=["skew"], ranks=[4], demand=str(file))
