"""Workers on this machine, and which machines are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands.sweep.execute import Outcome, run_all
from commands.sweep.folder import SweepFolder
from commands.sweep.spec import SweepPoint, attempt_folder, read_spec
from commands.sweep.workers.dask_cluster import Workers, local_workers, need_dask, workers_of, workers_of_options
from commands.sweep.workers.dask_executor import run_all_on
from railyard.errors import ConfigError, MachineError


def options(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"workers": None, "cluster": None, "scheduler": None, "calibrate": False} | given)


class ManyWorkers:
    """A client of Dask with nine workers, of which some versions name five unless asked for all (``-1``)."""

    status = "running"

    def scheduler_info(self, n_workers: int = 5) -> dict[str, Any]:
        """The workers, as Dask tells of them."""
        shown = range(9)[: None if n_workers == -1 else n_workers]
        return {"workers": {f"tls://h:{each}": {"name": each, "resources": {"machine": 1}} for each in shown}}


def test_all_workers_are_seen() -> None:
    assert len(Workers(ManyWorkers()).addresses()) == 9


def test_without_an_option_there_are_no_workers() -> None:
    assert workers_of_options(options()) is None


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MachineError, match=r"pip install railyard\[cluster\]"):
        need_dask()


def test_dask_is_not_imported_before_it_is_needed() -> None:
    script = (
        "import sys, commands.sweep.command, commands.sweep.workers.dask_executor; "
        "print([name for name in ('dask', 'distributed', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


# ---- workers of this machine -----------------------------------------------------------------------------------------


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
    version = r"^worker-1 has version 0\.0\.1 of Railyard and this one "
    with pytest.raises(MachineError, match=version), local_workers(1) as workers:
        run_all_on(sweep, workers, None, lambda *_: None)
    assert len(sweep.pending()) == POINTS and not (sweep.path / "points").exists()
