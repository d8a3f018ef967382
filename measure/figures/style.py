"""Common style of all figures: sizes, fonts, axes, legends, a footer with the scale, and stamps.

Figures are made at the size at which a paper prints them: as wide as one column or as its page, with text of 7 points
and more. They are made without pyplot, so no global state is changed and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from measure.figures.looks import FAINT, GREY, LIGHT, TEXT, WARNING, WHITE, Look
from railyard.scale import Scale, scale_in_words
from railyard.verdict import NOT_FAITHFUL

COLUMN, PAGE = 3.4, 7.0
"""Widths of figures in inches: one column of a paper with two, and its page."""
SMALL, MEDIUM, TITLE = 7.0, 7.5, 8.0
"""Sizes of fonts in points."""
ON_WHITE = {"facecolor": WHITE, "edgecolor": "none", "pad": 1.0}
"""The box of a text that covers what is drawn below it."""
DPI = 300
MEASURED = "measured"
"""The group (gid) of lines that have to be inside their axes: measured values and their intervals."""
_MARGIN = 0.04
"""Share of an axis that is kept free beyond a measured value that would be outside."""
_LINE = 1.35 * SMALL / 72
"""Height of a line of small text in inches."""
_LONG = 0.36
"""Share of a figure's width from which on the name of an entry is long."""
_BESIDE_AXES = 0.62
"""Inches of a panel beside its axes, with ticks and label."""
Grid = Literal["x", "y", "both"]


def new_figure(width: float = COLUMN, height: float = 2.2) -> Figure:
    """An empty figure, ``width`` x ``height`` inches."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03))
    FigureCanvasAgg(figure)
    return figure


def panel_inches(axes: Axes) -> float:
    """Width of a panel's axes in inches, before the layout is known."""
    spec = axes.get_subplotspec()
    figure_width = float(axes.get_figure(root=True).get_figwidth())  # type: ignore[union-attr]
    if spec is None:
        return figure_width
    grid = spec.get_gridspec()
    ratios: Any = grid.get_width_ratios() or [1] * grid.ncols
    share = sum(ratios[spec.colspan.start : spec.colspan.stop]) / sum(ratios)
    return float(max(0.5, figure_width * share - _BESIDE_AXES))


def style_axes(axes: Axes, title: str, x: str, y: str, *, grid: Grid | None = None, room: bool = False) -> None:
    """Set title and axis names, and draw only a light frame on the left and below.

    ``grid`` names the axes with grid lines: ``x``, ``y`` or ``both``. With ``room`` there is space below the title for
    the names of vertical lines (``mark_vertical``).
    """
    said = wrapped(title, panel_inches(axes), TITLE, "bold")
    axes.set_title(said, loc="left", fontsize=TITLE, color=TEXT, fontweight="bold", pad=13 if room else 4)
    axes.set_xlabel(x, color=TEXT, fontsize=MEDIUM, labelpad=2)
    axes.set_ylabel(y, color=TEXT, fontsize=MEDIUM, labelpad=2)
    axes.tick_params(colors=TEXT, labelsize=SMALL, length=2, pad=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.set_axisbelow(True)
    if grid is not None:
        axes.grid(axis=grid, color=LIGHT, linewidth=0.5)


def entry(label: str, color: str = TEXT, **look: Any) -> Line2D:
    """An entry of a legend: a line, or with ``marker`` and ``linestyle`` "" a marker alone."""
    given: dict[str, Any] = {"linewidth": 1.2, "markersize": 4.5, "color": color} | look
    return Line2D([], [], label=label, **given)


def open_mark(look: Look, **more: Any) -> dict[str, Any]:
    """The look of a published value: an open mark of the colour of its thing."""
    return {"marker": look.marker, "markersize": look.size + 2.0, "markerfacecolor": "none", "linestyle": "",
            "color": look.colour, "markeredgewidth": 0.9} | more  # fmt: skip


def bar_look(look: Look, **more: Any) -> dict[str, Any]:
    """The look of a bar."""
    return {"facecolor": look.colour, "edgecolor": WHITE, "linewidth": 0.0, "hatch": look.hatch or None} | more


def note(axes: Axes, text: str, point: tuple[float, float], shift: tuple[float, float], **look: Any) -> None:
    """Write ``text`` beside a point of the axes, ``shift`` points (1/72 inch) away from it."""
    given: dict[str, Any] = {"fontsize": SMALL, "color": TEXT, "textcoords": "offset points"} | look
    axes.annotate(text, point, xytext=shift, **given)


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 5, caption: str = "") -> None:
    """Add a legend above the panels, below its ``caption``, in as many columns as fit, ``columns`` at most.

    Entries with long names follow in a legend of their own, wrapped. The figure grows by the height of both.
    """
    long = [handle for handle in handles if _inches(str(handle.get_label())) > _LONG * figure.get_figwidth()]
    if 0 < len(long) < len(handles):
        legend(figure, [handle for handle in handles if handle not in long], columns, caption)
        handles, caption = long, ""
    width, height = figure.get_size_inches()
    names = [wrapped(str(handle.get_label()), width - 0.5, SMALL) for handle in handles]
    look: dict[str, Any] = {
        "frameon": False,
        "fontsize": SMALL,
        "labelcolor": TEXT,
        "borderpad": 0.2,
        "borderaxespad": 0.0,
    }
    look |= {"handlelength": 2.2, "columnspacing": 1.0, "labelspacing": 0.3, "handletextpad": 0.5}
    look |= {"title": wrapped(caption, width - 0.1, SMALL) or None, "title_fontsize": SMALL, "alignment": "left"}
    for number in range(min(columns, len(handles)), 0, -1):
        drawn = figure.legend(handles=handles, labels=names, loc="upper left", ncols=number, **look)
        drawn.get_title().set_color(TEXT)
        extent = drawn.get_window_extent()
        if number == 1 or extent.width <= figure.bbox.width:
            drawn.set_in_layout(False)  # png makes the space
            figure.set_size_inches(width, height + extent.height / figure.dpi)
            return
        drawn.remove()


