"""One scale for what is compared: that of the machine that carries least.

The scale of a run with rate ``auto`` depends on the calibration of its machine. Where points of a comparison, or its
repeats, may run on different machines, every machine is asked for its scale first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from commands.sweep.workers.placement import Piece
from experiments.registry import find
from experiments.settings import validated
from railyard.child import child_environment, python_command
from railyard.errors import MachineError, RailyardError, shortened
from railyard.scale import Scale

_LONGEST_S = 600.0


def scales_here(points: Sequence[Mapping[str, Any]]) -> list[dict[str, float] | None]:
    """The scale of each experiment file, chosen in a subprocess by the calibration of this machine.

    None for one that this machine refuses: the run of that point says why.

    ``MachineError`` with what the subprocess printed if it fails.
    """
    done = subprocess.run(
        python_command("commands.sweep.workers.common_scale"),
        input=json.dumps(list(points)),
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
        cwd="/",
        env=child_environment(),
    )
    if done.returncode != 0:
        said = done.stderr.strip().rpartition("\n")[2]
        raise MachineError(f"the scale of a point was not found: {shortened(said)}")
    found: list[dict[str, float] | None] = json.loads(done.stdout)
    return found


def slowest(scales: Iterable[Scale]) -> Scale:
    """The scale that every machine carries: the lowest rate, and the longest time."""
    found = [*scales]
    return Scale(min(scale.rate for scale in found), max(scale.time for scale in found))


def shared_scales(pieces: Sequence[Piece], by_machine: Sequence[Mapping[str, Scale]]) -> dict[str, Scale]:
    """The scale of each point, by its name: one for all points of a comparison and all its repeats.

    ``by_machine`` has for each machine the scale of the points that it would choose, by name.
    """
    found: dict[str, list[Scale]] = {}
    for piece in pieces:
        for point in piece.points:
            found.setdefault(piece.series, []).extend(each[point.name] for each in by_machine if point.name in each)
    return {
        point.name: slowest(found[piece.series]) for piece in pieces for point in piece.points if found[piece.series]
    }


def main() -> None:
    """Print the scales of the experiment files on standard input, as JSON, with null for one that is refused."""
    found: list[dict[str, float] | None] = []
    for file in json.load(sys.stdin):
        kind = find(file.pop("experiment"))
        try:
            found.append(asdict(kind(validated(kind.Settings, file)).scale))
        except RailyardError:
            found.append(None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
