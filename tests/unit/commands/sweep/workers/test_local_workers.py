"""Sweeps on real workers of Dask on this machine: points of the model, so no root is needed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands.sweep.execute import Outcome, run_all
from commands.sweep.folder import SweepFolder
from commands.sweep.spec import SweepPoint, attempt_folder, read_spec
from commands.sweep.workers.dask_cluster import Workers, local_workers, workers_of
from commands.sweep.workers.dask_executor import run_all_on
from railyard.errors import ConfigError, MachineError

POINTS = 8


def make(folder: Path) -> SweepFolder:
    file = folder.with_suffix(".yaml")
    delays = [[float(delay)] for delay in range(POINTS)]
    base = "{workload: smoke, modes: [on-demand]}"
    file.write_text(f"experiment: rails\npredict: true\nbase: {base}\ngrid: {{delays_ms: {delays}}}\n")
    return SweepFolder.create(folder, read_spec(file))


def rows(sweep: SweepFolder) -> dict[str, Any]:
    return {
        point.name: json.loads((attempt_folder(sweep.place(point), ended.attempt) / "rows.json").read_text())
        for point, ended in sweep.done()
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rows of the sweep as one process finds them."""
    sweep = make(tmp_path_factory.mktemp("alone") / "sweep")
    run_all(sweep)
    found = rows(sweep)
    assert len(found) == POINTS
    return found


@pytest.fixture
def two_workers() -> Iterator[Workers]:
    with local_workers(2) as workers:
        yield workers


def listening(pid: int) -> set[str]:
    import psutil

    return {each.laddr.ip for each in psutil.Process(pid).net_connections("inet") if each.status == "LISTEN"}


def pids(workers: Workers) -> dict[str, int]:
    return {name: workers.submit(address, os.getpid).result(10.0) for name, address in workers.addresses().items()}


def test_two_workers_find_the_same_rows_as_one_process_and_nothing_is_open_to_others(
    tmp_path: Path, alone: dict[str, Any], two_workers: Workers
) -> None:
    sweep, ended = make(tmp_path / "sweep"), list[str]()
    run_all_on(sweep, two_workers, None, lambda point, _: ended.append(point.name))
    assert rows(sweep) == alone
    assert sorted(ended) == sorted(alone)
    assert {address for pid in (os.getpid(), *pids(two_workers).values()) for address in listening(pid)} == {
        "127.0.0.1"
    }
    (first, _) = two_workers.addresses().values()
    with (
        pytest.raises(ConfigError, match="--scheduler: no scheduler of Dask answers at tcp://127"),
        workers_of(first.replace("tls://", "tcp://")),
    ):
        pass


def test_the_points_of_a_worker_that_is_killed_go_to_the_other(
    tmp_path: Path, alone: dict[str, Any], two_workers: Workers
) -> None:
    sweep, said, ended = make(tmp_path / "sweep"), list[str](), list[str]()
    victim = pids(two_workers)["worker-1"]

    def kill_at_the_second(point: SweepPoint, outcome: Outcome) -> None:
        ended.append(point.name)
        if len(ended) == 2:
            os.kill(victim, signal.SIGKILL)

    run_all_on(sweep, two_workers, None, kill_at_the_second, said.append)
    assert [sentence.partition(" on ")[0] for sentence in said] == ["worker worker-1"]
    assert rows(sweep) == alone
    assert sorted(ended) == sorted(alone)
    assert list(sweep.claims()) == []


def test_a_worker_of_another_version_is_refused_before_the_first_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import railyard\nrailyard.__version__ = '0.0.1'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sweep = make(tmp_path / "sweep")
    with local_workers(1) as workers:
        with pytest.raises(MachineError, match=r"has Railyard 0\.0\.1 and this one "):
            run_all_on(sweep, workers, None, lambda *_: None)
        assert len(sweep.pending()) == POINTS and not (sweep.path / "points").exists()
