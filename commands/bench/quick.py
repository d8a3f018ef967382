"""How often every point of ``scripts/run.sh --quick`` is faithful on this machine."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from commands.bench import Measurement, NotMeasured, QuickRun, not_measured
from commands.bench.bed import Bed
from measure.results.row import Row
from railyard.child import child_environment, end_child, python_command
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS
from railyard.ownership import temporary_folder

_RUN = ("run", "rails", "--quick")
_LONGEST_S = 1800.0
_END_S = 20.0
_USED = (0, 1, 2, 7)
"""Places of the ticks in the first line of /proc/stat that processes used, or the hypervisor took: user, nice, system,
steal. Interrupts are those of the packets of a run."""


def quick_runs(bed: Bed) -> list[Measurement]:
    """Run the command so many times, one after another: a row for each run, and one for those that are faithful."""
    runs: list[Measurement] = []
    for number in range(1, bed.runs + 1):
        try:
            runs.append(quick_run(number, bed.option))
        except NotMeasured as error:
            runs.append(not_measured(f"quick_run_{number}", error))
    good = sum(bool(run.ok) for run in runs)
    return [*runs, Measurement("quick_faithful_runs", good, "runs", limit=len(runs), ok=good == len(runs))]


def quick_run(number: int, datapath: str) -> QuickRun:
    """One run of the command; ``NotMeasured`` with its last message if it ends with an error."""
    with temporary_folder() as folder:
        out = folder / "results"
        began, before = time.monotonic(), used_by_others_s()
        try:
            status, said = run_command([*_RUN, "--datapath", datapath, "--out", str(out)])
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"run.sh --quick did not end within {_LONGEST_S:g} s") from None
        seconds, others_s = time.monotonic() - began, used_by_others_s() - before
        if status not in (0, NOT_FAITHFUL_EXIT_STATUS):
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise NotMeasured(f"run.sh --quick ended with status {status}: {last}")
        rows: list[Row] = json.loads((out / "summary.json").read_text())
    return row_of(number, rows, seconds, others_s / seconds / (os.cpu_count() or 1))


def row_of(number: int, rows: Sequence[Row], seconds: float, others: float) -> QuickRun:
    """The row of a run from its ``summary.json``; ``others``: share of all processors that other programs used."""
    bad = [str(row["verdict"]) for row in rows if row["faithful"] is not True]
    differences = [abs(row["step_time_s"] / row["predicted_step_time_s"] - 1) for row in rows if row["step_time_s"]]
    found = QuickRun(f"quick_run_{number}", len(rows) - len(bad), "points", limit=len(rows), ok=bool(rows) and not bad)
    found.run, found.seconds, found.others = number, seconds, min(max(others, 0.0), 1.0)
    found.off, found.verdict = max(differences, default=None), next(iter(bad), "")
    return found


def run_command(words: Sequence[str], heard: Callable[[str], None] = lambda line: None) -> tuple[int, str]:
    """Exit status and messages of a ``railyard`` command, which is ended with this process.

    ``heard`` is called with each line of its messages, in a thread of its own.
    """
    process = subprocess.Popen(
        python_command("commands.main", *words),
        cwd="/",
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []

    def read() -> None:
        for line in process.stderr or ():
            said.append(line)
            heard(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        process.wait(_LONGEST_S)
    except BaseException:
        process.terminate()
        end_child(process, _END_S)
        raise
    reader.join()
    return process.returncode, "".join(said)


def used_by_others_s() -> float:
    """Processor seconds since the start of the machine of all but this process and the children that it waited for."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    used = sum(int(ticks[place]) for place in _USED) / os.sysconf("SC_CLK_TCK")
    mine = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return used - sum(each.ru_utime + each.ru_stime for each in mine)
