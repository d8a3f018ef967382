from __future__ import annotations

from itertools import product
from math import prod
from random import Random
from typing import Any

import pytest

from experiments.allocation.experiment import (
    RECOVERIES,
    AllocationSettings,
    Splicer,
    drawn,
    filled,
    fixed_share,
    freed,
    read_mix,
    study_rows,
)
from experiments.allocation.reserve import spares_for
from experiments.settings import validated
from topos.torus import Extents, Torus


def experiment(**values: Any) -> AllocationSettings:
    """Settings whose outcomes do not depend on how busy the machine is: ten seconds for a request."""
    return validated(AllocationSettings, {"racks": 6, "clusters": 1, "limit_ms": 10_000} | values)


def rows(**values: Any) -> list[dict[str, Any]]:
    return [row.to_json() for row in study_rows(experiment(**values))]


def test_a_cluster_is_filled_until_nothing_fits_and_the_same_again() -> None:
    first, second = (filled(experiment(mix="servers"), 0) for _ in range(2))
    assert [rack.free for rack in first] == [0] * 6  # servers of four chips fit everywhere
    assert [list(rack.allocations) for rack in first] == [list(rack.allocations) for rack in second]
    assert {len(a.chips) for rack in first for a in rack.allocations.values()} == {4, 8, 16}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_slices_are_released_until_the_share_is_free(share: float) -> None:
    full = filled(experiment(mix="servers"), 0)
    after = freed(full, share, Random(1))
    free = sum(rack.free.bit_count() for rack in after) / (6 * 64)
    assert share <= free < share + 16 / (6 * 64) + 1e-9  # at most one slice too many
    assert all(rack.free == 0 for rack in full)  # the others were copies


def test_fragmentation_is_gone_with_the_photonic_fabric() -> None:
    found = {(r["freed"], r["system"]): r for r in rows(studies=["fragmentation"], racks=24)}
    for share in (0.2, 0.3):
        contiguous, morphlux = found[share, "contiguous"], found[share, "morphlux"]
        assert 0.4 <= contiguous["index_max"] <= 0.8  # the paper: up to 0.7
        assert morphlux["per_rack"] == [0.0] * 24
        assert all(0 <= index <= 1 for index in contiguous["per_rack"])


def test_published_values_stand_beside_the_case_that_they_are_of() -> None:
    found = rows(studies=["fragmentation", "protocols"], racks=4)
    failed = {(r["asked"], r["system"]): r["paper_failed_share"] for r in found if r["study"] == "protocols"}
    assert {case: share for case, share in failed.items() if share is not None} == {
        ("32", "contiguous"): 0.75,
        ("32", "morphlux"): 0,
    }
    index = {(r["freed"], r["system"]): r["paper_index_max"] for r in found if r["study"] == "fragmentation"}
    assert index[0.2, "contiguous"] == 0.7 and index[0.3, "contiguous"] is None


def test_the_protocol_decides_how_many_requests_fail_and_not_which_slices_are_served() -> None:
    found = {(r["protocol"], r["asked"], r["system"]): r for r in rows(studies=["protocols"], racks=64, clusters=2)}
    assert len(found) == 8
    rack, cluster = (found[protocol, "32", "contiguous"] for protocol in ("per-rack", "cluster"))
    assert rack["requests"] - rack["failed"] == cluster["requests"] - cluster["failed"]
    assert cluster["requests"] in (76, 77, 78)  # 30 % of 2 x 4096 chips, and at most a slice more in each
    assert rack["failed_share"] < 0.45 < 0.6 < cluster["failed_share"]  # the paper: about 0.75
    morphlux = [found[protocol, "32", "morphlux"]["failed_share"] for protocol in ("per-rack", "cluster")]
    assert morphlux[0] == 0 and morphlux[1] > 0.4  # the paper: 0
    assert found["per-rack", "32", "morphlux"]["fragmented"] == rack["failed"]
    for row in (each for each in found.values() if each["system"] == "morphlux"):
        assert 1 < row["served_ratio"] <= row["pooled_ratio"]
        assert row["chips_ratio"] < row["egress_ratio"]
        assert len(row["samples"]["served_ratio"]) == row["repeats"] == 2


