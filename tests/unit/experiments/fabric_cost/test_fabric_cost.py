"""Cost and power of fabrics: parts counted by hand, the published headlines, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from reports import printed

from experiments.command.main import main
from experiments.fabric_cost.experiment import FabricCost, fabric_rows
from experiments.fabric_cost.figures import ratios
from experiments.fabric_cost.law import Cluster, Parts, parts
from measure.published import published

SMALL = Cluster(gpus=128, gpus_per_server=8, radix=8, ocs_ports=32)


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
    found = parts("fat-tree", replace(SMALL, gpus=gpus, gpus_per_server=1, radix=radix))
    assert (found.tiers, found.switches) == (tiers, switches)
    assert (found.switch_ports, found.optics) == (switches * radix, 2 * tiers * gpus)


def test_rails_that_do_not_fill_their_first_switches_need_more_of_them() -> None:
    """5 servers of 8 GPUs: 8 rails with 2 switches of 4 ports to GPUs each, 16 of these and 16, 8 above."""
    cluster = replace(SMALL, gpus=40)
    assert parts("rail-optimized", cluster).switches == 16 + 16 + 8
    assert parts("fat-tree", cluster).switches == 10 + 10 + 5


def test_photonic_rails_have_a_circuit_switch_each_until_its_ports_are_used_up() -> None:
    assert parts("photonic", SMALL) == Parts(0, 0, 0, 8, 8 * 32, 128)
    assert parts("photonic", replace(SMALL, gpus=136)).circuit_switches == 16
    assert parts("photonic", replace(SMALL, gpus=136, whole=False)).ocs_ports == 272


def test_by_the_port_three_tiers_give_the_closed_formula() -> None:
    electrical, _, photonic = fabric_rows(Cluster(gpus=8192, whole=False))
    assert electrical.cost_usd / 8192 == pytest.approx(5 * 583 + 6 * 879)
    assert photonic.power_w / 8192 == pytest.approx(2 * 0.39 + 10)
    assert electrical.cost_ratio == pytest.approx((5 * 583 + 6 * 879) / (2 * 520 + 879))


@pytest.mark.parametrize("gpus", [4096, 8192, 16384, 32768])
def test_with_three_tiers_the_headlines_of_the_paper_come_out(gpus: int) -> None:
    for row in list(fabric_rows(Cluster(gpus=gpus)))[:2]:
        assert row.power_ratio > published("opus-power").value
        assert row.cost_ratio == pytest.approx(published("opus-cost").value, rel=0.05)
        assert row.cost_ratio == pytest.approx(published("opus-cost-h200").value, rel=0.05)
        assert row.power_ratio == pytest.approx(published("opus-power-h200").value, rel=0.01)


def test_the_report_says_whose_numbers_it_shows() -> None:
    rows = [row.to_json() for size in (2048, 4096) for row in fabric_rows(Cluster(gpus=size))]
    said = " ".join(printed(FabricCost, rows).split())
    assert "rail-optimized 3 320 5.00 8,189 257.0 4.00x 23.63x" in said
    assert "Parts (paper, input; arXiv 2602.12521 (13 February 2026) and 2507.08119 (10 July 2025)): " in said
    assert "ocs port 520 USD and 0.39 W, switch port 583 USD and 39.4 W, optic 879 USD and 10 W." in said
    assert "about 4.2x the cost and 23.6x the power; abstract: 4x and over 23x" in said
    assert "Above 2,304 GPUs a rail needs several circuit switches" in said
    figure = ratios(rows)
    assert figure is not None and [axes.get_title(loc="left") for axes in figure.axes] == [
        "cost over photonic rails",
        "power over photonic rails",
    ]
    assert ratios([row for row in rows if row["fabric"] == "photonic"]) is None


def test_a_run_needs_no_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["run", "fabric-cost", "--gpus", "4096,512", "--out", str(out)]) == 0
    assert (out / "figures" / "fabric-cost.png").exists()
    assert [row["gpus"] for row in json.loads((out / "summary.json").read_text())] == [512] * 3 + [4096] * 3
    capsys.readouterr()
    for wrong, sentence in {
        "--radix 7": "radix must be an even number, not 7",
        "--gpus 12": "gpus must be whole servers of 8 GPUs, not 12",
    }.items():
        assert main(["run", "fabric-cost", *wrong.split()]) == 2
        assert sentence in capsys.readouterr().err
