from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.digits import DIGITS, SPREAD, alike, significant

TIMES = st.floats(1e-9, 1e6)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.001, 0.00060228), ("0.0010000", "0.0006023")),
        ((10.3332, 9.99961, None), ("10.333", "10.000", "-")),
        ((1.2734, 2.0953), ("1.2734", "2.0953")),
        ((2.0953, 3.5896), ("2.095", "3.590")),
        ((0.0, 1.2, 0.8323), ("0", "1.2000", "0.8323")),
        ((80.123456, 0.00030119), ("80.12", "0.0003012")),
        ((11526.4, 10_000), ("11526", "10000")),
        ((0.0, None), ("0", "-")),
        ((float("inf"), 1.0), ("inf", "1.0000")),
    ],
)
def test_numbers_that_are_compared_have_the_digits_of_the_smallest_and_the_same_decimals(
    values: tuple[float | None, ...], texts: tuple[str, ...]
) -> None:
    form = alike(values)
    assert tuple(map(form, values)) == texts


@given(st.lists(TIMES, min_size=1, max_size=5))
def test_no_number_is_off_by_more_than_its_digits_say(values: list[float]) -> None:
    form = alike(values)
    for value in values:
        text = form(value)
        assert "e" not in text and float(text) == pytest.approx(value, rel=0.26 * 10 ** (1 - DIGITS))
        assert len(text.replace(".", "").lstrip("0")) <= max(DIGITS + SPREAD + 2, len(str(round(value))))


@given(TIMES)
def test_one_number_has_its_own_digits(value: float) -> None:
    assert significant(value) == alike([value])(value)


def test_the_rounding_of_a_difference_is_nothing() -> None:
    form = alike([1.7, 3.3e-16])
    assert (form(1.7), form(3.3e-16)) == ("1.7000", "0")
