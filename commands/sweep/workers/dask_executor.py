"""Runs the points of a sweep on several workers: whom each goes to, what comes back, and what if one is lost.

The folder of the sweep is here alone. A worker gets a point and gives back an archive of its results; so a sweep goes
on after anything, and with other workers or none.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import Any

from commands.sweep.execute import Outcome
from commands.sweep.folder import Ended, SweepFolder
from commands.sweep.scales import SweepScales, is_automatic, scales_here, shared_scales, slowest
from commands.sweep.spec import SweepPoint, attempt_folder
from commands.sweep.workers.dask_cluster import Workers
from commands.sweep.workers.machine_check import MachineReport, check_machines, inspected
from commands.sweep.workers.placement import Dispatch, assign, pieces
from commands.sweep.workers.worker_task import Sent, calibrate, describe, run_task, stop_tasks, unpack
from experiments.registry import find
from experiments.settings import validated
from railyard.errors import ConfigError, MachineError, shortened
from railyard.scale import Scale
from railyard.validation import from_plain

_LOOK_S = 1.0
_FETCH_S = 5.0
Told = Callable[[SweepPoint, Outcome], None]


@dataclass(frozen=True)
class _Task:
    """An attempt of a point that a worker has; ``future`` is Dask's."""

    point: SweepPoint
    attempt: int
    worker: Worker
    future: Any


def run_all_on(
    folder: SweepFolder,
    workers: Workers,
    limit: int | None,
    told: Told,
    say: Say = lambda _: None,
    *,
    calibrated: bool = False,
) -> None:
    """Run the pending points of a sweep on the workers, ``limit`` at most; ``told`` hears of each as it ends.

    ``say`` gets sentences about the machines. With ``calibrated``, those that were not are calibrated before a
    point is measured. ``MachineError`` for one that cannot be used, before the first point, and when all are lost.
    """
    points = folder.pending()[:limit]
    if not points:
        return
    used = usable(folder, workers, points[0], say, calibrated=calibrated)
    scales = SweepScales(folder)
    common_scales(scales, folder.points, workers, used)
    plan = assign(points, [worker.name for worker in used], together=not points[0].predict)
    _Run(folder, workers, used, scales, told, say).points(Dispatch(plan))


# ---- the points ----------------------------------------------------------------------------------------------------


