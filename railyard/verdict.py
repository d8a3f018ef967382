"""Why results are not to be trusted, in the sentence that figures and the Python API have in common. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NOT_FAITHFUL = "NOT FAITHFUL"
STEAL, OTHERS = "other guests", "other processes"
"""Names of the checks of what others take of the processors' time."""


def why_not_faithful(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first failed check of ``rows`` of a summary, causes first; "" if none failed."""
    bad = [row for row in rows if row.get("faithful") is False]
    failed = [check for row in bad for check in row.get("checks", ()) if not check["ok"]]
    if not failed:
        return ""
    first = min(failed, key=lambda check: check["name"] not in (STEAL, OTHERS))
    count = f" ({len(bad)} of {len(rows)} points)" if len(rows) > 1 else ""
    return f"{NOT_FAITHFUL}{count}: {first['says']}."
