"""Mode deciding in the model: against the modes that it chooses between, on random jobs and on one that is named."""

from __future__ import annotations

from random import Random

import pytest

from experiments.rails.job import job_point, load_job, model_scale
from experiments.rails.settings import Mode, RailSettings, make_settings
from workloads.catalog import Workload, make_workload
from workloads.training.recipe import Recipe

OTHERS: tuple[Mode, ...] = ("one-shot", "on-demand", "provisioned")
MOST_WORSE = 1.02
LEAST_BETTER = 0.9


def random_recipe(draw: Random) -> Recipe:
    """A small job on 8 GPUs, with or without data and pipeline parallelism, bound by compute or by its links."""
    tp, pp, dp = draw.choice([(2, 2, 2), (1, 2, 4), (1, 4, 2), (4, 2, 1), (2, 1, 4)])
    return Recipe.model_validate(
        {
            "name": "random",
            "model": {
                "layers": pp * draw.randint(1, 2),
                "hidden": draw.choice([512, 1024, 2048, 4096]),
                "sequence": draw.choice([512, 2048, 4096]),
                "heads": 8,
            },
            "parallelism": {"tp": tp, "pp": pp, "dp": dp},
            "batch": {"local_batch": draw.randint(1, 3), "microbatch": 1},
            "compute": {"forward_ms": 10 ** draw.uniform(-1, 1.7), "recompute": draw.random() < 0.5},
            "training": {
                "sharding": draw.choice(["fsdp", "ddp"]),
                "overlap": draw.random() < 0.5,
                "reshard_after_forward": draw.random() < 0.7,
            },
            "fabric": {"servers": 8 // tp, "gpus_per_server": tp, "port_gbps": draw.choice([12.5, 50, 100, 200])},
        }
    )


def step_s(settings: RailSettings, workload: Workload, mode: Mode, delay_ms: float) -> float:
    scale = model_scale(settings, workload)
    job = job_point(settings, workload, mode, delay_ms, scale)
    return job.prediction(job.fabric.plan(), scale).step_time_s


def over_the_best(settings: RailSettings, workload: Workload, delay_ms: float) -> float:
    """The step of mode deciding over the shortest of the other modes."""
    best = min(step_s(settings, workload, mode, delay_ms) for mode in OTHERS)
    return step_s(settings, workload, "deciding", delay_ms) / best


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.thorough)])
def test_random_jobs_are_hardly_ever_slower_than_the_best_mode(seeds: range) -> None:
    settings = make_settings({"workload": "smoke"})
    for seed in seeds:
        draw = Random(seed)
        recipe, delay_ms = random_recipe(draw), 10 ** draw.uniform(-1, 2.7)
        over = over_the_best(settings, make_workload(recipe, folded=True), delay_ms)
        assert over <= MOST_WORSE, f"seed {seed}, {delay_ms:.3g} ms: {over - 1:.1%} slower than the best mode"


def test_a_named_job_is_a_tenth_faster_than_the_best_mode() -> None:
    """With a short delay it changes twice a step, and with a long one not at all."""
    settings = make_settings({"workload": "smoke", "fabric": {"rate_gbps": 3}})
    workload = load_job(settings)
    assert over_the_best(settings, workload, 50) <= LEAST_BETTER
    assert over_the_best(settings, workload, 1000) == pytest.approx(1, abs=1e-3)
