"""Figures of the straggler experiment: time against delay, ranks, size, reconfiguration delay and correct predictions.

Each figure takes the rows of a summary (``experiment, algorithm, collective, n, bytes, fabric, straggler_delay_s,
time_s, after_arrival_s, predicted_time_s, faithful``; optional ``reconfiguration_delay_ms, persistence, injection,
study``) and is None without rows of its study. Rows that name their ``study`` (``delay``, ``ranks``, ``size``,
``reconfiguration``, ``prediction``) are used for that one only. ``time_s`` counts from the arrival of the other ranks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from experiments.straggler.curves import curves, mark_crossing, measured_crossing, model_crossing
from experiments.straggler.law import LAW_ALGORITHMS, StragglerLaw
from measure.figures.curves import (
    Curve,
    Rows,
    Value,
    draw,
    grid,
    key,
    label_ends,
    label_far,
    mark_vertical,
    near_and_far,
    panel_rows,
    panel_title,
    scaled,
    value,
)
from measure.figures.style import GREY, LIGHT, TEXT, new_figure, time_unit
from railyard.size import size_in_words

PUBLISHED_SPEEDUPS = {4: 1.127, 8: 1.363, 16: 1.565, 32: 1.718, 64: 1.826, 128: 1.897, 256: 1.941}
"""Ranks -> speed-up of StragglAR over Ring, simulated with 3 us, 450 GiB/s and 1 GiB (arXiv 2505.23523)."""
SEEN_PERSISTENCE = (0.77, 0.98)
"""Range of the share of steps in which the persistent straggler was the late rank, in the paper's measurements."""
_MOST_TICKS = 7
_DASHED = Line2D([], [], color=TEXT, linewidth=0.9, linestyle=(0, (4, 3)), label="predicted")


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
    rows = [r for r in _study(rows, "delay") if not r.get("reconfiguration_delay_ms") and r.get("persistence") is None]
    panels = panel_rows(rows, value("straggler_delay_s"), ("fabric", "collective", "n", "bytes"))
    if not panels:
        return None
    figure, axes = grid(len(panels))
    drawn = []
    for panel, here in zip(axes, panels, strict=True):
        law = next((law for law in laws if (law.n, law.bytes) == (here[0]["n"], here[0]["bytes"])), None)
        drawn.append(_delay_panel(panel, here, law))
    key(figure, drawn, _DASHED)
    return figure


def _delay_panel(axes: Axes, rows: Rows, law: StragglerLaw | None) -> dict[str, Curve]:
    longest = max(r["straggler_delay_s"] for r in rows)
    factor, unit = time_unit(max(longest, *(r["time_s"] for r in rows)))
    drawn = _time_curves(rows, value("straggler_delay_s", factor), factor)
    if law is not None:
        drawn = {name: _by_law(name, curve, law, longest, factor) for name, curve in drawn.items()}
    axes.set_xlim(-0.02 * longest * factor, longest * factor * 1.02)
    panel_title(axes, _panel_name(rows[0]), f"straggler delay ({unit})", f"total time ({unit})")
    _draw_near(axes, drawn, unit)
    predicted = law.critical_delay_s * factor if law else None
    if law is not None and law.first_phase_s <= longest:
        mark_vertical(axes, law.first_phase_s * factor, f"$T_{{RS}}$ {law.first_phase_s * factor:.3g}")
    _mark_break_even(axes, drawn, ("ring", "stragglar"), "$T_{crit}$", unit, predicted)
    return drawn


def _draw_near(axes: Axes, drawn: Mapping[str, Curve], unit: str) -> None:
    """Draw curves with their names; curves far above the others are only named."""
    near, far = near_and_far(drawn)
    draw(axes, near)
    axes.set_ylim(0, (1.2 if far else 1.06) * max(y for curve in near.values() for _, y in curve.points))
    label_ends(axes, near)
    label_far(axes, far, unit)


