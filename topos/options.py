"""Parses the options of topologies. All of them may come as text, from the command line of ``mn``."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

from railyard.errors import ConfigError


def whole(key: str, value: object, least: int, most: int) -> int:
    """Parse ``value`` as a whole number from ``least`` to ``most``; raises ConfigError naming ``key``."""
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ConfigError(f"must be a whole number from {least} to {most}, not {value}", key=key)
    return number


def number(key: str, value: object, least: float, most: float, unit: str, kind: str = "") -> float:
    """Parse ``value`` as a number of ``unit`` from ``least`` to ``most``; raises ConfigError naming ``key``."""
    try:
        found = float(str(value))
    except ValueError:
        found = nan
    if not least <= found <= most:
        raise ConfigError(f"must be {kind}from {least:g} to {most:g} {unit}, not {value}", key=key)
    return found


def rate(key: str, value: object) -> float:
    """Parse ``value`` as a link rate in Mb/s; raises ConfigError naming ``key``."""
    return number(key, value, 0.01, 100_000, "Mb/s", "a rate ")


def flag(key: str, value: object) -> bool:
    """Parse ``value`` as true or false; raises ConfigError naming ``key``."""
    text = str(value).lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", "none"):
        return False
    raise ConfigError(f"must be true or false, not {value}", key=key)


def one_of(key: str, value: object, choices: Sequence[str]) -> str:
    """Check that ``value`` is one of ``choices``; raises ConfigError naming ``key``."""
    if value not in choices:
        raise ConfigError(f"must be one of {', '.join(choices)}, not {value}", key=key)
    return str(value)


def extents(key: str, value: object, most: int) -> tuple[int, int, int]:
    """Parse three extents in chips, given as text (``4x4``, ``4x4x4``) or as numbers, each from 1 to ``most``.

    An extent that is not given is 1. Raises ConfigError naming ``key``.
    """
    parts: Sequence[Any] = value if isinstance(value, list | tuple) else str(value).split("x")
    try:
        numbers = [int(str(part)) for part in parts]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or not all(1 <= number <= most for number in numbers):
        raise ConfigError(f"must be 2 or 3 extents from 1 to {most}, as in 4x4, not {value}", key=key)
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z
