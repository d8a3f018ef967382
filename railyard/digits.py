"""Digits of numbers in text: enough to tell apart what is compared, however small it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import floor, isfinite, log10

LEAST, MOST = 4, 6
"""Significant digits of a number, and of the largest of those that have the same decimals."""


def significant(value: float | None) -> str:
    """A number with four significant digits, never with an exponent; ``-`` for None.

    >>> significant(0.00060228), significant(10.3332), significant(11_526.4), significant(0.0)
    ('0.0006023', '10.33', '11526', '0')
    """
    return _fixed(_decimals(value or 0.0), value)


def alike(values: Iterable[float | None]) -> Callable[[float | None], str]:
    """How to write numbers that are compared: with the same decimals, so that the smallest has four significant digits.

    Where the largest would then have more than six, each number has four of its own.

    >>> form = alike([0.001, 0.00060228, None])
    >>> form(0.001), form(0.00060228)
    ('0.0010000', '0.0006023')
    """
    sizes = [abs(value) for value in values if isinstance(value, (int, float)) and isfinite(value) and value]
    if not sizes:
        return significant
    near = floor(log10(max(sizes))) - floor(log10(min(sizes))) <= MOST - LEAST
    return partial(_fixed, _decimals(min(sizes))) if near else significant


def _decimals(value: float) -> int:
    return max(0, LEAST - 1 - floor(log10(abs(value)))) if value and isfinite(value) else 0


def _fixed(decimals: int, value: float | None) -> str:
    return "-" if value is None else f"{value:.{decimals}f}" if value else "0"