def _by_law(name: str, curve: Curve, law: StragglerLaw, longest_s: float, factor: float) -> Curve:
    """``curve`` with the law's line as its model, if ``curve`` has no model and the law covers the algorithm."""
    if curve.model or name not in LAW_ALGORITHMS or (name == "recursive-halving-doubling" and law.n & (law.n - 1)):
        return curve
    bends = (law.first_phase_s, law.direct_first_phase_s)
    delays = sorted({0.0, longest_s, *(bend for bend in bends if bend < longest_s)})
    return replace(curve, model=[(delay * factor, law.total_s(name, delay) * factor) for delay in delays])


def speedup_against_ranks(rows: Rows) -> Figure | None:
    """Figure of the speed-up over Ring after arrival, at the longest delay measured for both, against n."""
    rows = [r for r in _study(rows, "ranks") if not r.get("reconfiguration_delay_ms") and r.get("persistence") is None]
    ratios = _ratios(rows)
    if len({row["n"] for row in ratios}) < 2:
        return None
    figure = new_figure(8.5, 5.0)
    axes = figure.add_subplot()
    published = sorted(PUBLISHED_SPEEDUPS.items())
    law = [(n, StragglerLaw(n, 1, 0.0, 1.0).speedup) for n, _ in published]
    axes.plot(*zip(*law, strict=True), color=GREY, linewidth=4, zorder=1, solid_capstyle="round")
    axes.plot(*zip(*published, strict=True), color=TEXT, marker="+", markersize=8, linestyle="", zorder=7)
    drawn = curves(ratios, value("n"), value("ratio"), value("model_ratio"))
    draw(axes, drawn)
    axes.axhline(1.0, color=TEXT, linewidth=0.8, zorder=1)
    axes.set_xscale("log", base=2)
    counts = sorted({*PUBLISHED_SPEEDUPS, *(row["n"] for row in ratios)})
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 2.05)
    panel_title(axes, "Speed-up over Ring after the straggler's arrival", "ranks n", "Ring / algorithm")
    for name, curve in drawn.items():
        _beside_last(axes, curve, above=name == "stragglar")
    grey = Line2D([], [], color=GREY, linewidth=4, label="StragglAR's law, no latency")
    cross = Line2D([], [], color=TEXT, marker="+", markersize=8, linestyle="", label="published simulation")
    key(figure, [drawn], grey, cross)
    return figure


def _beside_last(axes: Axes, curve: Curve, *, above: bool) -> None:
    """Write the name of a curve at its last point."""
    points = sorted(curve.points)
    axes.annotate(
        curve.look.name,
        points[-1],
        xytext=(9, 9 if above else -9),
        textcoords="offset points",
        color=curve.look.colour,
        fontsize=9,
        fontweight="bold",
        va="center",
        ha="right" if above else "left",
        zorder=6,
    )


def _ratios(rows: Rows) -> list[Mapping[str, Any]]:
    """Rows with ``ratio`` (measured) and ``model_ratio`` of Ring over the algorithm at the same delay."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["fabric"], row["n"], row["bytes"]].append(row)
    found = []
    for group in groups.values():
        rings = {r["straggler_delay_s"]: r for r in group if r["algorithm"] == "ring"}
        for name in sorted({r["algorithm"] for r in group} - {"ring"}):
            here = [r for r in group if r["algorithm"] == name and r["straggler_delay_s"] in rings]
            if here:
                row = max(here, key=lambda r: r["straggler_delay_s"])
                found.append(_over(row, rings[row["straggler_delay_s"]]))
    return found


def _over(row: Mapping[str, Any], ring: Mapping[str, Any]) -> Mapping[str, Any]:
    models = [_after_model(r) for r in (ring, row)]
    return {
        **row,
        "ratio": ring["after_arrival_s"] / row["after_arrival_s"],
        "model_ratio": None if None in models else models[0] / models[1],  # type: ignore[operator]
        "faithful": row.get("faithful", True) and ring.get("faithful", True),
    }


def _after_model(row: Mapping[str, Any]) -> float | None:
    """The model's time after arrival in real seconds; None without a prediction."""
    after, total = row.get("predicted_after_arrival_s"), row.get("predicted_time_s")
    return after if after is not None or total is None else total - row["straggler_delay_s"]


