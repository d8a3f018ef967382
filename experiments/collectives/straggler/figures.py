"""Figures of the straggler experiment: time against delay, ranks, size, reconfiguration delay and correct predictions.

Each figure takes the rows of a summary (``experiment, algorithm, collective, n, bytes, fabric, straggler_delay_s,
time_s, after_arrival_s, predicted_time_s, faithful``; optional ``reconfiguration_delay_ms, persistence, injection,
study``) and is None without rows of its study. Rows that name their ``study`` (``delay``, ``ranks``, ``size``,
``reconfiguration``, ``prediction``) are used for that one only. ``time_s`` counts from the arrival of the other ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.collectives.straggler.findings import MEASURED, MEASURED_RANKS, SPEEDUPS
from experiments.collectives.straggler.law import LAW_ALGORITHMS, StragglerLaw, crossing
from measure.figures import panels, style
from measure.figures.curves import Column, Curve, Points, Rows, curves, panel_rows, series_of
from measure.figures.looks import ALGORITHMS, DASHED, DOTTED, GREY, LIGHT, TEXT, WRONG
from measure.metrics.estimate import ratios
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
_SIMULATED: Mapping[str, Any] = style.open_mark(_OURS, marker="o")
_MEASURED: Mapping[str, Any] = style.open_mark(_OURS, marker="D", linestyle="-", linewidth=0.8)
"""Looks of published values of StragglAR, in the legend for all."""


def straggler_figures(rows: Rows, laws: Sequence[StragglerLaw] = ()) -> dict[str, Figure]:
    """The figures of all studies in ``rows``, by name; rows of other experiments are ignored."""
    rows = [row for row in rows if row["experiment"] == "straggler"]
    made = {
        "straggler_delay": total_against_delay(rows, laws),
        "straggler_ranks": speedup_against_ranks(rows),
        "straggler_size": time_against_size(rows),
        "straggler_reconfiguration": time_against_reconfiguration(rows, laws),
        "straggler_prediction": time_against_prediction(rows),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def total_against_delay(rows: Rows, laws: Sequence[StragglerLaw] = ()) -> Figure | None:
    """Figure of total time against the straggler's delay, a panel for each fabric, n and size, with T_RS and T_crit.

    ``laws`` (matched by n and bytes) give T_RS and T_crit, and the lines of algorithms whose rows have no
    ``predicted_time_s``; without laws T_crit is where the model's lines cross. The measured T_crit is where the
    straight lines between the markers cross.
    """
    groups = panel_rows(_study(rows, "delay"), "straggler_delay_s", _SAME)
    return panels.figure_of(groups, partial(_delay_panel, laws), _PREDICTED)


def _delay_panel(laws: Sequence[StragglerLaw], axes: Axes, rows: Rows) -> Iterable[Curve]:
    law = _law_of(rows[0], laws)
    longest = max(r["straggler_delay_s"] for r in rows)
    factor, unit = style.time_unit(max(longest, *(r["time_s"] for r in rows)))
    drawn = by_algorithm(rows, lambda row: row["straggler_delay_s"] * factor, "time_s", "predicted_time_s", factor)
    if law is not None:
        drawn = {name: _by_law(name, curve, law, longest, factor) for name, curve in drawn.items()}
    _dress(axes, rows[0], f"straggler delay ({unit})", f"total time ({unit})")
    panels.draw_near(axes, drawn, unit)
    if law is not None and law.first_phase_s <= longest:
        panels.mark_vertical(axes, law.first_phase_s * factor, f"$T_{{RS}}$ {law.first_phase_s * factor:.3g}")
    predicted = law.critical_delay_s * factor if law else None
    _mark_break_even(axes, drawn, ("ring", "stragglar"), predicted, unit, name="$T_{crit}$")
    return drawn.values()


def _law_of(row: Row, laws: Sequence[StragglerLaw]) -> StragglerLaw | None:
    return next((law for law in laws if (law.n, law.bytes) == (row["n"], row["bytes"])), None)


def _by_law(name: str, curve: Curve, law: StragglerLaw, longest_s: float, factor: float) -> Curve:
    """``curve`` with the law's line as its model, if ``curve`` has no model and the law covers the algorithm."""
    if curve.model or name not in LAW_ALGORITHMS or (name == "recursive-halving-doubling" and law.n & (law.n - 1)):
        return curve
    bends = (law.first_phase_s, law.direct_first_phase_s)
    delays = sorted({0.0, longest_s, *(bend for bend in bends if bend < longest_s)})
    return replace(curve, model=[(delay * factor, law.total_s(name, delay) * factor) for delay in delays])


