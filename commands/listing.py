"""``railyard list``: the experiments, one line each."""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.parser import Parser
from experiments.registry import entries


def main(arguments: Sequence[str]) -> int:
    """Print the list of experiments, or JSON; returns the exit status."""
    parser = Parser(prog="railyard list", description="List the experiments.")
    parser.add_argument("--json", action="store_true", help="output as JSON, for other programs")
    options = parser.read(arguments)
    known = entries()
    if options.json:
        print(json.dumps([{"name": e.name, "system": e.system, "shows": e.shows, "root": e.root} for e in known]))
        return 0
    print(f"{'experiment':<14} {'system':<13} {'root':<5} shows")
    for entry in known:
        print(f"{entry.name:<14} {entry.system:<13} {'yes' if entry.root else 'no':<5} {entry.shows}")
    print("\nrailyard run NAME --help lists the options of an experiment.")
    return 0
