"""Measured points on a worker of Dask: their results come back whole, and nothing goes on without the worker."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from commands.sweep.execute import Outcome
from commands.sweep.folder import SweepFolder
from commands.sweep.spec import RESULTS, attempt_folder, read_spec
from commands.sweep.workers.dask_cluster import Workers, local_workers
from commands.sweep.workers.dask_executor import run_all_on
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, MachineError

pytestmark = [pytest.mark.root, pytest.mark.beside]

GONE_S = 45.0
"""A run has half a minute to take its fabric down."""


def make(folder: Path, more: str = "") -> SweepFolder:
    file = folder.with_suffix(".yaml")
    file.write_text(
        f"experiment: collective\ntries: 1\nbase: {{ranks: 2{more}}}\ngrid: {{sizes: [[65536], [131072]]}}\n"
    )
    return SweepFolder.create(folder, read_spec(file))


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""


def worker_of(workers: Workers) -> psutil.Process:
    (address,) = workers.addresses().values()
    return psutil.Process(workers.submit(address, os.getpid).result(10.0))


@pytest.mark.thorough
def test_the_results_of_a_measured_point_come_back_whole(tmp_path: Path) -> None:
    sweep, ended = make(tmp_path / "sweep"), list[Outcome]()
    with local_workers(1) as workers:
        run_all_on(sweep, workers, None, lambda _, outcome: ended.append(outcome))
    assert len(ended) == 2 and {outcome.status for outcome in ended} <= {0, NOT_FAITHFUL_EXIT_STATUS}
    for point, end in sweep.done():
        place = attempt_folder(sweep.place(point), end.attempt)
        assert end.host == os.uname().nodename and "cpu" in end.machine
        held = ("manifest.json", "points/000/events.jsonl", "summary.json")
        for name in ("log.txt", *(f"{RESULTS}/{name}" for name in held)):
            assert (place / name).stat().st_size > 0


def test_a_point_is_stopped_when_its_worker_is_killed_and_goes_on_with_another(tmp_path: Path) -> None:
    sweep, begun = make(tmp_path / "sweep", ", iterations: 2000"), list[psutil.Process]()
    with local_workers(1) as workers:
        worker = worker_of(workers)

        def kill_in_the_middle() -> None:
            while not any("workloads.agent" in command_line(each) for each in begun):
                time.sleep(0.05)
                begun[:] = worker.children(recursive=True)
            os.kill(worker.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_in_the_middle, daemon=True)
        killer.start()
        with pytest.raises(MachineError, match=r"the last worker, worker-1 on .* is lost, and 2 points are left"):
            run_all_on(sweep, workers, None, lambda *_: None)
        killer.join()
    assert len(begun) > 2
    _, alive = psutil.wait_procs(begun, timeout=GONE_S)
    assert alive == []
    assert sweep.states().pending == 2 and list(sweep.claims()) == []
