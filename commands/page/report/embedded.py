"""The data in a report: overviews, time lines and strips of its runs, thinned to the room that the file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from commands.page.report.packing import Packing, as_json

LEAST_POINT = 4_000
"""Bytes, compressed, that a point may always take if the room for all is not used up."""
MOST_PX, LEAST_PX, STRIPS_PX = 8192, 128, 600
"""Pixels of a time line, in which bars shorter than one are merged, and of strip charts."""
_FEWER = 4
"""By what the pixels of a time line that is too long are divided."""


class View(Protocol):
    """What is asked of a run (``commands.page.run_view.RunView``)."""

    def overview(self) -> dict[str, Any]:
        """The run without its time lines."""

    def timeline(self, point: int, start: float, end: float | None, px: int) -> dict[str, Any]:
        """The time line of a point in a window, which has no ``end`` where that of the point is not known."""

    def strips(self, point: int, start: float, end: float | None, px: int) -> dict[str, Any]:
        """The strip charts of a point in such a window."""


@dataclass(frozen=True)
class Embedded:
    """The data of a report, the overviews in it, and for each run the numbers of the points without time lines."""

    packing: Packing
    overviews: Sequence[Mapping[str, Any]]
    left_out: Sequence[Sequence[int]]


def embedded(
    views: Sequence[View],
    overviews: Sequence[Mapping[str, Any]],
    compared: Mapping[str, Any] | None,
    room: int,
    says: Sequence[Sequence[str]] = (),
) -> Embedded:
    """The data of runs, whose time lines may take ``room`` bytes together.

    ``says`` are, for each run, sentences about what else is not in the file. They and one about time lines are notes of
    the overview, which is made again after all points were read: by then it counts all unreadable lines.

    Each point may take an equal part of what the points before it have left; those that a row counts come first. A time
    line that takes more is made of fewer pixels.
    """
    packing, left_out, noted = Packing(), list[list[int]](), list[Mapping[str, Any]]()
    packing.add(f'{{"format":1,"comparison":{as_json(compared)},"runs":[')
    for number, (view, overview) in enumerate(zip(views, overviews, strict=True)):
        packing.add(f'{"," if number else ""}{{"timelines":{{')
        points = sorted(overview.get("points", ()), key=lambda point: not point.get("counts"))
        budget = _Budget(packing, room // len(views), len(points))
        strips = dict[int, str]()
        for point in points:  # both of a point together, whose events are then read once
            if _timeline(view, point, budget):
                strips[point["number"]] = as_json(view.strips(point["number"], 0.0, _end(point), STRIPS_PX))
        left_out.append([point["number"] for point in points if point["number"] not in strips])
        charts = ",".join(f'"{number}":{chart}' for number, chart in strips.items())
        noted.append(_noted(view.overview(), left_out[-1], says[number] if says else ()))
        packing.add(f'}},"strips":{{{charts}}},"overview":{as_json(noted[-1])}}}')
    packing.add("]}")
    return Embedded(packing, noted, left_out)


def _noted(overview: Mapping[str, Any], left_out: Sequence[int], says: Sequence[str]) -> dict[str, Any]:
    """The overview with notes about what the file has not."""
    said = list(says)
    if left_out:
        lines = f"The time lines of {len(left_out)} of {len(overview.get('points', ()))} points are not in this file"
        said.append(f"{lines}; railyard watch shows them.")
    return {**overview, "notes": [*overview.get("notes", ()), *said]}


class _Budget:
    """The room of the time lines of a run: what is left of it, and for how many points."""

    def __init__(self, packing: Packing, room: int, points: int) -> None:
        self.packing, self._end, self._points = packing, packing.size + room, points
        self._count = 0

    def share(self) -> int:
        """The most bytes that the next point may take; 0 if the room is used up."""
        left = self._end - self.packing.size
        share = max(left // max(1, self._points), LEAST_POINT)
        self._points -= 1
        return share if left >= LEAST_POINT else 0

    def comma(self) -> str:
        """What stands before the next point."""
        return "," if self._count else ""

    def added(self) -> None:
        """Note that a point was added."""
        self._count += 1


def _timeline(view: View, point: Mapping[str, Any], budget: _Budget) -> bool:
    """Add the time line of a point in as many pixels as there is room for; returns whether it was added."""
    share, px = budget.share(), MOST_PX
    while share and px >= LEAST_PX:
        found = view.timeline(point["number"], 0.0, _end(point), px)
        if budget.packing.add_within(f'{budget.comma()}"{point["number"]}":{as_json(found)}', share):
            budget.added()
            return True
        px //= _FEWER
    return False


def _end(point: Mapping[str, Any]) -> float | None:
    """The end of a point; None of one that was under way, of which all is shown."""
    duration = point.get("duration")
    return None if duration is None else float(duration)
