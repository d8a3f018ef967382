"""Failover: a policy chooses the spare that takes the place of a dead chip, and moves nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commands.command_process import last_line, run_command
from commands.exercises.exercise import Exercise, Missing, Part, student_code
from controllers.policies.lumion import LumionPolicy
from measure.results.results import Results
from railyard.errors import MachineError, RailyardError
from railyard.ownership import temporary_folder
from topos.describe import plan as plan_of
from topos.plan import FabricPlan
from topos.racks import RackTopo
from workloads.program import Group

FILE, CLASS = "spares.py", "NearestSpare"
RUN_S = 18.0
RUN = (
    "run failover --fabrics photonic --alone --steps 3 --kill 1@1.5 --repeats 1 --attempts 1 --detect exit "
    "--job-compute 0.1 --job-gradient-bytes 2e8 --job-state-bytes 2e8 --no-figures"
)
"""A run of five seconds in which chip 1 of the job's chips 0 to 3 dies."""


class Case(NamedTuple):
    """A dead chip of rings, and the ``free`` spares in the order in which the engine names them."""

    rings: tuple[tuple[int, ...], ...]
    dead: int
    free: tuple[int, ...]

    def __str__(self) -> str:
        rings = " and ".join(f"the ring {' '.join(map(str, ring))}" for ring in self.rings)
        return f"{rings}, {self.dead} dead, free {' '.join(map(str, self.free)) or 'no chip'}"


CASES = (
    Case(((0, 1, 2, 3),), 1, (16, 17, 18, 19)),
    Case(((12, 13, 14, 15),), 12, (4, 9, 16)),
    Case(((8, 9, 10, 11),), 10, (19, 2, 6)),
    Case(((0, 4, 8, 12),), 4, (18, 17, 13, 6)),
    Case(((0, 12, 15),), 0, (5, 1, 16)),
    Case(((0, 1, 2), (2, 14, 15)), 2, (19, 11, 7, 3)),
    Case(((0, 1, 2), (12, 13, 14)), 13, (3, 18)),
    Case(((9, 14),), 9, (17, 5, 15)),
)
"""Some chips of the torus are free here, as after the end of another job; servers have four chips in a row."""


def distance(case: Case, spare: int, chips_per_server: int) -> int:
    """Length of the fibres from a spare to the neighbours of the dead chip, in servers along the row."""
    rings = [ring for ring in case.rings if case.dead in ring]
    peers = [ring[(ring.index(case.dead) + step) % len(ring)] for ring in rings for step in (-1, 1)]
    return sum(abs(spare // chips_per_server - peer // chips_per_server) for peer in peers)


def nearest_spare(case: Case, chips_per_server: int) -> int:
    """The spare with the shortest fibres, and of those the lowest number."""
    return min(case.free, key=lambda spare: (distance(case, spare, chips_per_server), spare))


def check_nearest(folder: Path) -> None:
    plan = plan_of(RackTopo())
    for case in CASES:
        chosen, nearest = _answer(folder, plan, case).get(case.dead), nearest_spare(case, plan.gpus_per_server)
        if chosen != nearest:
            took = "no spare is taken" if chosen is None else f"spare {chosen} is taken"
            raise Missing(f"with {case}, {took}; {nearest} is the nearest")


def check_nothing_else(folder: Path) -> None:
    plan = plan_of(RackTopo())
    for case in CASES:
        answer = _answer(folder, plan, case)
        if list(answer) != [case.dead]:
            moved = ", ".join(map(str, answer)) or "nobody"
            raise Missing(f"with {case}, the answer moves {moved}; it must move the dead chip alone")
    none_free = CASES[0]._replace(free=())
    if _answer(folder, plan, none_free):
        raise Missing(f"with {none_free}, the answer must be empty")


def check_job_goes_on(folder: Path) -> None:
    row = _row_of_run(folder)
    if row["state"] != "recovered":
        raise Missing(f"chip 1 died in a run, and the job did not go on: {row['reason'] or row['state']}")
    if not row["checksum_ok"]:
        raise Missing("chip 1 died in a run, and the sums of the job were wrong after it")


def _answer(folder: Path, plan: FabricPlan, case: Case) -> Mapping[int, int]:
    """What the student's policy answers in a case; ``Missing`` where it is no mapping of chips."""
    kind = student_code(folder / FILE, CLASS)
    if not (isinstance(kind, type) and issubclass(kind, LumionPolicy)):
        raise Missing(f"{CLASS} must be a class that begins with: class {CLASS}(LumionPolicy)")
    groups = [Group(f"dp{number}", "dp", ring) for number, ring in enumerate(case.rings)]
    answer = kind(plan).replace(groups, case.dead, list(case.free))
    if not isinstance(answer, Mapping) or not all(type(chip) is int for pair in answer.items() for chip in pair):
        raise Missing("replace must return a dict of chips, {dead: spare}, or {}")
    return answer


def _row_of_run(folder: Path) -> dict[str, Any]:
    """The row of a run with the student's policy, faithful or not; ``Missing`` if it gave none."""
    with temporary_folder() as place:
        log, out = place / "log", place / "out"
        try:
            command = ["railyard", *RUN.split(), "--policy", f"{folder / FILE}:{CLASS}", "--out", str(out)]
            run_command(command, log, longest_s=RUN_S)
            return dict(Results.open(out).rows()[0])
        except MachineError:
            raise Missing(f"the run did not end within {RUN_S:g} s; is there an endless loop in {FILE}?") from None
        except (RailyardError, IndexError):
            raise Missing(f"the run gave no result: {last_line(log)}") from None


EXERCISE = Exercise(
    name="failover",
    title="A chip dies; your policy chooses the spare",
    file=FILE,
    root=True,
    parts=(
        Part(4, "the nearest spare is taken", check_nearest),
        Part(3, "no other chip moves, and nothing is answered without a spare", check_nothing_else),
        Part(3, "a job goes on in a run in which a chip dies", check_job_goes_on),
    ),
)
