from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.collectives.straggler.experiment import StragglerRow, Stragglers, StragglerSettings
from experiments.collectives.straggler.law import LAW_ALGORITHMS, StragglerLaw
from measure.metrics.estimate import crossing
from measure.published import published

POWERS = st.sampled_from([4, 8, 16, 32, 64, 128, 256])


def in_wires(n: int) -> StragglerLaw:
    """A law without latency whose times are coefficients of the time of the buffer on the wire."""
    return StragglerLaw(n, 1, 0.0, 1.0)


@pytest.mark.parametrize(
    ("n", "ring", "ideal", "worst", "first_phase", "critical", "speedup"),
    [
        (4, 1.5, 1.333, 2.0, 0.667, 0.500, 1.125),
        (8, 1.75, 1.286, 2.143, 0.857, 0.393, 1.361),
        (16, 1.875, 1.2, 2.133, 0.933, 0.258, 1.563),
        (64, 1.969, 1.079, 2.064, 0.984, 0.095, 1.824),
        (256, 1.992, 1.027, 2.024, 0.996, 0.031, 1.939),
    ],
)
def test_coefficients_of_the_buffer(
    n: int, ring: float, ideal: float, worst: float, first_phase: float, critical: float, speedup: float
) -> None:
    law = in_wires(n)
    assert law.ring_s == law.halving_doubling_s == pytest.approx(ring, abs=6e-4)
    assert law.second_phase_s == law.after_arrival_s("stragglar", 9.0) == pytest.approx(ideal, abs=6e-4)
    assert law.after_arrival_s("stragglar", 0.0) == law.total_s("stragglar", 0.0) == pytest.approx(worst, abs=6e-4)
    assert law.first_phase_s == pytest.approx(first_phase, abs=6e-4)
    assert law.critical_delay_s == pytest.approx(critical, abs=6e-4)
    assert law.speedup == pytest.approx(speedup, abs=6e-4)


def test_one_cost_of_a_round_gives_both_numbers_of_the_hardware() -> None:
    law = StragglerLaw(8, 1, 0.0, 1.0, round_s=0.0127)
    assert law.speedup == pytest.approx(published("stragglar-measured").bounds[1], rel=1e-3)
    buffer_ms = 4 * 2**30 / (published("h100-rate").value * 1e9) * 1e3
    assert law.critical_delay_s * buffer_ms == pytest.approx(published("stragglar-critical-delay").value, rel=0.01)
    assert law.ring_s == in_wires(8).ring_s, "Ring is NCCL's own"


def test_a_second_late_rank_loses_the_gain_where_it_comes_less_than_the_critical_delay_before_the_first() -> None:
    law, late_s = in_wires(8), 1.2
    ahead = {
        share: law.total_s("ring", late_s, late_s - share * law.critical_delay_s)
        - law.total_s("stragglar", late_s, late_s - share * law.critical_delay_s)
        for share in (0.0, 0.9, 1.0, 1.1, 3.0)
    }
    assert ahead[0.0] < ahead[0.9] < 0 < ahead[1.1] < ahead[3.0] and ahead[1.0] == pytest.approx(0, abs=1e-9)
    assert law.total_s("stragglar", 0.2, 1.2) == pytest.approx(1.2 + law.first_phase_s + law.second_phase_s)


def test_the_late_rank_is_late_for_the_first_bucket_alone() -> None:
    law = in_wires(4)
    assert law.buckets_s(["ring"] * 3, 1.0) == pytest.approx(1.0 + 3 * 1.5)
    assert law.buckets_s(["stragglar"] * 3, 1.0) == pytest.approx(1.0 + 4 / 3 + 2 * 2.0)
    assert law.buckets_s(["stragglar", "ring"], 1.0) < law.buckets_s(["ring"] * 2, 1.0)
    assert law.across_s(2) == 1.0 and law.across_s(4) == law.ring_s


def test_halving_doubling_has_less_latency_and_wins_small_buffers() -> None:
    size = StragglerLaw(8, 1000, 0.005, 1e6).critical_bytes
    at = StragglerLaw(8, round(size), 0.005, 1e6)
    assert size == pytest.approx(6.46 * 0.005 * 1e6, rel=1e-3)
    assert at.halving_doubling_s == pytest.approx(at.second_phase_s, rel=1e-4)
    assert in_wires(8).critical_bytes == 0 and StragglerLaw(8, 1, 0.1, 1.0, round_s=1.0).critical_bytes == math.inf
    assert not StragglerLaw(6, 1, 0.0, 1.0).knows("recursive-halving-doubling") and in_wires(8).knows("stragglar")


def test_a_step_gains_what_the_all_reduce_saves_and_loses_before_the_break_even() -> None:
    law = in_wires(8)
    assert law.step_gain(0.2, 1.25 * law.first_phase_s, 0.9) == pytest.approx(8.75 / 8.371 - 1, abs=1e-4)
    assert law.step_gain(0.2, law.critical_delay_s) == pytest.approx(0.0, abs=1e-12)
    assert law.step_gain(0.2, 0.9 * law.critical_delay_s) < 0 < law.step_gain(0.2, 1.1 * law.critical_delay_s)
    assert law.step_gain(0.2, 1.25 * law.first_phase_s, 0.0) < 0  # always the wrong rank


