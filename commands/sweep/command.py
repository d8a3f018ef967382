"""``railyard sweep``: begins or resumes a sweep, says how far it is, and merges what is done."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from commands.run import need_root
from commands.sweep.execute import Outcome
from commands.sweep.folder import PointCounts, SweepFolder
from commands.sweep.spec import SweepPoint, SweepSpec, read_spec
from commands.sweep.workers.dask_cluster import Elsewhere, workers_of_options
from experiments.experiment import Experiment
from experiments.parser import Parser, folder
from experiments.progress import RunProgress
from experiments.registry import find
from experiments.settings import validated
from measure.results.folder import is_locked
from measure.results.results import SWEEP
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, PARTIAL_EXIT_STATUS, ConfigError
from railyard.plugin import absolute_name

USAGE = """usage: railyard sweep FILE.yaml|FOLDER [options]
       railyard sweep status FOLDER [--json]
       railyard sweep merge FOLDER
       railyard sweep point FOLDER NAME

Runs many points of an experiment (docs/sweeps.md): those of a file in a new
folder, or those of a folder that are not done. `status` says how far a sweep
is, `merge` writes its tables and figures, and `point` runs one of its points,
for other programs that run several at a time (--list prints the commands).
"""
REMOTE_POINT = "remote-point"
_SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(f"{USAGE}\n{_parser().format_help().partition(chr(10) * 2)[2]}", end="")
        return 0
    verbs = {"status": _status, "merge": _merge, "point": _point, REMOTE_POINT: _remote_point}
    return verbs[first](arguments[1:]) if first in verbs else _sweep(arguments)


def words() -> list[str]:
    """The words that may follow ``railyard sweep``; a folder that is called as one of them is ``./status``."""
    return ["status", "merge", "point", *_parser().options]


def _parser() -> Parser:
    parser = Parser(prog="railyard sweep", usage="railyard sweep FILE.yaml|FOLDER [options]")
    parser.add_argument("what", type=Path, metavar="FILE.yaml|FOLDER", help="a sweep file, or the folder of a sweep")
    add = parser.add_argument
    add("--out", type=folder, metavar="FOLDER", help="folder of the sweep (default results/NAME-DATE-TIME)")
    add("--predict", action="store_true", help="the model's numbers only; needs no root")
    add("--list", action="store_true", help="the command of each point that is to be run, one a line; runs nothing")
    add("--limit", type=_count, metavar="N", help="points to run at most, in this call")
    add("--workers", type=_count, metavar="N", help="worker processes on this machine (Dask; for the model)")
    add("--cluster", metavar="HOST,...", help="a worker on each of these machines, over ssh (Dask)")
    add("--scheduler", metavar="ADDRESS", help="the workers of a scheduler of Dask that runs already")
    add("--calibrate", action="store_true", help="workers' machines without a calibration are calibrated first")
    add("--again", action="store_true", help="points that failed are run again")
    add("--no-figures", action="store_true", help="no figures; railyard sweep merge draws them later")
    _add_common(parser)
    return parser


def _add_common(parser: Parser) -> None:
    parser.add_argument("--wide", action="store_true", help="all columns of the table")
    parser.add_argument("--experiment", metavar="FILE.py:Class", help="experiment of a folder, if its code is yours")


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text[:9]) <= 10**6:
        raise ArgumentTypeError(f"must be a whole number of at least 1, not {text[:40]!r}")
    return int(text)


# ---- the whole sweep -----------------------------------------------------------------------------------------------


def _sweep(arguments: Sequence[str]) -> int:
    options = _parser().read(arguments)
    elsewhere = workers_of_options(options)
    sweep, mine = _opened(options.what, options)
    kind = find(sweep.spec.file.experiment) if mine else _kind(sweep, options.experiment)
    if options.list:
        if options.again:
            with sweep.locked():
                sweep.again()
        _print_list(sweep, kind, options)
        return 0
    if elsewhere is None:
        _need_root(sweep, kind)
    elif options.workers is None and os.geteuid() == 0:
        _say("this command is root, and every machine of the sweep can run programs here as root (docs/cluster.md)")
    with sweep.locked():
        sweep.check_inputs(again=options.again)
        if options.again:
            sweep.again()
        _run(sweep, options.limit, elsewhere, options.calibrate)
        return _merged(sweep, kind, wide=options.wide, figures=not options.no_figures)


def _opened(what: Path, options: Any) -> tuple[SweepFolder, bool]:
    """The folder of a sweep: the one that is named, or that of a file, which is made unless it is there.

    And whether a file was named, which then says whose code is executed.
    """
    if what.suffix not in (".yaml", ".yml"):
        if options.out is not None:
            raise ConfigError("is not used with the folder of a sweep; leave it out", key="--out")
        sweep = SweepFolder.open(what)
        if options.predict and not sweep.spec.file.predict:
            raise ConfigError(f"{what} is a sweep of measurements; begin one of the model in a new folder",
                              key="--predict")  # fmt: skip
        return sweep, False
    spec = read_spec(what, predict=options.predict)
    out = options.out
    if out is not None and (out / SWEEP).is_file():
        return _same(SweepFolder.open(out), spec, what), True
    if out is None:
        from measure.results.folder import new_folder

        out = new_folder(Path("results"), spec.file.sweep)
    sweep = SweepFolder.create(out, spec)
    _say(f"{len(spec.points)} points in {out}; after a stop: railyard sweep {shlex.quote(str(out))}")
    return sweep, True


def _same(sweep: SweepFolder, spec: SweepSpec, what: Path) -> SweepFolder:
    if sweep.spec.file.predict != spec.file.predict:
        of = "the model" if sweep.spec.file.predict else "measurements"
        raise ConfigError(f"{sweep.path} is a sweep of {of}; name a new folder", key="--out")
    if _plain(sweep.spec) != _plain(spec):
        raise ConfigError(f"{sweep.path} holds another sweep than {what} describes; name a new folder", key="--out")
    return sweep


def _plain(spec: SweepSpec) -> str:
    return json.dumps([spec.file.model_dump(mode="json"), [asdict(each) for each in spec.points]], sort_keys=True)


def _kind(sweep: SweepFolder, named: str | None) -> type[Experiment[Any]]:
    """The experiment of a folder, which does not decide alone which code of a file is executed."""
    name = sweep.spec.file.experiment
    if named is not None and absolute_name(named) != name:
        raise ConfigError(f"{sweep.path} is of {name}, not of {named}", key="--experiment")
    if ":" in name and named is None:
        raise ConfigError(
            f"{sweep.path} is of {name}, whose code is not part of Railyard; name it: --experiment {name}", key="sweep"
        )
    return find(name)


def _run(sweep: SweepFolder, limit: int | None, elsewhere: Elsewhere | None, calibrated: bool) -> None:
    from rich.console import Console

    from commands.sweep.execute import run_all
    from experiments.progress import RunProgress

    counts = sweep.states()
    with RunProgress(Console(stderr=True)) as shown:
        progress = SweepProgress(shown, counts.total, counts.done + counts.failed, seldom=sweep.spec.file.predict)
        if elsewhere is None:
            run_all(sweep, limit, progress.ended)
            return
        from commands.sweep.workers.dask_executor import run_all_on

        with elsewhere() as workers:
            run_all_on(sweep, workers, limit, progress.ended, shown.say, calibrated=calibrated)


def _need_root(sweep: SweepFolder, kind: type[Experiment[Any]]) -> None:
    if _as_root(sweep, kind):
        need_root()


def _as_root(sweep: SweepFolder, kind: type[Experiment[Any]]) -> bool:
    """Whether the points of a sweep need root, as the first one says."""
    if sweep.spec.file.predict or not sweep.points:
        return False
    return kind(validated(kind.Settings, sweep.points[0].values)).needs_root()


def _print_list(sweep: SweepFolder, kind: type[Experiment[Any]], options: Any) -> None:
    command = [str(Path(sys.argv[0]).absolute())] if Path(sys.argv[0]).name == "railyard" else ["railyard"]
    command = ["sudo", *command] if _as_root(sweep, kind) and os.geteuid() != 0 else command
    name = sweep.spec.file.experiment
    more = ["--experiment", name] if ":" in name else []
    for point in sweep.pending()[: options.limit]:
        print(shlex.join([*command, "sweep", "point", str(sweep.path.absolute()), point.name, *more]))


# ---- parts of it ---------------------------------------------------------------------------------------------------


def _point(arguments: Sequence[str]) -> int:
    """Run one point, which no other process has; 0 also for one that is done or that another process has.

    One that has failed is not run again, and its status is returned.
    """
    from commands.sweep.execute import run_point

    parser = Parser(prog="railyard sweep point", description="Run one point of a sweep; several may run at a time.")
    parser.add_argument("sweep", type=folder, metavar="FOLDER", help="folder of the sweep")
    parser.add_argument("name", metavar="NAME", help="name of the point")
    parser.add_argument("--experiment", metavar="FILE.py:Class", help="the experiment, if its code is yours")
    options = parser.read(arguments)
    sweep = SweepFolder.open(options.sweep)
    point = sweep.point(options.name)
    _need_root(sweep, _kind(sweep, options.experiment))
    with sweep.locked(shared=True):
        sweep.check_inputs()
        if not sweep.claim(point):
            failed = sweep.failure(point)
            if failed is not None:
                _say(f"{point.name} has failed: {failed.said}; it is run again after: railyard sweep FOLDER --again")
                return failed.status
            _say(f"{point.name} is {sweep.state(point)}: nothing to do")
            return 0
        outcome = run_point(sweep, point)
        _say(f"{point.name}, {point.title()}: {outcome}")
        return outcome.status


def _remote_point(arguments: Sequence[str]) -> int:
    """The command that a worker on another machine runs for a point (``commands.sweep.workers.worker_task``)."""
    from commands.sweep.workers.worker_task import main

    Parser(prog=f"railyard sweep {REMOTE_POINT}", description="Started by the workers of a sweep.").read(arguments)
    return main()


def _merge(arguments: Sequence[str]) -> int:
    parser = Parser(prog="railyard sweep merge", description="Write tables and figures of all points that are done.")
    parser.add_argument("sweep", type=folder, metavar="FOLDER", help="folder of the sweep")
    parser.add_argument("--no-figures", action="store_true", help="no figures")
    parser.add_argument("--html", action="store_true", help="the table as HTML, for a notebook; nothing is written")
    _add_common(parser)
    options = parser.read(arguments)
    sweep = SweepFolder.open(options.sweep)
    if options.html:
        return _print_html(sweep, _kind(sweep, options.experiment))
    return _merged(sweep, _kind(sweep, options.experiment), wide=options.wide, figures=not options.no_figures)


def _print_html(sweep: SweepFolder, kind: type[Experiment[Any]]) -> int:
    from commands.page.report.record import tables
    from commands.sweep.report import Merged

    merged = Merged(sweep, kind)
    print(*tables([merged.table()] if merged.rows else []), sep="")
    return exit_status(merged.counts)


def _merged(sweep: SweepFolder, kind: type[Experiment[Any]], *, wide: bool, figures: bool) -> int:
    from commands.sweep.report import Merged
    from experiments.report import console_for_tables

    merged = Merged(sweep, kind)
    merged.write(figures=figures)
    merged.show(console_for_tables(wide=wide), figures=figures)
    return exit_status(merged.counts)


def exit_status(counts: PointCounts) -> int:
    """9 if points are missing or failed, 8 if some are not faithful, else 0."""
    if counts.done < counts.total:
        return PARTIAL_EXIT_STATUS
    return NOT_FAITHFUL_EXIT_STATUS if counts.unfaithful else 0


def _status(arguments: Sequence[str]) -> int:
    parser = Parser(prog="railyard sweep status", description="How far a sweep is, and when it may end.")
    parser.add_argument("sweep", type=folder, metavar="FOLDER", help="folder of the sweep")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.read(arguments)
    sweep = SweepFolder.open(options.sweep)
    counts, claims = sweep.states(), list(sweep.claims())
    seconds = [ended.seconds for _, ended in (*sweep.done(), *sweep.failed())]
    left_s = estimate_s(seconds, counts.pending + counts.claimed, len(claims))
    failed = [
        {"point": point.name, "values": dict(point.swept), "host": ended.host, "status": ended.status,
         "said": ended.said} for point, ended in sweep.failed()
    ]  # fmt: skip
    running = [{"point": point.name, "values": dict(point.swept), **asdict(claim)} for point, claim in claims]
    if options.json:
        found = {"total": counts.total, **asdict(counts), "locked": is_locked(sweep.path), "left_s": left_s,
                 "running": running, "failures": failed}  # fmt: skip
        print(json.dumps(found, indent=2))
        return 0
    print(f"{sweep.spec.file.sweep}: {counts.total} points: {counts.done} done ({counts.unfaithful} not faithful), "
          f"{counts.failed} failed, {counts.claimed} running, {counts.pending} to be run")  # fmt: skip
    for point, claim in claims[:_SHOWN]:
        print(f"running on {claim.host}: {point.name} ({point.title()})")
    if left_s:
        end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + left_s))
        print(f"about {in_time(left_s)} left{f' (until {end})' if claims else ', once it is resumed'}")
    for each in failed[-_SHOWN:]:
        print(f"failed with status {each['status']}: {each['point']}: {each['said']}")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


# ---- progress --------------------------------------------------------------------------------------------------------


_SAY_EVERY_S = 10.0
_LAST = 20
"""Points whose mean time is taken as that of the others."""


def estimate_s(seconds: Sequence[float], left: int, at_once: int = 1) -> float | None:
    """Seconds until ``left`` points have ended, by the mean of the last durations; None before the first one."""
    return fmean(seconds[-_LAST:]) * left / max(1, at_once) if seconds else None


def in_time(seconds: float) -> str:
    """A duration for people: 8 s, 5 min, 2 h 10 min."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{minutes * 60 + rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"
    return f"{hours // 24} days {hours % 24} h"


class SweepProgress:
    """Says of each point how it ended, on ``progress``: of points of the model one line every ten seconds."""

    def __init__(self, progress: RunProgress, total: int, done: int, *, seldom: bool) -> None:
        self._progress, self._total, self._done, self._seldom = progress, total, done, seldom
        self._seconds: list[float] = []
        self._said_at = self._last_at = time.monotonic()
        progress.begin("points", steps=total)
        progress.step(done)

    def ended(self, point: SweepPoint, outcome: Outcome) -> None:
        now = time.monotonic()
        self._seconds.append(now - self._last_at)
        self._last_at = now
        self._done += 1
        self._progress.step(self._done)
        if self._seldom and outcome.status == 0 and now < self._said_at + _SAY_EVERY_S and self._done < self._total:
            return
        self._said_at = now
        left_s = estimate_s(self._seconds, self._total - self._done)
        left = f", about {in_time(left_s)} left" if left_s else ""
        self._progress.say(f"[{self._done}/{self._total}{left}] {point.title()}: {outcome}")
