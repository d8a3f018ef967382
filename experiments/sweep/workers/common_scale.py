"""One scale for what is compared: that of the machine that carries least.

The scale of a run with rate ``auto`` depends on the calibration of its machine. Where points of a comparison, or its
repeats, may run on different machines, every machine is asked for its scale first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from experiments.registry import find
from experiments.settings import validated
from experiments.sweep.point import SweepPoint
from experiments.sweep.workers.placement import Piece
from railyard.child import child_environment, python_command
from railyard.errors import ConfigError, MachineError, shortened
from railyard.scale import Scale

_LONGEST_S = 600.0


def is_automatic(point: SweepPoint) -> bool:
    """Whether the machine that runs a point chooses its scale."""
    if point.predict:
        return False
    settings = validated(find(point.experiment).Settings, dict(point.values), point.name)
    section = getattr(settings, "scale", None)
    return getattr(section, "rate", None) == "auto"


def scales_here(points: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """The scale of each experiment file, chosen in a subprocess by the calibration of this machine.

    ``MachineError`` with what the subprocess printed if it fails.
    """
    done = subprocess.run(
        python_command("experiments.sweep.workers.common_scale"),
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
    found: list[dict[str, float]] = json.loads(done.stdout)
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


def with_scale(point: SweepPoint, scale: Scale | None) -> SweepPoint:
    """The point with a scale in place of ``auto``, under the name that it has; as it is with None."""
    if scale is None:
        return point
    section = {**dict(point.values.get("scale") or {}), **asdict(scale)}
    return replace(point, values={**point.values, "scale": section})


def main() -> None:
    """Print the scales of the experiment files on standard input, as JSON; an error is one line."""
    found = []
    for number, file in enumerate(json.load(sys.stdin)):
        kind = find(file.pop("experiment"))
        try:
            found.append(asdict(kind(validated(kind.Settings, file, f"point {number + 1}")).scale))
        except ConfigError as error:
            raise SystemExit(str(error)) from None
    print(json.dumps(found))


if __name__ == "__main__":
    main()
