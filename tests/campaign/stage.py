"""How far a run is, as seen from outside: its processes, its folder in the registry, and its results folder."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from measure.results.results import SUMMARY
from railyard.point_folder import CONTROLLER, numbers_in, point_folder
from tests.campaign.fault import Phase
from tests.campaign.processes import Family

_REWIRED = b'"kind":"reconfigure"'


def read(path: Path) -> bytes:
    """The content of a file; empty if there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def row_count(out: Path) -> int:
    """The number of rows in a results folder."""
    try:
        return len(json.loads(read(out / SUMMARY) or "[]"))
    except ValueError:
        return 0


class Observer:
    """Looks at a run of ``points`` points, whose results are in ``out`` and whose registry is in ``registry``."""

    def __init__(self, family: Family, registry: Path, out: Path, points: int) -> None:
        self.family = family
        self._registry, self._out, self._points = registry, out, points
        self._in_last_point = False
        self._most_agents = self._recorded_bytes = 0

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run in the registry; None if there is none."""
        with suppress(OSError):
            for path in self._registry.iterdir():
                if path.name.startswith(f"{self.family.main.pid}-"):
                    return path
        return None

    def phases(self, point: int) -> set[Phase]:
        """Look at the run once more: the phases in which it is, those of measurements if it is in ``point``."""
        self.family.look()
        agents, rows, folder = len(self.family.alive("agent")), row_count(self._out), self.run_folder
        current = point_folder(self._out, max(numbers_in(self._out), default=0))
        recorded = read(current / CONTROLLER)
        if agents == 0:
            self._most_agents, self._recorded_bytes = 0, len(recorded)
        self._recorded_bytes = min(self._recorded_bytes, len(recorded))
        self._most_agents = max(self._most_agents, agents)
        self._in_last_point |= agents > 0 and rows == self._points - 1
        measuring = agents > 0 and rows == point
        agents_have_recorded = any(map(read, current.glob("*g*.jsonl")))
        reached: dict[Phase, bool] = {
            "bring-up": folder is not None and not agents,
            "register": folder is not None and not agents and (folder / "job.sock").exists(),
            "check-in": measuring,
            "step": measuring and agents_have_recorded,
            "dark": measuring and _REWIRED in recorded[self._recorded_bytes :],
            "splice": measuring and agents < self._most_agents,
            "tear-down": self._in_last_point and not agents,
        }
        return {phase for phase, has in reached.items() if has}
