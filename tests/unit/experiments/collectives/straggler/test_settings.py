"""The cases of a straggler experiment, and what is refused before a packet is sent."""

from __future__ import annotations

import pytest

from experiments.collectives.straggler.experiment import StragglerSettings
from experiments.collectives.straggler.findings import break_even_s
from experiments.collectives.straggler.law import LAW_ALGORITHMS
from experiments.collectives.trial import Trial
from experiments.settings import validated
from railyard.scale import Scale


def experiment(**values: object) -> StragglerSettings:
    return validated(StragglerSettings, values)


def test_the_delays_of_study_delay_stand_on_both_sides_of_break_even_and_of_the_first_phase() -> None:
    made = experiment()
    trials = list(made.trials())
    law = made.law(8, 8 << 19)
    delays = sorted({trial.straggler_delay_s for trial in trials})
    assert {trial.schedule.algorithm for trial in trials} == set(LAW_ALGORITHMS)
    assert delays[0] == 0 and sum(d < law.critical_delay_s for d in delays) >= 2
    assert sum(law.critical_delay_s < d < law.first_phase_s for d in delays) >= 1
    assert delays[-1] > law.first_phase_s
    assert len(trials) == len(delays) * len(LAW_ALGORITHMS)


def test_only_the_late_rank_computes_longer() -> None:
    trial = next(c for c in experiment(straggler=2, ranks=[4]).trials() if c.straggler_delay_s > 0)
    program = trial.program(Scale(1.0), 3, 1)
    late = [
        rank for rank, operations in enumerate(program.operations) if any(getattr(op, "late", ()) for op in operations)
    ]
    assert late == [2]


def test_auto_is_ring_below_the_break_even_and_stragglar_above() -> None:
    made = experiment(algorithms=["auto"])
    critical_s = made.law(8, 8 << 19).critical_delay_s
    chosen = {trial.straggler_delay_s: dict(trial.tags)["chosen"] for trial in made.trials()}
    assert chosen == {delay: "stragglar" if delay > critical_s else "ring" for delay in chosen}
    assert set(chosen.values()) == {"ring", "stragglar"}
    assert {trial.schedule.algorithm for trial in made.trials()} == {"auto"}
    assert {trial.schedule.straggler for trial in made.trials()} == {None, 7}
    assert {dict(trial.tags)["chosen"] for trial in experiment(algorithms=["auto"], ranks=[3]).trials()} == {"ring"}


def test_study_step_has_points_where_stragglar_wins_and_one_where_it_loses() -> None:
    trials = list(experiment(studies=["step"], ranks=[8, 16], straggler=5).trials())
    late = [trial.straggler_delay_s / (dict(trial.tags)["critical_delay_s"] or 0) for trial in trials]
    assert sum(ratio < 1 for ratio in late) == 2 and min(late) == pytest.approx(9.5 / 39.2, abs=0.001)
    lost = [trial for trial, ratio in zip(trials, late, strict=True) if ratio < 1]
    assert {(trial.schedule.n, trial.late_rank) for trial in lost} == {(4, 3)}
    assert [dict(trial.tags)["expected_late"] for trial in lost] == [1.0, 1.0]
    assert {dict(trial.tags)["expected_late"] for trial in trials if trial not in lost} == {_share_late(trials[0])}
    ring_s = experiment().law(4, lost[0].bytes).ring_s
    assert lost[0].compute_s + lost[0].straggler_delay_s + ring_s == pytest.approx(ring_s * 4819 / 117.6)


def _share_late(trial: Trial) -> float:
    """Share of the measured steps in which the expected rank is late."""
    assert trial.injection is not None
    delays = trial.injection.delays(trial.schedule.n, trial.steps + 1, 5, 1)[5]
    return sum(delay > 0 for delay in delays[1:]) / trial.steps


def test_the_speedups_count_after_the_first_phase_of_every_algorithm() -> None:
    trials = list(experiment(studies=["ranks"]).trials())
    assert {trial.schedule.algorithm for trial in trials} == set(LAW_ALGORITHMS)
    assert {trial.straggler_delay_s for trial in trials} == {1.25 * experiment().law(8, 8 << 19).direct_first_phase_s}


def test_break_even_lies_where_the_measured_curves_cross() -> None:
    def row(algorithm: str, delay: float, time: float) -> dict[str, object]:
        return {"algorithm": algorithm, "straggler_delay_s": delay, "time_s": time}

    ring = [row("ring", d, 1.0 + d) for d in (0.0, 0.2, 0.4)]
    stragglar = [row("stragglar", d, 1.3) for d in (0.0, 0.2, 0.4)]
    assert break_even_s([*ring, *stragglar]) == pytest.approx(0.3)
    assert break_even_s([*ring, *(row("stragglar", d, 2.0) for d in (0.0, 0.2, 0.4))]) is None
