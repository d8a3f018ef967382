"""The findings about this machine, for people and as plain data, and the exit status that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.doctor.checks import Finding, check
from experiments.doctor.probes import read_machine
from railyard.errors import MachineError

_COLOURS = {"ok": "green", "missing": "red", "warning": "yellow"}


def findings() -> list[Finding]:
    """What this machine has and lacks; changes nothing."""
    return check(read_machine())


def exit_status(found: Sequence[Finding]) -> int:
    """0 if a run is possible, by root; otherwise that of ``MachineError``."""
    return MachineError.exit_status if any(finding.state == "missing" for finding in found) else 0


def to_json(found: Sequence[Finding]) -> list[dict[str, str]]:
    """The findings as plain data."""
    return [asdict(finding) for finding in found]


def print_findings(found: Sequence[Finding], console: Console) -> None:
    """Print the state and the sentence of each finding, the remedy below it, and whether a run is possible."""
    table = Table.grid(padding=(0, 2))
    for finding in found:
        table.add_row(Text(finding.state, _COLOURS[finding.state]), f"{finding.name}: {finding.sentence}")
        if finding.remedy:
            table.add_row("", Text(finding.remedy, "bold"))
    console.print(table)
    possible = "A run is not possible: see what is missing." if exit_status(found) else "Root can run experiments."
    console.print(Text(possible, "bold"))
