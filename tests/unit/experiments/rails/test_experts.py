"""Experiments with experts: what carries their all-to-alls in which mode, and what the model says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from reports import forecast

from experiments.rails.job import (
    check_floors,
    load_job,
    program_on,
    rail_traffic,
    rail_transfers,
    resolve_scale,
    smallest_transfer,
)
from experiments.rails.settings import Mode, make_settings
from measure.live.calibration import default_calibration
from railyard.scale import Scale, goodput_share
from workloads.catalog import load_workload
from workloads.program import Collective, Compute
from workloads.training.expert_parallel import on_rail

RATE = Scale(1 / 130)
MOE = load_workload("moe-smoke")
EXCHANGE = 4 * 4096 * 2 * 4096 * 2
"""Bytes of a rank in one all-to-all of ``moe-smoke``: tokens x top 2 x hidden x 2."""
BESIDE = (4 * 4096**2 + 2 * 4096 + 16 * 4096 + 3 * 4096 * 3072) * 2


def algorithms(workload: str, mode: Mode) -> set[str]:
    experiment = make_settings({"workload": workload, "modes": [mode]})
    program = program_on(experiment, load_job(experiment), mode)
    return {
        op.algorithm for ops in program.operations for op in ops if isinstance(op, Collective) and on_rail(program, op)
    }


def recipe(path: Path, **changes: Any) -> str:
    data: dict[str, Any] = {
        "name": path.stem,
        "model": {"layers": 2, "hidden": 4096, "sequence": 4096, "heads": 32, "experts": 16, "top_k": 2,
                  "expert_ffn_hidden": 3072, "shared_experts": 1},
        "parallelism": {"ep": 4, "dp": 2},
        "batch": {"local_batch": 4, "microbatch": 4},
        "compute": {"forward_ms": 60},
        "training": {"sharding": "ddp"},
        "fabric": {"servers": 8, "gpus_per_server": 1},
    }  # fmt: skip
    path.write_text(yaml.safe_dump({**data, **changes}))
    return str(path)


def test_packets_go_straight_and_circuits_hop_by_hop(tmp_path: Path) -> None:
    modes: tuple[Mode, ...] = ("native", "electrical", "on-demand", "provisioned", "one-shot")
    straight, ring = {"bidirectional-direct"}, {"bidirectional-ring"}
    assert [algorithms("moe-smoke", mode) for mode in modes] == [straight, straight, ring, ring, ring]
    assert algorithms(recipe(tmp_path / "arcs.yaml"), "on-demand") == {"line"}
    assert algorithms("moe-ep-tp", "on-demand") == set()
    experiment = make_settings({"workload": "smoke", "modes": ["on-demand"]})
    workload = load_job(experiment)
    assert program_on(experiment, workload, "on-demand") == workload.program


def test_traffic_and_smallest_transfer_by_hand() -> None:
    """8 all-to-alls hop by hop: n^2 / 8 chunks each way and rank; 2 all-reduces of what is no expert."""
    traffic = rail_traffic(MOE)
    assert traffic["ep"] == pytest.approx(8 * 8 * (2 * 8) * EXCHANGE / 8)
    assert traffic["dp"] == pytest.approx(2 * 8 * 2 * 7 / 8 * BESIDE)
    least = smallest_transfer(MOE)
    assert least is not None and least.bytes == pytest.approx(BESIDE / 16)


def test_the_smallest_part_of_an_uneven_exchange_counts(tmp_path: Path) -> None:
    model = {"layers": 1, "hidden": 4096, "sequence": 4096, "heads": 32, "experts": 4, "expert_skew": 1.0}
    workload = load_workload(recipe(tmp_path / "skew.yaml", model=model, parallelism={"ep": 4, "dp": 2}))
    least = min(t.bytes for t in rail_transfers(workload) if t.dimension == "ep")
    assert least == pytest.approx(4 * 4096 * 4096 * 2 * 3 / 25, rel=1e-5)


@pytest.mark.parametrize("name", ["moe-smoke", "moe-ep-tp"])
def test_the_catalog_keeps_the_floors(name: str) -> None:
    workload = load_workload(name)
    experiment = make_settings({"workload": name})
    scale = resolve_scale(experiment, workload, None)
    check_floors(experiment, workload, scale, default_calibration().floors())
    assert scale.time == pytest.approx(1.3 if name == "moe-smoke" else 3.1)


def seconds(mode: Mode, delay_ms: float = 0.0, workload: str = "moe-smoke") -> tuple[float, float]:
    experiment = make_settings({"workload": workload, "modes": [mode], "delays_ms": [delay_ms]})
    found = forecast(experiment, load_job(experiment), mode, delay_ms, RATE)
    return found.step_time_s, found.reconfigurations_per_step


def test_forwarding_tax_by_hand() -> None:
    """Two ports: straight 7/8 of the bytes by both; hop by hop the bytes themselves by each, and at the end a chunk of
    the 8 that a link carries may have nothing to go beside. Nothing is rewired.
    """
    per_s = 12.5e9 / 8 * goodput_share(4200)
    compute = sum(op.seconds for op in MOE.program.operations[0] if isinstance(op, Compute))
    gradients = 2 * 2 * 7 / 8 * BESIDE / (2 * per_s)
    straight, hops = 8 * EXCHANGE * 7 / 8 / (2 * per_s), 8 * EXCHANGE / per_s
    assert seconds("electrical") == (pytest.approx(compute + gradients + straight, rel=0.01), 0)
    hopping, changes = seconds("on-demand", 50)
    assert 0.999 * hops <= hopping - compute - gradients <= 1.01 * hops * 9 / 8
    assert changes == 0


def test_ep_inside_servers_costs_nothing_on_circuits() -> None:
    electrical, circuits = seconds("electrical", workload="moe-ep-tp"), seconds("on-demand", 200, "moe-ep-tp")
    assert circuits == (pytest.approx(electrical[0], rel=1e-3), 0)


def test_the_pipeline_takes_the_circuits_that_experts_hop_over(tmp_path: Path) -> None:
    """Ring to chain and back, once forward and once backward."""
    file = recipe(tmp_path / "pp.yaml", parallelism={"ep": 4, "pp": 2})
    none, slow = seconds("on-demand", 0, file), seconds("on-demand", 50, file)
    assert (none[1], slow[1]) == (4, 4)
    assert slow[0] - none[0] == pytest.approx(4 * 0.05, rel=0.02)


def test_experts_gradients_have_rings_of_their_own(tmp_path: Path) -> None:
    """EP4 DP2 on one rail: the ring of all 8, then pairs for the experts, and back: two changes a step."""
    file = recipe(tmp_path / "edp.yaml")
    none, slow = seconds("on-demand", 0, file), seconds("on-demand", 50, file)
    assert (none[1], slow[1]) == (2, 2)
    assert slow[0] - none[0] == pytest.approx(2 * 0.05, rel=0.02)
