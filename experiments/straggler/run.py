"""Runs the studies of a straggler experiment; the detector's needs the last step's arrivals to choose the next one."""

from __future__ import annotations

from experiments.straggler.settings import LATE_ENOUGH, StragglerExperiment
from experiments.trials.run import TrialRun
from workloads.stragglers.detector import Detector
from workloads.stragglers.injection import parse_injection

DETECTOR_STEPS = 16
DETECTOR_PERSISTENCE = 0.9
LEAST_GAP_S = 0.01
"""Arrivals closer than this (wall-clock) are not a straggler's."""


def run_studies(experiment: StragglerExperiment, run: TrialRun) -> None:
    """Measure everything that ``experiment`` asks for."""
    for trial in experiment.trials():
        run.measure(trial)
    if "detector" in experiment.studies:
        for n in experiment.ranks:
            _detect(experiment, run, n)


def _detect(experiment: StragglerExperiment, run: TrialRun, n: int) -> None:
    """Step by step: expect a rank, run StragglAR counting on it, look who was late.

    The detector begins with the wrong rank. Who is late in each step is drawn beforehand, by the seed.
    """
    size = experiment.size_of(n)[0]
    delay_s = LATE_ENOUGH * experiment.law(n, size).first_phase_s
    late = experiment.late_rank(n)
    plan = parse_injection(f"persistent:{delay_s:.9g}@{DETECTOR_PERSISTENCE}")
    delays = plan.delays(n, DETECTOR_STEPS, late, experiment.seed)
    detector = Detector(n, first=(late + 1) % n, least_s=LEAST_GAP_S)
    for step in range(DETECTOR_STEPS):
        who = max(range(n), key=lambda rank: delays[rank][step])
        expected = detector.predict()
        trial = experiment.trial(
            experiment.plan("stragglar", n, expected),
            size,
            delays[who][step],
            "detector",
            late_rank=who,
            steps=1,
            labels=(("step", step), ("right", who == expected)),
        )
        detector.observe(run.measure(trial).times.steps[-1].arrivals)
