"""The model against numbers of Opus (fitted ones: native steps; others: slopes) and against closed formulas."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.policies.catalog import load_policy
from measure.metrics.stall import stall_law
from measure.model.prediction import Costs, Prediction, predict
from measure.model.wires import wire_bytes
from measure.published import published
from railyard.errors import ConfigError, ControlError
from railyard.scale import Scale
from topos.describe import plan
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.catalog import Workload, load_workload, make_workload
from workloads.program import Collective, Group, Program, Recv, Send
from workloads.training.recipe import make_recipe

FABRIC = {"on-demand": "ocs", "provisioned": "ocs", "one-shot": "one-shot"}
POLICY = {"on-demand": "opus", "provisioned": "opus", "one-shot": "one-shot", "electrical": "electrical"}
SCALE = Scale(1 / 100)


def fabric(workload: Workload, mode: str, scale: Scale) -> FabricPlan:
    rate = scale.emulated_mbps(workload.port_gbps)
    return plan(
        RailTopo(
            servers=workload.servers,
            gpus=workload.gpus_per_server,
            rate_mbps=rate,
            fabric=FABRIC.get(mode, "electrical"),
            front_end=workload.uses_front_end,
        )
    )


def run(workload: Workload, mode: str, delay_s: float = 0.0, scale: Scale = SCALE, **options: Any) -> Prediction:
    where = fabric(workload, mode, scale)
    policy = load_policy(POLICY[mode], where) if mode in POLICY else None
    return predict(workload.program, where, policy, mode, delay_s, scale=scale, **options)


@cache
def step(name: str, mode: str, delay_s: float = 0.0) -> Prediction:
    return run(load_workload(name), mode, delay_s)


def slope(name: str, mode: str, delay_s: float) -> float:
    return (step(name, mode, delay_s).step_time_s - step(name, "electrical").step_time_s) / delay_s


def test_native_steps_are_those_that_the_compute_time_was_fitted_to() -> None:
    for name, key in (("llama3-8b-16", "opus-llama-native"), ("pp-only", "opus-deepseek-native")):
        assert step(name, "native").step_time_s == pytest.approx(published(key).value, abs=0.005)


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.1, 0.2, 0.5])
def test_smoke_on_demand_costs_two_delays(delay_s: float) -> None:
    # Artifact simulator: 62.2416 s electrical; 62.2436, 62.2616 and 62.3416 at 1, 10 and 50 ms.
    assert slope("smoke", "on-demand", delay_s) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.25, 1.0])
def test_llama_on_demand_costs_six_delays(delay_s: float) -> None:
    assert slope("llama3-8b-16", "on-demand", delay_s) == pytest.approx(6.0, rel=1e-6)


def test_llama_exposes_each_of_its_six_changes() -> None:
    made = step("llama3-8b-16", "on-demand", 0.05)
    assert made.exposed_stall_s == pytest.approx(0.3)
    assert made.reconfigurations_per_step == 6


@pytest.mark.parametrize("mode", ["on-demand", "provisioned"])
def test_without_data_parallelism_nothing_is_rewired(mode: str) -> None:
    made = step("pp-only", mode, 1.0)
    assert made.step_time_s == step("pp-only", "electrical").step_time_s
    assert made.reconfigurations_per_step == 0
    assert made.exposed_stall_s == 0


@pytest.mark.parametrize("name", ["smoke", "llama3-8b-16"])
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.25, 1.0])
def test_asking_ahead_never_costs_more_than_asking_on_demand(name: str, delay_s: float) -> None:
    ahead, demand = step(name, "provisioned", delay_s), step(name, "on-demand", delay_s)
    assert ahead.step_time_s <= demand.step_time_s + 1e-9
    assert ahead.step_time_s >= step(name, "electrical").step_time_s - 1e-9


def test_what_is_provisioned_hides_in_the_window() -> None:
    """Smoke: the gradients' circuits are asked for one backward pass ahead, so only the pipeline's delay shows."""
    assert slope("smoke", "provisioned", 0.1) == pytest.approx(1.0, rel=1e-6)


def test_electrical_without_costs_is_native() -> None:
    for name in ("smoke", "llama3-8b-16", "pp-only"):
        assert step(name, "electrical").step_time_s == pytest.approx(step(name, "native").step_time_s, rel=1e-9)


def test_a_delay_of_zero_costs_nothing() -> None:
    assert step("llama3-8b-16", "on-demand").step_time_s == pytest.approx(step("llama3-8b-16", "native").step_time_s)


def test_results_do_not_depend_on_the_scale() -> None:
    workload = load_workload("smoke")
    for scale in (Scale(1 / 250), Scale(1 / 50), Scale(1 / 250, 2.0)):
        made = run(workload, "on-demand", 0.1, scale)
        assert made.step_time_s == pytest.approx(step("smoke", "on-demand", 0.1).step_time_s, rel=2e-3)


def test_a_pipeline_of_four_stages_with_fsdp_does_not_lock_up() -> None:
    recipe = make_recipe(
        {
            "name": "deep",
            "model": {"layers": 8, "hidden": 1024, "sequence": 1024, "heads": 8},
            "parallelism": {"pp": 4, "dp": 2},
            "batch": {"local_batch": 5, "microbatch": 1},
            "compute": {"forward_ms": 10},
            "fabric": {"servers": 8, "gpus_per_server": 1},
        }
    )
    workload = make_workload(recipe)
    native = run(workload, "native").step_time_s
    assert native < run(workload, "provisioned", 0.01).step_time_s <= run(workload, "on-demand", 0.01).step_time_s


# ---- closed formulas ------------------------------------------------------------------------------------------------


def alone(kind: str, n: int, size: int, costs: Costs | None = None) -> float:
    """Time of one collective of ``size`` bytes on a ring of ``n`` GPUs with two ports of 80 Mb/s, scale 1."""
    groups = {"dp": Group("dp", "dp", tuple(range(n)))}
    op = Collective(0, "c", kind, "dp", size)  # type: ignore[arg-type]
    where = plan(RailTopo(servers=n, gpus=1, rate_mbps=80, fabric="electrical"))
    return predict(Program("one", ((op,),) * n, groups), where, None, "native", steps=1, costs=costs).step_time_s


@given(n=st.integers(2, 16), kind=st.sampled_from(["all_gather", "reduce_scatter", "all_reduce"]))
def test_ring_collectives_take_the_alpha_beta_time(n: int, kind: str) -> None:
    size, alpha = 2 * n * 8948 * 10, 0.001
    rounds = (n - 1) * (2 if kind == "all_reduce" else 1)
    chunk_s = wire_bytes(size // (2 * n), 9000) / 1e7
    assert alone(kind, n, size) == pytest.approx(rounds * chunk_s)
    assert alone(kind, n, size, Costs(alpha_s=alpha)) == pytest.approx(rounds * (chunk_s + alpha))


def pair_program() -> Program:
    groups = {"pp": Group("pp", "pp", (0, 1))}
    size = 8948 * 100
    ranks = (
        (Send(0, "s", "pp", 1, size), Recv(1, "r", "pp", 1, size)),
        (Send(0, "s", "pp", 0, size), Recv(1, "r", "pp", 0, size)),
    )
    return Program("pair", ranks, groups)


def test_a_pair_is_full_duplex() -> None:
    where = plan(RailTopo(servers=2, gpus=1, rate_mbps=80, fabric="electrical"))
    made = predict(pair_program(), where, None, "native", steps=1)
    assert made.step_time_s == pytest.approx(901_400 / 1e7)


def test_the_control_path_is_counted_once_per_request() -> None:
    workload = load_workload("smoke")
    free = run(workload, "electrical").step_time_s
    paid = run(workload, "electrical", costs=Costs(control_s=0.01)).step_time_s
    assert paid - free == pytest.approx(2 * 0.01, abs=1e-6)


def test_the_time_to_install_is_part_of_the_dark_time() -> None:
    workload = load_workload("smoke")
    slow = run(workload, "on-demand", 0.05, costs=Costs(settle_s=0.002)).step_time_s
    assert slow - step("smoke", "on-demand", 0.05).step_time_s == pytest.approx(2 * 0.002, abs=1e-6)


def test_link_recovery_adds_to_the_delay() -> None:
    workload = load_workload("smoke")
    assert run(workload, "on-demand", 0.03, link_recovery_s=0.02).step_time_s == pytest.approx(
        step("smoke", "on-demand", 0.05).step_time_s
    )


def test_stall_law() -> None:
    assert stall_law([0.0, 0.1, 0.3], 0.2) == pytest.approx(0.3)
    assert stall_law([], 1.0) == 0


# ---- trouble --------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused() -> None:
    where = plan(RailTopo(servers=4, gpus=1, rate_mbps=80, fabric="electrical"))
    with pytest.raises(ConfigError, match="2 ranks and the fabric 4"):
        predict(pair_program(), where, None, "native")
    with pytest.raises(ConfigError, match="mode native has no policy"):
        predict(pair_program(), plan(RailTopo(servers=2, gpus=1)), None, "on-demand")


def test_a_run_that_stands_still_says_who_waits_for_what() -> None:
    groups = {"pp": Group("pp", "pp", (0, 1))}
    program = Program("alone", ((Recv(0, "never", "pp", 1, 8),), ()), groups)
    with pytest.raises(ControlError, match=r"stands still.*rank 0 waits for never in group pp"):
        predict(program, plan(RailTopo(servers=2, gpus=1, fabric="electrical")), None, "native", steps=1)
