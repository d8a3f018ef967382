"""The row of one fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from experiments.faults.expectation import Outcome, complaints, expected
from experiments.faults.fault import Fault
from measure.results.row import ResultRow

HUNG = "hung"


@dataclass(kw_only=True)
class FaultRow(ResultRow):
    """One fault, and how the run that it was made in ended."""

    number: Annotated[int, "number of the fault in the campaign"]
    seed: Annotated[int, "seed of the campaign"]
    victim: Annotated[str, "name of the run in which the fault was made"]
    fault: Annotated[str, "the fault in words"]
    process: Annotated[str, "process that the fault hits; empty for the whole run"]
    signal: Annotated[str, "signal; empty for other faults"]
    phase: Annotated[str, "phase of the run in which the fault is made"]
    expected: Annotated[str, "how a run may end after this fault"]
    status: Annotated[int | None, "exit status, or minus the signal's number; empty if it hung"] = None
    sentence: Annotated[str, "last sentence of the run"] = ""
    traceback: Annotated[bool, "whether the run printed a traceback"] = False
    left_behind: Annotated[str, "what was left of the run on the machine"] = ""
    cleaned_s: Annotated[float | None, "time from the end of the run until nothing was left, in s"] = None
    records_lost: Annotated[int, "acknowledged records that are gone"] = 0
    verdict: Annotated[str, "verdict of the point that was measured when the fault was made"] = ""
    ok: Annotated[bool | None, "whether the run ended as documented; empty: the fault was not made"] = None
    wrong: Annotated[Sequence[str], "all that was wrong"] = ()

    @staticmethod
    def of(fault: Fault, victim: str) -> FaultRow:
        """The row of a fault that has not been made."""
        place = fault.place
        return FaultRow(
            number=fault.number,
            seed=fault.seed,
            victim=victim,
            fault=fault.says,
            process=place.process,
            signal=place.what if place.kind == "signal" else "",
            phase=place.phase,
            expected=str(expected(place)),
        )

    def judge(self, fault: Fault, outcome: Outcome) -> None:
        """Set the fields of the outcome."""
        self.status, self.sentence, self.traceback = outcome.status, outcome.sentence, outcome.traceback
        self.left_behind, self.cleaned_s = "; ".join(outcome.left), outcome.cleaned_s
        self.records_lost, self.verdict = outcome.lost, outcome.verdict
        self.wrong = complaints(fault, outcome)
        self.ok = not self.wrong
