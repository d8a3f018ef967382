from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commands.sweep.workers.dask_cluster import Workers, need_dask, workers_of_options
from railyard.errors import MachineError


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
