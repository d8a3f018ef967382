"""Why a step is longer on an electrical rack after a failure: ports that are not steered, and the way to the spare.

The rack ``fixed`` has the circuits of the photonic one to the spare and the fixed ports of the electrical ones. So
fixed / photonic is what steering is worth, e1 / fixed what the splice is worth, and their product is e1 / photonic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.row import FIXED, NEIGHBOUR, PHOTONIC
from experiments.report import Column, Table
from measure.metrics.estimate import Estimate
from measure.published import published
from measure.results.estimates import ratio_of
from measure.results.row import Row

ROUTED = "e1"
"""The electrical rack whose spare is reached over the links of other chips."""
EPOCH, THROUGHPUT = published("morphlux-epoch"), published("lumion-throughput")
"""Gains that MORPHLUX measured by steering alone, and LUMION after a splice."""
_BEFORE, _AFTER = "step_time_before_s", "step_time_after_s"
_FACTORS = (
    ("steering", FIXED, PHOTONIC, f"{min(EPOCH.values.values()):g} to {max(EPOCH.values.values()):g}"),
    ("splice", ROUTED, FIXED, None),
    ("both", ROUTED, PHOTONIC, f"nearly {THROUGHPUT.value:g}"),
)
"""Name, slower and faster rack of each factor, and the published values of the same quantity."""
_COLUMNS = (
    Column("factor", "factor", left=True),
    Column("step on", "racks", left=True),
    Column("before", "before", ".3f"),
    Column("before\nmodel", "before_model", ".3f"),
    Column("after", "after", ".3f"),
    Column("after\nmodel", "after_model", ".3f"),
    Column(EPOCH.heading, "given"),
)


def factor_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """The table of both factors and their product; none without the rack of fixed ports and another one."""
    lines = list(factors(rows))
    if lines:
        title = "Factors of the step before and after the failure: steering of ports, and splice of the spare"
        yield Table(title, _COLUMNS, lines)


def factor_findings(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence on both factors after the failure, and one on the published gains; nothing if one is missing."""
    found = {line["factor"]: line for line in factors(rows)}
    if len(found) < len(_FACTORS) or any(line["after"] is None for line in found.values()):
        return
    steering, splice, both = (found[name] for name, *_ in _FACTORS)
    before = "" if steering["before"] is None else f" ({steering['before']:.2f} before it)"
    yield (
        f"After the failure a step on {ROUTED} takes {_words(both)} times that on {PHOTONIC}: {_words(steering)} as "
        f"the ports are not steered{before}, times {_words(splice)} as the spare is not spliced in."
    )
    yield (
        f"MORPHLUX gives {steering['given']} for steering alone, with two ports a chip ({EPOCH.label}); LUMION "
        f"{both['given']} after a splice ({THROUGHPUT.label}), and no factor of either."
    )


def factors(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The factors whose racks are in ``rows``, with the ratios of both step times, measured and of the model."""
    jobs: dict[str, Row] = {}
    for row in rows:
        if row.get("event") not in (None, NEIGHBOUR):
            jobs.setdefault(row["fabric"], row)
    for name, slow, fast, given in _FACTORS if FIXED in jobs else ():
        if slow in jobs and fast in jobs:
            yield {"factor": name, "racks": f"{slow} / {fast}", "given": given, **_ratios(jobs[slow], jobs[fast])}


def _ratios(slow: Row, fast: Row) -> dict[str, Any]:
    before, after = (ratio_of(slow, fast, key) for key in (_BEFORE, _AFTER))
    models = {f"{name}_model": _of_model(slow, fast, f"predicted_{key}") for name, key in _PLACES}
    return {"before": _median(before), "after": _median(after), "estimate": after, **models}


_PLACES = (("before", _BEFORE), ("after", _AFTER))


def _of_model(slow: Row, fast: Row, key: str) -> float | None:
    return slow[key] / fast[key] if slow.get(key) and fast.get(key) else None


def _median(found: Estimate | None) -> float | None:
    return None if found is None else found.median


def _words(line: Mapping[str, Any]) -> str:
    """The ratio after the failure, with its interval if there are repeats."""
    found: Estimate = line["estimate"]
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return f"{found.median:.2f}{interval}"
