"""PyTorch scripts over real rails: their losses are those of plain gloo, also where circuits change and hosts die."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from experiments.progress import RunProgress
from experiments.runner import Runner
from experiments.settings import validated
from experiments.torch.experiment import RECORD, Torch
from experiments.torch.settings import TorchSettings
from measure.results.results import SCRIPTS, Results
from measure.results.row import Row
from railyard.errors import AgentError
from workloads.pytorch.record_file import read_record

pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")
pytestmark = [pytest.mark.root, pytest.mark.beside]

EXAMPLES = ROOT / "docs" / "examples" / "torch"
TINY = "--dim 64 --hidden 128 --layers 2 --heads 4 --kv-heads 4 --vocab 256 --seq 32 --batch 2"
DDP, PIPELINE = f"{TINY} --steps 12", f"{TINY} --steps 6"
PATIENT = {"heartbeat_ms": 1000, "detect": ["exit"]}


def gloo(script: str, arguments: str, ranks: int) -> dict[int, float]:
    """The losses by step of a script under plain gloo, without anything of Railyard."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    words = [sys.executable, str(EXAMPLES / script), *arguments.split()]
    started = [
        subprocess.Popen(words, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    printed = "".join(process.communicate(timeout=60)[0] for process in started)
    assert printed  # its threads may make it abort after its end, which is no matter here
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([0-9.]+)", printed)}


def run(out: Path, script: Path, arguments: str = "", **values: Any) -> list[Row]:
    once = {"repeats": 1, "attempts": 1, "ranks": 2, "delays_ms": [0], "timeout_s": 60, "front_end_below": 1024}
    given = {**once, "script": str(script), "script_arguments": arguments, **values}
    experiment = Torch(validated(TorchSettings, given))
    experiment.check()
    with Runner(experiment, out, RunProgress()) as runner:
        experiment.run(runner)
    return Results.open(out).rows()


def losses(row: Row) -> dict[int, float]:
    return {int(step): loss for step, loss in row["losses"].items()}


@pytest.fixture(scope="module")
def learnt() -> dict[int, float]:
    return gloo("ddp.py", DDP, 2)


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    out = tmp_path_factory.mktemp("ddp") / "out"
    return out, run(out, EXAMPLES / "ddp.py", DDP, modes=["on-demand"])


def test_data_parallel_training_learns_as_under_gloo_and_its_run_is_a_record_too(
    ddp: tuple[Path, list[Row]], learnt: dict[int, float]
) -> None:
    out, (row,) = ddp
    assert losses(row) == pytest.approx(learnt, abs=2e-5) and len(learnt) == 12
    assert (row["steps"], row["first_step"], row["misdelivered"], row["refusals"]) == (10, 2, 0, 0)
    before, after = (read_record(path) for path in (out / RECORD, out / SCRIPTS / "000" / RECORD))
    assert [len(one.calls) for one in before.classes] == [len(one.calls) for one in after.classes]
    assert after.step == 11 and before.step == 2
    assert row["sent_bytes"] > 10 * sum(call.bytes for call in before.classes[0].calls if call.bytes > 1024)


def test_circuits_change_under_a_pipeline_as_predicted_and_it_learns_the_same(tmp_path: Path) -> None:
    (row,) = run(tmp_path / "out", EXAMPLES / "pp_dp.py", PIPELINE, ranks=4, delays_ms=[20], compute="recorded",
               modes=["on-demand"])  # fmt: skip
    learnt = gloo("pp_dp.py", PIPELINE, 4)
    assert losses(row) == pytest.approx(learnt, abs=2e-5) and len(learnt) == row["steps"] + 2 == 6
    assert row["reconfigurations_per_step"] == row["predicted_reconfigurations_per_step"] > 1
    assert (row["mode"], row["misdelivered"]) == ("on-demand", 0)


def test_a_killed_rank_is_replaced_and_resumes(
    ddp: tuple[Path, list[Row]], learnt: dict[int, float], tmp_path: Path
) -> None:
    arguments = f"{DDP} --checkpoint {tmp_path / 'checkpoint'}"
    row, fault = run(tmp_path / "out", EXAMPLES / "ddp.py", arguments, modes=["provisioned"], kill="1@4.5",
                     spare_servers=1, record=str(ddp[0] / RECORD), compute="recorded", detection=PATIENT)  # fmt: skip
    assert losses(row) == pytest.approx(learnt, abs=2e-5)
    assert (fault["state"], fault["rank"], fault["replaced_by"]) == ("recovered", 1, 2)
    assert fault["outage_s"] < 20, "10 s on a quiet machine"


def test_a_script_that_dies_ends_the_run_with_its_rank_and_its_traceback(
    ddp: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    script = tmp_path / "dies.py"
    text = (EXAMPLES / "ddp.py").read_text()
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n"
        + text.replace(
            "        loss.backward()\n", "        assert step < 4 or rank == 0, 'mine'\n        loss.backward()\n"
        )
    )
    with pytest.raises(AgentError, match="the script of rank 1 died with status 1: AssertionError: mine"):
        run(tmp_path / "out", script, DDP, modes=["electrical"], record=str(ddp[0] / RECORD))
    assert "AssertionError: mine" in (tmp_path / "out" / SCRIPTS / "000" / "rank1.log").read_text()
    assert not Results.open(tmp_path / "out").rows()