def _inches(text: str) -> float:
    return max(_letters_in(line, "normal") for line in text.split("\n")) * SMALL / 72


def wrapped(text: str, inches: float, size: float, weight: str = "normal") -> str:
    """The text in lines of at most ``inches`` at a font size in points; its own line breaks stay."""
    return "\n".join(line for part in text.split("\n") for line in _lines(part, inches, size, weight))


def _lines(text: str, inches: float, size: float, weight: str) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and _letters_in(longer, weight) * size / 72 > inches:
            yield line
            longer = word
        line = longer
    yield line


@cache
def _letters_in(text: str, weight: str) -> float:
    """Width of a text in units of its font size."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=10, weight=weight), False)
    return float(width) / 10


def png(figure: Figure, scale: Scale | None, *, faithful: bool, note: str = "", partial: str | None = None) -> bytes:
    """Render a figure as PNG with the scale in its footer, stamped if the run was not faithful or is ``partial``.

    ``partial`` is the sentence about what is missing. Stamps stand above the panels and the footer below, so that no
    data is covered. ``scale`` None: the data was computed and no packet was sent. Axes are widened where a measured
    value or an end of its interval would be outside.
    """
    for axes in figure.axes:
        _widen(axes)
    said = "Computed; no packets." if scale is None else f"Real units. Emulated at {scale_in_words(scale)}."
    width, height = figure.get_figwidth(), figure.get_figheight()
    foot = wrapped(f"{said} {note}".strip(), width - 0.75, SMALL)
    stamps = [NOT_FAITHFUL] * (not faithful) + ([partial] if partial is not None else [])
    head = [wrapped(stamp, width - 0.1, SMALL, "bold") for stamp in stamps]
    below, above = ((each.count("\n") + 1) * _LINE + 0.03 for each in (foot, "\n".join(head)))
    above = above if stamps else 0.0
    if isinstance(layout := figure.get_layout_engine(), ConstrainedLayoutEngine):
        figure.set_size_inches(width, height + below + above)
        height += below + above
        for legend in figure.legends:
            legend.set_bbox_to_anchor((0.0, 0.0, 1.0, 1.0 - above / height), figure.transFigure)
            above += legend.get_window_extent().height / figure.dpi
        layout.set(rect=(0.0, below / height, 1.0, 1.0 - (below + above) / height))
    look: dict[str, Any] = {"fontsize": SMALL, "color": FAINT, "va": "bottom", "linespacing": 1.1}
    figure.text(0.05 / width, 0.02 / height, foot, ha="left", **look)
    figure.text(1 - 0.05 / width, 0.02 / height, "Railyard", ha="right", **look)
    top = 1 - 0.02 / height
    for stamp in head:
        figure.text(0.05 / width, top, stamp, fontsize=SMALL, color=WARNING, fontweight="bold", va="top")
        top -= (stamp.count("\n") + 1) * _LINE / height
    return render(figure)


def _widen(axes: Axes) -> None:
    lines = [line for line in axes.get_lines() if line.get_gid() == MEASURED]
    for axis, of_line, limit in (
        (axes.xaxis, Line2D.get_xdata, axes.set_xlim),
        (axes.yaxis, Line2D.get_ydata, axes.set_ylim),
    ):
        scale, ends = axis.get_transform(), axis.get_view_interval()
        values = np.array([value for line in lines for value in np.asarray(of_line(line), float)])
        if axis.get_scale() == "log":
            values = values[values > 0]
        if not len(values):
            continue
        low, high = sorted(scale.transform(ends))
        least, most = scale.transform(values).min(), scale.transform(values).max()
        margin = _MARGIN * (max(high, most) - min(low, least))
        wide = [least - margin if least < low else low, most + margin if most > high else high]
        if wide != [low, high]:
            limit(*scale.inverted().transform(wide if ends[0] < ends[1] else wide[::-1]))


def render(figure: Figure, form: str = "png", dpi: int = DPI) -> bytes:
    """The figure in a format of matplotlib, such as ``svg`` or ``png``; the same bytes for the same figure."""
    out = io.BytesIO()
    stamp = {"Date": None, "Creator": "Railyard"} if form == "svg" else {"Software": "Railyard"}
    with rc_context({"svg.hashsalt": "railyard", "svg.fonttype": "none"}):  # text that can be searched
        figure.savefig(out, format=form, dpi=dpi, metadata=stamp)
    return out.getvalue()


def time_unit(longest_s: float) -> tuple[float, str]:
    """(factor, name) of the unit for times of up to ``longest_s`` seconds: s, ms or µs."""
    if longest_s >= 2:
        return 1.0, "s"
    return (1e3, "ms") if longest_s >= 2e-3 else (1e6, "µs")