@pytest.mark.parametrize(
    ("n", "speedup"), [(4, 1.127), (8, 1.363), (16, 1.565), (32, 1.718), (64, 1.826), (128, 1.897), (256, 1.941)]
)
def test_speedups_of_the_published_simulation(n: int, speedup: float) -> None:
    """3 us, 450 GiB/s, 1 GiB, over Ring (arXiv 2505.23523, simulation)."""
    assert StragglerLaw(n, 1 << 30, 3e-6, 450 * (1 << 30)).speedup == pytest.approx(speedup, abs=5.1e-4)


@pytest.mark.parametrize(("n", "halving", "direct"), [(4, 1.002, 0.753), (256, 1.331, 0.335)])
def test_the_rivals_of_the_published_simulation(n: int, halving: float, direct: float) -> None:
    law = StragglerLaw(n, 1 << 30, 3e-6, 450 * (1 << 30))
    assert law.ring_s / law.halving_doubling_s == pytest.approx(halving, abs=6e-4)
    assert law.ring_s / law.direct_s == pytest.approx(direct, abs=6e-4)


def test_circuits_that_change_too_slowly_eat_the_gain() -> None:
    law = StragglerLaw(8, 1_000_000, 0.001, 1e6)
    assert law.critical_reconfiguration_s == pytest.approx(0.0516 * law.wire_s + 0.56 * law.alpha_s, rel=2e-3)


@given(n=POWERS, size=st.integers(1, 1 << 34), alpha=st.floats(0, 0.1), rate=st.floats(1e6, 1e12))
def test_break_even_is_where_both_take_the_same_time(n: int, size: int, alpha: float, rate: float) -> None:
    law = StragglerLaw(n, size, alpha, rate)
    levels = law.levels
    formula = (levels - 2) * alpha + ((levels - 2) / (n - 1) + 2 / n) * law.wire_s
    delay = law.critical_delay_s
    if math.isfinite(delay):
        assert delay == pytest.approx(formula, rel=1e-6, abs=1e-9 * law.ring_s)
        assert law.total_s("stragglar", delay) == pytest.approx(law.total_s("ring", delay))
    else:
        assert law.second_phase_s >= law.ring_s * (1 - 1e-9)


@given(n=POWERS, delay=st.floats(0, 10), alpha=st.floats(0, 0.01))
def test_totals_grow_with_the_delay_and_end_with_slope_one(n: int, delay: float, alpha: float) -> None:
    law = StragglerLaw(n, 1_000_000, alpha, 1e6)
    for algorithm in LAW_ALGORITHMS:
        rise = law.total_s(algorithm, delay + 1) - law.total_s(algorithm, delay)
        assert -1e-9 <= rise <= 1 + 1e-9
        assert law.total_s(algorithm, 100.0) - law.total_s(algorithm, 99.0) == pytest.approx(1.0)
    flat = min(delay, law.first_phase_s)
    assert law.total_s("stragglar", flat) == pytest.approx(law.total_s("stragglar", 0.0))
    assert law.wrong_s(delay) == pytest.approx(delay + law.total_s("stragglar", 0.0))


def test_among_three_ranks_ring_wins() -> None:
    law = StragglerLaw(3, 1, 0.0, 1.0, rounds=3)
    assert law.second_phase_s == 1.5 and law.critical_delay_s == math.inf
    assert law.critical_reconfiguration_s == 0.0


@given(n=POWERS, steps=st.integers(2, 30))
def test_the_crossing_of_the_curves_is_the_critical_delay(n: int, steps: int) -> None:
    law = in_wires(n)
    xs = [law.first_phase_s * k / steps for k in range(steps + 1)]
    ring, aware = ([law.total_s(name, x) for x in xs] for name in ("ring", "stragglar"))
    assert crossing(xs, ring, aware) == pytest.approx(law.critical_delay_s)
    assert crossing(xs, aware, ring) is None


def test_crossing_counts_the_last_and_needs_a_win_at_the_end() -> None:
    assert crossing([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 2.0, 0.0]) == pytest.approx(2.5)
    assert crossing([1.0, 2.0], [3.0, 3.0], [2.0, 2.0]) == 1.0
    assert crossing([], [], []) is None


@pytest.mark.parametrize("n", [4, 6, 8, 16])
def test_eager_needs_no_delay_to_be_as_fast_as_ring_and_every_delay_helps(n: int) -> None:
    law = in_wires(n)
    delays = [law.first_phase_s * k / 200 for k in range(300)]
    assert max(law.eager_s(delay) for delay in delays) <= 1.017 * law.ring_s
    for delay in delays:
        best = min(law.ring_s, law.after_arrival_s("stragglar", delay))
        assert law.total_s("stragglar-eager", delay) <= 1.017 * (delay + best)
    assert law.eager_share(0.0) < 0.1 and law.eager_share(law.first_phase_s) == 1.0
    assert law.eager_s(law.first_phase_s) == pytest.approx(law.second_phase_s)


@pytest.mark.parametrize("late", [0, 7])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.25])
def test_eager_in_the_model_follows_its_law_whoever_is_late(late: int, share: float) -> None:
    settings = StragglerSettings(algorithms=("stragglar-eager",), straggler=late, iterations=1)
    law = settings.law(8, settings.size_of(8)[0])
    delay_s = share * law.first_phase_s
    (row,) = Stragglers(settings.model_copy(update={"delays_ms": (delay_s * 1e3,)})).predict()
    assert isinstance(row, StragglerRow) and row.predicted_time_s is not None
    assert row.predicted_time_s == pytest.approx(law.total_s("stragglar-eager", delay_s), rel=0.01)
    assert row.predicted_time_s <= 1.02 * law.total_s("ring", delay_s)
    assert row.predicted_early_share == pytest.approx(law.eager_share(delay_s), abs=0.05)
