from __future__ import annotations

import pytest

from commands.calibrate.control import PORTS, circuits, shortest_kept
from railyard.errors import MachineError


def test_the_shortest_delay_is_the_last_that_was_kept() -> None:
    dark = {0.005: [0.0051, 0.0049, 0.02], 0.001: [0.0011], 0.0005: [0.0008]}
    assert shortest_kept(dark) == 0.001
    assert shortest_kept({**dark, 0.0005: [0.00049]}) == 0.0005


def test_a_longer_delay_that_is_not_kept_excludes_shorter_ones() -> None:
    assert shortest_kept({0.005: [0.005], 0.002: [0.003], 0.001: [0.001]}) == 0.005


def test_where_none_is_kept_the_error_says_which_would_be() -> None:
    assert shortest_kept({0.005: [0.007], 0.002: [0.002]}) == pytest.approx(0.01)


def test_a_delay_without_dark_times_is_no_measurement() -> None:
    with pytest.raises(MachineError, match="dark times"):
        shortest_kept({0.005: []})


def test_the_two_matchings_use_every_port_and_share_no_circuit() -> None:
    even, odd = (list(map(frozenset, circuits(shift))) for shift in (0, 1))
    assert all(
        sorted(port for pair in matching for port in pair) == list(range(1, PORTS + 1)) for matching in (even, odd)
    )
    assert not set(even) & set(odd)
