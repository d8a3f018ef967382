"""Common style of all figures: colours, a footer with the scale, and a stamp on runs that are not faithful.

Colours are those of Okabe and Ito (Color Universal Design), which colour-blind readers can tell apart. Figures are made
without pyplot, so no global state is changed and no display is needed.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from measure.metrics.checks import NOT_FAITHFUL
from railyard.scale import Scale, scale_in_words

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, TEXT = "#BFBFBF", "#E8E8E8", "#333333"

DIMENSION_COLOURS = {"dp": BLUE, "edp": VERMILION, "pp": ORANGE, "ep": GREEN, "tp": SKY, "cp": PURPLE, "world": YELLOW}
DASHED, DOTTED = (0, (4, 3)), (0, (1, 2))
"""Styles of lines."""
ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
"""The box of a text that covers what is drawn below it."""
DPI = 150
Grid = Literal["x", "y", "both"]
Place = Literal["upper left", "upper center", "right upper"]


def new_figure(width: float = 9.0, height: float = 5.2) -> Figure:
    """An empty figure, ``width`` x ``height`` inches."""
    engine = ConstrainedLayoutEngine(rect=(0.0, 0.045, 1.0, 0.955))  # space for the footer below
    figure = Figure(figsize=(width, height), layout=engine)
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes, title: str, x: str, y: str, *, grid: Grid | None = None, room: bool = False) -> None:
    """Set title and axis names, and draw only a light frame on the left and below.

    ``grid`` names the axes with grid lines: ``x``, ``y`` or ``both``. With ``room`` there is space below the title for
    the names of vertical lines (``mark_vertical``).
    """
    axes.set_title(title, loc="left", fontsize=11, color=TEXT, fontweight="bold", pad=17 if room else None)
    axes.set_xlabel(x, color=TEXT)
    axes.set_ylabel(y, color=TEXT)
    axes.tick_params(colors=TEXT, labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.set_axisbelow(True)
    if grid is not None:
        axes.grid(axis=grid, color=LIGHT, linewidth=0.7)


def entry(label: str, color: str = TEXT, **look: Any) -> Line2D:
    """An entry of a legend: a line, or with ``marker`` and ``linestyle`` "" a marker alone."""
    return Line2D([], [], color=color, label=label, **look)


def note(axes: Axes, text: str, point: tuple[float, float], shift: tuple[float, float], **look: Any) -> None:
    """Write ``text`` beside a point of the axes, ``shift`` points (1/72 inch) away from it."""
    given: dict[str, Any] = {"fontsize": 8.5, "color": TEXT} | look
    axes.annotate(text, point, xytext=shift, textcoords="offset points", **given)


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 4, place: Place = "upper left") -> None:
    """Add a legend outside the panels."""
    loc: Any = f"outside {place}"
    figure.legend(handles=handles, loc=loc, frameon=False, fontsize=9, ncols=min(columns, len(handles)))


def png(figure: Figure, scale: Scale | None, *, faithful: bool, note: str = "", partial: str | None = None) -> bytes:
    """Render a figure as PNG with the scale in its footer, stamped if the run was not faithful or is ``partial``.

    ``partial`` is the sentence about what is missing, which stands at the top. ``scale`` None: the data was computed
    and no packet was sent.
    """
    said = "Computed; no packets." if scale is None else f"Real units. Emulated at {scale_in_words(scale)}."
    figure.text(0.01, 0.008, f"{said} {note}".strip(), fontsize=7.5, color="#666666", ha="left", va="bottom")
    figure.text(0.99, 0.008, "Railyard", fontsize=7.5, color="#666666", ha="right", va="bottom")
    if partial is not None:
        words = textwrap.shorten(partial, round(14 * figure.get_figwidth()), placeholder=" ...")
        figure.text(0.99, 0.995, words, fontsize=7.5, color=VERMILION, fontweight="bold", ha="right", va="top")
    if not faithful:
        edge = withStroke(linewidth=3, foreground="white", alpha=0.25)
        look: dict[str, Any] = {
            "color": VERMILION,
            "alpha": 0.2,
            "path_effects": [edge],
            "rotation": 20,
            "zorder": 1000,
        }
        size = min(60.0, 6.6 * figure.get_figwidth())
        figure.text(0.5, 0.5, NOT_FAITHFUL, fontsize=size, fontweight="bold", ha="center", va="center", **look)
    return render(figure)


def render(figure: Figure, form: str = "png") -> bytes:
    """The figure in a format of matplotlib, such as ``svg`` or ``png``; the same bytes for the same figure."""
    out = io.BytesIO()
    stamp = {"Date": None, "Creator": "Railyard"} if form == "svg" else {"Software": "Railyard"}
    with rc_context({"svg.hashsalt": "railyard", "svg.fonttype": "none"}):  # text that can be searched
        figure.savefig(out, format=form, dpi=DPI, metadata=stamp)
    return out.getvalue()


def time_unit(longest_s: float) -> tuple[float, str]:
    """(factor, name) of the unit for times of up to ``longest_s`` seconds: s, ms or µs."""
    if longest_s >= 2:
        return 1.0, "s"
    return (1e3, "ms") if longest_s >= 2e-3 else (1e6, "µs")
