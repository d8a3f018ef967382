"""Fields of events as they are in files that anybody may have changed."""

from __future__ import annotations

import math
from typing import Any


def text_of(value: Any) -> str:
    """A text; ``ValueError`` for another value."""
    if type(value) is not str:
        raise ValueError("no text")
    return value


def whole_of(value: Any) -> int:
    """The number of a step, rank or port; ``ValueError`` for another value."""
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise ValueError("no number of a step, rank or port")
    return value


def number_of(value: Any) -> float:
    """A finite number; ``ValueError`` for another value."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("no finite number")
    return float(value)
