"""Sixty faults of a campaign, in parts that may run beside each other: eight always, all of them in thorough runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout import ROOT

from tests.campaign.bystander import Bystander
from tests.campaign.campaign import Campaign
from tests.campaign.expectation import CLEAN_S
from tests.campaign.fault import chosen
from topos.kernel.run_watcher import Process

pytestmark = [pytest.mark.root, pytest.mark.beside]

SEED, COUNT, PARTS, ALWAYS = 1, 60, 15, 2
PART = [number if number < ALWAYS else pytest.param(number, marks=pytest.mark.thorough) for number in range(PARTS)]


@pytest.mark.parametrize("part", PART)
def test_runs_end_as_documented_after_a_fault(part: int, tmp_path: Path) -> None:
    faults = chosen(SEED, range(COUNT))[part::PARTS]
    with Bystander() as bystander:
        endings = list(Campaign(faults, tmp_path, 1, bystander).endings())
    assert {ending.fault for ending in endings} == set(faults)
    assert sum(bool(ending.not_made) for ending in endings) <= 1, "a fault may come too late, and some need tools"
    assert not {ending.fault.command: ending.wrong for ending in endings if ending.wrong}


BYSTANDER = """
from tests.campaign.bystander import Bystander
with Bystander() as bystander:
    print(bystander.folder, flush=True)
    input()
"""


def test_after_kill_9_of_a_campaign_nothing_of_its_open_vswitch_is_left() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", BYSTANDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert (folder / "db.sock").exists()
    daemons = [found for path in folder.glob("*.pid") if (found := Process.of(int(path.read_text()))) is not None]
    process.kill()
    process.communicate()
    deadline = time.monotonic() + CLEAN_S
    while folder.exists() or any(daemon.alive for daemon in daemons):
        assert time.monotonic() < deadline, f"{folder} is left"
        time.sleep(0.01)
    assert len(daemons) == 2
