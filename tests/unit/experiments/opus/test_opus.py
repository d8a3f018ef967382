"""The opus experiment: its cases, what it computes for them, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytorch_traces import mesh_traces, record

from experiments.opus.experiment import (
    ON_CIRCUITS,
    STUDIES,
    TECHNOLOGIES,
    Opus,
    OpusRow,
    OpusSettings,
    placed_experts,
    rows_of,
)
from experiments.opus.report import spread
from measure.published import published
from railyard.errors import ConfigError
from railyard.validation import from_plain
from workloads.catalog import recipe_of
from workloads.pytorch.record_file import write_record

LLAMA = "llama3-8b-16"


def opus(**settings: Any) -> Opus:
    return Opus(from_plain(OpusSettings, settings, "the settings of an opus experiment"))


def rows(**settings: Any) -> list[OpusRow]:
    experiment = opus(jobs=[LLAMA], **settings)
    experiment.check()
    found = [row for case in experiment.cases for row in rows_of(case, sensitivity=experiment.settings.sensitivity)]
    assert len(experiment.cases) == experiment.points()
    return found


def test_the_law_of_the_llama_job() -> None:
    """Six changes a step, one of which meets the pass of the last stage that gathers nothing: 6 d - min(d, W)."""
    found = [row for row in rows(study=["delay"], delays_ms=[0, 100, 250, 1000, 3000]) if row.mode == "on-demand"]
    window_s = found[-1].hidden_s
    assert 0.7 < window_s < 1.0
    for row in found:
        assert row.changes == 6
        assert row.exposed_s == pytest.approx(6 * row.delay_ms / 1e3 - min(row.delay_ms / 1e3, window_s), abs=0.005)


def test_growth_on_demand_beside_the_files_of_the_authors() -> None:
    theirs = published("opus-llama-growth-on-demand").values
    found = rows(study=["delay"], delays_ms=list(theirs))
    ours = {row.delay_ms: row for row in found if row.mode == "on-demand"}
    assert {delay: row.authors for delay, row in ours.items()} == theirs
    for delay, exposed_s in theirs.items():
        assert ours[delay].exposed_s == pytest.approx(exposed_s, abs=0.2 if delay <= 1000 else 0.4)


def test_the_native_step_is_the_measured_one_on_any_ports() -> None:
    found = [row for row in rows(study=["bandwidth"], ports_gbps=[12.5, 100]) if row.mode == "electrical"]
    assert [row.step_s for row in found] == pytest.approx([10.178] * 2, abs=1e-3)


def test_windows_shrink_with_the_share_of_the_batch() -> None:
    medians = []
    for job in ("frontier-2048", "frontier-4096", "frontier-8192"):
        experiment = opus(study=["windows"], jobs=[job])
        (row,) = (row for case in experiment.cases for row in rows_of(case) if row.transition == "dp to pp")
        medians.append(row.window_s)
        assert row.authors == published("opus-windows").values[row.gpus] / 1e3
    assert medians == pytest.approx([medians[0] / 2**n for n in range(3)], rel=0.01)


def test_a_whole_rail_is_never_faster_where_circuits_are_asked_for_in_advance() -> None:
    """On demand it can be: whoever asks first brings along the circuits of stages that will ask later."""
    found = rows(study=["recovery"], recoveries_s=[0, 1])
    alone = {(row.mode, row.recovery_s): row.step_s for row in found if "whole" not in row.mode}
    whole = {(row.mode.split(",")[0], row.recovery_s): row.step_s for row in found if "whole" in row.mode}
    assert alone.keys() == whole.keys() and len(alone) == 4
    assert all(whole[key] >= alone[key] - 1e-9 for key in alone if key[0] == "provisioned")
    assert whole["on-demand", 1.0] < alone["on-demand", 1.0]


def test_experts_in_servers_and_on_rails_have_the_same_gpus_and_batch() -> None:
    recipe = recipe_of("experts-256")
    for placement in ("in servers", "on rails"):
        for ep in (2, 4, 8):
            placed = placed_experts(recipe, ep, placement)
            p, gpus = placed.parallelism, placed.fabric.gpus_per_server
            assert (p.ranks, p.ep, placed.microbatches) == (256, ep, recipe.microbatches)
            assert placed.batch.local_batch * p.ep * p.dp == 16 * 4 * 8
            assert p.tp * (p.ep if placement == "in servers" else 1) == gpus


def test_technologies_are_those_with_enough_ports() -> None:
    experiment = opus(study=["technologies"], jobs=["llama-128-h200", "frontier-16384"])
    shown = {(case.job.name, case.shown.get("technology")) for case in experiment.cases if case.mode in ON_CIRCUITS}
    assert {name for job, name in shown if job == "llama-128-h200"} == set(TECHNOLOGIES) - {"PLZT"}
    assert {name for job, name in shown if job == "frontier-16384"} == set()
    assert experiment.omitted[0] == "Left out for llama-128-h200: PLZT, whose ports are too few."


def test_sensitivity_is_the_step_with_each_end_of_an_assumption() -> None:
    (case, *_) = opus(study=["scale"], jobs=["frontier-2048"]).cases
    (row,) = rows_of(case, sensitivity=True)
    assert row.sensitivity.keys() == {"model.hidden", "batch.microbatch", "compute.tflops"}
    slow, fast = row.sensitivity["compute.tflops"]
    assert 1.2 < slow < 1000 / 700 and 1000 / 1400 < fast < 0.9
    assert spread(row.sensitivity) == max(abs(ratio - 1) for both in row.sensitivity.values() for ratio in both)


def test_every_study_names_jobs_of_the_catalog() -> None:
    for study in STUDIES.values():
        for job in study.jobs:
            assert recipe_of(job).name == job


def test_a_record_of_a_script_is_a_job(tmp_path: Path) -> None:
    path = tmp_path / "record.yaml"
    write_record(record(mesh_traces(2, 64, 8, representatives=True), 8), path)
    experiment = opus(study=["windows", "delay", "bandwidth", "technologies"], jobs=[str(path)], delays_ms=[0, 10])
    experiment.check()
    found = [row for case in experiment.cases for row in rows_of(case, sensitivity=True)]
    assert {(row.gpus, row.job) for row in found} == {(1024, "job")}
    exposed = {row.delay_ms: row.exposed_s for row in found if (row.study, row.mode) == ("delay", "on-demand")}
    assert exposed[0] == 0 and exposed[10] == pytest.approx(0.01 * 7, rel=0.2)
    steps = [row.step_s for row in found if (row.study, row.mode) == ("bandwidth", "electrical")]
    assert steps == sorted(steps, reverse=True) and len({*steps}) == 6
    with pytest.raises(ConfigError, match=r"study: experts changes .* is a record"):
        opus(study=["experts"], jobs=[str(path)]).check()