class _Run:
    """The points that workers have now, and what becomes of them."""

    def __init__(
        self,
        folder: SweepFolder,
        workers: Workers,
        used: Sequence[Worker],
        scales: SweepScales,
        told: Told,
        say: Say,
    ) -> None:
        self._folder, self._workers, self._scales, self._told, self._say = folder, workers, scales, told, say
        self._used = {worker.name: worker for worker in used}
        self._tasks: list[_Task] = []
        self._done: SimpleQueue[Any] = SimpleQueue()
        """The futures that are done."""
        self._mine: dict[str, SweepPoint] = {}
        """The points that this process has claimed."""
        self._looked_at = time.monotonic()

    def points(self, dispatch: Dispatch) -> None:
        """Run all points; those that were claimed are released if this is stopped."""
        try:
            while True:
                for name in [*dispatch.machines]:
                    self._give(dispatch, self._used[name])
                if not self._tasks:
                    return
                with suppress(Empty):
                    done = self._done.get(timeout=_LOOK_S)
                    for task in [task for task in self._tasks if task.future is done]:
                        self._take(dispatch, task)
                if time.monotonic() >= self._looked_at + _LOOK_S:
                    self._look_for_lost(dispatch)
        finally:
            self._stop()

    def _give(self, dispatch: Dispatch, worker: Worker) -> None:
        """Give a worker what it has room for: a measured point, or two of the model, so that it need not wait."""
        while sum(task.worker == worker for task in self._tasks) < (2 if self._folder.spec.file.predict else 1):
            point = dispatch.next(worker.name)
            if point is None:
                return
            if point.name not in self._mine and not self._folder.claim(point, f"worker {worker.name}"):
                continue
            self._mine[point.name] = point
            scaled = self._scales.as_run(point)
            number = self._folder.begin(scaled)
            future = self._workers.submit(worker.address, run_task, asdict(scaled), root=needs_root(point))
            self._tasks.append(_Task(point, number, worker, future))
            future.add_done_callback(self._done.put)

    def _take(self, dispatch: Dispatch, task: _Task) -> None:
        self._tasks.remove(task)
        host = task.worker.report.host
        result = self._fetched(task)
        if result is None:
            self._lose(dispatch, task.worker, [task])
            return
        try:
            if isinstance(result, BaseException):
                raise MachineError(in_words(result))
            fields = dict(result)
            data = fields.pop("archive")
            sent = from_plain(Sent, fields, "an outcome")
            unpack(data, sent.sha256, attempt_folder(self._folder.place(task.point), task.attempt), host)
        except (MachineError, ConfigError) as error:
            sent = Sent(MachineError.exit_status, 0.0, f"machine {host}: {error}", 0, "none")
        self._record(dispatch, task, sent)

    def _fetched(self, task: _Task) -> Mapping[str, Any] | BaseException | None:
        """The result of a task that is done, or the error in its place; None if its worker was lost meanwhile."""
        from distributed import TimeoutError as Late

        while True:
            try:
                result: Mapping[str, Any] = task.future.result(timeout=_FETCH_S)
                return result
            except Late:
                if not self._is_there(task.worker):
                    return None
            except (Exception, CancelledError) as error:  # Dask cancels what a scheduler had that is gone
                return error if self._is_there(task.worker) else None

    def _is_there(self, worker: Worker) -> bool:
        return worker.address in self._workers.addresses().values()

    def _record(self, dispatch: Dispatch, task: _Task, sent: Sent) -> None:
        point, report = task.point, task.worker.report
        machine = {**report.facts, "calibrated": report.calibrated}
        ended = Ended(task.attempt, sent.status, report.host, sent.seconds, machine, sent.said)
        if not self._folder.end_attempt(point, ended):
            tried = {attempt.host for attempt in self._folder.attempts(point)}
            dispatch.again(point, [name for name, worker in self._used.items() if worker.report.host in tried])
            return
        del self._mine[point.name]
        self._told(point, Outcome(sent.status, task.attempt, sent.seconds, sent.said))

    def _look_for_lost(self, dispatch: Dispatch) -> None:
        """Give the points of workers that are gone to others."""
        self._looked_at = time.monotonic()
        there = set(self._workers.addresses().values())
        for worker in [self._used[name] for name in dispatch.machines]:
            if worker.address not in there and worker.name in dispatch.machines:
                self._lose(dispatch, worker, [])

    def _lose(self, dispatch: Dispatch, worker: Worker, more: Sequence[_Task]) -> None:
        gone = [task for task in self._tasks if task.worker == worker]
        for task in gone:
            self._tasks.remove(task)
            _cancel(task)
        dispatch.lost(worker.name, [task.point for task in (*more, *gone)])
        if worker.name in dispatch.machines:
            raise MachineError(
                f"the last worker, {worker.name} on {worker.report.host}, is lost, and {dispatch.left} points "
                f"are left; railyard sweep {self._folder.path} goes on with them"
            )
        self._say(f"worker {worker.name} on {worker.report.host} is lost; its points go to others")

    def _stop(self) -> None:
        """Stop what still runs, and release its points."""
        running = {task.worker.address for task in self._tasks}
        for task in self._tasks:
            _cancel(task)
        try:
            if running:
                self._workers.call_all(sorted(running), stop_tasks)
        except Exception as error:  # the error that ended the sweep is the one to raise
            self._say(f"points were not stopped on every worker: {in_words(error)}")
        finally:
            for point in self._mine.values():
                self._folder.release(point)


def _cancel(task: _Task) -> None:
    """Tell Dask that a task is not wanted any more; a scheduler that is gone need not be told."""
    with suppress(Exception):
        task.future.cancel()


# ---- the workers that points are given to ----------------------------------------------------------------------------


_DESCRIBE_S = 90.0
_SCALES_S = 900.0
_CALIBRATE_S = 1800.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Worker:
    """A worker that may be given points: its name and address, and the report of its machine."""

    name: str
    address: str
    report: MachineReport


def usable(
    folder: SweepFolder, workers: Workers, point: SweepPoint, say: Say, *, calibrated: bool = False
) -> list[Worker]:
    """The workers that are given points such as ``point``: all for the model, one of each machine for what is measured.

    With ``calibrated``, machines that were not are calibrated now. ``say`` gets what differs between them.
    ``MachineError`` for a machine that cannot be used.
    """
    files = [str(each["file"]) for each in folder.inputs]
    measured, addresses = needs_root(point), workers.addresses()
    if not addresses:
        raise MachineError("the scheduler has no worker; start one on each machine: dask worker ADDRESS --nthreads 1")
    described = _described(workers, addresses, files, measured)
    here = inspected(files, "", measured=False)
    notes = check_machines(here, [worker.report for worker in described], measured=measured)
    used = described if point.predict else list({worker.report.host: worker for worker in reversed(described)}.values())
    if len(used) < len(described):
        say(f"{len(described)} workers are on {len(used)} machines, each of which measures one point at a time")
    if calibrated and measured and _calibrate(workers, used, say):
        used = _described(workers, {worker.name: worker.address for worker in used}, files, measured)
        notes = check_machines(here, [worker.report for worker in used], measured=measured)
    for note in dict.fromkeys(notes):
        say(note)
    return sorted(used, key=lambda worker: worker.name)


