"""Figures of the straggler experiment: time against delay, ranks, size, reconfiguration delay and correct predictions.

Each figure takes the rows of a summary and is None without rows of its study. ``time_s`` counts from the arrival of the
other ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.collectives.straggler.findings import MEASURED, MEASURED_RANKS, SPEEDUPS
from experiments.collectives.straggler.law import StragglerLaw
from measure.figures import style
from measure.figures.curves import Points, Rows
from measure.figures.looks import AHEAD, ALGORITHMS, DASHED, DOTTED, GREY, LIGHT, TEXT, WRONG
from measure.figures.plot import Panel, Plot, figure_of, line, mark_vertical, name_ticks
from measure.metrics.estimate import crossing, ratios
from measure.published import published
from measure.results.estimates import values_of
from measure.results.row import Row
from railyard.size import size_in_words

SPEEDUPS_RHD, SPEEDUPS_DIRECT = published("stragglar-simulated-rhd"), published("stragglar-simulated-direct")
"""Ring / halving-doubling and Ring / Direct by number of ranks."""
PERSISTENCE = published("stragglar-persistence")
"""Range of the share of steps in which the persistent straggler was the late rank."""
PUBLISHED_SPEEDUPS = {
    "stragglar": SPEEDUPS,
    "recursive-halving-doubling": SPEEDUPS_RHD,
    "straggler-direct": SPEEDUPS_DIRECT,
}
"""Ring over each algorithm in the authors' simulation, drawn in the colour of the algorithm."""
_SAME = ("fabric", "collective", "n", "bytes")
_PREDICTED = style.entry("predicted", linewidth=0.7, linestyle=DASHED)
_OURS = ALGORITHMS["stragglar"]
_SIMULATED = style.open_mark(_OURS, marker="o")
_MEASURED = style.open_mark(_OURS, marker="D", linestyle="-", linewidth=0.8)
"""Looks of published values of StragglAR, in the legend for all."""
_EVEN = {1.0: {"color": TEXT, "linewidth": 0.6, "zorder": 1}}


