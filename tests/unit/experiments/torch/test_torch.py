"""A PyTorch script on rails, as far as no torch is needed: its settings, its record, its losses and its report."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytorch_traces import Script
from pytorch_traces import record as written
from script_runs import called

from commands.torchrun import split
from experiments.settings import validated
from experiments.torch.experiment import Torch, TorchRow, kills_of, losses_in
from experiments.torch.job import calls_of, last_step, with_computes, workload_of
from experiments.torch.report import REPORT
from experiments.torch.settings import TorchSettings
from railyard.errors import ConfigError
from workloads.program import Compute
from workloads.pytorch.record_file import read_record
from workloads.pytorch.trace import RankTrace, StepEnd

RECORD = """
record: {name: job, ranks: 4, step: 2, port_gbps: 0.1}
roles:
  dp: {dimension: dp, groups: ['0,1', '2,3']}
  world.small: {dimension: dp, front_end: true, groups: ['0-3']}
  pp.0-1: {dimension: pp, groups: ['0,2', '1,3']}
classes:
- ranks: '0,1'
  calls: |
    0.1: send pp.0-1 400000 as F0
    0.1: recv pp.0-1 400000 as B0
    0.2 after 1: all_reduce dp 4000000 as grads
    0.0 after 2: all_reduce world.small 4
    0.05 after 3: end
- ranks: '2,3'
  calls: |
    0.0: recv pp.0-1 400000 as F0
    0.2 after 0: send pp.0-1 400000 as B0
    0.1: all_reduce dp 4000000 as grads
    0.0 after 2: all_reduce world.small 4
    0.05 after 3: end
