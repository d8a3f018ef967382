"""Digits of numbers in text: enough to tell apart what is compared, however small it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import floor, isfinite, log10

DIGITS = 4
"""Significant digits of a number, one more if it begins with 1: a step in the last one is 0.05 % of it at most."""
MOST_DECIMALS = 12
"""What is smaller is the rounding of a difference."""
SPREAD = 2
"""Powers of ten between the smallest and the largest of numbers that have the same decimals."""


_LEAST = 0.5 * 10**-MOST_DECIMALS


def significant(value: float | None) -> str:
    """A number with its significant digits, never with an exponent; ``-`` for None.

    >>> significant(0.00060228), significant(10.3332), significant(11_526.4), significant(0.0)
    ('0.0006023', '10.333', '11526', '0')
    """
    return _fixed(_decimals(value or 0.0), value)


def alike(values: Iterable[float | None]) -> Callable[[float | None], str]:
    """How to write numbers that are compared: with the same decimals, those that the smallest of them needs.

    Where they are too far apart for that, each has its own.

    >>> form = alike([0.001, 0.00060228, None])
    >>> form(0.001), form(0.00060228)
    ('0.0010000', '0.0006023')
    """
    sizes = [abs(value) for value in values if isinstance(value, (int, float)) and isfinite(value)]
    sizes = [size for size in sizes if size >= _LEAST]
    if not sizes or floor(log10(max(sizes))) - floor(log10(min(sizes))) > SPREAD:
        return significant
    return partial(_fixed, _decimals(min(sizes)))


def _decimals(value: float) -> int:
    return min(MOST_DECIMALS, max(0, DIGITS - 1 - floor(log10(abs(value) / 2)))) if value and isfinite(value) else 0


def _fixed(decimals: int, value: float | None) -> str:
    return "-" if value is None else f"{value:.{decimals}f}" if abs(value) >= _LEAST else "0"


def spans(numbers: Iterable[int]) -> str:
    """Numbers as text, neighbours in order together: ``0-3, 8``; ``numbers_in`` reads it."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def numbers_in(text: str) -> list[int]:
    bounds = [[int(number) for number in run.split("-")] for run in text.split(", ")]
    return [number for run in bounds for number in range(run[0], run[-1] + 1)]
