"""Benchmarks of whole runs: against predictions and Opus (arXiv 2602.12521), how often faithful, beside an open page.

On-demand exposes every phase change of the critical path, so step time grows by their number times the delay: 2 for
the smoke job, 6 for the Llama job without overlap, 0 for a job with one phase. Provisioned hides delays inside its
windows: it is never slower than on-demand, and follows the stall law for the measured windows.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from commands.bench import Measurement, ModelRow, NotMeasured, QuickRun, at_most, not_measured
from commands.bench.bed import Bed, rows_of
from commands.command_process import last_line, run_command
from experiments.rails.experiment import Rails
from experiments.rails.settings import make_settings
from experiments.registry import find
from experiments.settings import validated
from measure.metrics.estimate import paired_ratio, slope
from measure.results.row import Row
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, MachineError, RailyardError
from railyard.ownership import temporary_folder
from railyard.process.start import MARK_VARIABLE, start_program
from railyard.size import in_words

LIMIT, LIMIT_64 = 0.02, 0.04
"""Largest difference between a measured median and its prediction, as a share of it; the second at 64 ranks."""
RANKS = (4, 8, 16, 32, 64)
STEP = (("step_time_s", "predicted_step_time_s"),)
TRIAL = (("time_s", "predicted_time_s"),)
ARRIVED = (("after_arrival_s", "predicted_after_arrival_s"),)
"""From the last arrival of a rank, as nccl-tests measure."""
FAILOVER = (
    ("step_time_before_s", "predicted_step_time_before_s"),
    ("step_time_after_s", "predicted_step_time_after_s"),
)
_SEVERAL = ("ring", "bidirectional-ring", "direct", "tree", "double-binary-tree", "recursive-halving-doubling")
_LABELS = ("mode", "fabric", "tenant", "algorithm", "collective", "n", "bytes")


@dataclass(frozen=True)
class ModelPart:
    """Rows of one run: of which experiment, with which settings; the pairs of a measured field and its prediction."""

    experiment: str
    settings: Mapping[str, Any]
    fields: tuple[tuple[str, str], ...]
    limit: float = LIMIT

    def made(self, repeats: int, datapath: str) -> Any:
        """The experiment, which measures each of its points ``repeats`` times."""
        kind = find(self.experiment)
        given = {**self.settings, "datapath": datapath, "repeats": repeats}
        return kind(validated(kind.Settings, kind.adapt(given, given)))


def _rails(workload: str, modes: str, *delays: float) -> ModelPart:
    settings: dict[str, Any] = {"modes": modes.split(",")}
    settings |= {"workload": workload} if workload else {}
    settings |= {"delays_ms": list(delays)} if delays else {}
    return ModelPart("rails", settings, STEP)


PARTS: Mapping[str, ModelPart] = {
    "rails-electrical": _rails("", "electrical,one-shot"),
    "rails-on-demand": _rails("", "on-demand"),
    "rails-provisioned": _rails("", "provisioned"),
    "smoke": _rails("smoke", "electrical,on-demand"),
    "moe-smoke": _rails("moe-smoke", "electrical,on-demand"),
    **{
        f"collectives-{n}": ModelPart(
            "collective",
            {"ranks": n, "sizes": ["1M", "4M"] if n < 32 else ["4M"], "algorithms": list(_SEVERAL), "iterations": 3},
            ARRIVED,
            LIMIT if n < 64 else LIMIT_64,
        )
        for n in RANKS
    },
    **{
        kind.replace("_", "-"): ModelPart(
            "collective",
            {"collective": kind, "ranks": 16, "sizes": ["1M", "4M"], "algorithms": [algorithm], "iterations": 3},
            ARRIVED,
        )
        for kind, algorithm in (("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_to_all", "pairwise"))
    },
    "stragglar-delay": ModelPart("straggler", {"studies": ["delay"], "iterations": 3}, TRIAL),
    "stragglar-step": ModelPart("straggler", {"studies": ["step"], "iterations": 3}, TRIAL),
    "stragglar-ranks": ModelPart("straggler", {"studies": ["ranks"], "ranks": [4, 8, 16], "iterations": 3}, TRIAL),
    "stragglar-circuits": ModelPart("straggler", {"studies": ["reconfiguration"], "iterations": 3}, TRIAL),
    "all-to-all": ModelPart(
        "all-to-all", {"studies": ["skew"], "slots_ms": [200.0], "policies": ["rotor", "valiant", "demand"]}, TRIAL
    ),
    "failover": ModelPart("failover", {}, FAILOVER),
}
"""Each takes less than about four minutes for one repeat."""


_USUAL = (None, "", 0, "all_reduce")
"""Values that are not in the name of a row."""


def _word(key: str, value: Any) -> str:
    return f"{value} ranks" if key == "n" else in_words(value) if key == "bytes" else str(value)


def compared(name: str, part: ModelPart, row: Row) -> list[ModelRow]:
    """The measured values of a row of ``part`` beside their predictions, where it has one."""
    labels = [key for key in _LABELS if key != "fabric" or "mode" not in row]
    words = [_word(key, row[key]) for key in labels if row.get(key) not in _USUAL]
    for key, unit in (("reconfiguration_delay_ms", "ms"), ("straggler_delay_s", "s late")):
        words += [f"{row[key]:.3g} {unit}"] if row.get(key) else []
    found = []
    for measured, predicted in part.fields:
        if row.get(predicted) is not None:
            after = ["after"] if "after" in measured and part.fields == FAILOVER else []
            label = " ".join([f"{name}:", *words, *after])
            n = max(1, int(row.get("repeats") or 1))
            measured_s, predicted_s = row.get(measured), row[predicted]
            off = None if measured_s is None or not predicted_s else measured_s / predicted_s - 1
            ok = off is not None and abs(off) <= part.limit
            one = ModelRow(label, off, "of the model", limit=part.limit, ok=ok, n=n, faithful=bool(row["faithful"]))
            one.measured_s, one.predicted_s = measured_s, predicted_s
            found.append(one)
    return found


def model_parts(bed: Bed) -> list[Measurement]:
    """Measure the parts that the bed asks for (None: all); one that cannot be measured gives its reason."""
    found: list[Measurement] = []
    for name in bed.parts or PARTS:
        part = PARTS[name]
        try:
            rows = rows_of(part.made(bed.repeats, bed.datapath), bed.repeats)
        except RailyardError as error:
            found.append(not_measured(f"model_{name}", error))
            continue
        found += [one for row in rows for one in compared(name, part, row)]
    return sorted(found, key=lambda row: (row.ok is True, -abs(row.value or 0.0)))


# ---- growth of step time with the delay ------------------------------------------------------------------------------


NEVER_SLOWER_SHARE = 0.01
"""Difference between two points of one machine that noise explains, as a share of the step time."""
STALL_LAW_SHARE = 0.10


def slopes(bed: Bed) -> list[Measurement]:
    """Slopes in seconds of step per second of delay; provisioned against on-demand and the stall law. Needs root."""
    smoke = _rows(bed, "smoke", ["electrical", "on-demand", "provisioned"], [50, 100, 200, 350, 500], 4)
    llama = _rows(bed, "llama3-8b-16", ["on-demand"], [50, 200, 500], 2)
    flat = _rows(bed, "pp-only", ["on-demand"], [50, 500], 2)
    return [
        _slope("smoke_on_demand_slope", smoke, 2.0, 0.05),
        _slope("llama_on_demand_slope", llama, 6.0, 0.10),
        _flat("pp_only_slope", flat),
        *_provisioned(smoke),
        Measurement("unfaithful_points", sum(not row["faithful"] for row in (*smoke, *llama, *flat)), "points"),
    ]


def _rows(bed: Bed, workload: str, modes: Sequence[str], delays_ms: Sequence[float], steps: int) -> list[Row]:
    values = {"workload": workload, "modes": modes, "delays_ms": delays_ms, "steps": steps, "datapath": bed.datapath}
    return rows_of(Rails(make_settings(values)))


def _fit(rows: Sequence[Row], mode: str) -> float:
    """Least-squares slope of step time over delay."""
    of_mode = [row for row in rows if row["mode"] == mode]
    found = slope([row["reconfiguration_delay_ms"] / 1e3 for row in of_mode], [[_step_s(row)] for row in of_mode])
    if found is None:
        raise NotMeasured(f"the slope of {mode}: its points have fewer than two delays")
    return found.median


def _step_s(row: Row) -> float:
    """The step time of a point in seconds; ``NotMeasured`` if no step of the point was measured."""
    if not row["step_time_s"]:
        where = f"{row['mode']} at {row['reconfiguration_delay_ms']:g} ms"
        raise NotMeasured(f"the step time of {where}: no step was whole")
    return float(row["step_time_s"])


def _slope(name: str, rows: Sequence[Row], expected: float, share: float) -> Measurement:
    """A measurement whose ``ratio`` is measured / expected and whose ``limit`` is the largest distance of it from 1."""
    found = _fit(rows, "on-demand")
    ratio = found / expected
    return Measurement(name, found, "s/s", expected, ratio, share, abs(ratio - 1) <= share)


def _flat(name: str, rows: Sequence[Row]) -> Measurement:
    """A measurement with an expected slope of 0: within 0.05 s per second of delay, and without reconfigurations."""
    found, limit = _fit(rows, "on-demand"), 0.05
    quiet = all(row["reconfigurations_per_step"] == 0 for row in rows)
    return Measurement(name, found, "s/s", 0.0, None, limit, abs(found) <= limit and quiet)


def _provisioned(rows: Sequence[Row]) -> list[Measurement]:
    """Measurements of provisioned against on-demand at the same delay, and against the stall law."""
    by_mode = {mode: {row["reconfiguration_delay_ms"]: row for row in rows if row["mode"] == mode}
               for mode in ("on-demand", "provisioned")}  # fmt: skip
    exposed, covered = by_mode["on-demand"], by_mode["provisioned"]
    if not covered or not all(delay in exposed and row.get("stall_law_step_time_s") for delay, row in covered.items()):
        raise NotMeasured("provisioned against on-demand and the stall law: a point of one of them is missing")
    slower = max(_step_s(row) / _step_s(exposed[delay]) for delay, row in covered.items())
    off = max(abs(_step_s(row) / row["stall_law_step_time_s"] - 1) for row in covered.values())
    return [
        at_most("provisioned_over_on_demand_worst", slower, "ratio", 1 + NEVER_SLOWER_SHARE),
        at_most("provisioned_off_stall_law_worst", off, "share", STALL_LAW_SHARE),
    ]


# ---- quick runs ------------------------------------------------------------------------------------------------------


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
        rows = rows_of_run("run.sh --quick", ["run", "rails", "--quick", "--datapath", datapath], folder)
        seconds = time.monotonic() - began
    bad = [str(row["verdict"]) for row in rows if row["faithful"] is not True]
    differences = [abs(row["step_time_s"] / row["predicted_step_time_s"] - 1) for row in rows if row["step_time_s"]]
    found = QuickRun(f"quick_run_{number}", len(rows) - len(bad), "points", limit=len(rows), ok=bool(rows) and not bad)
    found.run, found.seconds = number, seconds
    found.others = min(1.0, max(map(_others, rows), default=0.0) / (os.cpu_count() or 1))
    found.off, found.verdict = max(differences, default=None), next(iter(bad), "")
    return found


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


def _others(row: Row) -> float:
    """How many processors other processes kept busy during a run, a browser among them."""
    return next((float(check["value"] or 0.0) for check in row["checks"] if check["name"] == "other processes"), 0.0)


# ---- a page beside a run ---------------------------------------------------------------------------------------------


PAIRS = 5
PAGE_LIMIT_PERCENT = 0.5
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

    The order changes from pair to pair. The run does not know the browser, whose use of the processors so counts as
    that of other processes. ``NotMeasured`` without Chromium, and if a page showed nothing of its run.
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
    middle = (ratio.median - 1) * 100
    low, high = (None if each is None else (each - 1) * 100 for each in (ratio.low, ratio.high))
    without, with_page = (sum(row["faithful"] is True for row in rows) for rows in (alone, watched))
    return [
        Measurement("watch_step_time", middle, "%", limit=PAGE_LIMIT_PERCENT, ok=abs(middle) <= PAGE_LIMIT_PERCENT),
        Measurement("watch_step_time_low", low, "%"),
        Measurement("watch_step_time_high", high, "%"),
        Measurement("watch_faithful_without", without, "runs", limit=len(alone)),
        Measurement("watch_faithful_with", with_page, "runs", limit=without, ok=with_page >= without),
        Measurement("watch_other_processes", median(map(_others, watched)), "cores"),
    ]


def _row(bed: Bed, watched: bool) -> Row:
    """The row of one run, which has one point; ``watched``: with an open page."""
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
