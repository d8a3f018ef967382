"""Cost and power of fabrics: parts counted by hand, the published headlines, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from reports import printed

from commands.main import main
from experiments.fabric_cost.experiment import ClusterDesign, FabricCost, FabricCostRow, Parts, fabric_rows, parts
from experiments.fabric_cost.figures import ratios
from measure.published import published

SMALL = ClusterDesign(gpus=128, gpus_per_server=8, radix=8, ocs_ports=32)


@pytest.mark.parametrize(
    ("gpus", "radix", "tiers", "switches"),
    [
        (8, 8, 1, 1),
        (16, 8, 2, 6),
        (32, 8, 2, 12),
        (33, 8, 3, 23),
        (128, 8, 3, 80),
        (2048, 64, 2, 96),
        (65536, 64, 3, 5120),
    ],
)
def test_a_fat_tree_has_the_switches_of_its_definition(gpus: int, radix: int, tiers: int, switches: int) -> None:
    """With k ports: k^3 / 4 hosts on 5 k^2 / 4 switches in three tiers (Al-Fares et al., SIGCOMM'08)."""
    found = parts("whole switches", "fat-tree", replace(SMALL, gpus=gpus, gpus_per_server=1, radix=radix))
    assert (found.tiers, found.switches) == (tiers, switches)
    assert (found.switch_ports, found.optics) == (switches * radix, 2 * tiers * gpus)


def test_rails_that_do_not_fill_their_first_switches_need_more_of_them() -> None:
    """5 servers of 8 GPUs: 8 rails with 2 switches of 4 ports to GPUs each, 16 of these and 16, 8 above."""
    cluster = replace(SMALL, gpus=40)
    assert parts("whole switches", "rail-optimized", cluster).switches == 16 + 16 + 8
    assert parts("whole switches", "fat-tree", cluster).switches == 10 + 10 + 5


def test_photonic_rails_have_a_circuit_switch_each_until_its_ports_are_used_up() -> None:
    assert parts("whole switches", "photonic", SMALL) == Parts(0, 0, 0, 8, 8 * 32, 128)
    assert parts("whole switches", "photonic", replace(SMALL, gpus=136)).circuit_switches == 16


def electrical(count: str, gpus: int) -> FabricCostRow:
    """The row of rails of packet switches."""
    (row,) = (row for row in fabric_rows(ClusterDesign(gpus)) if (row.count, row.fabric) == (count, "rail-optimized"))
    return row


@pytest.mark.parametrize(
    ("gpus", "radix", "cost", "power"),
    [(256, 11, 4.35, 24.4), (512, 16, 4.27, 23.9), (1024, 23, 4.22, 23.6), (2048, 32, 4.27, 23.9)],
)
def test_the_formula_of_the_authors_gives_their_ratios(gpus: int, radix: int, cost: float, power: float) -> None:
    """Golden numbers: ``opus-cost-h200`` and ``opus-power-h200``, from the script of the artifact."""
    row = electrical("formula", gpus)
    assert (round(row.cost_ratio, 2), round(row.power_ratio, 1)) == (cost, power)
    assert (published("opus-cost-h200").values[gpus], published("opus-power-h200").values[gpus]) == (cost, power)
    assert row.switch_ports / gpus == pytest.approx(3 + 2 * (gpus / 2) / radix**2)
    assert row.optics == gpus + row.switch_ports


def test_where_the_radix_is_exact_a_gpu_takes_five_ports_of_switches_and_six_optics() -> None:
    row = electrical("formula", 8192)
    assert published("opus-part-cost").values == {"ocs port": 520, "switch port": 37299 / 64, "optic": 879}
    assert published("opus-part-power").values == {"ocs port": 75 / 192, "switch port": 2524 / 64, "optic": 10}
    assert (row.switch_ports, row.optics) == (5 * 8192, 6 * 8192)
    assert row.cost_ratio == pytest.approx((5 * 37299 / 64 + 6 * 879) / (2 * 520 + 879))


@pytest.mark.parametrize("gpus", [4096, 8192, 16384, 32768])
def test_in_whole_switches_three_tiers_give_the_headlines_of_the_paper(gpus: int) -> None:
    row = electrical("whole switches", gpus)
    assert row.tiers == 3
    assert row.power_ratio > published("opus-power").value
    assert row.cost_ratio == pytest.approx(published("opus-cost").value, rel=0.05)


def test_in_whole_switches_two_tiers_do_up_to_2048_gpus_and_the_ratios_are_lower() -> None:
    found = [electrical("whole switches", gpus) for gpus in (512, 1024, 2048)]
    assert {row.tiers for row in found} == {2}
    assert [round(row.cost_ratio, 2) for row in found] == [0.95, 1.64, 2.57]
    assert [round(row.power_ratio, 2) for row in found] == [11.71, 13.46, 14.55]


def test_the_report_says_whose_numbers_it_shows() -> None:
    rows = [row.to_json() for size in (2048, 4096) for row in fabric_rows(ClusterDesign(gpus=size))]
    said = " ".join(printed(FabricCost, rows).split())
    assert "whole switches 4,096 rail-optimized 3 8,188 257.2 4.00x 23.64x" in said
    assert "formula 4,096 rail-optimized 3 8,221 258.3 4.28x 23.96x" in said
    assert "Parts (authors' files, input; the authors' artifact of arXiv 2602.12521): " in said
    assert "switch port 582.797 USD and 39.4375 W, optic 879 USD and 10 W." in said
    assert "by the authors' formula (derived by us): 4.35x / 24.4x (256 GPUs), " in said
    assert "Abstract (paper, computed): 4x the cost and over 23x the power." in said
    assert "Above 2,304 GPUs a rail needs several circuit switches" in said
    figure = ratios(rows)
    assert figure is not None and [axes.get_title(loc="left") for axes in figure.axes] == [
        "cost over photonic rails",
        "power over photonic rails",
    ]
    assert ratios([row for row in rows if row["fabric"] == "photonic"]) is None


def test_a_run_needs_no_root(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["run", "fabric-cost", "--gpus", "4096,512", "--out", str(out)]) == 0
    assert (out / "figures" / "fabric-cost.png").exists()
    assert [row["gpus"] for row in json.loads((out / "summary.json").read_text())] == [512] * 5 + [4096] * 5
