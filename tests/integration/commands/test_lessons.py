"""The policy of lab hide-reconfiguration on packets, by the command in its text. Needs root."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from checkout import ROOT
from script_runs import ONCE, called

LAB = ROOT / "labs" / "hide-reconfiguration"
SOLUTION = ROOT / "tests" / "unit" / "commands" / "exercises" / "solutions" / LAB.name / "policy.py"

pytestmark = [pytest.mark.root, pytest.mark.beside]


def test_a_policy_runs_on_packets(tmp_path: Path) -> None:
    tmp_path.joinpath("policy.py").write_text(SOLUTION.read_text())
    (command,) = re.findall(
        r"^sudo railyard (run .*?)\n```$", LAB.joinpath("README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    command = command.replace("\\\n", "")
    done = called(*shlex.split(command), *ONCE, "--no-figures", "--out", "results", cwd=tmp_path)
    assert done.returncode in (0, 8), done.stderr
    rows = json.loads(tmp_path.joinpath("results", "summary.json").read_text())
    changes = {row["mode"]: row["reconfigurations_per_step"] for row in rows}
    assert changes == {"electrical": 0, "on-demand": 0}
