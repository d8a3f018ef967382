"""Failover: a policy chooses the spare that takes the place of a dead chip, and moves nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from commands.command_process import last_line, run_command
from commands.exercises.exercise import Exercise, ExercisePart, Missing, student_code
from measure.results.results import Results
from railyard.errors import MachineError, RailyardError
from railyard.ownership import temporary_folder
from topos.describe import plan
from topos.racks import RackTopo
from workloads.program import Group

CLASS = "NearestSpare"
RUN = (
    "railyard run failover --fabrics photonic --alone --steps 3 --kill 1@1.5 --repeats 1 --attempts 1 --detect exit "
    "--job-compute 0.1 --job-gradient-bytes 2e8 --job-state-bytes 2e8 --no-figures"
)
"""A run of five seconds on a quiet machine, in which chip 1 of the job's chips 0 to 3 dies."""


class Death(NamedTuple):
    """A dead chip of a job with some rings, the ``free`` spares, and the nearest of these (None: there is none)."""

    rings: tuple[tuple[int, ...], ...]
    dead: int
    free: tuple[int, ...]
    nearest: int | None

    def __str__(self) -> str:
        rings = " and ".join(f"the ring {' '.join(map(str, ring))}" for ring in self.rings)
        return f"with {rings}, {self.dead} dead and free {' '.join(map(str, self.free)) or 'no chip'}"


CASES = (
    Death(((0, 1, 2, 3),), 1, (16, 17, 18, 19), 16),
    Death(((12, 13, 14, 15),), 12, (4, 9, 16), 9),
    Death(((8, 9, 10, 11),), 10, (19, 2, 6), 6),
    Death(((0, 4, 8, 12),), 4, (18, 17, 13, 6), 6),
    Death(((0, 1, 2), (2, 14, 15)), 2, (19, 11, 7, 3), 3),
    Death(((0, 1, 2), (12, 13, 14)), 13, (3, 18), 18),
    Death(((9, 14),), 9, (17, 5, 15), 15),
    Death(((0, 1, 2, 3),), 1, (), None),
)
"""Some chips inside the rack are free here, as after the end of another job; servers of four stand in a row."""


def answers(file: Path) -> Iterator[tuple[Death, Mapping[int, int]]]:
    """Each case with the answer of the student's policy; ``Missing`` where it is no mapping of chips."""
    policy = student_code(file, CLASS)(plan(RackTopo()))
    for case in CASES:
        groups = [Group(f"dp{number}", "dp", ring) for number, ring in enumerate(case.rings)]
        answer = policy.replace(groups, case.dead, list(case.free))
        if not isinstance(answer, Mapping) or not all(type(chip) is int for pair in answer.items() for chip in pair):
            raise Missing("replace must return {dead: spare}, or {}")
        yield case, answer


def check_nearest(file: Path) -> None:
    for case, answer in answers(file):
        if (chosen := answer.get(case.dead)) != case.nearest:
            taken, right = ("no spare" if chip is None else f"chip {chip}" for chip in (chosen, case.nearest))
            raise Missing(f"{case}, {taken} is taken, where {right} should be")


def check_nothing_else(file: Path) -> None:
    for case, answer in answers(file):
        if list(answer) != [case.dead][: len(case.free)]:
            moved = " ".join(map(str, answer)) or "no chip"
            raise Missing(f"{case}, the answer moves {moved}")


def check_job_goes_on(file: Path) -> None:
    """Raise ``Missing`` unless the job recovers in a run, which need not be faithful."""
    with temporary_folder() as place:
        log, out = place / "log", place / "out"
        command = [*RUN.split(), "--policy", f"{file}:{CLASS}", "--out", str(out)]
        if run_command(command, log) == MachineError.exit_status:
            raise MachineError(last_line(log))
        try:
            row = Results.open(out).rows()[0]
        except (RailyardError, IndexError):
            raise Missing(f"the run gave no result: {last_line(log, f'{file.parent}/')}") from None
    if row["state"] != "recovered" or not row["checksum_ok"]:
        raise Missing(f"the job is {row['state']} after the death of a chip: {row['reason'] or 'its sums are wrong'}")


PARTS = (
    ExercisePart(4, "the nearest spare is taken", check_nearest),
    ExercisePart(3, "no other chip moves, and none without a spare", check_nothing_else),
    ExercisePart(3, "a job goes on in a run in which a chip dies", check_job_goes_on),
)
EXERCISE = Exercise("failover", "A policy that chooses the spare", "spares.py", PARTS, root=True)
