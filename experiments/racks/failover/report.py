"""Report of the failover experiment: recoveries, step times before and after the fault, their factors, and requests.

The rack ``fixed`` has the circuits of the photonic one to the spare and the fixed ports of the electrical ones. So
fixed / photonic is what steering is worth, e1 / fixed what the splice is worth, and their product is e1 / photonic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.failover.experiment import REPROGRAMMING_S
from experiments.racks.report import fault_rows, point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.racks.row import FIXED, NEIGHBOUR, PHOTONIC
from experiments.racks.setting import COMPUTE_S, TIMELINE
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table
from measure.metrics.estimate import Estimate
from measure.published import published
from measure.results.estimates import ratio_of
from measure.results.row import Row
from railyard.digits import significant
from topos.torus import PLACES

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
_FACTOR_COLUMNS = (
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
        yield Table(title, _FACTOR_COLUMNS, lines)


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


_REQUEST_TITLE = (
    "Latency of requests (s): answered before the fault, come before the job went on, come after that; p99 back: from "
    "circuits or routes being up until the rest is as fast as before"
)
_REQUEST_COLUMNS = (
    Column("fabric", "fabric", left=True),
    *(
        Column(f"{when}\n{name}", f"{key}_{when}_s", ".3f", wide=wide)
        for when in ("before", "during", "after")
        for name, key, wide in (
            ("p50", "latency_p50", True),
            ("p99", "latency_p99", False),
            ("model", "predicted_latency_p99", when != "before"),
        )
    ),
    Column("drop-\nped", "dropped_requests", "g"),
    Column("dropped\nmodel", "predicted_dropped_requests", "g"),
    Column("re-\ntried", "retried_requests", "g", wide=True),
    Column("p99\nback", "p99_back_s", ".2f"),
    Column("back\nmodel", "predicted_p99_back_s", ".2f"),
    FAITHFUL,
)


def request_tables(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [row for row in rows if row["requests"] or row["predicted_requests"]]
    if lines:
        yield Table(_REQUEST_TITLE, _REQUEST_COLUMNS, lines)


def request_findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    beat_s = settings.get("detection", {}).get("heartbeat_ms", 0.0) / 1e3
    for row in rows:
        if row["p99_back_s"] is not None and beat_s:
            yield (
                f"{row['fabric']}: {row['dropped_requests']:g} requests dropped; p99 back {row['p99_back_s']:.2f} s "
                f"({row['p99_back_s'] / beat_s:.1f} heartbeats) after circuits or routes were up"
            )


def request_figures(recorded: Recorded) -> Iterator[Drawn]:
    """The latency of each request near the fault over the time at which it came; a dropped one is at 0."""
    from measure.figures.looks import TENANTS, WARNING, Look
    from measure.figures.plot import Plot, figure_of

    rows = [row for row in recorded.rows if row.get("requests")]
    points = [
        {"fabric": row["fabric"], "of": kind, "came": came, key: wait or 0.0, "faithful": row["faithful"]}
        for row in rows
        for key in ("requests", "predicted_requests")
        for came, wait in row[key]
        for kind in ("dropped" if wait is None else "answered",)
        if key == "requests" or wait is not None
    ]
    plot = Plot(
        "came",
        "requests",
        ("time of the request after the fault (s)", "latency (s)"),
        lambda mine: str(mine[0]["fabric"]),
        "predicted_requests",
        series="of",
        looks={"answered": TENANTS["job"].named("answered"), "dropped": Look("dropped", WARNING, "x")},
        same=("fabric",),
        y_scale="zero",
    )
    yield Drawn("requests", figure_of(plot, points), rows)


RESTART = published("lumion-restart")


_PLACE_COLUMNS = (
    Column("fabric, place", "fabric", left=True),
    Column("spare", "replaced_by", "g"),
    Column("hops", "ring_hops", "g"),
    Column("shared\nlinks", "shared_links", "g"),
    Column("most on\na link", "most_on_link", "g"),
    Column("step\nafter", "step_time_after_s", significant),
    Column("step after\nmodel", "predicted_step_time_after_s", significant),
    FAITHFUL,
)


def _place_tables(rows: Sequence[Row]) -> Iterator[Table]:
    lines = [row for row in rows if any(row["fabric"].endswith(f" {place}") for place in PLACES) and row["ring_hops"]]
    if lines:
        title = (
            "Where spares stand: links between chips (both ways round) or fibres between servers that the ring crosses "
            "after the failure, those that another ring crosses too, and the most on one"
        )
        yield Table(title, _PLACE_COLUMNS, lines)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    yield from recovery_tables(rows)
    yield from factor_tables(fault_rows(rows))
    yield from _place_tables(fault_rows(rows))
    yield from request_tables(fault_rows(rows))


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    yield from recovery_findings(rows)
    yield from factor_findings(fault_rows(rows))
    yield from request_findings(fault_rows(rows), settings)
    optical = any(row["fabric"] == PHOTONIC for row in fault_rows(rows))
    if optical and settings.get("reconfiguration_delay_ms") == REPROGRAMMING_S * 1e3:
        yield (
            f"rewire: {REPROGRAMMING_S:g} s is the time in which MORPHLUX's mesh is reprogrammed ({TIMELINE.label}); "
            f"LUMION gives no parts, but about {RESTART.value:g} s until the job restarts ({RESTART.label})."
        )


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("job", {}).get("compute_s") == COMPUTE_S and not settings.get("inference"):
        yield "rack-compute"
    if settings.get("stages"):
        yield "rack-stages"


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    yield from recovery_figures(recorded)
    yield from request_figures(recorded)


REPORT = Report(tables=_tables, point=point_name, findings=_findings, figures=_figures, calibrated=_calibrated)
