"""Makes the faults of a campaign, several at once, each in a run of its own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from tests.campaign.acts import NotPossible
from tests.campaign.attempt import Attempt, FailedBefore, Missed
from tests.campaign.bystander import Bystander
from tests.campaign.expectation import Outcome, complaints
from tests.campaign.fault import Fault
from tests.campaign.launch import prepared

TRIES = 4
"""So often a fault is tried whose run was over before it could be made."""
_ASK_S = 0.5
"""The main thread notices a signal that another thread was given so long after it."""


@dataclass(frozen=True)
class Ending:
    """How the run of a fault ended: ``wrong`` is empty if as documented, and ``not_made`` says why none was made."""

    fault: Fault
    outcome: Outcome | None = None
    wrong: Sequence[str] = ()
    not_made: str = ""


class Campaign:
    """Makes ``faults``, ``parallel`` at once; the runs' files are in ``folder``.

    The folder of a run that ended as documented is removed. However the campaign ends, no run is left.
    """

    def __init__(self, faults: Sequence[Fault], folder: Path, parallel: int, bystander: Bystander) -> None:
        self._faults, self._folder, self._parallel = faults, folder, parallel
        self._bystander = bystander
        self._stopped = threading.Event()

    def endings(self) -> Iterator[Ending]:
        """Make all faults, and give the ending of each as soon as it is known."""
        pool = ThreadPoolExecutor(self._parallel)
        try:
            waiting = {pool.submit(self._ending, fault) for fault in self._faults}
            while waiting:
                done, waiting = wait(waiting, _ASK_S, FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)

    def _ending(self, fault: Fault) -> Ending:
        """The ending of a fault, which is tried again if its run was over before it could be made."""
        for attempt in range(TRIES):
            folder = self._folder / (f"{fault.number:04d}" + (f"-{attempt}" if attempt else ""))
            try:
                with prepared(fault, folder, token_hex(8)) as launch:
                    outcome = Attempt(fault, launch, lambda: not self._stopped.is_set()).run()
            except Missed:
                shutil.rmtree(folder)
            except FailedBefore as failed:
                return Ending(fault, wrong=[str(failed)])
            except NotPossible as missing:
                shutil.rmtree(folder)
                return Ending(fault, not_made=f"not possible here: {missing}")
            else:
                wrong = [*complaints(fault, outcome), *self._bystander.changes()]
                if not wrong:
                    shutil.rmtree(folder)
                return Ending(fault, outcome, wrong)
            if self._stopped.is_set():
                break
        return Ending(fault, not_made=f"not made: in {TRIES} tries the run was over before")
