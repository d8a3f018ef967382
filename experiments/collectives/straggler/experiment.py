"""The straggler experiment: what a late rank costs an all-reduce, with the detector that predicts the late rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from experiments.collectives.experiment import TrialExperiment
from experiments.collectives.row import TrialRow
from experiments.collectives.straggler.settings import StragglerSettings
from experiments.collectives.trial import Trial
from experiments.repeats import Piece
from measure.results.row import MeasuredRow
from workloads.stragglers.detector import Detector
from workloads.stragglers.injection import INJECTIONS, parse_injection

if TYPE_CHECKING:
    from experiments.runner import Runner

DETECTOR_STEPS = 16
DETECTOR_PERSISTENCE = 0.9
LEAST_GAP_S = 0.01
"""Smallest gap between arrivals that counts as a straggler, in wall-clock seconds."""


@dataclass(kw_only=True)
class StragglerRow(TrialRow):
    """One collective with a late rank, on one fabric."""

    given: ClassVar[frozenset[str]] = TrialRow.given | {"persistence", "all_reduce_share", "step"}

    persistence: Annotated[float | None, "probability that the predicted rank is the late one"] = None
    all_reduce_share: Annotated[float | None, "share of the all-reduce in a step, in study step"] = None
    expected_late: Annotated[float | None, "share of steps whose late rank is the expected one, in study step"] = None
    critical_delay_s: Annotated[float | None, "break-even delay T_crit of the law, in study step"] = None
    chosen: Annotated[str | None, "algorithm that auto chose for the expected delay"] = None
    step: Annotated[int | None, "number of the step, in study detector"] = None
    right: Annotated[bool | None, "whether the detector predicted the late rank"] = None


class Stragglers(TrialExperiment[StragglerSettings]):
    """The cost of a late rank for an all-reduce: Ring, halving-doubling, Direct and StragglAR, beside the model."""

    name = "straggler"
    Settings = StragglerSettings
    row = StragglerRow
    rows = (StragglerRow,)
    quick: ClassVar = {"iterations": 1, "algorithms": ["ring", "stragglar"], "sizes": ["2M"]}
    examples = (
        "                   # time against delay, 8 ranks",
        "--quick            # in under two minutes",
        "--ranks 4,8,16 --study ranks",
        "--study size,reconfiguration",
        "--study prediction,detector,step",
        "--algorithms ring,stragglar,auto",
        "--inject slow-link:0.4    # --inject help lists causes",
        "--predict --ranks 8       # the model alone; needs no root",
    )

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """A cause that is given is measured by study injection, unless studies are given; ``help`` lists the causes."""
        if given.get("inject") == "help":
            print("\n".join(f"{word:<14} such as {example}" for word, example in INJECTIONS.items()))
            raise SystemExit(0)
        return {**values, "studies": ["injection"]} if given.get("inject") and "studies" not in given else values

    def points(self) -> int:
        """One row for every trial, and one for every step of the detector."""
        detected = len(self.settings.ranks) if "detector" in self.settings.studies else 0
        return super().points() + detected * DETECTOR_STEPS

    def pieces(self) -> list[Piece]:
        """Every trial, and all steps of the detector as one piece: its trials depend on earlier arrivals."""
        detected = self.settings.ranks if "detector" in self.settings.studies else ()
        return [*super().pieces(), *(Piece(f"detector, {n} ranks", n) for n in detected)]

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        """Measure one trial, or the detector."""
        return super().measure(runner, piece) if isinstance(piece.of, Trial) else self._detect(runner, piece.of)

    def _detect(self, runner: Runner, n: int) -> list[TrialRow]:
        """Run the detector step by step: predict the late rank, run StragglAR for it, and observe the arrivals.

        The detector begins with a wrong prediction. The late rank of each step is drawn beforehand with the seed.
        """
        settings = self.settings
        size = settings.size_of(n)[0]
        delay_s = settings.long_delay_s(n, size)
        late = settings.late_rank(n)
        plan = parse_injection(f"persistent:{delay_s:.9g}@{DETECTOR_PERSISTENCE}")
        delays = plan.delays(n, DETECTOR_STEPS, late, settings.seed)
        detector = Detector(n, first=(late + 1) % n, least_s=LEAST_GAP_S)
        rows = []
        for step in range(DETECTOR_STEPS):
            late_rank = max(range(n), key=lambda rank: delays[rank][step])
            expected = detector.predict()
            trial = settings.trial(
                settings.plan("stragglar", n, expected),
                size,
                delays[late_rank][step],
                study="detector",
                late_rank=late_rank,
                steps=1,
                tags=(("step", step), ("right", late_rank == expected)),
            )
            row, times = self.measure_trial(runner, trial)
            detector.observe(times.steps[-1].arrivals)
            rows.append(row)
        return rows
