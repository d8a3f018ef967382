"""How far a run is, as seen from outside: its processes, its folder in the registry, and its results folder."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from experiments.faults.fault import Phase
from experiments.faults.processes import Family
from measure.results.results import SUMMARY
from railyard.reading import files_below

RUNNING = "running"
_REWIRED = b'"kind":"reconfigure"'


@dataclass(frozen=True)
class Stage:
    """How far a run is: whether it is ``registered`` on the machine and its controller listens (``channel``).

    ``agents`` is the number of agents that run, ``rows`` of measured points. ``moved`` says that an agent has recorded
    events in this point, ``rewired`` that circuits changed since agents run, ``lost`` that an agent has ended while
    another runs, ``last`` that agents have run in the last point.
    """

    registered: bool = False
    channel: bool = False
    agents: int = 0
    rows: int = 0
    moved: bool = False
    rewired: bool = False
    lost: bool = False
    last: bool = False

    def reached(self, phase: Phase, point: int) -> bool:
        """Whether the run is in ``phase``, for phases of measurements in point number ``point``."""
        measuring = self.agents > 0 and self.rows == point
        return {
            "bring-up": self.registered and not self.agents,
            "register": self.channel and not self.agents,
            "check-in": measuring,
            "step": measuring and self.moved,
            "dark": measuring and self.rewired,
            "splice": measuring and self.lost,
            "tear-down": self.last and not self.agents,
        }[phase]


class Observer:
    """Looks at a run of ``points`` points, whose results are in ``out`` and whose registry is in ``registry``."""

    def __init__(self, family: Family, registry: Path, out: Path, points: int) -> None:
        self.family = family
        self._registry, self._out, self._points = registry, out, points
        self._last = False
        self._most_agents = self._recorded_bytes = 0

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run in the registry; None if there is none."""
        with suppress(OSError):
            for path in self._registry.iterdir():
                if path.name.startswith(f"{self.family.main.pid}-"):
                    return path
        return None

    def stage(self) -> Stage:
        """Look at the run once more."""
        self.family.look()
        agents, rows, folder = len(self.family.alive("agent")), row_count(self._out), self.run_folder
        recorded = read(self._out / RUNNING / "controller.jsonl")
        if agents == 0:
            self._most_agents, self._recorded_bytes = 0, len(recorded)
        self._most_agents = max(self._most_agents, agents)
        self._last = self._last or (agents > 0 and rows == self._points - 1)
        return Stage(
            registered=folder is not None,
            channel=folder is not None and (folder / "job.sock").exists(),
            agents=agents,
            rows=rows,
            moved=any(size(path) for path in files_below(self._out / RUNNING) if path.match("g*.jsonl")),
            rewired=_REWIRED in recorded[self._recorded_bytes :],
            lost=0 < agents < self._most_agents,
            last=self._last,
        )


def read(path: Path) -> bytes:
    """The content of a file; empty if there is none."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def size(path: Path) -> int:
    """The bytes of a file; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def row_count(out: Path) -> int:
    """The number of rows in a results folder."""
    try:
        return len(json.loads(read(out / SUMMARY) or "[]"))
    except ValueError:
        return 0
