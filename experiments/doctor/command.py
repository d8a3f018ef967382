"""``railyard doctor``: what this machine has and lacks for a run; changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import Console

from experiments.doctor.report import exit_status, findings, print_findings, to_json
from experiments.options import Parser


def main(arguments: Sequence[str]) -> int:
    """Print the findings; returns 0 if root can run experiments, else 3."""
    parser = Parser(
        prog="railyard doctor", description="Say what this machine has and lacks for a run; change nothing."
    )
    parser.add_argument("--json", action="store_true", help="output as JSON, for other programs")
    options = parser.read(arguments)
    found = findings()
    if options.json:
        print(json.dumps(to_json(found), indent=2))
    else:
        print_findings(found, Console())
    return exit_status(found)
