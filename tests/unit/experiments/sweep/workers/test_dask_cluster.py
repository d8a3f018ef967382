from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.sweep.workers.dask_cluster import local_workers, workers_of_options, workers_over_ssh
from experiments.sweep.workers.dask_settings import need_dask
from railyard.errors import ConfigError, MachineError


def options(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"workers": None, "cluster": None, "scheduler": None, "calibrate": False} | given)


def test_without_an_option_there_are_no_workers() -> None:
    assert workers_of_options(options()) is None


def test_a_calibration_without_workers_is_refused() -> None:
    with pytest.raises(ConfigError, match="--calibrate: is of workers; without them, run: railyard calibrate"):
        workers_of_options(options(calibrate=True))


def test_two_kinds_of_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"--workers: is not used with --cluster; give one of them"):
        workers_of_options(options(workers=2, cluster="a,b"))


@pytest.mark.parametrize(
    ("machines", "sentence"),
    [
        (["a", ""], "'' is no machine"),
        (["-oProxyCommand=x"], "'-oProxyCommand=x' is no machine"),
        (["a;b"], "'a;b' is no machine"),
        (["a b"], "'a b' is no machine"),
        (["a", "b", "a"], "a stands there twice"),
    ],
)
def test_what_is_no_machine_is_refused_before_anything_starts(machines: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"--cluster: {sentence}"), workers_over_ssh(machines):
        pass


def test_too_many_workers_are_refused() -> None:
    with pytest.raises(ConfigError, match="--workers: must be at least 1 and at most 256, not 300"), local_workers(300):
        pass


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MachineError, match=r"pip install railyard\[cluster\]"):
        need_dask()


def test_dask_is_not_imported_before_it_is_needed() -> None:
    script = (
        "import sys, experiments.sweep.command, experiments.sweep.workers.dask_executor; "
        "print([name for name in ('dask', 'distributed', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
