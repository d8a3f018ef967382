"""The cases of a straggler experiment, and what is refused before a packet is sent."""

from __future__ import annotations

import pytest

from experiments.settings import validated
from experiments.straggler.findings import break_even_s
from experiments.straggler.law import LAW_ALGORITHMS
from experiments.straggler.settings import StragglerSettings
from railyard.errors import ConfigError
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


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ranks": [2]}, "must be from 3 to 256"),
        ({"ranks": [8], "straggler": 8}, "straggler: is rank 8, and with 8 ranks they are 0 to 7"),
        ({"sizes": ["0"]}, "must be a size of at least 1 byte"),
        ({"delays_ms": [-1]}, "delays_ms: must be at least 0, not -1"),
        ({"algorithms": ["star"]}, "unknown algorithm 'star'"),
        ({"inject": "fixed:1"}, "inject: names the cause that study injection measures; each needs the other"),
        ({"inject": "storm:1", "studies": ["injection"]}, "unknown injection 'storm:1'"),
        ({"studies": ["weather"]}, "studies"),
        ({"speed": 1}, "speed: there is no such key"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(values: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        list(experiment(**values).trials())
    assert "\n" not in str(caught.value)


def test_break_even_lies_where_the_measured_curves_cross() -> None:
    def row(algorithm: str, delay: float, time: float) -> dict[str, object]:
        return {"algorithm": algorithm, "straggler_delay_s": delay, "time_s": time}

    ring = [row("ring", d, 1.0 + d) for d in (0.0, 0.2, 0.4)]
    stragglar = [row("stragglar", d, 1.3) for d in (0.0, 0.2, 0.4)]
    assert break_even_s([*ring, *stragglar]) == pytest.approx(0.3)
    assert break_even_s([*ring, *(row("stragglar", d, 2.0) for d in (0.0, 0.2, 0.4))]) is None
