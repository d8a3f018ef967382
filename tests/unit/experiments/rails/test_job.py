"""Fabrics and programs of a rail experiment: rates, traffic, floors, and the experts' all-to-alls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from reports import fabric_plan, forecast

from commands.lab.lab import LabSpec
from commands.lab.up import read_words
from controllers.policies.static import split_bandwidth
from experiments.job_point import Fabric
from experiments.rails.experiment import Rails
from experiments.rails.job import (
    check_floors,
    fabric_on,
    job_point,
    load_job,
    model_scale,
    program_on,
    rail_traffic,
    rail_transfers,
    resolve_scale,
    scale_needs,
    smallest_transfer,
    step_pace,
    topology_options,
)
from experiments.rails.settings import Mode, make_settings
from experiments.runner import Runner
from experiments.session import Session
from measure.live.calibration import default_calibration
from measure.model.prediction import Costs, Prediction
from railyard.errors import ConfigError
from railyard.scale import Floors, Scale, goodput_bytes_per_s, goodput_share
from topos.describe import plan
from topos.rails import RailTopo
from workloads.catalog import load_workload, with_all_ranks
from workloads.program import Collective, Compute
from workloads.training.expert_parallel import on_rail

LLAMA = load_workload("llama3-8b-16")
RATE = Scale(1 / 250)


def test_modes_that_a_lab_does_not_serve_are_refused_before_the_first_point() -> None:
    settings = make_settings({"workload": "smoke", "modes": ["electrical", "one-shot", "on-demand", "provisioned"]})
    workload, runner = load_job(settings), object.__new__(Runner)
    fabrics: dict[str, Fabric] = {mode: fabric_on(settings, workload, mode, Scale(1 / 84)) for mode in settings.modes}
    served = {"electrical": "electrical", "one-shot": "one-shot", "ocs": "on-demand,provisioned"}
    for kind, modes in served.items():
        lab = SimpleNamespace(plan=plan(RailTopo(servers=2, gpus=1, fabric=kind)))
        runner._standing = cast(Session, lab)
        with pytest.raises(ConfigError, match="the lab has another fabric than") as refused:
            runner.check_standing(fabrics)
        words = str(refused.value).partition("; up ")[2].partition(" makes it")[0].split()
        assert "_" not in " ".join(words) and max(map(len, words)) < 30, "they are to be typed"
        lab.plan = plan(LabSpec(**read_words(words)).topo())
        with pytest.raises(ConfigError, match=f"the lab is {kind}; of the modes .*: add --modes {modes}$"):
            runner.check_standing(fabrics)
        runner.check_standing({mode: fabrics[mode] for mode in modes.split(",")})


def test_traffic_of_the_llama_step_by_hand() -> None:
    """16 ranks: 51 gathers and 17 scatters of half a unit each; 4 transfers of an activation per pair of 8."""
    unit, activation = 109_056_000, 67_108_864
    scalar = 16 * 2 * (2 - 1) / 2 * 4
    traffic = rail_traffic(LLAMA)
    assert traffic["dp"] == pytest.approx(16 * (51 + 17) * unit / 2 + scalar)
    assert traffic["pp"] == 8 * 4 * activation


def test_the_smallest_transfer_is_a_quarter_of_a_unit_and_no_scalar() -> None:
    least = smallest_transfer(LLAMA)
    assert least is not None
    assert least.bytes == pytest.approx(109_056_000 / 4)


def test_one_shot_splits_what_two_ports_have() -> None:
    experiment = make_settings({})
    rates = topology_options(experiment, LLAMA, "one-shot", RATE)["lane_rates"]
    whole = 2 * RATE.emulated_mbps(12.5)
    traffic = rail_traffic(LLAMA)
    expected = split_bandwidth(whole, {"ring": traffic["dp"], "chain": traffic["pp"]})
    assert rates[0] + rates[1] == pytest.approx(expected["ring"])
    assert rates[2] == rates[3] == pytest.approx(expected["chain"]), "two stages: one circuit has the whole share"


def test_a_job_without_rails_has_no_one_shot_circuits() -> None:
    alone = load_workload("pp-only")
    options = topology_options(make_settings({"workload": "pp-only"}), alone, "one-shot", RATE)
    assert options["lane_rates"][0] == pytest.approx(RATE.emulated_mbps(12.5) / 100)


def test_a_rate_that_one_machine_does_not_carry_is_for_several_to_try() -> None:
    machine = default_calibration()
    given: dict[str, Any] = {"scale": {"rate": "1/2"}}
    with pytest.raises(ConfigError, match="taken to carry 4 Gb/s"):
        resolve_scale(make_settings(given), LLAMA, machine)
    assert resolve_scale(make_settings(given | {"cluster": ["m1", "m2"]}), LLAMA, machine).rate == 1 / 2


def test_auto_keeps_the_floors_on_a_machine_that_was_not_calibrated() -> None:
    experiment = make_settings({})
    scale = resolve_scale(experiment, LLAMA, None)
    check_floors(experiment, LLAMA, scale, default_calibration().floors())
    ports = 32
    assert ports * scale.emulated_mbps(12.5) <= default_calibration().of().carries_mbps * 1.001


def test_native_takes_the_fabric_it_is_told() -> None:
    experiment = make_settings(
        {"workload": "pp-only", "modes": ["native"], "controller": "remote", "fabric": {"kind": "ocs"}}
    )
    plan = fabric_plan(experiment, load_workload("pp-only"), "native", RATE)
    assert {switch.kind for switch in plan.network("rail")} == {"ocs"}


def test_the_pace_of_the_llama_step_by_hand() -> None:
    """68 gathers and scatters of one transfer, one scalar of two rounds, 4 sends or receives, on two ports."""
    bytes_per_s = 2 * goodput_bytes_per_s(12.5)
    pace = step_pace(LLAMA.program, {"scale-out": bytes_per_s})
    compute_s = sum(op.seconds for op in LLAMA.program.operations[0] if isinstance(op, Compute))
    seconds = compute_s + (68 * 109_056_000 / 2 + 4 * 67_108_864) / bytes_per_s
    assert pace == {2: pytest.approx((68 + 2 + 4) / seconds, rel=0.01)}


@pytest.mark.parametrize("name", ["llama3-8b-16", "moe-smoke", "moe-ep-tp"])
def test_the_pace_gives_the_error_that_the_model_gives_for_the_same_cost(name: str) -> None:
    experiment = make_settings({"workload": name, "modes": ["electrical"]})
    workload, cost_s = load_workload(name, overlap=False), 1e-3
    job = job_point(experiment, workload, "electrical", 0, RATE)
    plan = job.fabric.plan()
    ideal, costly = (job.prediction(plan, RATE, costs).step_time_s for costs in (None, Costs(alpha_s=cost_s)))
    pace = scale_needs(experiment, workload).pace
    assert pace is not None
    assert sum(pace.values()) * cost_s == pytest.approx(costly / ideal - 1, rel=0.1)


def test_slots_have_a_floor_too() -> None:
    experiment = make_settings({"workload": "moe-smoke", "modes": ["rotor"], "slot_ms": 2, "guard_ms": 0.5})
    workload = load_workload("moe-smoke")
    scale = Scale(1 / 100)
    check_floors(experiment, workload, scale, Floors())
    with pytest.raises(ConfigError, match=r"scale\.time: the slot of 2 ms"):
        check_floors(experiment, workload, scale, Floors(slot_s=0.003))


@pytest.mark.parametrize("gbps", [200, 400, 800, 1600])
def test_real_rates_and_microseconds_are_predicted_since_nothing_is_sent(gbps: float) -> None:
    """Each of the two phase changes of the job exposes the delay, at the rates of real ports as well."""
    values = {"workload": "smoke", "modes": ["electrical", "on-demand"], "delays_ms": [0.001, 0.05]}
    rows = Rails(make_settings({**values, "fabric": {"rate_gbps": gbps}})).predict()
    electrical, short, long = (row.predicted_step_time_s or 0.0 for row in rows)
    assert long - electrical == pytest.approx(2 * 50e-6, rel=1e-3)
    assert short - electrical == pytest.approx(2 * 1e-6, rel=0.01)


def test_what_the_delays_add_to_a_step_and_what_it_hides_are_the_delays_of_its_changes() -> None:
    values = {"workload": "llama3-8b-16", "modes": ["electrical", "provisioned"], "delays_ms": [0.0, 200.0]}
    electrical, ideal, long = Rails(make_settings(values)).predict()
    assert electrical.predicted_exposed_s is None and ideal.predicted_exposed_s == ideal.predicted_hidden_s == 0
    exposed_s, hidden_s = long.predicted_exposed_s or 0.0, long.predicted_hidden_s or 0.0
    assert exposed_s == (long.predicted_step_time_s or 0.0) - (ideal.predicted_step_time_s or 0.0)
    assert 0 < hidden_s == pytest.approx(6 * 0.2 - exposed_s)
    (alone,) = Rails(make_settings({**values, "modes": ["on-demand"], "delays_ms": [200.0]})).predict()
    assert alone.predicted_exposed_s is None, "nothing to compare it with"


def test_a_profile_is_learned_on_demand() -> None:
    """The first three steps are those of on-demand, later ones those of a job whose phases are known."""
    values = {"workload": "smoke", "modes": ["on-demand", "provisioned"], "delays_ms": [100.0], "steps": 6}

    def steps_s(mode: Mode, profile_steps: int = 0) -> tuple[float, ...]:
        settings = make_settings({**values, "profile_steps": profile_steps})
        workload = load_job(settings)
        scale = model_scale(settings, workload)
        job = replace(job_point(settings, workload, mode, 100.0, scale), model_steps=6)
        return job.prediction(job.fabric.plan(), scale).step_times_s

    on_demand, known, learned = steps_s("on-demand"), steps_s("provisioned"), steps_s("provisioned", 3)
    assert on_demand[-1] > known[-1] + 0.05, "provisioned hides a part of the delay"
    assert learned[:3] == pytest.approx(on_demand[:3]) and learned[4:] == pytest.approx(known[4:])


@pytest.mark.parametrize("delay_ms", [50.0, 200.0])
@pytest.mark.parametrize(("name", "hidden_s"), [("smoke", 0.0), ("llama3-8b-16", 0.030)])
def test_a_stale_profile_costs_two_delays_once(name: str, hidden_s: float, delay_ms: float) -> None:
    """Nothing hides them in ``smoke``; with overlap the compute of the first gathered unit does in part."""
    values = {"workload": name, "modes": ["provisioned"], "delays_ms": [delay_ms], "steps": 6}

    def prediction(stale_step: int) -> Prediction:
        settings = make_settings({**values, "stale_step": stale_step})
        workload = load_job(settings)
        scale = model_scale(settings, workload)
        job = replace(job_point(settings, workload, "provisioned", delay_ms, scale), model_steps=6)
        return job.prediction(job.fabric.plan(), scale)

    known, stale = prediction(0), prediction(3)
    over = [mine - other for mine, other in zip(stale.step_times_s, known.step_times_s, strict=True)]
    assert over[3] == pytest.approx(2 * delay_ms / 1e3 - hidden_s, abs=0.005)
    assert [*over[:3], *over[4:]] == pytest.approx([0.0] * 5, abs=1e-6)
    assert stale.step_time_s == pytest.approx(known.step_time_s), "no other number counts the step"
    assert stale.reconfigurations_per_step == known.reconfigurations_per_step
    assert (stale.stale_step_time_s, known.stale_step_time_s) == (stale.step_times_s[3], None)


def test_a_prediction_does_not_depend_on_the_scale() -> None:
    """Also where a given rate would leave transfers of less than a packet, or make links too fast for a topology."""
    values = {"workload": "smoke", "modes": ["one-shot"], "fabric": {"rate_gbps": 800}}
    times = [
        next(iter(Rails(make_settings({**values, "scale": scale})).predict())).predicted_step_time_s
        for scale in ({"rate": "auto"}, {"rate": 1}, {"rate": "1/20000"}, {"rate": "1/250", "time": 3})
    ]
    assert times == pytest.approx([times[0] or 0.0] * 4, rel=1e-4)


def test_a_run_keeps_the_floors_that_a_prediction_does_not_have() -> None:
    rails = Rails(make_settings({"workload": "smoke", "delays_ms": [0.001], "scale": {"rate": "1/100"}}))
    with pytest.raises(ConfigError, match=r"the delay of 0\.001 ms is 0\.001 ms of wall-clock time, under the floor"):
        _ = rails.scale


MOE_RATE = Scale(1 / 130)
MOE = load_workload("moe-smoke")
EXCHANGE = 4 * 4096 * 2 * 4096 * 2
"""Bytes of a rank in one all-to-all of ``moe-smoke``: tokens x top 2 x hidden x 2."""
BESIDE = (4 * 4096**2 + 2 * 4096 + 16 * 4096 + 3 * 4096 * 3072) * 2


def algorithms(workload: str, mode: Mode) -> set[str]:
    experiment = make_settings({"workload": workload, "modes": [mode]})
    program = program_on(experiment, with_all_ranks(load_job(experiment)), mode)
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
    workload = with_all_ranks(load_job(experiment))
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
    found = forecast(experiment, with_all_ranks(load_job(experiment)), mode, delay_ms, MOE_RATE)
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


@pytest.mark.parametrize(("parallelism", "changes"), [({"ep": 4, "pp": 2}, 4), ({"ep": 4, "dp": 2}, 2)])
def test_pipelines_and_experts_gradients_take_circuits_of_others(
    parallelism: dict[str, int], changes: int, tmp_path: Path
) -> None:
    """PP: ring to chain and back, forward and backward. DP: the ring of all 8, then pairs for the experts, and back."""
    file = recipe(tmp_path / "own.yaml", parallelism=parallelism)
    none, slow = seconds("on-demand", 0, file), seconds("on-demand", 50, file)
    assert (none[1], slow[1]) == (changes, changes)
    assert slow[0] - none[0] == pytest.approx(changes * 0.05, rel=0.02)
