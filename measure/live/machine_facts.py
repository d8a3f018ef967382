"""Facts about this machine that may explain a result: processor, clock, and the load that others put on it."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

_CPU = Path("/proc/cpuinfo")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def machine_facts(cpu: Path = _CPU, clock: Path = _CLOCK) -> dict[str, Any]:
    """CPU model, clock source and the load of the last 1, 5 and 15 minutes; None for what cannot be read."""
    model = re.search(r"^(?:model name|Model)[ \t]*:(.*)$", _text(cpu), re.MULTILINE)
    name = model[1].strip() if model else platform.processor() or platform.machine()
    return {"cpu": name or None, "clock_source": _text(clock).strip() or None, "load_before": _load()}


def _load() -> list[float] | None:
    with suppress(OSError):
        return [round(load, 2) for load in os.getloadavg()]
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