def time_against_size(rows: Rows) -> Figure | None:
    """Figure of time after arrival against buffer size, both logarithmic, with the ratio of Ring to it below."""
    rows = [r for r in _study(rows, "size") if not r.get("reconfiguration_delay_ms") and r.get("persistence") is None]
    groups = panel_rows(rows, value("bytes"), ("fabric", "collective", "n"), least=3)
    if not groups:
        return None
    groups = groups[:3]
    figure = new_figure(1.2 + 5.0 * len(groups), 6.6)
    axes = figure.subplots(2, len(groups), squeeze=False, sharex="col", height_ratios=(3, 2))
    drawn = []
    for column, here in enumerate(groups):
        drawn.append(_size_panel(axes[0][column], here))
        _size_ratio_panel(axes[1][column], here)
    key(figure, drawn)
    return figure


def _size_panel(axes: Axes, rows: Rows) -> dict[str, Curve]:
    factor, unit = time_unit(max(r["after_arrival_s"] for r in rows))
    drawn = curves(rows, value("bytes"), value("after_arrival_s", factor), scaled(_after_model, factor))
    draw(axes, drawn)
    axes.set_xscale("log")
    axes.set_yscale("log")
    panel_title(axes, _panel_name(rows[0], size=False), "", f"time after arrival ({unit})")
    label_ends(axes, drawn)
    return drawn


