"""Studies of the all-to-all, and its demand matrices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.collectives.all_to_all.experiment import (
    FULL_CYCLES,
    LAST_CYCLE,
    SKEW,
    STUDIES,
    AllToAll,
    AllToAllSettings,
    read_demand,
    whole_numbers,
)
from experiments.collectives.trial import Trial
from experiments.settings import validated
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
        if study != "route"
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


# ---- matrices --------------------------------------------------------------------------------------------------------


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "demand.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_skewed_has_the_weights_of_zipf_for_each_sender_and_the_mean(n: int) -> None:
    found = read_demand("skewed", n, 1e6, 1)
    weights = sorted((place**-SKEW for place in range(1, n)), reverse=True)
    for i, row in enumerate(found):
        others = sorted((entry for j, entry in enumerate(row) if j != i), reverse=True)
        assert row[i] == 0
        assert [entry / others[0] for entry in others] == pytest.approx(weights, rel=1e-3)
    assert sum(map(sum, found)) == pytest.approx(1e6 * n * (n - 1), rel=1e-4)
    assert all(entry % 4 == 0 for row in found for entry in row), "whole elements"


def test_skewed_is_drawn_from_the_seed() -> None:
    assert read_demand("skewed", 8, 1e6, 7) == read_demand("skewed", 8, 1e6, 7)
    drawn = {read_demand("skewed", 8, 1e6, seed) for seed in range(10)}
    assert len(drawn) == 10
    popular = Counter(max(range(8), key=row.__getitem__) for demand in drawn for row in demand)
    assert len(popular) == 8, "anybody may be"


def test_of_a_file_only_proportions_count(tmp_path: Path) -> None:
    first = read_demand(write(tmp_path, "0,1,2\n3,0,4\n5,6,0\n"), 3, 3500, 1)
    assert first == ((0.0, 1000.0, 2000.0), (3000.0, 0.0, 4000.0), (5000.0, 6000.0, 0.0))
    assert read_demand(write(tmp_path, "0, .1, .2\n\n.3, 0, .4\r\n.5, .6, 0"), 3, 3500, 9) == first
    assert whole_numbers(first) == ((0, 1000, 2000), (3000, 0, 4000), (5000, 6000, 0))


def test_what_is_next_to_nothing_is_an_element_and_nothing_is_nothing(tmp_path: Path) -> None:
    found = read_demand(write(tmp_path, "0,1e-9,0\n1,0,1\n1,1,0\n"), 3, 1e4, 1)
    assert found[0] == (0.0, 4.0, 0.0)


@pytest.mark.parametrize("unit", ["e-320", "e300"])
def test_any_unit_will_do(tmp_path: Path, unit: str) -> None:
    assert read_demand(write(tmp_path, f"0,1{unit}\n1{unit},0\n"), 2, 1000, 1) == ((0.0, 1000.0), (1000.0, 0.0))


@given(
    n=st.integers(2, 5),
    mean=st.floats(100, 1e8),
    data=st.data(),
)
def test_a_file_has_the_mean_that_was_asked_for(
    tmp_path_factory: pytest.TempPathFactory, n: int, mean: float, data: st.DataObject
) -> None:
    entries = st.lists(st.floats(0.01, 100), min_size=n * n, max_size=n * n)
    rows = [data.draw(entries)[:n] for _ in range(n)]
    text = "\n".join(
        ",".join("0" if i == j else repr(entry) for j, entry in enumerate(row)) for i, row in enumerate(rows)
    )
    found = read_demand(write(tmp_path_factory.mktemp("csv"), text), n, mean, 1)
    assert sum(map(sum, found)) == pytest.approx(mean * n * (n - 1), abs=4 * n * n)
    assert all(entry >= 4 for i, row in enumerate(found) for j, entry in enumerate(row) if i != j)
