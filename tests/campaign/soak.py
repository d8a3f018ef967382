"""One long run, whose processes are watched from outside after each of its points: what it uses must not grow."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from railyard.errors import MachineError
from railyard.point_folder import EVENTS, point_folder
from railyard.reading import files_below
from tests.campaign import acts
from tests.campaign.expectation import RAN
from tests.campaign.launch import Launch
from tests.campaign.processes import Family
from tests.campaign.stage import Observer
from topos.kernel.run_registry import REGISTRY
from topos.kernel.run_watcher import Process

WARM_UP = 100
"""Points after which a run must use no more of the machine."""
FLAT_SHARE = 0.05
FEW = 2
"""So many more open files, or processes, are those of a point under way: what is kept by each point is more."""
LEAST_POINTS = 4
"""Points of the shortest run that can be judged: two of those watched are after the warm-up, at most half of them."""
WATCHED = ("main", "controller", "agent launcher", "ovs-vswitchd", "fast path")
_POLL_S = 0.05
_LONGEST_POINT_S = 120.0

Use = dict[tuple[str, str], int]
"""What a run uses after a point, by process (or ``run``) and thing: open files, processes, or bytes."""


@dataclass(frozen=True)
class Growth:
    """The use of one thing by one process: after the warm-up, and at the end.

    Each is the most over some points: the files that a point under way has open come and go, and so does the memory of
    the agent launcher, which is its own only while no agent shares it.
    """

    process: str
    thing: str
    first: int
    last: int

    @property
    def share(self) -> float:
        """By how much more is used at the end, as a share."""
        return self.last / self.first - 1 if self.first else float(self.last > 0)

    @property
    def flat(self) -> bool:
        """Whether the use has not grown by more than ``FLAT_SHARE``, or a number by more than ``FEW``."""
        few = self.thing in ("open files", "processes") and self.last - self.first <= FEW
        return few or self.share <= FLAT_SHARE


def growths(uses: Sequence[Use]) -> list[Growth]:
    """What each process that was seen uses after the warm-up and at the end; empty for a run too short to tell."""
    warm = uses[min(WARM_UP, len(uses) // 2) :]
    grown = []
    for key in dict.fromkeys(key for use in warm for key in use):
        values = [use[key] for use in warm if key in use]
        some = max(1, len(values) // 20)
        if len(values) > 1:
            grown.append(Growth(*key, max(values[:some]), max(values[-some:])))
    return grown


def soak(points: int, folder: Path) -> Iterator[Use]:
    """Run ``points`` points, with files in ``folder``, and give the use after each but the last, after which it ends.

    The run has ended at the end. ``MachineError`` if it ends before its last point, with an error, or not at all.
    """
    launch = Launch(folder / "soak", token_hex(8))
    sizes = ",".join(str(1024 + 4 * number) for number in range(points))
    launch.command = launch.railyard(
        *("run", "collective", "--ranks", "2", "--fabric", "ocs", "--iterations", "1"),
        *("--repeats", "1", "--attempts", "1", "--sizes", sizes, "--out", str(launch.out)),
    )
    process = launch.start()
    main = Process.of(process.pid)
    assert main is not None  # it is a child that was not waited for
    family = Family(main, launch.mark)
    try:
        yield from _uses(process, family, launch.out, points - 1)
        await_end(process, points, _LONGEST_POINT_S)
    finally:
        acts.end(family)
        process.wait()


def _uses(process: subprocess.Popen[bytes], family: Family, out: Path, points: int) -> Iterator[Use]:
    observer = Observer(family, REGISTRY, out, points + 1)
    used, end = 0, time.monotonic() + _LONGEST_POINT_S
    while used < points:
        if (point_folder(out, used) / EVENTS).exists():
            used, end = used + 1, time.monotonic() + _LONGEST_POINT_S
            yield _use(family, observer.run_folder)
        elif process.poll() is not None or time.monotonic() > end:
            lines = (out.parent / "errors").read_text(errors="replace").strip().splitlines()
            raise MachineError(f"the run of {points + 1} points ended after {used}: {[*lines, 'no error'][-1]}")
        time.sleep(_POLL_S)


def await_end(process: subprocess.Popen[bytes], points: int, longest_s: float) -> None:
    """Wait for the end of a run whose ``points`` points have been watched; ``MachineError`` unless it ends well."""
    try:
        status = process.wait(longest_s)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the run of {points} points did not end within {longest_s:g} s") from None
    if status not in RAN:
        raise MachineError(f"the run of {points} points ended with status {status}")


def _use(family: Family, run_folder: Path | None) -> Use:
    """What the processes of the run use now."""
    family.look()
    use: Use = {}
    for role in WATCHED:
        for process in family.alive(role):
            with suppress(OSError):
                use[role, "open files"] = len(os.listdir(f"/proc/{process.pid}/fd"))
                use[role, "own memory"] = own_memory(process.pid)
    use["run", "processes"] = sum(family.seen[process] != "agent" for process in family.alive())
    use["run", "files in its folder"] = 0
    for path in files_below(run_folder) if run_folder is not None else ():
        with suppress(OSError):
            use["run", "files in its folder"] += path.stat().st_size
    return use


def own_memory(pid: int) -> int:
    """Bytes of memory that a process does not share with others."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
