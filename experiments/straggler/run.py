"""Runs the studies of a straggler experiment, including the detector's, whose trials depend on earlier arrivals."""

from __future__ import annotations

from experiments.straggler.settings import LATE_ENOUGH, StragglerExperiment
from experiments.trials.run import TrialRun
from workloads.stragglers.detector import Detector
from workloads.stragglers.injection import parse_injection

DETECTOR_STEPS = 16
DETECTOR_PERSISTENCE = 0.9
LEAST_GAP_S = 0.01
"""Smallest gap between arrivals that counts as a straggler, in wall-clock seconds."""


def run_studies(experiment: StragglerExperiment, run: TrialRun) -> None:
    """Measure all studies of ``experiment``."""
    for trial in experiment.trials():
        run.measure(trial)
    if "detector" in experiment.studies:
        for n in experiment.ranks:
            _detect(experiment, run, n)


def _detect(experiment: StragglerExperiment, run: TrialRun, n: int) -> None:
    """Run the detector step by step: predict the late rank, run StragglAR for it, and observe the arrivals.

    The detector begins with a wrong prediction. The late rank of each step is drawn beforehand with the seed.
    """
    size = experiment.size_of(n)[0]
    delay_s = LATE_ENOUGH * experiment.law(n, size).first_phase_s
    late = experiment.late_rank(n)
    plan = parse_injection(f"persistent:{delay_s:.9g}@{DETECTOR_PERSISTENCE}")
    delays = plan.delays(n, DETECTOR_STEPS, late, experiment.seed)
    detector = Detector(n, first=(late + 1) % n, least_s=LEAST_GAP_S)
    for step in range(DETECTOR_STEPS):
        late_rank = max(range(n), key=lambda rank: delays[rank][step])
        expected = detector.predict()
        trial = experiment.trial(
            experiment.plan("stragglar", n, expected),
            size,
            delays[late_rank][step],
            "detector",
            late_rank=late_rank,
            steps=1,
            tags=(("step", step), ("right", late_rank == expected)),
        )
        detector.observe(run.measure(trial).times.steps[-1].arrivals)
