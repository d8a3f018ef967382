"""Report of the opus experiment: a table for each study, and what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.opus.experiment import ON_CIRCUITS
from experiments.report import Column, Drawn, Recorded, Report, Table
from measure.results.row import Row


def spread(sensitivity: Mapping[str, Sequence[float]]) -> float | None:
    """The largest change of a step by an assumed size, as a share of it; None without assumptions."""
    return max((abs(ratio - 1) for both in sensitivity.values() for ratio in both), default=None)


_HEAD = (Column("job", "job", left=True), Column("GPUs", "gpus", ",", wide=True))
_MODE = Column("mode", "mode", left=True)
_STEP = (
    Column("step\ns", "step_s", ".4g"),
    Column("exposed\ns", "exposed_s", ".3f"),
    Column("hidden\ns", "hidden_s", ".3f"),
    Column("changes\na step", "changes", "g"),
    Column("used\n%", lambda row: 100 * row["utilisation"], ".1f", wide=True),
    Column("assumed\n± %", lambda row: _percent(spread(row["sensitivity"])), ".0f", wide=True),
)
_DELAY = Column("delay\nms", "delay_ms", "g")
_PUBLISHED = Column("authors\ns", "authors", ".3f")
COLUMNS: Mapping[str, tuple[str, Sequence[Column]]] = {
    "windows": (
        "Windows between two phases of a rail, without delays",
        (
            *_HEAD,
            Column("transition", "transition", left=True),
            Column("windows", lambda row: len(row["windows_s"]), "d"),
            Column("median\nms", lambda row: 1e3 * row["window_s"], ".1f"),
            Column("longest\nms", lambda row: 1e3 * max(row["windows_s"]), ".1f"),
            Column("authors\nms", lambda row: row["authors"] and 1e3 * row["authors"], ".0f"),
        ),
    ),
    "delay": ("Step against the reconfiguration delay", (*_HEAD, _MODE, _DELAY, *_STEP, _PUBLISHED)),
    "bandwidth": ("Step against the rate of a port", (*_HEAD, _MODE, Column("port\nGb/s", "port_gbps", "g"), *_STEP)),
    "scale": ("Strong scaling", (*_HEAD, _MODE, _DELAY, *_STEP)),
    "experts": (
        "Experts in servers and on rails",
        (*_HEAD, Column("placement", "placement", left=True), Column("EP", "ep", "d"), _MODE, *_STEP),
    ),
    "cost": (
        "Steps, and cost and power of electrical over photonic rails",
        (*_HEAD, _MODE, *_STEP, Column("cost", "cost_ratio", ".2f"), Column("power", "power_ratio", ".1f")),
    ),
    "recovery": (
        "Link recovery; rails whose stages change alone, and whole rails",
        (*_HEAD, _MODE, _DELAY, Column("recovery\ns", "recovery_s", "g"), *_STEP),
    ),
    "technologies": (
        "Kinds of optical circuit switches",
        (*_HEAD, Column("switch", lambda row: row["technology"] or "packet", left=True), _MODE, _DELAY, *_STEP),
    ),
}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    for study, (title, columns) in COLUMNS.items():
        if own := [row for row in rows if row["study"] == study]:
            yield Table(title, columns, own)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    whole = {
        (row["job"], row["mode"].partition(",")[0], row["recovery_s"]): row["step_s"]
        for row in rows
        if row["study"] == "recovery" and row["mode"].endswith("whole rail")
    }
    for mode in ON_CIRCUITS:
        alone = [
            whole[key] / row["step_s"]
            for row in rows
            if row["study"] == "recovery" and (key := (row["job"], row["mode"], row["recovery_s"])) in whole
            if row["mode"] == mode
        ]
        if alone:
            yield (
                f"{mode.capitalize()}, where all stages of a rail change together, a step takes {min(alone):.3f} to "
                f"{max(alone):.3f} times as long as where each changes alone."
            )
    if any(row["sensitivity"] for row in rows):
        yield "assumed ± %: the largest change of a step with the least or the most of an assumed size."


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.opus.figures import drawn

    yield from drawn(recorded.rows)


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    jobs = {row["job"] for row in rows}
    if jobs & {"llama3-8b-16", "llama3-8b-64"}:
        yield "llama-forward"
    if jobs & {"pp-only", "deepseek-16b-32"}:
        yield "deepseek-forward"


REPORT = Report(tables=_tables, findings=_findings, figures=_figures, calibrated=_calibrated)
