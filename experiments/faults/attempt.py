"""Makes one fault in a run of its own and looks at how the run ends: the acting part of the campaign."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from experiments.faults import acts
from experiments.faults.expectation import CLEAN_S, RAN, Outcome
from experiments.faults.fault import Fault
from experiments.faults.launch import Launch
from experiments.faults.machine_state import MachineState, sockets_left
from experiments.faults.processes import Family, command_of
from experiments.faults.records import Records, checkpoints, reading
from experiments.faults.stage import Observer
from experiments.faults.victims import Victim
from railyard.errors import PARTIAL_EXIT_STATUS
from topos.kernel.run_watcher import Process

HANG_S = 75.0
"""A run that has not ended so long after its fault, or after its start, hangs: a controller's answer may take 15 s."""
LOOK_S = 10.0
"""How long to wait for a run's remains to go, so that it is known when they went."""
_POLL_S = 0.02
_PLOT_S = 60.0
_PLOTTED = 10
"""One results folder in so many is also drawn again by ``railyard plot``."""


class Missed(Exception):
    """The run was over before the fault was made, so that nothing was tried."""


class FailedBefore(Exception):
    """The run ended with an error, or hung, before a fault was made in it; the text says how."""


@dataclass
class Attempt:
    """One run with a fault; ``goes_on`` says whether the campaign does."""

    fault: Fault
    launch: Launch
    victim: Victim
    mark: str
    goes_on: Callable[[], bool]
    before: MachineState = field(default_factory=MachineState.now)

    def run(self) -> Outcome:
        """Start the run, make the fault, wait for the end, and look at what is left."""
        process = self.launch.start()
        main = Process.of(process.pid)
        if main is None:
            process.wait()
            raise self._over(process)
        family = Family(main, self.mark)
        try:
            return self._disturb(process, family)
        finally:
            acts.end(family)
            process.wait()

    def _disturb(self, process: subprocess.Popen[bytes], family: Family) -> Outcome:
        registry = self.launch.registry_of(process.pid)
        observer = Observer(family, registry, self.launch.out, self.victim.points)
        place = self.fault.place
        if place.kind in ("signal", "control"):
            self._await_phase(process, observer)
        acknowledged, kept = Records.of(self.launch.out), checkpoints(self.launch.out)
        at = time.monotonic()
        self._make(process, family)
        family.look_inside()
        status = self._await_end(process, observer, at)
        ended = time.monotonic()
        cleaned_s, left = self._await_clean(family, observer, ended)
        later = Records.of(self.launch.out)
        lost = acknowledged.lost_in(later)
        if status == -signal.SIGKILL and place.process == "main" and place.phase in ("step", "dark"):
            lost += later.late(at)
        if status == -signal.SIGKILL:  # a run that ends by itself removes the disks of its hosts
            lost += len(kept - checkpoints(self.launch.out))
        errors = (self.launch.folder / "errors").read_text(errors="replace")
        found = Outcome(status, errors, at, left, cleaned_s, lost, **reading(self.launch.out))
        if place.kind == "signal" and status in RAN and self._was_over(found):
            raise Missed
        return self._with_others(found, family)

    def _await_phase(self, process: subprocess.Popen[bytes], observer: Observer) -> None:
        """Wait until the run is in the phase of the fault and has the process.

        ``Missed`` if it ends before, ``FailedBefore`` if that is not the end of a run that nothing disturbs.
        """
        place, end = self.fault.place, time.monotonic() + HANG_S
        role = place.process or "controller"
        while process.poll() is None and time.monotonic() < end and self.goes_on():
            if observer.stage().reached(place.phase, self.fault.point) and observer.family.alive(role):
                acts.wait_while(lambda: process.poll() is None, self.fault.after_s)
                return
            time.sleep(_POLL_S)
        raise self._over(process)

    def _over(self, process: subprocess.Popen[bytes]) -> Exception:
        """What to raise for a run that has ended, or hangs, before the fault was made."""
        if not self.goes_on() or process.poll() in RAN or self.fault.place.kind in ("resource", "start"):
            return Missed()
        how = f"hung for {HANG_S:.0f} s" if process.returncode is None else f"ended with status {process.returncode}"
        return FailedBefore(f"{how} before the fault was made")

    def _make(self, process: subprocess.Popen[bytes], family: Family) -> None:
        """Make the fault; ``Missed`` if what it hits has ended."""
        place = self.fault.place
        if place.kind in ("resource", "start"):
            return
        family.look()
        targets = family.alive(place.process or "controller")
        if not targets:
            raise Missed
        target = Random(self.fault.number).choice(targets)

        def goes_on() -> bool:
            return process.poll() is None and self.goes_on()

        if place.kind == "signal":
            made = acts.disturb(target, place.what, goes_on)
        elif place.what == "stall":
            made = acts.stall(target, self.fault.amount, goes_on)
        else:
            made = acts.reset(target)
        if not made:
            raise Missed

    def _await_end(self, process: subprocess.Popen[bytes], observer: Observer, at: float) -> int | None:
        """The exit status of the run; None if it hangs or the campaign ends."""
        while process.poll() is None:
            if time.monotonic() > at + HANG_S or not self.goes_on():
                return None
            observer.stage()
            time.sleep(_POLL_S * 5)
        return process.returncode

    def _await_clean(self, family: Family, observer: Observer, ended: float) -> tuple[float, list[str]]:
        """Seconds from the end of the run until nothing is left of it, and what was left after ``CLEAN_S``."""
        too_long: list[str] = []
        clean_at: float | None = None
        while self.goes_on():
            passed = time.monotonic() - ended
            left = self._left(family, observer)
            if left and passed > CLEAN_S:
                too_long = left
            if passed > LOOK_S or (not left and clean_at is not None):  # a process that starts is not seen at once
                return round(passed if clean_at is None else clean_at, 2), too_long
            clean_at = None if left else passed
            time.sleep(_POLL_S * 5)
        return 0.0, []

    def _left(self, family: Family, observer: Observer) -> list[str]:
        """What the run has left on the machine."""
        family.look_everywhere()
        found = [f"process {p.pid} ({command_of(p.pid)})" for p in family.alive()]
        if found:
            return found
        folder = observer.run_folder
        if folder is not None:
            found.append(f"folder {folder}")
        found += sockets_left(family.sockets)
        temporary = self.launch.folder / "tmp"
        found += [f"temporary file {path.name}" for path in temporary.iterdir()]
        return found + self.before.changes(MachineState.now())

    def _was_over(self, found: Outcome) -> bool:
        """Whether all points of a run that was finished had been measured before a fault that ends a measurement."""
        place = self.fault.place
        if place.phase == "tear-down" or place.what == "STOP" or not found.points:
            return False
        return found.points[-1][1] < found.at

    def _with_others(self, found: Outcome, family: Family) -> Outcome:
        """The outcome, with all that is wrong in a run that was started in an unusual way, or cannot be drawn again."""
        launch, other = self.launch, []
        if launch.trap is not None and launch.trap.exists():
            other.append(f"a module of the caller was executed: {launch.trap.read_text().splitlines()[0]}")
        foreign = [family.seen[process] for process, path in family.paths.items() if path != launch.root]
        other += [f"the {foreign[0]} was started from another checkout"] if foreign else []
        if launch.owner is not None and launch.out.exists():
            theirs = [path for path in (launch.out, *launch.out.rglob("*")) if path.lstat().st_uid != launch.owner]
            other += [f"{theirs[0].name} does not belong to the caller of sudo"] if theirs else []
        if self.fault.number % _PLOTTED == 0 and found.has_results:
            other += self._plot(found)
        return replace(found, other=other)

    def _plot(self, found: Outcome) -> list[str]:
        """What is wrong with ``railyard plot`` of the results folder."""
        command = [*self.launch.railyard("plot", str(self.launch.out)), *self.victim.plot_arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=self.launch.environment, timeout=_PLOT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return [f"plot does not end within {_PLOT_S:g} s"]
        if "Traceback" in done.stderr:
            return ["plot ends with a traceback"]
        if found.status in RAN:
            return [] if done.returncode in RAN else [f"plot ends with {done.returncode}"]
        whole = done.returncode != PARTIAL_EXIT_STATUS or "PARTIAL" not in done.stdout
        return [f"plot ends with {done.returncode} and does not say that the results are partial"] if whole else []
