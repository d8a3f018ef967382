"""Values as plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MOST_LEVELS = 100
"""The most tables and lists within each other: how deep Python itself can go differs by version."""


def plain(value: Any, levels: int = MOST_LEVELS) -> Any:
    """Convert ``value`` for JSON: None for infinity and NaN, lists for tuples, text for paths, numbers to 12 digits.

    ``ValueError`` for more than ``levels`` tables and lists within each other.
    """
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    table = isinstance(value, Mapping)
    if not table and not isinstance(value, (list, tuple, set, frozenset)):
        return str(value)
    if not levels:
        raise ValueError(f"more than {MOST_LEVELS} tables and lists within each other")
    if table:
        return {str(key): plain(item, levels - 1) for key, item in value.items()}
    return [plain(item, levels - 1) for item in value]
