"""Benchmark of a page beside a run: step times with ``--watch`` and an open page against those without, in pairs.

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
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from commands.bench import Measurement, NotMeasured
from commands.bench.bed import Bed
from commands.bench.quick import run_command
from measure.metrics.estimate import paired_ratio
from measure.results.row import Row
from railyard.child import MARK_VARIABLE
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS
from railyard.ownership import temporary_folder

PAIRS = 5
LIMIT_PERCENT = 0.5
_RUN = (
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
    return rows_of(found[False], found[True])


def rows_of(alone: Sequence[Row], watched: Sequence[Row]) -> list[Measurement]:
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
    with temporary_folder() as folder:
        out = folder / "results"
        words = [*_RUN, "--datapath", bed.option, "--out", str(out)]
        if watched:
            with OpenPage(folder) as page:
                status, said = run_command([*words, "--watch"], page.heard)
                page.check()
        else:
            status, said = run_command(words)
        if status not in (0, NOT_FAITHFUL_EXIT_STATUS):
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise NotMeasured(f"the cost of an open page: a run ended with status {status}: {last}")
        rows: list[Row] = json.loads((out / "summary.json").read_text())
    return rows[0]


class OpenPage:
    """A headless Chromium that opens the page of a run as soon as the run names its address; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._profile = folder / "profile"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OpenPage:
        return self

    def heard(self, line: str) -> None:
        """Open the page if ``line``, a message of the run, has its address."""
        address = _ADDRESS.search(line)
        if address is not None and self._process is None:
            environment = {key: value for key, value in os.environ.items() if key != MARK_VARIABLE}
            self._process = subprocess.Popen(
                [_BROWSER, *_FLAGS, f"--user-data-dir={self._profile}", address[0]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

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
