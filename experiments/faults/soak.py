"""One long run, whose processes are watched from outside after each of its points."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from experiments.faults import acts
from experiments.faults.expectation import RAN
from experiments.faults.launch import launch_in
from experiments.faults.processes import Family
from experiments.faults.soak_row import WATCHED, SoakRow
from experiments.faults.stage import Observer, row_count, size
from railyard.errors import MachineError
from railyard.reading import files_below
from topos.kernel.run_registry import REGISTRY
from topos.kernel.run_watcher import Process

_POLL_S = 0.05
_LONGEST_POINT_S = 120.0


def soak(points: int, folder: Path) -> Iterator[SoakRow]:
    """Run ``points`` points, with files in ``folder``, and give a row after each but the last, when the run is ending.

    The run has ended at the end. ``MachineError`` if it ends before its last point, with an error, or not at all.
    """
    mark = token_hex(8)
    launch = launch_in(folder / "soak", mark)
    sizes = ",".join(str(1024 + 4 * number) for number in range(points))
    launch.command = launch.railyard(
        *("run", "collective", "--ranks", "2", "--fabric", "ocs", "--iterations", "1"),
        *("--repeats", "1", "--attempts", "1", "--sizes", sizes, "--out", str(launch.out)),
    )
    process = launch.start()
    main = Process.of(process.pid)
    assert main is not None  # it is a child that was not waited for
    family = Family(main, mark)
    try:
        yield from _rows(process, family, launch.out, points - 1)
        await_end(process, points, _LONGEST_POINT_S)
    finally:
        acts.end(family)
        process.wait()


def _rows(process: subprocess.Popen[bytes], family: Family, out: Path, points: int) -> Iterator[SoakRow]:
    observer = Observer(family, REGISTRY, out, points + 1)
    seen, end = 0, time.monotonic() + _LONGEST_POINT_S
    while seen < points:
        rows = row_count(out)
        if rows > seen:
            seen, end = rows, time.monotonic() + _LONGEST_POINT_S
            yield _use(family, observer, rows - 1)
        elif process.poll() is not None or time.monotonic() > end:
            said = (out.parent / "errors").read_text(errors="replace").strip().splitlines()
            last = said[-1] if said else "it said nothing"
            raise MachineError(f"the run of {points} points ended after {seen}: {last}")
        time.sleep(_POLL_S)


def await_end(process: subprocess.Popen[bytes], points: int, longest_s: float) -> None:
    """Wait for the end of a run whose ``points`` points have been watched; ``MachineError`` unless it ends well."""
    try:
        status = process.wait(longest_s)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the run of {points} points did not end within {longest_s:g} s") from None
    if status not in RAN:
        raise MachineError(f"the run of {points} points ended with status {status}")


def _use(family: Family, observer: Observer, point: int) -> SoakRow:
    """What the processes of the run use now, after ``point``."""
    family.look()
    row = SoakRow(point=point, processes=len([each for each in family.alive() if family.seen[each] != "agent"]))
    descriptors, memory = dict[str, int](), dict[str, int]()
    for role in WATCHED:
        for process in family.alive(role):
            with suppress(OSError):
                descriptors[role] = len(os.listdir(f"/proc/{process.pid}/fd"))
                memory[role] = _own_memory(process.pid)
    row.descriptors, row.memory_bytes = descriptors, memory
    folder = observer.run_folder
    row.run_folder_bytes = 0 if folder is None else sum(map(size, files_below(folder)))
    return row


def _own_memory(pid: int) -> int:
    """Bytes of memory that a process does not share with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
