"""What a run's own verdict (``measure.metrics.fidelity``) says of the machine, for tests that are timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from railyard.verdict import OTHERS, STEAL

MACHINE = (STEAL, OTHERS, "timer lag", "timer lag of a step")
"""Checks that only a machine fails that does not keep up. The check of cores is not among them: it counts what the run
uses itself. What fails the other checks may be the code."""


def late_timers(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the rows of a summary say of timers that were late and of who took the processors, for ``machine.late``."""
    checks = [check for row in rows for check in row.get("checks", ())]
    return [check["says"] for check in checks if check["name"] in MACHINE and check["value"] and not check["ok"]]
