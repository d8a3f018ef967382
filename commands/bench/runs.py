"""Benchmarks of whole runs: how often all points of a quick one are faithful, and what an open page costs a run.

The page is open in a headless Chromium, which the run does not know, so that its use of the processors counts as that
of other processes in the verdict.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from commands.bench import Measurement, NotMeasured, QuickRun, not_measured
from commands.bench.bed import Bed
from commands.command_process import last_line, run_command
from measure.metrics.estimate import paired_ratio
from measure.results.row import Row
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, MachineError
from railyard.ownership import temporary_folder
from railyard.process.start import MARK_VARIABLE, start_program

_QUICK_RUN = ("run", "rails", "--quick")
_LONGEST_S = 1800.0
LOG = "log"


def quick_runs(bed: Bed) -> list[Measurement]:
    """Run the command so many times, one after another: a row for each run, and one for those that are faithful."""
    runs: list[Measurement] = []
    for number in range(1, bed.runs + 1):
        try:
            runs.append(quick_run(number, bed.datapath))
        except NotMeasured as error:
            runs.append(not_measured(f"quick_run_{number}", error))
    good = sum(bool(run.ok) for run in runs)
    return [*runs, Measurement("quick_faithful_runs", good, "runs", limit=len(runs), ok=good == len(runs))]


def quick_run(number: int, datapath: str) -> QuickRun:
    """One run of the command; ``NotMeasured`` with its last message if it ends with an error."""
    with temporary_folder() as folder:
        began = time.monotonic()
        rows = rows_of_run("run.sh --quick", [*_QUICK_RUN, "--datapath", datapath], folder)
        return row_of(number, rows, time.monotonic() - began)


def rows_of_run(
    name: str, words: Sequence[str], folder: Path, meanwhile: Callable[[], None] | None = None
) -> list[Row]:
    """The rows of a run with its results in ``folder``; ``NotMeasured``, which names it, if it ends with an error.

    What it says is in file ``log`` of the folder.
    """
    out, log = folder / "results", folder / LOG
    try:
        status = run_command(["railyard", *words, "--out", str(out)], log, longest_s=_LONGEST_S, meanwhile=meanwhile)
    except MachineError as error:
        raise NotMeasured(f"{name}: {error}") from None
    if status not in (0, NOT_FAITHFUL_EXIT_STATUS):
        raise NotMeasured(f"{name} ended with status {status}: {last_line(log)}")
    rows: list[Row] = json.loads((out / "summary.json").read_text())
    return rows


def row_of(number: int, rows: Sequence[Row], seconds: float) -> QuickRun:
    """The row of a run from its ``summary.json``."""
    bad = [str(row["verdict"]) for row in rows if row["faithful"] is not True]
    differences = [abs(row["step_time_s"] / row["predicted_step_time_s"] - 1) for row in rows if row["step_time_s"]]
    found = QuickRun(f"quick_run_{number}", len(rows) - len(bad), "points", limit=len(rows), ok=bool(rows) and not bad)
    found.run, found.seconds = number, seconds
    found.others = min(1.0, max(map(_others, rows), default=0.0) / (os.cpu_count() or 1))
    found.off, found.verdict = max(differences, default=None), next(iter(bad), "")
    return found


# ---- a page beside a run ---------------------------------------------------------------------------------------------


PAIRS = 5
LIMIT_PERCENT = 0.5
_PAGED_RUN = (
    *("run", "rails", "--modes", "on-demand", "--delays", "50", "--steps", "2"),
    *("--repeats", "1", "--attempts", "1", "--no-figures"),
)
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S+")
_BROWSER = "chromium"
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--window-size=1280,720"),
    "--remote-debugging-port=0",
)
_START_S = 20.0


def watched_runs(bed: Bed) -> list[Measurement]:
    """Five pairs of runs of 16 ranks, without and with an open page: the difference of their step times in percent.

    The order changes from pair to pair. ``NotMeasured`` without Chromium, and if a page showed nothing of its run.
    """
    if shutil.which(_BROWSER) is None:
        raise NotMeasured(f"the cost of an open page: {_BROWSER} is not installed; apt-get install {_BROWSER}")
    found: dict[bool, list[Row]] = {False: [], True: []}
    for pair in range(PAIRS):
        for watched in (pair % 2 == 1, pair % 2 == 0):
            found[watched].append(_row(bed, watched))
    return rows_of_pairs(found[False], found[True])


def rows_of_pairs(alone: Sequence[Row], watched: Sequence[Row]) -> list[Measurement]:
    """The measurements from the rows of ``summary.json`` of runs in pairs, without and with an open page."""
    times = [[row["step_time_s"] for row in rows] for rows in (watched, alone)]
    ratio = paired_ratio(*times)
    if ratio is None:
        raise NotMeasured("the cost of an open page: no pair of runs has two step times")
    percent = [None if each is None else (each - 1) * 100 for each in (ratio.median, ratio.low, ratio.high)]
    middle = percent[0] or 0.0
    counts = [sum(row["faithful"] is True for row in rows) for rows in (alone, watched)]
    return [
        Measurement("watch_step_time", middle, "%", limit=LIMIT_PERCENT, ok=abs(middle) <= LIMIT_PERCENT),
        *(
            Measurement(f"watch_step_time_{end}", each, "%")
            for end, each in zip(("low", "high"), percent[1:], strict=True)
        ),
        Measurement("watch_faithful_without", counts[0], "runs", limit=len(alone)),
        Measurement("watch_faithful_with", counts[1], "runs", limit=counts[0], ok=counts[1] >= counts[0]),
        Measurement("watch_other_processes", median(map(_others, watched)), "cores"),
    ]


def _others(row: Row) -> float:
    """How many processors other processes kept busy during a run, the browser among them."""
    return next((float(check["value"] or 0.0) for check in row["checks"] if check["name"] == "other processes"), 0.0)


def _row(bed: Bed, watched: bool) -> Row:
    """The row of one run, which has one point."""
    words, name = [*_PAGED_RUN, "--datapath", bed.datapath], "the cost of an open page: a run"
    with temporary_folder() as folder:
        if not watched:
            return rows_of_run(name, words, folder)[0]
        with OpenPage(folder) as page:
            rows = rows_of_run(name, [*words, "--watch"], folder, page.look)
            page.check()
    return rows[0]


class OpenPage:
    """A headless Chromium that opens the page of a run as soon as the run names its address; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._profile, self._log = folder / "profile", folder / LOG
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OpenPage:
        return self

    def look(self) -> None:
        """Open the page if the run has named its address."""
        if self._process is not None or not (address := _ADDRESS.search(self._log.read_text())):
            return
        environment = {key: value for key, value in os.environ.items() if key != MARK_VARIABLE}
        command = [_BROWSER, *_FLAGS, f"--user-data-dir={self._profile}", address[0]]
        self._process = start_program(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    def check(self) -> None:
        """Raise ``NotMeasured`` unless the browser shows a page of Railyard."""
        title = next(self._titles(), "") if self._process is not None else ""
        if "Railyard" not in title:
            raise NotMeasured(
                f"the cost of an open page: the browser showed {title or 'nothing'!r}, not a page of the run"
            )

    def _titles(self) -> Iterator[str]:
        with suppress(OSError, ValueError):
            port = int((self._profile / "DevToolsActivePort").read_text().split()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=_START_S) as answer:
                yield from (str(each["title"]) for each in json.load(answer) if each.get("type") == "page")

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_START_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
