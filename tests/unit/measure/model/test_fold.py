"""Ranks that cannot be told apart, computed once: the same step as with all ranks, and sizes that only fold."""

from __future__ import annotations

from typing import Any

import pytest
from training_steps import changed_recipe

from experiments.rails.job import job_point, model_scale
from experiments.rails.settings import make_settings
from measure.model.prediction import Prediction
from workloads.catalog import job_keys, make_workload, recipe_of
from workloads.training.fold import layout_of
from workloads.training.recipe import Recipe, make_recipe

SETTINGS = make_settings({})
DENSE: dict[str, Any] = {
    "model": {"layers": 4, "hidden": 4096, "sequence": 2048, "heads": 32},
    "batch": {"local_batch": 4, "microbatch": 2},
    "compute": {"forward_ms": 20, "recompute": True},
    "training": {"scalars": 2},
    "fabric": {"gpus_per_server": 4, "port_gbps": 100},
}
EXPERTS = DENSE | {
    "model": DENSE["model"] | {"experts": 16, "top_k": 2, "expert_ffn_hidden": 3072, "shared_experts": 1}
}


def predicted(recipe: Recipe, mode: Any, delay_ms: float, *, folded: bool) -> Prediction:
    workload = make_workload(recipe, folded=folded)
    scale = model_scale(SETTINGS, workload)
    job = job_point(SETTINGS, workload, mode, delay_ms, scale)
    return job.prediction(job.fabric.plan(), scale)


def llama(dp: int) -> Recipe:
    keys = job_keys("llama3-8b-16")
    return make_recipe(
        {**keys, "parallelism": {**keys["parallelism"], "dp": dp}, "fabric": {"servers": 2 * dp, "gpus_per_server": 4}}
    )


JOBS = [
    pytest.param(llama(2), id="llama, 16 GPUs"),
    pytest.param(changed_recipe(DENSE, tp=4, pp=2, dp=4, sharding="ddp"), id="gradients in rings of four"),
    pytest.param(changed_recipe(DENSE, tp=2, pp=4, dp=3, gpus_per_server=2), id="four stages, rings of three"),
    pytest.param(changed_recipe(EXPERTS, tp=2, ep=2, pp=2, dp=4), id="experts in servers"),
    pytest.param(changed_recipe(EXPERTS, tp=2, ep=4, dp=2, gpus_per_server=2), id="experts on rails"),
    pytest.param(llama(4), id="llama, 32 GPUs", marks=pytest.mark.thorough),
    pytest.param(llama(8), id="llama, 64 GPUs", marks=pytest.mark.thorough),
    pytest.param(
        changed_recipe(DENSE, tp=8, pp=4, dp=4, gpus_per_server=8, layers=32), id="128 GPUs", marks=pytest.mark.thorough
    ),
]


@pytest.mark.parametrize("recipe", JOBS)
@pytest.mark.parametrize(
    ("mode", "delay_ms"),
    [("provisioned", 150), *(pytest.param(*case, marks=pytest.mark.thorough)
                             for case in (("electrical", 0), ("on-demand", 150)))],
)  # fmt: skip
def test_what_is_folded_takes_as_long_as_the_whole(recipe: Recipe, mode: str, delay_ms: float) -> None:
    whole, folded = (predicted(recipe, mode, delay_ms, folded=folded) for folded in (False, True))
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert folded.step_times_s == pytest.approx(whole.step_times_s, rel=1e-9)
    assert folded.reconfigurations_per_step == whole.reconfigurations_per_step
    assert len(folded.events) < len(whole.events)


def test_which_ranks_are_kept() -> None:
    def kept(recipe: Recipe) -> tuple[int, int]:
        layout = layout_of(recipe, folded=True)
        return layout.parallelism.ranks, layout.gpus_per_server

    assert kept(llama(8)) == (2 * 2, 1), "one rail, two replicas"
    assert kept(changed_recipe(EXPERTS, tp=2, ep=2, pp=2, dp=4)) == (2 * 2 * 2 * 2, 4), "experts join the rails"
    assert kept(changed_recipe(EXPERTS, tp=2, ep=4, dp=2, gpus_per_server=2)) == (8, 1), "all-to-alls are no rings"
    assert kept(changed_recipe(EXPERTS, ep=4, dp=2, expert_skew=1.0)) == (8, 4), "uneven experts"
    assert kept(changed_recipe(DENSE, tp=4, dp=4, tp_on_packets=True)) == (8, 4), "TP joins the rails"
    assert kept(changed_recipe(DENSE, tp=1, dp=16)) == (16, 4), "replicas share servers"


def test_a_job_that_no_machine_emulates_is_folded() -> None:
    recipe = recipe_of("frontier-16384")
    assert (make_workload(recipe, folded=True).program.ranks, recipe.parallelism.ranks) == (8, 16_384)
    assert predicted(recipe, "on-demand", 10, folded=True).reconfigurations_per_step == 16
