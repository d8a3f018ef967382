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
from commands.sweep.folder import SweepFolder
from commands.sweep.point import SweepPoint, attempt_folder
from commands.sweep.scales import SweepScales
from commands.sweep.workers.archive import unpack
from commands.sweep.workers.dask_cluster import Workers
from commands.sweep.workers.placement import Dispatch, assign
from commands.sweep.workers.remote_point import Sent
from commands.sweep.workers.usable import Say, Worker, common_scales, in_words, needs_root, usable
from commands.sweep.workers.worker_task import run_task, stop_tasks
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError, MachineError
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
    found = usable(folder, workers, points[0], say, calibrated=calibrated)
    scales = SweepScales(folder)
    common_scales(scales, folder.points, workers, found)
    plan = assign(points, [worker.name for worker in found], together=not points[0].predict)
    _Run(folder, workers, found, scales, told, say).points(Dispatch(plan))


# ---- the points ----------------------------------------------------------------------------------------------------


class _Run:
    """The points that workers have now, and what becomes of them."""

    def __init__(
        self,
        folder: SweepFolder,
        workers: Workers,
        found: Sequence[Worker],
        scales: SweepScales,
        told: Told,
        say: Say,
    ) -> None:
        self._folder, self._workers, self._scales, self._told, self._say = folder, workers, scales, told, say
        self._found = {worker.name: worker for worker in found}
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
                    self._give(dispatch, self._found[name])
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
        """Take the outcome of a task that is done."""
        self._tasks.remove(task)
        host = task.worker.report.host
        result = self._fetched(task)
        if result is None:
            self._lose(dispatch, task.worker, [task])
            return
        try:
            if isinstance(result, BaseException):
                raise MachineError(in_words(result))
            found = dict(result)
            data = found.pop("archive")
            sent = from_plain(Sent, found, "an outcome")
            unpack(data, sent.sha256, attempt_folder(self._folder.place(task.point), task.attempt), host)
        except (MachineError, ConfigError) as error:
            sent = Sent(MachineError.exit_status, 0.0, f"machine {host}: {error}", 0, "none")
        self._record(dispatch, task, sent)

    def _fetched(self, task: _Task) -> Mapping[str, Any] | BaseException | None:
        """The result of a task that is done, or the error in its place; None if its worker was lost meanwhile."""
        from distributed import TimeoutError as Late

        while True:
            try:
                found: Mapping[str, Any] = task.future.result(timeout=_FETCH_S)
                return found
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
        if sent.status in (0, NOT_FAITHFUL_EXIT_STATUS):
            if not self._folder.finish(point, task.attempt, sent.status, report.host, sent.seconds, machine):
                tried = {each.host for each in self._folder.attempts(point)}
                dispatch.again(point, [name for name, one in self._found.items() if one.report.host in tried])
                return
        else:
            self._folder.fail(point, task.attempt, sent.status, report.host, sent.seconds, sent.said, machine)
        del self._mine[point.name]
        self._told(point, Outcome(sent.status, task.attempt, sent.seconds, sent.said))

    def _look_for_lost(self, dispatch: Dispatch) -> None:
        """Give the points of workers that are gone to others."""
        self._looked_at = time.monotonic()
        there = set(self._workers.addresses().values())
        for worker in [self._found[name] for name in dispatch.machines]:
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
