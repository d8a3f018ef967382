"""Racks over several machines: a chip dies on one of them, and its job goes on as on one machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster.machines import SSH_CONFIG, Machines
from cluster.runs import remains
from cluster.underlay import Underlay

from railyard.remote.ssh import CONFIG_VARIABLE

pytestmark = [pytest.mark.root, pytest.mark.beside]

RUN = [sys.executable, "-m", "commands.main", "run"]
ONCE = ["--quick", "--repeats", "1", "--attempts", "1"]
FAILOVER = [*RUN, "failover", *ONCE, "--alone", "--fabrics"]


def rows(machines: Machines, out: Path, command: list[str], cluster: str = "") -> list[dict[str, Any]]:
    """The rows of a run on the head or over machines, which leaves nothing on any."""
    spread = ["--cluster", cluster] if cluster else []
    done = machines.head.run([*command, *spread, "--out", str(out)], timeout_s=150)
    assert done.returncode in (0, 8), done.stderr
    assert not [left for machine in machines for left in remains(machine)]
    found: list[dict[str, Any]] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.timed
def test_a_rack_over_two_machines_recovers_as_on_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spare is on another machine than the job, so the checkpoint is copied from one to the other."""
    monkeypatch.setenv(CONFIG_VARIABLE, str(SSH_CONFIG))
    with Machines(2, Underlay(), shared=[tmp_path]) as machines:
        (one,) = rows(machines, tmp_path / "one", [*FAILOVER, "photonic"])
        (two,) = rows(machines, tmp_path / "two", [*FAILOVER, "photonic"], "a,b")
    assert one["state"] == two["state"] == "recovered" and one["checksum_ok"] and two["checksum_ok"]
    assert two["resumed"] == one["resumed"] == [[2, 1]]
    for step in ("step_time_before_s", "step_time_after_s"):
        assert two[step] == pytest.approx(one[step], rel=0.03)
