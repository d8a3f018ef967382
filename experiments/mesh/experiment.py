"""The mesh experiment: which matchings a photonic mesh can route, over how many gates, and on which paths (PIP)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.experiment import Experiment
from experiments.mesh.row import MeshRow
from experiments.mesh.study import MeshStudy, answers, used_ports, what_works
from measure.results.row import Row

if TYPE_CHECKING:
    from experiments.runner import Runner

NOT_FOUND_EXIT_STATUS = 1
_OF_MESH = ("width", "height", "used_ports", "used_ports_are")
_OF_MATCHING = (
    *("pairs", "routable", "gates", "paths", "states", "flips", "seconds", "proved"),
    *("path_min", "path_mean", "path_max", "loss_db", "latency_ps"),
)


class MeshRouting(Experiment[MeshStudy]):
    """The matchings that a photonic mesh can route, over how many gates, and on which paths; no packets, no root.

    A matching is routable: yes, no (proved), or not found: no route was found in time, which proves nothing (use
    --exact). The exit status is 1 if a matching got no answer in time, else 0.
    """

    name = "mesh"
    Settings = MeshStudy
    rows = (MeshRow,)
    examples = (
        "                       # matchings of 8 ports, 7 x 3 mesh",
        "--width 3 --height 3 --ports 8 --exact            # fewest gates",
        "--width 9 --height 9 --ports 32                   # suitable ports",
        "--width 9 --height 9 --ports 32 --no-choose       # even spacing",
        "--width 3 --height 3 --matching 0-14,7-21 --draw one.svg",
        "--width 5 --height 5 --ports 0,5,11,16,22,27 --draw all.png",
        "--exact --json         # for other programs",
    )
    packets = keeps = False

    def needs_root(self) -> bool:
        """False: the study computes and sends no packets."""
        return False

    def points(self) -> int:
        """One row for every matching."""
        one = self.settings.matching is not None or self.settings.only is not None
        return 1 if one else self.settings.n - 1

    def run(self, runner: Runner) -> None:
        """Route every matching, draw the figure if one is wanted, and say what would work where there is no route."""
        study, found = self.settings, list[MeshRow]()
        runner.progress.begin("searching")
        used = used_ports(study)
        for row in answers(study, used):
            found.append(row)
            runner.add(row)
        if study.draw is not None:
            from experiments.mesh.figure import write_figure

            write_figure(study.draw, runner.rows)
        runner.progress.begin("searching for alternatives")
        advice = what_works(study, found)
        runner.progress.done()
        if advice:
            print(f"railyard: {advice}", file=sys.stderr)

    def status(self, rows: Sequence[Row]) -> int:
        """1 if a matching got no answer in time, else 0."""
        return NOT_FOUND_EXIT_STATUS if any(row["routable"] is None for row in rows) else 0

    def as_json(self, rows: Sequence[Row]) -> Any:
        """The mesh, and pairs, paths and states of each matching."""
        first = rows[0]
        return {
            **{key: first[key] for key in _OF_MESH},
            "gates": first["mesh_gates"],
            "ports": first["mesh_ports"],
            "matchings": [{key: row[key] for key in _OF_MATCHING} for row in rows],
        }
