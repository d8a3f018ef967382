"""``railyard doctor``: what this machine has and lacks for a run, for people and as JSON; changes nothing."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands.doctor import checks, probes
from commands.doctor.checks import Finding
from experiments.parser import Parser
from railyard.checkout import SETUP, as_root, railyard_as_root
from railyard.errors import MachineError
from railyard.tools import TOOLS

RUN = SETUP.with_name("run.sh")
_COLOURS = {"ok": "green", "missing": "red", "warning": "yellow"}


def main(arguments: Sequence[str]) -> int:
    """Print the findings; returns 0 if root can run experiments, else 3."""
    parser = Parser(
        prog="railyard doctor", description="Say what this machine has and lacks for a run; change nothing."
    )
    parser.add_argument("--json", action="store_true", help="output as JSON, for other programs")
    options = parser.read(arguments)
    found = findings()
    if options.json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        print_findings(found, Console())
    return exit_status(found)


def findings() -> list[Finding]:
    """Findings about this machine, in the order in which a person would mend them; changes nothing."""
    if platform.system() != "Linux":
        return [Finding("system", "missing", f"runs need Linux, not {platform.system()}", "use a virtual machine")]
    in_checkout, is_root = SETUP.exists(), os.geteuid() == 0
    set_up = as_root("scripts/setup.sh")
    reinstall = set_up if in_checkout else "install railyard again with pip"
    return [
        checks.python_version(sys.version_info[:2]),
        *(checks.set_up(probes.set_up(), set_up) if in_checkout else ()),
        *checks.all_installed("Python package", probes.requirements(), lambda _: reinstall),
        checks.frameworks(probes.frameworks(), reinstall),
        *checks.all_installed(
            "program", probes.programs(), lambda tool: set_up if in_checkout else as_root(f"apt install {TOOLS[tool]}")
        ),
        *([checks.namespaces(probes.namespaces_error()), *_datapath()] if is_root else ()),
        checks.calibration(probes.calibration(), railyard_as_root("calibrate")),
        checks.size(len(os.sched_getaffinity(0)), probes.free_memory_gib()),
        checks.root(is_root, as_root(str(RUN)) if in_checkout else railyard_as_root("run rails")),
    ]


def _datapath() -> list[Finding]:
    """How runs forward packets; nothing where namespaces or packages are lacking, which other findings say."""
    try:
        return [checks.datapath(*probes.datapath())]
    except (MachineError, ImportError):
        return []


def exit_status(found: Sequence[Finding]) -> int:
    """0 if root can run experiments, otherwise that of ``MachineError``."""
    return MachineError.exit_status if any(finding.state == "missing" for finding in found) else 0


def print_findings(found: Sequence[Finding], console: Console) -> None:
    """Print the state and the sentence of each finding, the remedy below it, and whether a run is possible."""
    table = Table.grid(padding=(0, 2))
    for finding in found:
        table.add_row(Text(finding.state, _COLOURS[finding.state]), Text(f"{finding.name}: {finding.sentence}"))
        if finding.remedy:
            table.add_row("", Text(finding.remedy, "bold"))
    console.print(table)
    possible = "A run is not possible: see what is missing." if exit_status(found) else "Root can run experiments."
    console.print(Text(possible, "bold"))
