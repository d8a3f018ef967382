"""Requests of an inference job in the report: their table, findings, and the figure of latency over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Table
from measure.results.row import Row

_TITLE = (
    "Latency of requests (s): answered before the fault, come before the job went on, come after that; p99 back: from "
    "circuits or routes being up until the rest is as fast as before"
)
_COLUMNS = (
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
        yield Table(_TITLE, _COLUMNS, lines)


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