def speedup_against_ranks(rows: Rows) -> Figure | None:
    """Figure of the speed-up over Ring after arrival, at the longest delay measured for both, against n."""
    grey = style.entry("StragglAR's law, no latency", GREY, linewidth=3)
    cross = Line2D([], [], label=f"StragglAR: {SPEEDUPS.label}", **_SIMULATED)
    bar = Line2D([], [], label=f"StragglAR: {MEASURED.label}", **_MEASURED)
    return panels.figure_of(panel_rows(_ratios(_study(rows, "ranks")), "n", ()), _speedup_panel, grey, cross, bar)


def _speedup_panel(axes: Axes, ratios: Rows) -> Iterable[Curve]:
    law = [(n, StragglerLaw(n, 1, 0.0, 1.0).speedup) for n in SPEEDUPS.values]
    panels.line(axes, law, color=GREY, linewidth=3, zorder=1, solid_capstyle="round")
    for name, simulated in PUBLISHED_SPEEDUPS.items():
        look = style.open_mark(ALGORITHMS[name], marker="o")
        axes.plot(*zip(*simulated.values.items(), strict=True), zorder=7, **look)
    axes.plot([MEASURED_RANKS] * 2, MEASURED.bounds, zorder=7, **_MEASURED)
    drawn = by_algorithm(ratios, "n", "ratio", "model_ratio")
    panels.draw(axes, drawn)
    axes.axhline(1.0, color=TEXT, linewidth=0.6, zorder=1)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 2.05)
    panels.name_ticks(axes.xaxis, {*SPEEDUPS.values, *(row["n"] for row in ratios)})
    title = "Speed-up over Ring after the straggler's arrival"
    style.style_axes(axes, title, "ranks n", "Ring / algorithm", grid="both")
    return drawn.values()


def _ratios(rows: Rows) -> Rows:
    """Rows with ``ratio`` (measured) and ``model_ratio`` of Ring over the algorithm at the longest delay of both."""
    place = itemgetter("fabric", "n", "bytes")
    rings = {(place(row), row["straggler_delay_s"]): row for row in rows if row["algorithm"] == "ring"}
    found: dict[tuple[Any, str], Row] = {}
    for row in sorted(rows, key=itemgetter("straggler_delay_s")):
        ring = rings.get((place(row), row["straggler_delay_s"]))
        if ring is not None and row["algorithm"] != "ring":
            found[place(row), row["algorithm"]] = _over(row, ring)
    return list(found.values())


def _over(row: Row, ring: Row) -> Row:
    models = [_after_model(r) for r in (ring, row)]
    paired = ratios(values_of(ring, "after_arrival_s"), values_of(row, "after_arrival_s"))
    return {
        **row,
        "ratio": ring["after_arrival_s"] / row["after_arrival_s"],
        "samples": {"ratio": paired},
        "model_ratio": None if None in models else models[0] / models[1],  # type: ignore[operator]
        "faithful": row.get("faithful", True) and ring.get("faithful", True),
    }


def _after_model(row: Row) -> float | None:
    """The model's time after arrival in real seconds; None without a prediction."""
    after, total = row.get("predicted_after_arrival_s"), row.get("predicted_time_s")
    return after if after is not None or total is None else total - row["straggler_delay_s"]


