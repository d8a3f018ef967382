"""Slices as the allocator gives them, on packets: members, tenants, laws, and the model beside them."""

from __future__ import annotations

from typing import Any

import pytest
from reports import printed

from experiments.racks.server_fabric.experiment import ServerFabric, ServerFabricSettings
from experiments.racks.server_fabric.figures import shapes
from experiments.racks.server_fabric.report import REPORT
from experiments.racks.server_fabric.row import ServerFabricRow, gain
from experiments.racks.server_fabric.slices import RACK, REQUESTS, SliceJob, measured_slices
from experiments.settings import validated


def experiment(**values: Any) -> ServerFabric:
    return ServerFabric(validated(ServerFabricSettings, {"studies": ["slices"], **values}))


def test_the_last_slice_of_a_list_is_measured_in_the_state_that_the_others_left() -> None:
    alone, apart = measured_slices(REQUESTS)
    assert (alone.kind, alone.electrical, alone.others) == ("contiguous", "contiguous", ())
    assert (apart.kind, apart.electrical, len(apart.others)) == ("fragmented", "refused (shape)", 14)
    assert {RACK.server_of(chip) for chip in apart.chips} == {0, 7}  # those that were given back
    taken = [chip for chips in (apart.chips, *apart.others) for chip in chips]
    assert sorted(taken) == list(range(64))


def test_two_rings_of_a_chip_begin_in_a_row_of_the_block() -> None:
    alone, _ = measured_slices(REQUESTS)
    places = [RACK.places[chip] for chip in SliceJob(alone, 4).members]
    assert len({(x, z) for x, _, z in places[:4]}) == 1 and sorted(y for _, y, _ in places[:4]) == [0, 1, 2, 3]
    assert sorted(SliceJob(alone, 4).members) == sorted(alone.chips)


def test_a_ring_has_two_of_six_ports_on_the_torus_and_all_when_steered() -> None:
    made = experiment()
    rows = [row for row in made.predict() if isinstance(row, ServerFabricRow)]
    assert len(rows) == made.points() == 12
    for row in rows:
        assert row.predicted == pytest.approx(row.law, rel=0.01)
    read = [row.to_json() for row in rows]
    ratios = {(row.measure, row.shape.split()[1]): gain(read, row.measure, row.shape, "law") for row in rows}
    assert {key: round(ratio or 0, 3) for key, ratio in ratios.items()} == {
        ("reduce-scatter", "contiguous"): 3,  # 3 beta / 1 beta
        ("reduce-scatter", "fragmented"): 6,  # and two hops share a link
        ("TP all-reduce", "contiguous"): 1,  # a ring takes two of its three ports, as many as the torus gives it
        ("TP all-reduce", "fragmented"): 2,
        ("DP all-reduce", "contiguous"): 3,  # a pair takes three, where the torus has one
        ("DP all-reduce", "fragmented"): 3,
    }
    steered = [row for row in rows if row.fabric == "photonic"]
    assert {(row.measure, row.ports) for row in steered} == {
        ("reduce-scatter", 6),
        ("TP all-reduce", 2),
        ("DP all-reduce", 3),
    }
    assert all(0 < (row.fibres or 0) <= 4 for row in steered)
    said = printed(ServerFabric, read)
    (finding,) = REPORT.findings(read, {})
    assert str(finding).startswith("4x1x2 fragmented: refused (shape) without a photonic fabric")
    assert max(map(len, said.splitlines())) <= 80 and REPORT.point(read[0]).startswith("reduce-scatter, 4x1x2")
    assert shapes([{**row, "value": row["predicted"]} for row in read]) is not None


def laws(fabric: str, **values: Any) -> dict[str, tuple[int | None, float | None]]:
    rows = [row for row in experiment(**values).predict() if isinstance(row, ServerFabricRow)]
    return {row.measure: (row.ports, row.law) for row in rows if row.fabric == fabric}


def test_a_rack_without_free_fibres_steers_no_more_ports_than_the_torus_has() -> None:
    lines = {"requests": "16*4x1x1,-1,4x1x1", "tensor_parallel": 1}  # across the rack, whose halves have 32 fibres
    assert laws("photonic", **lines) == laws("electrical", **lines)


def test_where_rings_share_a_link_there_is_no_law() -> None:
    assert [law is None for _, law in laws("electrical", requests="8", tensor_parallel=2).values()] == [0, 1, 1]
