"""Sixty faults of a campaign, in parts that may run beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.faults.bystander import Bystander
from experiments.faults.campaign import Campaign
from experiments.faults.fault import chosen

pytestmark = [pytest.mark.root, pytest.mark.beside]

SEED, COUNT, PARTS = 1, 60, 15


@pytest.mark.parametrize("part", range(PARTS))
def test_runs_end_as_documented_after_a_fault(part: int, tmp_path: Path) -> None:
    faults = chosen(SEED, COUNT)[part::PARTS]
    with Bystander() as bystander:
        rows = list(Campaign(faults, tmp_path, 1, bystander).rows())
    assert {row.number for row in rows} == {fault.number for fault in faults}
    assert sum(row.ok is None for row in rows) <= 1, "a fault may come too late, and some need tools"
    failed = {fault.command: row.wrong for fault in faults for row in rows if row.number == fault.number and row.wrong}
    assert not failed