def _size_ratio_panel(axes: Axes, rows: Rows) -> None:
    ratios = _ratios(rows)
    drawn = curves(ratios, value("bytes"), value("ratio"), value("model_ratio"))
    draw(axes, drawn)
    axes.axhline(1.0, color=TEXT, linewidth=0.8, zorder=1)
    panel_title(axes, "", "buffer", "Ring / algorithm")
    sizes = sorted({r["bytes"] for r in rows})
    sizes = sizes[:: -(-len(sizes) // _MOST_TICKS)]
    axes.set_xticks(sizes, [size_in_words(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    label_ends(axes, drawn)


def time_against_reconfiguration(rows: Rows, laws: Sequence[StragglerLaw] = ()) -> Figure | None:
    """Figure of time after arrival on circuits against the reconfiguration delay, with StragglAR's break-even."""
    rows = [r for r in _study(rows, "reconfiguration") if r.get("persistence") is None]
    circuits = [r for r in rows if r["fabric"] != "electrical" and r.get("reconfiguration_delay_ms") is not None]
    panels = panel_rows(circuits, value("reconfiguration_delay_ms"), ("fabric", "collective", "n", "bytes"))
    if not panels:
        return None
    figure, axes = grid(len(panels))
    drawn = []
    for panel, here in zip(axes, panels, strict=True):
        same = (here[0]["n"], here[0]["bytes"])
        law = next((law for law in laws if (law.n, law.bytes) == same), None)
        packets = [r for r in rows if r["fabric"] == "electrical" and (r["n"], r["bytes"]) == same]
        drawn.append(_reconfiguration_panel(panel, here, packets, law))
    packet = Line2D([], [], color=TEXT, linewidth=1.2, linestyle=(0, (1, 2)), label="on packets, measured")
    key(figure, drawn, _DASHED, *([packet] if len(rows) > len(circuits) else []))
    return figure


def _reconfiguration_panel(axes: Axes, rows: Rows, packets: Rows, law: StragglerLaw | None) -> dict[str, Curve]:
    factor, unit = time_unit(max(r["after_arrival_s"] for r in rows))
    x = value("reconfiguration_delay_ms")
    drawn = curves(rows, x, value("after_arrival_s", factor), scaled(_after_model, factor))
    longest = max(r["reconfiguration_delay_ms"] for r in rows)
    axes.set_xlim(-0.02 * longest, 1.02 * longest)
    panel_title(axes, _panel_name(rows[0]), "reconfiguration delay (ms)", f"time after arrival ({unit})")
    _draw_near(axes, drawn, unit)
    for row in packets:
        look = drawn[row["algorithm"]].look if row["algorithm"] in drawn else None
        if look is not None:
            axes.axhline(row["after_arrival_s"] * factor, color=look.colour, linewidth=1.2, linestyle=(0, (1, 2)))
    predicted = law.critical_reconfiguration_s * 1e3 if law else None
    _mark_break_even(axes, drawn, ("stragglar", "ring"), "break-even", "ms", predicted)
    return drawn


def time_against_prediction(rows: Rows) -> Figure | None:
    """Figure of mean total time against the share of correct predictions; the range seen in practice is shaded."""
    rows = [r for r in _study(rows, "prediction") if r.get("persistence") is not None]
    panels = panel_rows(rows, value("persistence"), ("fabric", "collective", "n", "bytes"))
    if not panels:
        return None
    figure, axes = grid(len(panels))
    drawn = []
    for panel, here in zip(axes, panels, strict=True):
        factor, unit = time_unit(max(r["time_s"] for r in here))
        drawn.append(_time_curves(here, value("persistence"), factor))
        panel.axvspan(*SEEN_PERSISTENCE, color=LIGHT, zorder=0, linewidth=0)
        lowest = min(r["persistence"] for r in here)
        panel.set_xlim(lowest - 0.02 * (1 - lowest), 1 + 0.02 * (1 - lowest))
        panel_title(panel, _panel_name(here[0]), "steps with a correct prediction (share)", f"mean total time ({unit})")
        _draw_near(panel, drawn[-1], unit)
        _mark_break_even(panel, drawn[-1], ("ring", "stragglar"), "break-even", "", None)
    shade = Line2D([], [], color=LIGHT, linewidth=8, label="seen in practice (0.77 to 0.98)")
    key(figure, drawn, _DASHED, shade)
    return figure


def _mark_break_even(
    axes: Axes, drawn: Mapping[str, Curve], pair: tuple[str, str], name: str, unit: str, predicted: float | None
) -> None:
    """Mark the predicted crossing of two curves by a vertical line, and the measured one by a ring with its value."""
    if not all(one in drawn for one in pair):
        return
    first, second = (drawn[one] for one in pair)
    if predicted is None:
        by_model = model_crossing(first, second)
        predicted = by_model[0] if by_model else None
    if predicted is not None and math.isfinite(predicted) and predicted <= axes.get_xlim()[1]:
        mark_vertical(axes, predicted, f"{name} {predicted:.3g}", left=name != "break-even")
    found = measured_crossing(first, second)
    if found is None:
        return
    text = f"measured {name} {found[0]:.3g} {unit}".rstrip()
    if predicted and math.isfinite(predicted):
        text += f" ({found[0] / predicted - 1:+.1%})"
    mark_crossing(axes, found, text)


def _study(rows: Rows, name: str) -> Rows:
    """The measured rows of study ``name``; all measured rows if no row names its study."""
    named = any(r.get("study") for r in rows)
    return [r for r in rows if (not named or r.get("study") == name) and r.get("time_s") and r.get("after_arrival_s")]


def _time_curves(rows: Rows, x: Value, factor: float) -> dict[str, Curve]:
    return curves(rows, x, value("time_s", factor), value("predicted_time_s", factor))


def _panel_name(row: Mapping[str, Any], *, size: bool = True) -> str:
    """The title of a panel, such as ``n = 8, 7 MB, electrical``."""
    parts = [f"n = {row['n']}", size_in_words(row["bytes"]) if size else "", str(row["fabric"])]
    return ", ".join(part for part in parts if part)