def time_against_size(rows: Rows) -> Figure | None:
    """Figure of time after arrival against buffer size, both logarithmic, with the ratio of Ring to it below."""
    groups = panel_rows(_study(rows, "size"), "bytes", ("fabric", "collective", "n"), least=3)
    return panels.figure_of(groups, _size_panels, below=True)


def _size_panels(axes: Axes, below: Axes, rows: Rows) -> Iterable[Curve]:
    factor, unit = style.time_unit(max(r["after_arrival_s"] for r in rows))
    drawn = by_algorithm(rows, "bytes", "after_arrival_s", _after_model, factor)
    speedups = by_algorithm(_ratios(rows), "bytes", "ratio", "model_ratio")
    panels.draw(axes, drawn)
    panels.draw(below, speedups)
    below.axhline(1.0, color=TEXT, linewidth=0.6, zorder=1)
    panels.logarithmic(axes)
    panels.name_ticks(below.xaxis, (row["bytes"] for row in rows), size_in_words)
    _dress(axes, {**rows[0], "bytes": None}, "", f"time after arrival ({unit})")
    style.style_axes(below, "", "buffer", "Ring / algorithm", grid="both")
    return drawn.values()


def time_against_reconfiguration(rows: Rows, laws: Sequence[StragglerLaw] = ()) -> Figure | None:
    """Figure of time after arrival on circuits against the reconfiguration delay, with StragglAR's break-even."""
    rows = [r for r in _measured(rows, "reconfiguration") if r.get("persistence") is None]
    circuits = [r for r in rows if r["fabric"] != "electrical" and r.get("reconfiguration_delay_ms") is not None]
    packets = [r for r in rows if r["fabric"] == "electrical"]
    groups = panel_rows(circuits, "reconfiguration_delay_ms", _SAME)
    packet = style.entry("on packets, measured", linestyle=DOTTED)
    return panels.figure_of(
        groups, partial(_reconfiguration_panel, laws, packets), _PREDICTED, *([packet] if packets else [])
    )


def _reconfiguration_panel(laws: Sequence[StragglerLaw], packets: Rows, axes: Axes, rows: Rows) -> Iterable[Curve]:
    factor, unit = style.time_unit(max(r["after_arrival_s"] for r in rows))
    drawn = by_algorithm(rows, "reconfiguration_delay_ms", "after_arrival_s", _after_model, factor)
    _dress(axes, rows[0], "reconfiguration delay (ms)", f"time after arrival ({unit})")
    panels.draw_near(axes, drawn, unit)
    for row in packets:
        if row["algorithm"] in drawn and (row["n"], row["bytes"]) == (rows[0]["n"], rows[0]["bytes"]):
            colour = drawn[row["algorithm"]].look.colour
            axes.axhline(row["after_arrival_s"] * factor, color=colour, linewidth=1.0, linestyle=DOTTED)
    law = _law_of(rows[0], laws)
    _mark_break_even(axes, drawn, ("stragglar", "ring"), law.critical_reconfiguration_s * 1e3 if law else None, "ms")
    return drawn.values()


def time_against_prediction(rows: Rows) -> Figure | None:
    """Figure of mean total time against the share of correct predictions; the range seen in practice is shaded."""
    rows = [r for r in _measured(rows, "prediction") if r.get("persistence") is not None]
    shade = style.entry(f"seen in practice: {PERSISTENCE.shown()} ({PERSISTENCE.label})", LIGHT, linewidth=6)
    return panels.figure_of(panel_rows(rows, "persistence", _SAME), _prediction_panel, _PREDICTED, shade)


def _prediction_panel(axes: Axes, rows: Rows) -> Iterable[Curve]:
    factor, unit = style.time_unit(max(r["time_s"] for r in rows))
    drawn = by_algorithm(rows, "persistence", "time_s", "predicted_time_s", factor)
    axes.axvspan(*PERSISTENCE.bounds, color=LIGHT, zorder=0, linewidth=0)
    _dress(axes, rows[0], "steps with a correct prediction (share)", f"mean total time ({unit})")
    panels.draw_near(axes, drawn, unit)
    _mark_break_even(axes, drawn, ("ring", "stragglar"))
    return drawn.values()


