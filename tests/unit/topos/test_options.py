from __future__ import annotations

import pytest

from topos.options import link_parameters, seconds


def test_link_parameters_are_mininets_and_zeros_are_left_out() -> None:
    assert link_parameters("20", 0.5, "0.1") == {"delay": "20ms", "jitter": "0.5ms", "loss": 0.1}
    assert link_parameters() == link_parameters(0, "0", 0.0) == {}
    assert seconds("delay", link_parameters(12.3456)["delay"]) == pytest.approx(0.0123456)


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 0.005), ("250us", 0.00025), ("1s", 1.0), ("0.5ms", 0.0005), (None, 0.0), ("0ms", 0)]
)
def test_times_are_read_with_their_unit(text: object, expected: float) -> None:
    assert seconds("delay", text) == pytest.approx(expected)
