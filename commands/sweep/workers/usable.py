"""The workers that points are given to: asked about their machines, refused, calibrated, brought to one scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from commands.sweep.folder import SweepFolder
from commands.sweep.point import SweepPoint
from commands.sweep.scales import SweepScales, is_automatic
from commands.sweep.workers.common_scale import scales_here, shared_scales, slowest
from commands.sweep.workers.dask_cluster import Workers
from commands.sweep.workers.machine_check import MachineReport, check_machines, inspected
from commands.sweep.workers.placement import pieces
from commands.sweep.workers.worker_task import calibrate, describe, stop_tasks
from experiments.registry import find
from experiments.settings import validated
from railyard.errors import ConfigError, MachineError, shortened
from railyard.scale import Scale
from railyard.validation import from_plain

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
    found = _described(workers, addresses, files, measured)
    here = inspected(files, "", measured=False)
    notes = check_machines(here, [worker.report for worker in found], measured=measured)
    used = found if point.predict else list({worker.report.host: worker for worker in reversed(found)}.values())
    if len(used) < len(found):
        say(f"{len(found)} workers are on {len(used)} machines, each of which measures one point at a time")
    if calibrated and measured and _calibrate(workers, used, say):
        used = _described(workers, {worker.name: worker.address for worker in used}, files, measured)
        notes = check_machines(here, [worker.report for worker in used], measured=measured)
    for note in dict.fromkeys(notes):
        say(note)
    return sorted(used, key=lambda worker: worker.name)


def needs_root(point: SweepPoint) -> bool:
    """Whether the run of a point needs root."""
    kind = find(point.experiment)
    return not point.predict and kind(validated(kind.Settings, dict(point.values))).needs_root()


def _described(workers: Workers, addresses: Mapping[str, str], files: Sequence[str], measured: bool) -> list[Worker]:
    """The workers with the reports of their machines."""
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
            said = _result(future, worker.name, _CALIBRATE_S)
            if said:
                raise MachineError(f"machine {worker.report.host} was not calibrated: {said}")
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
    """An error that a worker raised, for people."""
    if isinstance(error, ImportError):
        return f"its Python has another Railyard, or none ({error}); install the version that is here"
    said = str(error).partition("\n")[0]
    return shortened(said if isinstance(error, (MachineError, ConfigError)) else f"{type(error).__name__}: {said}")


def common_scales(scales: SweepScales, points: Sequence[SweepPoint], workers: Workers, found: Sequence[Worker]) -> None:
    """Keep one scale for each of all ``points`` of a sweep whose scale is left to the machines, if there are several.

    It is that of the slowest machine; where points are done already, theirs. Nothing changes where scales are kept.
    """
    machines = {worker.report.host: worker for worker in found}
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
        {point.name: Scale(**each) for point, each in zip(asked, answer, strict=True) if each} for answer in answers
    ]
    chosen = shared_scales(groups, by_machine)
    kept = {point.name: _kept(scales, point, chosen.get(point.name)) for point in points if point.name in automatic}
    scales.keep({name: scale for name, scale in kept.items() if scale is not None})


def _kept(scales: SweepScales, point: SweepPoint, chosen: Scale | None) -> Scale | None:
    """The scale of a point: of its repeats that are done, else of its comparison if every machine carries it."""
    repeated, compared = scales.earlier(point), scales.earlier(point, compared=True)
    return repeated or (compared if compared and chosen and slowest((compared, chosen)) == compared else chosen)