def _mark_break_even(
    axes: Axes,
    drawn: Mapping[str, Curve],
    pair: tuple[str, str],
    predicted: float | None = None,
    unit: str = "",
    name: str = "break-even",
) -> None:
    """Mark the predicted crossing of two curves by a vertical line, and the measured one by a ring with its value.

    Without ``predicted`` it is the crossing of the model's lines.
    """
    if not all(one in drawn for one in pair):
        return
    first, second = (drawn[one] for one in pair)
    if predicted is None and (by_model := _crossing_point(first.model, second.model)):
        predicted = by_model[0]
    if predicted is not None and math.isfinite(predicted) and predicted <= axes.get_xlim()[1]:
        panels.mark_vertical(axes, predicted, f"{name} {predicted:.3g}", "right" if name == "break-even" else "left")
    found = _crossing_point(first.measured, second.measured)
    if found is None:
        return
    text = f"measured {name} {found[0]:.3g} {unit}".rstrip()
    if predicted and math.isfinite(predicted):
        text += f" ({found[0] / predicted - 1:+.1%})"
    _mark_crossing(axes, found, text)


def series_name(row: Row) -> str:
    """The name of a row's curve: its algorithm, with a suffix if the wrong rank was predicted on purpose."""
    words = str(row.get("injection") or "").replace("+", ":").split(":")
    wrong = row["algorithm"] == "stragglar" and "wrong" in (word.strip() for word in words)
    return f"{row['algorithm']}{WRONG}" if wrong else str(row["algorithm"])


def by_algorithm(rows: Rows, x: Column, y: Column, model: Column | None, factor: float = 1.0) -> dict[str, Curve]:
    """Curves by series name, those of ``ALGORITHMS`` first, with y and model multiplied by ``factor``."""
    return curves(series_of(rows, series_name, ALGORITHMS), x, y, model, factor)


def _crossing_point(first: Points, second: Points) -> tuple[float, float] | None:
    """Point (x, time) from which on the line ``second`` stays below ``first``; None if there is none."""
    both = sorted(dict(first).keys() & dict(second).keys())
    if len(both) < 2:
        return None
    high, low = [dict(first)[x] for x in both], [dict(second)[x] for x in both]
    found = crossing(both, high, low)
    return None if found is None or found <= both[0] else (found, float(np.interp(found, both, high)))


def _mark_crossing(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Draw a ring around a measured crossing, with ``text`` below it, away from the curves."""
    axes.plot(*point, "o", markersize=9, markerfacecolor="none", color=TEXT, markeredgewidth=0.9, zorder=6)
    pointer = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 5}
    said = style.wrapped(text, 0.5 * style.panel_inches(axes), style.SMALL)
    look: dict[str, Any] = {"textcoords": "axes fraction", "ha": "right", "va": "bottom", "bbox": style.ON_WHITE}
    style.note(axes, said, point, (0.98, 0.04), arrowprops=pointer, zorder=6, **look)


def _measured(rows: Rows, study: str) -> Rows:
    """The measured rows of a study; all measured rows if no row names its study."""
    named = any(r.get("study") for r in rows)
    return [r for r in rows if (not named or r.get("study") == study) and r.get("time_s") and r.get("after_arrival_s")]


def _study(rows: Rows, study: str) -> Rows:
    """The measured rows of a study without reconfiguration delay and with the straggler always predicted."""
    measured = _measured(rows, study)
    return [r for r in measured if not r.get("reconfiguration_delay_ms") and r.get("persistence") is None]


def _dress(axes: Axes, row: Row, x: str, y: str) -> None:
    """Set the title of a panel, such as ``n = 8, 7 MB, electrical``, and the axis names."""
    parts = [f"n = {row['n']}", row["bytes"] and size_in_words(row["bytes"]), row["fabric"]]
    style.style_axes(axes, ", ".join(part for part in parts if part), x, y, grid="both", room=True)