"""


@pytest.fixture
def record(tmp_path: Path) -> str:
    path = tmp_path / "record.yaml"
    path.write_text(RECORD)
    return str(path)


def torch(record: str, **values: Any) -> Torch:
    return Torch(validated(TorchSettings, {"record": record, "script": __file__, **values}))


def test_a_record_is_predicted_without_torch_and_as_by_the_rail_experiment(record: str) -> None:
    options, before = ("--delays", "0,50", "--json"), "torch" in sys.modules
    rows = json.loads(called("predict", "torch", "--record", record, *options).stdout)
    found = {(row["mode"], row["reconfiguration_delay_ms"]): row for row in rows}
    assert list(found) == [("electrical", 0), *((mode, ms) for mode in ("on-demand", "provisioned") for ms in (0, 50))]
    assert found["on-demand", 50]["predicted_reconfigurations_per_step"] == 2
    assert (
        found["provisioned", 50]["predicted_exposed_s"]
        < found["on-demand", 50]["predicted_exposed_s"]
        == (pytest.approx(0.1, rel=0.01))
    )
    rails = json.loads(
        called("predict", "rails", "--workload", record, "--modes", "on-demand,provisioned", *options).stdout
    )
    assert [row["predicted_step_time_s"] for row in rows[1:]] == pytest.approx(
        [row["predicted_step_time_s"] for row in rails], rel=1e-3
    )
    assert ("torch" in sys.modules) == before


def test_computes_are_scaled_or_those_of_another_record(record: str, tmp_path: Path) -> None:
    def computes(compute: str) -> float:
        program = torch(record, compute=compute).workload.program
        return sum(op.seconds for op in program.operations[0] if isinstance(op, Compute))

    other = tmp_path / "other.yaml"
    other.write_text(RECORD.replace("0.2 after 1", "0.7 after 1"))
    assert computes("real") == computes("recorded") == pytest.approx(0.45)
    assert computes("scaled:2") == pytest.approx(0.9) and computes(f"given:{other}") == pytest.approx(0.95)
    other.write_text(RECORD.replace("    0.0 after 2: all_reduce world.small 4\n", "").replace("0.05 after 3", "0.05"))
    with pytest.raises(ConfigError, match="compute: is of another step"):
        computes(f"given:{other}")


def test_a_script_gets_its_calls_in_order_with_the_computes_before_them(record: str) -> None:
    calls = calls_of(torch(record).workload.program)
    assert [call.kind for call in calls[0]] == ["send", "recv", "all_reduce", "all_reduce", "end"]
    assert [call.on_rail for call in calls[0]] == [True, True, True, False, False]
    assert [call.seconds for call in calls[0]] == [0.1, 0.1, 0.2, 0.0, 0.05]
    assert (calls[3][2].ranks, calls[3][2].bytes, calls[3][3].ranks) == ((2, 3), 4_000_000, (0, 1, 2, 3))


def test_kills_count_the_steps_of_the_script_and_spares_take_the_programs_of_the_dead(record: str) -> None:
    values: dict[str, Any] = {"spare_servers": 1, "modes": ["on-demand"], "delays_ms": [0]}
    experiment = torch(record, kill="2@5.5,0@+1", **values)
    point, scale = experiment.settings.points()[0], experiment.scale
    setting = experiment.setting(point, scale)
    assert [str(kill) for kill in kills_of(experiment.settings, setting.plan)] == ["2@3.5", "0@+1"]
    assert setting.plan.ranks == 5 and setting.plan.spares == (4,) and setting.plan.network("front-end")
    job = experiment.job(experiment.workload, point, scale)
    assert job.members == (0, 1, 2, 3) and job.training is not None and job.script is not None
    moved = job.program_of((0, 1, 4, 3))
    assert moved.operations[2] == () and len(moved.operations[4]) == len(job.program.operations[2])
    assert len(job.script.calls) == 4, "of ranks, wherever they are"
    for kill, words in (("2@1.5", "after the 2 steps of set-up"), ("rail0:3@5", "add detection.detect port")):
        with pytest.raises(ConfigError, match=words):
            torch(record, kill=kill, **values).check()


@pytest.mark.parametrize(
    ("line", "split_as"),
    [
        ("train.py --steps 3", ([], "train.py", ["--steps", "3"])),
        ("--ranks 4 --no-figures train.py", (["--ranks", "4", "--no-figures"], "train.py", [])),
        ("--lab x --strict --delays=0 a.py a.py", (["--lab", "x", "--strict", "--delays=0"], "a.py", ["a.py"])),
        ("--json train.py --json", (["--json"], "train.py", ["--json"])),
    ],
)
def test_what_follows_the_script_belongs_to_it(line: str, split_as: tuple[list[str], str, list[str]]) -> None:
    assert split(line.split()) == split_as


def test_torchrun_without_a_script_says_how_it_is_typed() -> None:
    for line in ("torchrun --ranks 4", "torchrun --ranks"):
        done = called(*line.split())
        assert done.returncode == 2 and "name a PyTorch script after the options" in done.stderr


def test_losses_are_read_from_lines_that_name_a_step() -> None:
    lines = ["step 0 loss 7.5", "Step: 1, lr 0.1, Loss=7.25", "loss 3", "step 2 took 3 s", "step 3 loss nan"]
    assert losses_in(lines) == {0: 7.5, 1: 7.25, 3: None}
    assert losses_in(["step 5 loss 3.2-ish", "step 6 loss 1e"]) == {5: 3.2}
    assert losses_in(["step 4 loss 2", "step 4 loss 1.5e-3"]) == {4: 0.0015}


def test_the_last_step_is_that_of_the_rank_that_came_least_far() -> None:
    traces = [RankTrace(rank, 2, tuple(StepEnd(step) for step in range(steps))) for rank, steps in ((0, 3), (1, 2))]
    assert last_step(traces) == 1


def test_each_step_has_its_loss_beside_what_it_took(record: str) -> None:
    experiment = torch(record, modes=["electrical"])
    (row,) = experiment.predict()
    assert isinstance(row, TorchRow)
    row.losses, row.first_step = {step: 8.0 - step for step in range(20)}, 2
    row.step_times_s, row.faithful = [0.5] * 18, True
    table = list(REPORT.tables([row.to_json()]))[-1]
    assert "6 between not shown" in table.title and len(table.rows) == 12
    assert [(one["step"], one["loss"]) for one in table.rows][::11] == [(2, 6.0), (19, -11.0)]


def test_a_record_of_other_ranks_is_refused(record: str) -> None:
    with pytest.raises(ConfigError, match="ranks: must be 4, as in the record"):
        workload_of(read_record(Path(record)), validated(TorchSettings, {"ranks": 8}))
    program = torch(record).workload.program
    assert with_computes(program, "real", program) == program


def test_computes_are_given_by_a_record_that_waited_elsewhere() -> None:
    traces = {}
    for rank in range(2):
        script = Script(rank, 2)
        for _ in range(3):
            script.call("all_reduce", range(2))
            script.end()
        traces[rank] = script.trace
    with_part = written(traces)
    (ranks,) = with_part.classes
    without = replace(with_part, classes=(replace(ranks, end_ahead=0.0, end_seconds=2.0),)).program()
    parts = [
        op.seconds for op in with_computes(with_part.program(), "real", without).operations[1] if op.type == "compute"
    ]
    assert parts == [ranks.calls[0].seconds, 0.0, 2.0]
    whole = [
        op.seconds
        for op in with_computes(without, "scaled:2", with_part.program()).operations[0]
        if op.type == "compute"
    ]
    assert whole == [2 * ranks.calls[0].seconds, 2 * (ranks.end_ahead + ranks.end_seconds)]
