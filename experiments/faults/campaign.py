"""Makes the faults of a campaign, several at once, each in a run of its own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from secrets import token_hex

from experiments.faults.acts import NotPossible
from experiments.faults.attempt import Attempt, FailedBefore, Missed
from experiments.faults.bystander import Bystander
from experiments.faults.fault import Fault
from experiments.faults.launch import prepared
from experiments.faults.row import FaultRow
from experiments.faults.victims import victim_of

TRIES = 4
"""So often a fault is tried whose run was over before it could be made."""
_ASK_S = 0.5


class Campaign:
    """The campaign of ``faults``, ``parallel`` at once; the runs' files are in ``folder``.

    The folder of a run that ended as documented is removed. However the campaign ends, no run is left.
    """

    def __init__(self, faults: Sequence[Fault], folder: Path, parallel: int, bystander: Bystander) -> None:
        self._faults, self._folder, self._parallel = faults, folder, parallel
        self._bystander = bystander
        self._stopped = threading.Event()

    def rows(self) -> Iterator[FaultRow]:
        """Make all faults, and give the row of each as soon as it is known."""
        pool = ThreadPoolExecutor(self._parallel)
        try:
            waiting: set[Future[FaultRow]] = {pool.submit(self._row, fault) for fault in self._faults}
            while waiting:
                done, waiting = wait(waiting, _ASK_S, FIRST_COMPLETED)
                yield from sorted((future.result() for future in done), key=lambda row: row.number)
        finally:
            self._stopped.set()
            pool.shutdown(cancel_futures=True)

    def _row(self, fault: Fault) -> FaultRow:
        """The row of a fault, which is tried again if its run was over before it could be made."""
        victim = victim_of(fault)
        row = FaultRow.of(fault, victim.name)
        for attempt in range(TRIES):
            if self._stopped.is_set():
                break
            folder = self._folder / (f"{fault.number:04d}" + (f"-{attempt}" if attempt else ""))
            mark = token_hex(8)
            try:
                with prepared(fault, victim, folder, mark) as launch:
                    outcome = Attempt(fault, launch, victim, mark, lambda: not self._stopped.is_set()).run()
                row.judge(fault, outcome)
                row.wrong = [*row.wrong, *self._bystander.changes()]
                row.ok = not row.wrong
                if row.ok:
                    shutil.rmtree(folder)
                return row
            except Missed:
                shutil.rmtree(folder)
            except FailedBefore as failed:
                row.ok, row.wrong = False, [str(failed)]
                return row
            except NotPossible as missing:
                row.sentence = f"not possible here: {missing}"
                shutil.rmtree(folder)
                return row
        row.sentence = f"not made: in {TRIES} tries the run was over before"
        return row