def straggler_figures(rows: Rows, laws: Sequence[StragglerLaw] = ()) -> dict[str, Figure]:
    """The figures of all studies in ``rows``, by name; rows of other experiments are ignored.

    ``laws`` (matched by n and bytes) give T_RS, T_crit and the break-even; without laws they are where the model's
    lines cross. What is called measured is where the straight lines between the markers cross.
    """
    rows = [row for row in rows if row["experiment"] == "straggler"]
    reconfigured = [row for row in _measured(rows, "reconfiguration") if row.get("persistence") is None]
    packets = [row for row in reconfigured if row["fabric"] == "electrical"]
    circuits = [row for row in reconfigured if row["fabric"] != "electrical"]
    predicted = [row for row in _measured(rows, "prediction") if row.get("persistence") is not None]
    made = {
        "straggler_delay": figure_of(_against_delay(laws), _study(rows, "delay")),
        "straggler_ranks": figure_of(_AGAINST_RANKS, _ratios(_study(rows, "ranks"))),
        "straggler_size": figure_of(_AGAINST_SIZE, [r for r in _study(rows, "size") if r["straggler_delay_s"]]),
        "straggler_bandwidth": figure_of(_BANDWIDTH, _bandwidths(_study(rows, "size"))),
        "straggler_reconfiguration": figure_of(_against_reconfiguration(laws, packets), circuits),
        "straggler_prediction": figure_of(_AGAINST_PREDICTION, predicted),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def series_name(row: Row) -> str:
    """The name of a row's curve: its algorithm, with a suffix for a wrong prediction on purpose or other circuits."""
    if row.get("circuits") == "provisioned":
        return f"{row['algorithm']}{AHEAD}"
    words = str(row.get("injection") or "").replace("+", ":").split(":")
    wrong = row["algorithm"] == "stragglar" and "wrong" in (word.strip() for word in words)
    return f"{row['algorithm']}{WRONG}" if wrong else str(row["algorithm"])


def _title(rows: Rows) -> str:
    """The title of a panel, such as ``n = 8, 7 MB, electrical``."""
    row = rows[0]
    size = size_in_words(row["bytes"]) if len({row["bytes"] for row in rows}) == 1 else ""
    return ", ".join(filter(None, (f"n = {row['n']}", size, row["fabric"])))


_by_algorithm = partial(Plot, series=series_name, looks=ALGORITHMS)
_panel = partial(_by_algorithm, title=_title, same=_SAME, least=2, y_scale="near", room=True)


def _against_delay(laws: Sequence[StragglerLaw]) -> Plot:
    """Total time against the straggler's delay, a panel for each fabric, n and size, with T_RS and T_crit."""

    def marks(panel: Panel) -> None:
        law = _law_of(panel.rows[0], laws)
        if law is not None and law.first_phase_s <= max(r["straggler_delay_s"] for r in panel.rows):
            first = law.first_phase_s * panel.factor
            mark_vertical(panel.axes, first, f"$T_{{RS}}$ {first:.3g}")
        predicted = law.critical_delay_s * panel.factor if law else None
        _mark_break_even(panel, ("ring", "stragglar"), predicted, panel.unit, name="$T_{crit}$")

    names = ("straggler delay ({unit})", "total time ({unit})")
    return _panel("straggler_delay_s", "time_s", names, model="predicted_time_s", timed="xy", extra=marks,
                  entries=[_PREDICTED])  # fmt: skip


def _law_of(row: Row, laws: Sequence[StragglerLaw]) -> StragglerLaw | None:
    return next((law for law in laws if (law.n, law.bytes) == (row["n"], row["bytes"])), None)


def _draw_published(panel: Panel) -> None:
    """Draw StragglAR's law without latency, and the speed-ups that its authors simulated and measured."""
    axes = panel.axes
    law = [(n, StragglerLaw(n, 1, 0.0, 1.0).speedup) for n in SPEEDUPS.values]
    line(axes, law, color=GREY, linewidth=3, zorder=1, solid_capstyle="round")
    for name, simulated in PUBLISHED_SPEEDUPS.items():
        look = style.open_mark(ALGORITHMS[name], marker="o")
        axes.plot(*zip(*simulated.values.items(), strict=True), zorder=7, **look)
    axes.plot([MEASURED_RANKS] * 2, MEASURED.bounds, zorder=7, **_MEASURED)
    axes.set_ylim(0, 2.05)
    name_ticks(axes.xaxis, {*SPEEDUPS.values, *(row["n"] for row in panel.rows)})


_AGAINST_RANKS = _by_algorithm(
    "n",
    "ratio",
    ("ranks n", "Ring / algorithm"),
    "Speed-up over Ring after the straggler's arrival",
    "model_ratio",
    least=2,
    x_scale="log2",
    across_at=_EVEN,
    extra=_draw_published,
    entries=[
        style.entry("StragglAR's law, no latency", GREY, linewidth=3),
        style.entry(f"StragglAR: {SPEEDUPS.label}", **_SIMULATED),
        style.entry(f"StragglAR: {MEASURED.label}", **_MEASURED),
    ],
)
"""Speed-up over Ring after arrival, at the longest delay measured for both."""


def _ratios(rows: Rows) -> Rows:
    """Rows with ``ratio`` (measured) and ``model_ratio`` of Ring over the algorithm at the longest delay of both."""
    place = itemgetter("fabric", "n", "bytes")
    rings = {(place(row), row["straggler_delay_s"]): row for row in rows if row["algorithm"] == "ring"}
    longest: dict[tuple[Any, str], Row] = {}
    for row in sorted(rows, key=itemgetter("straggler_delay_s")):
        ring = rings.get((place(row), row["straggler_delay_s"]))
        if ring is not None and row["algorithm"] != "ring":
            longest[place(row), row["algorithm"]] = _over(row, ring)
    return list(longest.values())


def _over(row: Row, ring: Row) -> Row:
    after, model = "after_arrival_s", "predicted_after_arrival_s"
    return {
        **row,
        "ratio": ring[after] / row[after],
        "samples": {"ratio": ratios(values_of(ring, after), values_of(row, after))},
        "model_ratio": ring[model] / row[model] if ring.get(model) and row.get(model) else None,
        "faithful": row.get("faithful", True) and ring.get("faithful", True),
    }


_AGAINST_SIZE = _by_algorithm(
    "bytes",
    "after_arrival_s",
    ("", "time after arrival ({unit})"),
    _title,
    "predicted_after_arrival_s",
    same=("fabric", "collective", "n"),
    least=3,
    timed="y",
    x_scale="log",
    y_scale="log",
    room=True,
    below=_by_algorithm(
        "bytes",
        "ratio",
        ("buffer", "Ring / algorithm"),
        model="model_ratio",
        derive=_ratios,
        across_at=_EVEN,
        ticks=size_in_words,
    ),
)
"""Time after arrival against buffer size, both logarithmic, with the ratio of Ring to it below."""
_BANDWIDTH = _by_algorithm(
    "bytes",
    "busbw_gbps",
    ("buffer", "bus bandwidth (Gb/s)"),
    lambda rows: f"n = {rows[0]['n']}, {rows[0]['fabric']}, {'a rank late' if rows[0]['late'] else 'none late'}",
    "model_busbw_gbps",
    same=("fabric", "n", "late"),
    least=3,
    x_scale="log",
    ticks=size_in_words,
)
"""Bus bandwidth, which counts from the last arrival, against buffer size: with and without a late rank."""


def _bandwidths(rows: Rows) -> Rows:
    """Rows with ``late`` and the bus bandwidth of the model, as their times give it."""
    after, model = "after_arrival_s", "predicted_after_arrival_s"
    return [
        {**r, "late": bool(r["straggler_delay_s"]), "model_busbw_gbps": r["busbw_gbps"] * r[after] / r[model]}
        for r in rows
        if r.get("busbw_gbps") and r.get(model)
    ]


def _against_reconfiguration(laws: Sequence[StragglerLaw], packets: Rows) -> Plot:
    """Time after arrival on circuits against the reconfiguration delay, with StragglAR's break-even."""

    def marks(panel: Panel) -> None:
        first = panel.rows[0]
        for row in packets:
            if row["algorithm"] in panel.drawn and (row["n"], row["bytes"]) == (first["n"], first["bytes"]):
                colour = panel.drawn[row["algorithm"]].look.colour
                there = row["after_arrival_s"] * panel.factor
                panel.axes.axhline(there, color=colour, linewidth=1.0, linestyle=DOTTED)
        law = _law_of(first, laws)
        predicted = law.critical_reconfiguration_s * 1e3 if law else None
        _mark_break_even(panel, ("stragglar", "ring"), predicted, "ms")

    names = ("reconfiguration delay (ms)", "time after arrival ({unit})")
    packet = [style.entry("on packets, measured", linestyle=DOTTED)] if packets else []
    return _panel("reconfiguration_delay_ms", "after_arrival_s", names, model="predicted_after_arrival_s", timed="y",
                  extra=marks, entries=[_PREDICTED, *packet])  # fmt: skip


def _mark_persistence(panel: Panel) -> None:
    panel.axes.axvspan(*PERSISTENCE.bounds, color=LIGHT, zorder=0, linewidth=0)
    _mark_break_even(panel, ("ring", "stragglar"))


_AGAINST_PREDICTION = _panel(
    "persistence",
    "time_s",
    ("steps with a correct prediction (share)", "mean total time ({unit})"),
    model="predicted_time_s",
    timed="y",
    extra=_mark_persistence,
    entries=[
        _PREDICTED,
        style.entry(f"seen in practice: {PERSISTENCE.shown()} ({PERSISTENCE.label})", LIGHT, linewidth=6),
    ],
)
"""Mean total time against the share of correct predictions; the range seen in practice is shaded."""


def _mark_break_even(
    panel: Panel,
    pair: tuple[str, str],
    predicted: float | None = None,
    unit: str = "",
    name: str = "break-even",
) -> None:
    """Mark the predicted crossing of two curves by a vertical line, and the measured one by a ring with its value.

    Without ``predicted`` it is the crossing of the model's lines.
    """
    if not all(one in panel.drawn for one in pair):
        return
    axes, (first, second) = panel.axes, (panel.drawn[one] for one in pair)
    if predicted is None and (by_model := _crossing_point(first.model, second.model)):
        predicted = by_model[0]
    if predicted is not None and math.isfinite(predicted) and predicted <= axes.get_xlim()[1]:
        mark_vertical(axes, predicted, f"{name} {predicted:.3g}", "right" if name == "break-even" else "left")
    measured = _crossing_point(first.measured, second.measured)
    if measured is None:
        return
    text = f"measured {name} {measured[0]:.3g} {unit}".rstrip()
    if predicted and math.isfinite(predicted):
        text += f" ({measured[0] / predicted - 1:+.1%})"
    _mark_crossing(axes, measured, text)


def _crossing_point(first: Points, second: Points) -> tuple[float, float] | None:
    """Point (x, time) from which on the line ``second`` stays below ``first``; None if there is none."""
    both = sorted(dict(first).keys() & dict(second).keys())
    if len(both) < 2:
        return None
    high, low = [dict(first)[x] for x in both], [dict(second)[x] for x in both]
    at = crossing(both, high, low)
    return None if at is None or at <= both[0] else (at, float(np.interp(at, both, high)))


def _mark_crossing(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Draw a ring around a measured crossing, with ``text`` below it, away from the curves."""
    axes.plot(*point, "o", markersize=9, markerfacecolor="none", color=TEXT, markeredgewidth=0.9, zorder=6)
    pointer = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 5}
    said = style.wrapped(text, 0.5 * style.panel_inches(axes), style.SMALL)
    look: dict[str, Any] = {"textcoords": "axes fraction", "ha": "right", "va": "bottom", "bbox": style.ON_WHITE}
    style.note(axes, said, point, (0.98, 0.04), arrowprops=pointer, zorder=6, **look)


def _measured(rows: Rows, study: str) -> Rows:
    return [r for r in rows if r["study"] == study and r.get("time_s") and r.get("after_arrival_s")]


def _study(rows: Rows, study: str) -> Rows:
    """The measured rows of a study without reconfiguration delay and with the straggler always predicted."""
    measured = _measured(rows, study)
    return [r for r in measured if not r.get("reconfiguration_delay_ms") and r.get("persistence") is None]
