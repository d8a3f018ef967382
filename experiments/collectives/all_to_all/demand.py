"""Demand matrices of an all-to-all: uniform, drawn at random, or read from a file."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from random import Random

from controllers.circuits.decomposition import check_demand
from controllers.circuits.rotation import Demand
from railyard.errors import ConfigError, shortened
from railyard.reading import read_text

SKEW = 1.2
"""Exponent of the Zipf weights of ``skewed``: a few receivers are popular, as experts of a model are."""
_UNIT_BYTES = 4
_MOST_BYTES = 4 << 20


def read_demand(name: str, n: int, mean_bytes: float, seed: int) -> Demand:
    """The demand matrix ``name``: n x n bytes, a row per sender, ``mean_bytes`` on average over the pairs.

    ``uniform`` gives (). ``skewed`` gives each sender Zipf weights (exponent ``SKEW``) for its receivers, in a random
    order per sender drawn with ``seed``. Any other name is a CSV file of ``n`` rows of ``n`` numbers, of which only the
    proportions count. ``ConfigError`` for a file that cannot be read or is no demand.
    """
    if name == "uniform":
        return ()
    shares = check_demand(_skewed(n, Random(seed)) if name == "skewed" else _read(Path(name)), n)
    largest = max(map(max, shares))  # entries are scaled by the largest, so that any unit works without overflow
    factor = mean_bytes * n * (n - 1) / sum(entry / largest for row in shares for entry in row)
    return tuple(tuple(_round(entry / largest * factor) for entry in row) for row in shares)


def whole_numbers(demand: Demand) -> tuple[tuple[int, ...], ...]:
    """A demand in bytes as whole numbers, for weights of chunks."""
    return tuple(tuple(round(entry) for entry in row) for row in demand)


def _round(size: float) -> float:
    """``size`` rounded to whole elements, at least one unless it is 0."""
    return float(max(_UNIT_BYTES, round(size / _UNIT_BYTES) * _UNIT_BYTES)) if size else 0.0


def _skewed(n: int, random: Random) -> list[list[float]]:
    rows = []
    for i in range(n):
        order = [j for j in range(n) if j != i]
        random.shuffle(order)
        row = [0.0] * n
        for place, j in enumerate(order):
            row[j] = (place + 1) ** -SKEW
        rows.append(row)
    return rows


def _read(path: Path) -> list[list[float]]:
    if not os.path.isfile(path):
        why = "is no file" if os.path.exists(path) else "does not exist"
        raise ConfigError(f"must be uniform, skewed or a CSV file; {shortened(str(path))} {why}", key="demand")
    try:
        text = read_text(path, _MOST_BYTES, "a CSV file")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error:
        raise ConfigError("is not a CSV file; write one row of numbers for each sender", source=str(path)) from None
    try:
        return [[float(entry) for entry in row] for row in rows]
    except ValueError as error:
        raise ConfigError(f"must hold numbers only ({error})", source=str(path)) from None
