"""Figure of the server-fabric experiment: fixed against steered ports by slice shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.racks.recovery_figures import PUBLISHED, published_mark
from experiments.racks.server_fabric.experiment import EPOCH_GAINS
from experiments.racks.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, RATIOS, SHAPES, gain
from measure.figures.looks import DASHED, FABRICS, FAINT, SPARE
from measure.figures.panels import caption, mark, name_ticks, unfaithful_mark
from measure.figures.style import COLUMN, PAGE, entry, legend, new_figure, note, open_mark, style_axes
from measure.metrics.estimate import paired_ratio
from measure.results.estimates import estimate_of, ratio_of, values_of

Rows = Sequence[Mapping[str, Any]]
_TITLES = {"iperf3": "iperf3", "all-reduce": "all-reduce", "epoch": "epoch"}
_AXES = {"iperf3": "throughput", "all-reduce": "bus bandwidth", "epoch": "time of an epoch"}


def shapes(rows: Rows) -> Figure | None:
    """Figure of a panel for each measurement with the values of both fabrics by slice shape; None without values.

    An open diamond marks the measured electrical value times the published ratio.
    """
    rows = [row for row in rows if row.get("measure") and row.get("value")]
    measures = [measure for measure in MEASURES if any(row["measure"] == measure for row in rows)]
    if not measures:
        return None
    counts = [max(3, len({row["shape"] for row in rows if row["measure"] == measure})) for measure in measures]
    figure = new_figure(COLUMN if len(measures) == 1 else PAGE, 2.5)
    panels = figure.subplots(1, len(measures), squeeze=False, width_ratios=counts)[0]
    for panel, measure in zip(panels, measures, strict=True):
        _panel(panel, [row for row in rows if row["measure"] == measure], measure)
    handles = [entry(name, FABRICS[name].colour, marker=FABRICS[name].marker) for name in (ELECTRICAL, PHOTONIC)]
    if any(row.get("published_ratio") for row in rows):
        handles.append(published_mark("our electrical x MORPHLUX's ratio"))
    if any(row.get("faithful") is False for row in rows):
        handles.append(unfaithful_mark())
    values = [each for row in rows if (each := estimate_of(row, "value")) is not None]
    legend(figure, handles, 4, caption(values, model=any(row.get("predicted") for row in rows)))
    return figure


def _panel(axes: Axes, rows: Rows, measure: str) -> None:
    known = list(dict.fromkeys(row["shape"] for row in rows))
    ordered = [s for s in SHAPES if s in known] + [s for s in known if s not in SHAPES]
    tallest = max(max(*filter(None, values_of(row, "value")), row.get("predicted") or 0.0) for row in rows)
    texts: dict[int, str] = {}
    for place, shape in enumerate(ordered):
        of_fabric = {row["fabric"]: row for row in rows if row["shape"] == shape}
        for fabric, offset in ((ELECTRICAL, -0.18), (PHOTONIC, 0.18)):
            if fabric in of_fabric:
                _value(axes, of_fabric[fabric], place + offset)
        first = next(iter(of_fabric.values()))
        published = first.get("published_ratio")
        if ELECTRICAL in of_fabric and published:
            base = of_fabric[ELECTRICAL]["value"]
            there = base / published if measure == "epoch" else base * published
            axes.plot(place + 0.18, there, zorder=5, **open_mark(PUBLISHED))
            tallest = max(tallest, there)
        texts[place] = _gain_in_words(of_fabric, rows, measure, shape) + (
            f"\nMORPHLUX {published:.2f}x\n({RATIOS[measure].kind})" if published else ""
        )
    for place, text in texts.items():
        note(axes, text, (place, tallest), (0, 5), ha="center", va="bottom")
    axes.set_xticks(range(len(ordered)), [shape.replace(", ", "\n") for shape in ordered])
    axes.set_xlim(-0.5, len(ordered) - 0.5)
    axes.set_ylim(0, tallest * 1.45)
    style_axes(axes, _TITLES.get(measure, measure), "slice", f"{_AXES.get(measure, measure)} ({rows[0]['unit']})",
               grid="y")  # fmt: skip


def _gain_in_words(of_fabric: Mapping[str, Any], rows: Rows, measure: str, shape: str) -> str:
    """The gain of the photonic fabric with its interval, paired within repeats."""
    ours = gain(rows, measure, shape)
    if not ours:
        return "-"
    electrical, photonic = (values_of(of_fabric[fabric], "value") for fabric in (ELECTRICAL, PHOTONIC))
    paired = paired_ratio(electrical, photonic) if measure == "epoch" else paired_ratio(photonic, electrical)
    if paired is None or paired.half_width is None:
        return f"{ours:.2f}x"
    return f"{paired.median:.2f}x\n±{paired.half_width:.2f}"


def _value(axes: Axes, row: Mapping[str, Any], x: float) -> None:
    look = FABRICS.get(row["fabric"], SPARE[-1])
    value = estimate_of(row, "value")
    if value is not None:
        mark(axes, x, value, look, faithful=row.get("faithful", True))
    if row.get("predicted"):
        axes.plot((x - 0.14, x + 0.14), (row["predicted"],) * 2, color=look.colour, linewidth=1.2, zorder=2)


def batches(rows: Rows, lines: Rows) -> Figure | None:
    """Figure of electrical / photonic epochs over the batch size; None with fewer than two batch sizes.

    ``rows`` are measures by shape, ``lines`` those of ``batch_lines``; without measurements the model is drawn alone.
    """
    if len(lines) < 2:
        return None
    figure = new_figure()
    axes = figure.add_subplot()
    look, found = FABRICS[PHOTONIC], []
    for line in lines:
        pair = {row["fabric"]: row for row in rows if row["measure"] == "epoch" and row["shape"] == line["shape"]}
        value = ratio_of(pair[ELECTRICAL], pair[PHOTONIC], "value") if len(pair) == 2 else None
        if value is not None:
            found.append(value)
            mark(axes, line["batch"], value, look, faithful=line["faithful"] is not False)
        axes.plot(line["batch"], line["published_ratio"], zorder=5, **open_mark(PUBLISHED))
    sizes, given = [line["batch"] for line in lines], f"{lines[0]['second_path']:.2f}x"
    axes.plot(sizes, [line["predicted ratio"] for line in lines], color=look.colour, linewidth=1.2, zorder=2)
    axes.plot(sizes, [line["second_path_ratio"] for line in lines], color=FAINT, linewidth=1.2, linestyle=DASHED)
    handles = [
        entry("ours", look.colour, marker=look.marker),
        entry(f"if two ports reduced {given} as fast as one", FAINT, linestyle=DASHED),
        published_mark(f"MORPHLUX ({EPOCH_GAINS.label})"),
    ]
    name_ticks(axes.xaxis, sizes)
    axes.set_ylim(1.0, 2.0)
    style_axes(axes, "Gain of steered ports by batch size", "batch size", "electrical / photonic epoch", grid="y")
    legend(figure, handles, 2, caption(found, model=True))
    return figure
