"""One scale for what is compared, also where a sweep goes on in another way or on another machine.

A scale that is left to the machines (rate ``auto``) depends on the calibration of the one that runs the point. What was
chosen once holds: the scales of ``scales.json`` in the folder of the sweep, which a sweep on several machines writes,
else the one of a repeat of the same point that is done.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from commands.sweep.folder import DONE, SweepFolder
from commands.sweep.spec import RESULTS, SweepPoint, attempt_folder
from commands.sweep.workers.placement import PointBatch, pieces
from experiments.registry import find
from experiments.settings import validated
from measure.results.results import SUMMARY, Results
from railyard.errors import ConfigError, MachineError, RailyardError, shortened
from railyard.process.start import child_environment, python_command, run_program
from railyard.reading import read_bytes
from railyard.scale import Scale

SCALES = "scales.json"
_MOST_BYTES = 64 << 20


def is_automatic(point: SweepPoint) -> bool:
    """Whether the machine that runs a point chooses its scale; not for a point that its run will refuse."""
    if point.predict:
        return False
    try:
        settings = validated(find(point.experiment).Settings, dict(point.values), point.name)
    except ConfigError:
        return False
    section = getattr(settings, "scale", None)
    return getattr(section, "rate", None) == "auto"


def with_scale(point: SweepPoint, scale: Scale | None) -> SweepPoint:
    """The point with a scale in place of ``auto``, under the name that it has; as it is with None."""
    if scale is None:
        return point
    section = {**dict(point.values.get("scale") or {}), **asdict(scale)}
    return replace(point, values={**point.values, "scale": section})


class SweepScales:
    """The scales that points of a sweep must have, since others that they are compared with have them."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder

    def as_run(self, point: SweepPoint) -> SweepPoint:
        """The point with the scale that it must have; as it is where the machine still chooses, or the file says."""
        if not is_automatic(point):
            return point
        return with_scale(point, self.kept.get(point.name) if self.kept else self.earlier(point))

    @cached_property
    def kept(self) -> Mapping[str, Scale]:
        """Scales of ``scales.json`` by the name of the point; empty without it. ``ConfigError`` if it was changed."""
        path = self._folder.path / SCALES
        if not path.exists():
            return {}
        try:
            data = json.loads(read_bytes(path, _MOST_BYTES, "the scales of a sweep"))
            return {str(name): Scale(float(scale["rate"]), float(scale["time"])) for name, scale in data.items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise ConfigError(
                "holds no scales; put it back, or begin the sweep again in a new folder", source=str(path)
            ) from None

    def keep(self, scales: Mapping[str, Scale]) -> None:
        plain = {name: asdict(scale) for name, scale in scales.items()}
        Results(self._folder.path).write(SCALES, json.dumps(plain))
        self.__dict__["kept"] = dict(scales)

    def earlier(self, point: SweepPoint, *, compared: bool = False) -> Scale | None:
        """The scale that a repeat of a point was measured with; None if none was yet.

        With ``compared`` also that of another point of its comparison.
        """
        for other in self._series.get(point.name, ()):
            if not compared and other.swept != point.swept:
                continue
            if (self._folder.place(other) / DONE).exists() and is_automatic(other):
                scale = self._measured(other)
                if scale is not None:
                    return scale
        return None

    @cached_property
    def _series(self) -> Mapping[str, list[SweepPoint]]:
        """The points of the same comparison and its repeats, by the name of each."""
        series: dict[str, list[SweepPoint]] = {}
        groups = pieces(self._folder.points)
        for piece in groups:
            series.setdefault(piece.series, []).extend(piece.points)
        return {point.name: series[piece.series] for piece in groups for point in piece.points}

    def _measured(self, point: SweepPoint) -> Scale | None:
        """The scale in the rows of a point that is done; None if they have several."""
        try:
            last = self._folder.attempts(point)[-1]
            path = attempt_folder(self._folder.place(point), last.attempt) / RESULTS / SUMMARY
            rows = json.loads(read_bytes(path, _MOST_BYTES, "a file of rows"))
            (scale,) = {(row["rate_scale"], row["time_scale"]) for row in rows if not row.get("computed")}
            return Scale(*map(float, scale))
        except (ConfigError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None  # merging names a file that was changed


# ---- the scale of the machine that carries least ---------------------------------------------------------------------


_LONGEST_S = 600.0


def scales_here(points: Sequence[Mapping[str, Any]]) -> list[dict[str, float] | None]:
    """The scale of each experiment file, chosen in a subprocess by the calibration of this machine.

    None for one that this machine refuses: the run of that point says why.

    ``MachineError`` with what the subprocess printed if it fails.
    """
    command = python_command("commands.sweep.scales")
    done = run_program(command, _LONGEST_S, given=json.dumps(list(points)), env=child_environment())
    if done.status != 0:
        raise MachineError(f"the scale of a point was not found: {shortened(done.last_line)}")
    scales: list[dict[str, float] | None] = json.loads(done.out)
    return scales


def slowest(scales: Iterable[Scale]) -> Scale:
    """The scale that every machine carries: the lowest rate, and the longest time."""
    known = [*scales]
    return Scale(min(scale.rate for scale in known), max(scale.time for scale in known))


def shared_scales(pieces: Sequence[PointBatch], by_machine: Sequence[Mapping[str, Scale]]) -> dict[str, Scale]:
    """The scale of each point, by its name: one for all points of a comparison and all its repeats.

    ``by_machine`` has for each machine the scale of the points that it would choose, by name.
    """
    series: dict[str, list[Scale]] = {}
    for piece in pieces:
        for point in piece.points:
            series.setdefault(piece.series, []).extend(own[point.name] for own in by_machine if point.name in own)
    return {
        point.name: slowest(series[piece.series]) for piece in pieces for point in piece.points if series[piece.series]
    }


def main() -> None:
    """Print the scales of the experiment files on standard input, as JSON, with null for one that is refused."""
    scales: list[dict[str, float] | None] = []
    for file in json.load(sys.stdin):
        kind = find(file.pop("experiment"))
        try:
            scales.append(asdict(kind(validated(kind.Settings, file)).scale))
        except RailyardError:
            scales.append(None)
    print(json.dumps(scales))
