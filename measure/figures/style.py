"""Common style of all figures: colours, a footer with the scale, and a stamp on runs that are not faithful.

Colours are those of Okabe and Ito (Color Universal Design), which colour-blind readers can tell apart. Figures are made
without pyplot, so no global state is changed and no display is needed.
"""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patheffects import withStroke

from measure.metrics.fidelity import NOT_FAITHFUL
from railyard.scale import Scale

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, TEXT = "#BFBFBF", "#E8E8E8", "#333333"

DIMENSION_COLOURS = {"dp": BLUE, "edp": VERMILION, "pp": ORANGE, "ep": GREEN, "tp": SKY, "cp": PURPLE, "world": YELLOW}
DPI = 150


def new_figure(width: float = 9.0, height: float = 5.2) -> Figure:
    """An empty figure, ``width`` x ``height`` inches."""
    engine = ConstrainedLayoutEngine(rect=(0.0, 0.045, 1.0, 0.955))  # space for the footer below
    figure = Figure(figsize=(width, height), layout=engine)
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set title and axis names, and draw only a light frame on the left and below."""
    axes.set_title(title, loc="left", fontsize=11, color=TEXT, fontweight="bold")
    axes.set_xlabel(x, color=TEXT)
    axes.set_ylabel(y, color=TEXT)
    axes.tick_params(colors=TEXT, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)


def png(figure: Figure, scale: Scale | None, *, faithful: bool, note: str = "") -> bytes:
    """Render a figure as PNG with the scale in its footer, stamped if the run was not faithful.

    ``scale`` None: the data was computed and no packet was sent.
    """
    said = "Computed; no packets." if scale is None else f"Real units. Emulated at {scale_in_words(scale)}."
    footer: dict[str, Any] = {"fontsize": 7.5, "color": "#666666", "va": "bottom"}
    figure.text(0.01, 0.008, f"{said} {note}".strip(), ha="left", **footer)
    figure.text(0.99, 0.008, "Railyard", ha="right", **footer)
    if not faithful:
        size = min(60.0, 6.6 * figure.get_figwidth())
        outline = withStroke(linewidth=3, foreground="white", alpha=0.25)
        stamp = figure.text(0.5, 0.5, NOT_FAITHFUL, color=VERMILION, alpha=0.2, path_effects=[outline], zorder=1000)
        stamp.set(fontsize=size, fontweight="bold", ha="center", va="center", rotation=20)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": "Railyard"})
    return out.getvalue()


def scale_in_words(scale: Scale) -> str:
    """Both numbers of a scale as text: ``link rate 1/4000, time x1``."""
    inverse = 1 / scale.rate
    whole = abs(inverse - round(inverse)) < 1e-6 * inverse
    rate = f"1/{inverse:.0f}" if whole else f"1/{inverse:.4g}"
    return f"link rate {rate}, time x{scale.time:g}"


def time_unit(longest_s: float) -> tuple[float, str]:
    """(factor, name) of the unit for times of up to ``longest_s`` seconds: s, ms or µs."""
    if longest_s >= 2:
        return 1.0, "s"
    return (1e3, "ms") if longest_s >= 2e-3 else (1e6, "µs")