def needs_root(point: SweepPoint) -> bool:
    kind = find(point.experiment)
    return not point.predict and kind(validated(kind.Settings, dict(point.values))).needs_root()


def _described(workers: Workers, addresses: Mapping[str, str], files: Sequence[str], measured: bool) -> list[Worker]:
    asked = {name: workers.submit(address, describe, files, measured) for name, address in addresses.items()}
    reports = {
        name: from_plain(MachineReport, _result(future, name, _DESCRIBE_S), "a report about a machine")
        for name, future in asked.items()
    }
    return [Worker(name, addresses[name], report) for name, report in reports.items()]


def _calibrate(workers: Workers, used: Sequence[Worker], say: Say) -> bool:
    """Calibrate the machines that were not, all at once; whether there was one. All are stopped if one fails."""
    asked = []
    for worker in used:
        if not worker.report.calibrated:
            say(f"calibrating {worker.report.host}, which takes a minute")
            asked.append((worker, workers.submit(worker.address, calibrate)))
    try:
        for worker, future in asked:
            failure = _result(future, worker.name, _CALIBRATE_S)
            if failure:
                raise MachineError(f"machine {worker.report.host} was not calibrated: {failure}")
    except BaseException:
        with suppress(Exception):  # the error that ended the sweep is the one to raise
            there = set(workers.addresses().values())
            workers.call_all([worker.address for worker, _ in asked if worker.address in there], stop_tasks)
        raise
    return bool(asked)


def _result(future: Any, name: str, longest_s: float) -> Any:
    """The result of what a worker was asked; ``MachineError`` that names the worker if there is none."""
    from distributed import TimeoutError

    try:
        return future.result(timeout=longest_s)
    except TimeoutError:
        raise MachineError(f"worker {name} has not answered within {longest_s:g} s; is it busy with another?") from None
    except Exception as error:
        raise MachineError(f"worker {name} cannot be used: {in_words(error)}") from None


def in_words(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return f"its Python has another Railyard, or none ({error}); install the version that is here"
    text = str(error).partition("\n")[0]
    return shortened(text if isinstance(error, (MachineError, ConfigError)) else f"{type(error).__name__}: {text}")


def common_scales(scales: SweepScales, points: Sequence[SweepPoint], workers: Workers, used: Sequence[Worker]) -> None:
    """Keep one scale for each of all ``points`` of a sweep whose scale is left to the machines, if there are several.

    It is that of the slowest machine; where points are done already, theirs. Nothing changes where scales are kept.
    """
    machines = {worker.report.host: worker for worker in used}
    automatic = {point.name for point in points if is_automatic(point)}
    if scales.kept or len(machines) < 2 or not automatic:
        return
    groups = pieces(points)
    once = {piece.series: piece for piece in reversed(groups)}
    asked = [point for piece in once.values() for point in piece.points if point.name in automatic]
    files = [point.file for point in asked]
    futures = [(worker, workers.submit(worker.address, scales_here, files)) for worker in machines.values()]
    answers = [_result(future, worker.name, _SCALES_S) for worker, future in futures]
    by_machine = [
        {point.name: Scale(**scale) for point, scale in zip(asked, answer, strict=True) if scale} for answer in answers
    ]
    chosen = shared_scales(groups, by_machine)
    kept = {point.name: _kept(scales, point, chosen.get(point.name)) for point in points if point.name in automatic}
    scales.keep({name: scale for name, scale in kept.items() if scale is not None})


def _kept(scales: SweepScales, point: SweepPoint, chosen: Scale | None) -> Scale | None:
    """The scale of a point: of its repeats that are done, else of its comparison if every machine carries it."""
    repeated, compared = scales.earlier(point), scales.earlier(point, compared=True)
    return repeated or (compared if compared and chosen and slowest((compared, chosen)) == compared else chosen)
