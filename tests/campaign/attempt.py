"""Makes one fault in a run of its own and looks at how the run ends: the acting part of the campaign."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from railyard.errors import PARTIAL_EXIT_STATUS
from tests.campaign import acts
from tests.campaign.expectation import CLEAN_S, RAN, Outcome
from tests.campaign.fault import Fault
from tests.campaign.launch import Launch
from tests.campaign.machine_state import MachineState, sockets_left
from tests.campaign.processes import Family
from tests.campaign.records import Records, reading
from tests.campaign.stage import Observer
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


class Attempt:
    """One run with a fault; ``goes_on`` says whether the campaign does."""

    def __init__(self, fault: Fault, launch: Launch, goes_on: Callable[[], bool]) -> None:
        self.fault, self.launch, self.goes_on = fault, launch, goes_on
        self._before = MachineState.now()

    def run(self) -> Outcome:
        """Start the run, make the fault, wait for the end, and look at what is left."""
        self._process = self.launch.start()
        main = Process.of(self._process.pid)
        if main is None:
            self._process.wait()
            raise self._over()
        self._family = Family(main, self.launch.mark)
        registry = self.launch.registry_of(main.pid)
        self._observer = Observer(self._family, registry, self.launch.out, self.fault.victim.points)
        try:
            return self._disturb()
        finally:
            acts.end(self._family)
            self._process.wait()

    def _runs(self) -> bool:
        return self._process.poll() is None and self.goes_on()

    def _disturb(self) -> Outcome:
        place, out = self.fault.place, self.launch.out
        if place.kind in ("signal", "control"):
            self._await_phase()
        acknowledged = Records.of(out)
        at = time.monotonic()
        if place.kind in ("signal", "control"):
            self._make()
        self._family.look_inside()
        status = self._await_end(at)
        cleaned_s, left = self._await_clean(time.monotonic())
        later = Records.of(out)
        lost = acknowledged.lost_in(later)
        if status == -signal.SIGKILL:  # a run that ends by itself removes the disks of its hosts
            lost += len(acknowledged.checkpoints - later.checkpoints)
            lost += later.late(at) if place.process == "main" and place.phase in ("step", "dark") else 0
        errors = (self.launch.folder / "errors").read_text(errors="replace")
        outcome = Outcome(status, errors, at, left, cleaned_s, lost, **reading(out))
        if place.kind == "signal" and status in RAN and self._was_over(outcome):
            raise Missed
        return replace(outcome, other=self._other(outcome))

    def _await_phase(self) -> None:
        """Wait until the run is in the phase of the fault and has the process.

        ``Missed`` if it ends before, ``FailedBefore`` if that is not the end of a run that nothing disturbs.
        """
        place, end = self.fault.place, time.monotonic() + HANG_S
        while self._runs() and time.monotonic() < end:
            if place.phase in self._observer.phases(self.fault.point) and self._targets():
                acts.wait_while(lambda: self._process.poll() is None, self.fault.after_s)
                return
            time.sleep(_POLL_S)
        raise self._over()

    def _targets(self) -> list[Process]:
        return self._family.alive(self.fault.place.process or "controller")

    def _over(self) -> Exception:
        """What to raise for a run that has ended, or hangs, before the fault was made."""
        status = self._process.poll()
        if not self.goes_on() or status in RAN or self.fault.place.kind in ("resource", "start"):
            return Missed()
        how = f"hung for {HANG_S:.0f} s" if status is None else f"ended with status {status}"
        return FailedBefore(f"{how} before the fault was made")

    def _make(self) -> None:
        """Make the fault; ``Missed`` if what it hits has ended."""
        place = self.fault.place
        self._family.look()
        targets = self._targets()
        if not targets:
            raise Missed
        target = Random(self.fault.number).choice(targets)
        if place.kind == "signal":
            made = acts.disturb(target, place.what, self._runs)
        elif place.what == "stall":
            made = acts.stall(target, self.fault.amount, self._runs)
        else:
            made = acts.reset(target)
        if not made:
            raise Missed

    def _await_end(self, at: float) -> int | None:
        """The exit status of the run; None if it hangs or the campaign ends."""
        while self._process.poll() is None:
            if time.monotonic() > at + HANG_S or not self.goes_on():
                return None
            self._family.look()
            time.sleep(_POLL_S * 5)
        return self._process.returncode

    def _await_clean(self, ended: float) -> tuple[float, list[str]]:
        """Seconds from the end of the run until nothing is left of it, and what was left after ``CLEAN_S``."""
        too_long: list[str] = []
        clean_at: float | None = None
        while self.goes_on():
            passed = time.monotonic() - ended
            left = self._left()
            if left and passed > CLEAN_S:
                too_long = left
            if passed > LOOK_S or (not left and clean_at is not None):  # a process that starts is not seen at once
                return round(passed if clean_at is None else clean_at, 2), too_long
            clean_at = None if left else passed
            time.sleep(_POLL_S * 5)
        return 0.0, []

    def _left(self) -> list[str]:
        """What the run has left on the machine."""
        self._family.look_everywhere()
        processes, folder = self._family.names(), self._observer.run_folder
        return processes or [
            *([f"folder {folder}"] if folder is not None else []),
            *sockets_left(self._family.sockets),
            *(f"temporary file {path.name}" for path in (self.launch.folder / "tmp").iterdir()),
            *self._before.changes(MachineState.now()),
        ]

    def _was_over(self, outcome: Outcome) -> bool:
        """Whether all points of a run that was finished had been measured before a fault that ends a measurement."""
        place = self.fault.place
        if place.phase == "tear-down" or place.what == "STOP" or not outcome.points:
            return False
        return outcome.points[-1][1] < outcome.at

    def _other(self, outcome: Outcome) -> list[str]:
        """All that is wrong in a run that was started in an unusual way, or cannot be drawn again."""
        launch, family, other = self.launch, self._family, []
        if launch.trap is not None and launch.trap.exists():
            other.append(f"a module of the caller was executed: {launch.trap.read_text().splitlines()[0]}")
        foreign = [family.seen[process] for process, path in family.paths.items() if path != launch.root]
        other += [f"the {foreign[0]} was started from another checkout"] if foreign else []
        if launch.owner is not None and launch.out.exists():
            theirs = [path for path in (launch.out, *launch.out.rglob("*")) if path.lstat().st_uid != launch.owner]
            other += [f"{theirs[0].name} does not belong to the caller of sudo"] if theirs else []
        if self.fault.number % _PLOTTED == 0 and outcome.has_results:
            other += self._plot(outcome)
        return other

    def _plot(self, outcome: Outcome) -> list[str]:
        """What is wrong with ``railyard plot`` of the results folder."""
        command = [*self.launch.railyard("plot", str(self.launch.out)), *self.fault.victim.plot_arguments]
        environment = self.launch.environment
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=_PLOT_S, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [f"plot does not end within {_PLOT_S:g} s"]
        if "Traceback" in done.stderr:
            return ["plot ends with a traceback"]
        if outcome.status in RAN:
            return [] if done.returncode in RAN else [f"plot ends with {done.returncode}"]
        whole = done.returncode != PARTIAL_EXIT_STATUS or "PARTIAL" not in done.stdout
        return [f"plot ends with {done.returncode} and does not say that the results are partial"] if whole else []