def test_requests_end_when_the_free_chips_do() -> None:
    assert drawn(100, (32,), Random(1)) == [32, 32, 32]
    both = drawn(100, (16, 32), Random(1))
    assert set(both) == {16, 32} and 100 - 16 < sum(both) <= 100
    assert drawn(15, (16, 32), Random(1)) == []


@pytest.mark.parametrize(
    ("extents", "rings"),
    [((4, 4, 4), 3), ((4, 4, 2), 2), ((4, 4, 1), 2), ((4, 2, 1), 1), ((2, 2, 1), 1), ((2, 1, 1), 1)],
)
def test_fixed_ports_lose_a_third_for_each_dimension_without_a_ring(extents: Extents, rings: int) -> None:
    assert fixed_share(Torus((4, 4, 4), (2, 2, 1)), extents) == pytest.approx(rings / 3)


def test_the_prototype_doubles() -> None:
    assert fixed_share(Torus((2, 2, 1), (1, 1, 1)), (2, 1, 1)) == 0.5  # iperf 2.00x in the paper


def test_chips_lost_to_failures_are_ordered_as_the_systems_are() -> None:
    for failures in (1, 4):
        mine = {r["system"]: r for r in rows(studies=["overprovision"], failures=[failures])}
        chips = [mine[system]["chips_mean"] for system in ("ideal", "morphlux", "kubernetes", "migration")]
        assert chips == sorted(chips)
        assert (chips[0], chips[-1]) == (failures, 64)
        assert set(mine) == set(RECOVERIES)
        assert mine["morphlux"]["spliced_share"] >= 0.9


def test_a_spare_takes_the_place_of_a_chip_once() -> None:
    rack = experiment().rack(photonic=False)
    rack.reserve(range(60, 64))
    for number in range(7):
        rack.allocate(8, f"slice{number}")
    splicer = Splicer(rack, tuple(range(60, 64)))
    rented = [chip for a in rack.allocations.values() for chip in a.chips]
    assert [splicer.splice(chip) for chip in rented[:5]] == [True, True, True, True, False]  # four spares


def test_no_fibres_no_splice() -> None:
    rack = experiment().rack(photonic=False)
    rack.reserve(range(60, 64))
    rack.allocate(32, "half")
    splicer = Splicer(rack, tuple(range(60, 64)))
    for (a, b), links in rack.plant.links.items():
        if 15 in (a, b):  # the server of the spares
            for number in range(links):
                splicer._routes[-1, a * 100 + b, number] = (a, b)
    assert splicer.splice(0) is False


def test_mixes_by_name_and_by_hand() -> None:
    assert {size * weight for size, weight in read_mix("servers").items()} == {16}  # the same share of the chips
    assert read_mix("1:3, 2:1/2") == {1: 3, 2: 0.5}


@pytest.mark.parametrize("chances", [[0.1, 0.4, 0.25, 0.05], [0.02] * 9, [1.0, 0.5], []])
@pytest.mark.parametrize("slo", [0.5, 0.95, 0.999])
def test_the_reserve_is_the_least_that_so_many_failures_seldom_reach(chances: list[float], slo: float) -> None:
    share = [0.0] * (len(chances) + 2)
    for down in product((False, True), repeat=len(chances)):
        share[sum(down)] += prod(p if dead else 1 - p for p, dead in zip(chances, down, strict=True))
    spares = spares_for(chances, slo)
    assert sum(share[spares:]) <= 1 - slo + 1e-12
    assert not spares or sum(share[spares - 1 :]) > 1 - slo


def test_reserves_of_a_rack_are_the_published_ones_and_spare_servers_spare_whole_racks() -> None:
    found = {(r["fail"], r["system"]): r for r in rows(studies=["reserve"], racks=64, clusters=8)}
    assert len(found) == 12
    assert all(r["spares"] == r["paper_spares"] for r in found.values() if r["paper_spares"] is not None)
    one_server = found["0-1", "spare servers"]
    assert (one_server["spares"], one_server["idle_share"]) == (64, 1 / 16)
    assert found["0-1", "idle racks"]["idle_ratio"] == pytest.approx(25 / 4, abs=0.5)
