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
        number = float(str(value))
    except ValueError:
        number = nan
    if not least <= number <= most:
        raise ConfigError(f"must be {kind}from {least:g} to {most:g} {unit}, not {value}", key=key)
    return number


MOST_MBPS = 100_000.0
"""Highest rate of a link."""


def rate(key: str, value: object) -> float:
    """Parse ``value`` as a link rate in Mb/s; raises ConfigError naming ``key``."""
    return number(key, value, 0.01, MOST_MBPS, "Mb/s", "a rate ")


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
MOST_DELAY_MS = 10_000.0


def link_parameters(
    delay_ms: object = 0.0, jitter_ms: object = 0.0, loss: object = 0.0, where: str = ""
) -> dict[str, Any]:
    """Mininet's parameters of a link that delays and loses packets, each way; those that are 0 are left out.

    - ``delay_ms``: one way, up to 10,000 ms; ``jitter_ms``: a packet is delayed by up to so much less or more, evenly
      distributed, at most ``delay_ms``;
    - ``loss``: share of the packets that are lost, in percent.

    The result has the keys ``delay`` and ``jitter`` (``5ms``) and ``loss`` (percent), as Mininet's ``TCLink`` and our
    links take them. Raises ConfigError naming the option, with ``where`` before ``delay_ms`` and ``loss``.
    """
    delay = number(f"{where}delay_ms", delay_ms, 0, MOST_DELAY_MS, "ms")
    jitter = number("jitter_ms", jitter_ms, 0, MOST_DELAY_MS, "ms")
    if jitter > delay:
        raise ConfigError(f"must be at most {where}delay_ms ({delay:g} ms), not {jitter:g}", key="jitter_ms")
    percent = number(f"{where}loss", loss, 0, 100, "percent")
    given = {"delay": (delay, f"{delay:.9g}ms"), "jitter": (jitter, f"{jitter:.9g}ms"), "loss": (percent, percent)}
    return {key: written for key, (value, written) in given.items() if value}


def seconds(key: str, value: object) -> float:
    """Parse a time with its unit as Mininet takes it (``5ms``, ``250us``, ``1s``); None is 0.

    Raises ConfigError naming ``key``.
    """
    text = "0s" if value is None else str(value).strip()
    digits = text.rstrip("mus")
    unit = _SECONDS.get(text[len(digits) :])
    try:
        time_s = nan if unit is None else float(digits) * unit
    except ValueError:
        time_s = nan
    if not 0 <= time_s <= MOST_DELAY_MS / 1e3:
        raise ConfigError(f"must be a time from 0 to {MOST_DELAY_MS / 1e3:g} s, as in 5ms, not {value}", key=key)
    return time_s


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
