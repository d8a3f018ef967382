"""What an all-to-all must take, by hand. (PIP, arXiv 2501.18136: (n - 1)(D / B + T).)"""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from experiments.collectives.all_to_all.experiment import AllToAllSettings
from experiments.collectives.all_to_all.formula import (
    at_line_rate,
    busiest_port_bytes,
    bytes_per_s,
    formula,
    hops,
    slots_of,
)
from experiments.collectives.trial import Trial
from experiments.settings import validated

D = 1_000_000
B = AllToAllSettings().bytes_per_s


def trial(way: str, n: int, **values: Any) -> Trial:
    given = {
        "studies": ["grid"],
        "policies": [way],
        "ranks": [n],
        "sizes": [D],
        "delays_ms": [20],
        "guard_ms": 2,
        **values,
    }
    (found,) = validated(AllToAllSettings, given).trials()
    return found


def demand_of(made: Trial) -> dict[tuple[int, int], float]:
    """What positions send to each other, of an uneven one."""
    n = made.schedule.n
    return {(c // n, c % n): float(w) for c, w in enumerate(made.schedule.weights) if w}


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_of_a_rotor_it_is_the_papers(n: int) -> None:
    made = trial("rotor", n)
    assert bytes_per_s(made) == pytest.approx(B)
    assert formula(made) == at_line_rate(made) == pytest.approx((n - 1) * (D / B + 0.02))


@pytest.mark.parametrize(("n", "simplex"), [(3, False), (5, False), (9, False), (3, True), (4, True), (9, True)])
def test_of_an_odd_number_one_is_left_out_in_each_of_n_slots_but_with_one_way_circuits(n: int, simplex: bool) -> None:
    assert formula(trial("rotor", n, simplex=simplex)) == pytest.approx((n - simplex) * (D / B + 0.02))


@pytest.mark.parametrize("n", [2, 8])
def test_of_a_packet_switch_it_is_what_a_port_sends(n: int) -> None:
    made = trial("electrical", n)
    assert busiest_port_bytes(made) == (n - 1) * D
    assert formula(made) == pytest.approx((n - 1) * D / B)


@pytest.mark.parametrize("n", [4, 5, 8])
def test_hop_by_hop_a_port_carries_what_goes_further_too(n: int) -> None:
    made = trial("multi-hop", n)
    sides = sum(min(k, n - k) for k in range(1, n)) / 2  # hops each way round, all distances together
    assert busiest_port_bytes(made) >= sides * D * (1 - 1e-9)
    assert formula(made) == pytest.approx(busiest_port_bytes(made) / (B / 2)), "each port has half the rate"


@pytest.mark.parametrize("n", [4, 6])
def test_two_hops_are_two_rounds_through_all_slots(n: int) -> None:
    made = trial("valiant", n)
    first, second = hops(made)
    assert sum(first.values()) == pytest.approx(n * (n - 1) * D)
    assert sum(second.values()) == pytest.approx(n * (n - 2) * D), "of each pair a piece has arrived"
    longest = max(first.values()) + max(second.values())
    assert formula(made) == pytest.approx((n - 1) * (longest / B + 2 * 0.02))


def test_an_uneven_demand_makes_each_slot_as_long_as_its_longest_transfer() -> None:
    made = trial("rotor", 4, demand="skewed")
    demand = demand_of(made)
    slots = [{(a, b) for a, _, b, _ in slot.paths} for slot in slots_of(made)]
    longest = [max(demand[pair] for a, b in slot for pair in ((a, b), (b, a))) for slot in slots]
    assert formula(made) == pytest.approx(sum(longest) / B + 3 * 0.02)


def test_turns_made_for_a_demand_are_never_slower_than_a_rotor() -> None:
    for seed in range(1, 6):
        rotor, demand = (
            formula(trial(way, 6, demand="skewed", delays_ms=[0], seed=seed)) for way in ("rotor", "demand")
        )
        assert demand <= rotor * (1 + 1e-9)


@pytest.mark.parametrize("slot_ms", [50.0, 170.0])
def test_slots_with_an_end_come_round_until_all_is_sent(slot_ms: float) -> None:
    made, n = trial("rotor", 4, slots_ms=[slot_ms]), 4
    light_s = (slot_ms - 2) / 1e3
    rounds = ceil(D / B / light_s)
    slots = (n - 1) * rounds
    assert formula(made) == pytest.approx((n - 1) * D / B + slots * 0.02)
    rest_s = D / B - (rounds - 1) * light_s
    assert at_line_rate(made) == pytest.approx((slots - 1) * slot_ms / 1e3 + rest_s + slots * 0.02)
