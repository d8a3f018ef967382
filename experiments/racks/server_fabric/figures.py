"""Figures of the server-fabric experiment: fixed against steered ports by slice shape and by batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from experiments.racks.figures import PUBLISHED, published_mark
from experiments.racks.server_fabric.experiment import EPOCH_GAINS
from experiments.racks.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, RATIOS, SHAPES, SLICE_MEASURES, gain
from measure.figures.curves import Rows
from measure.figures.looks import FABRICS
from measure.figures.plot import Panel, Plot, figure_of
from measure.figures.style import note
from measure.metrics.estimate import paired_ratio, ratios
from measure.results.estimates import values_of
from measure.results.row import Row

_AXES = {"iperf3": "throughput", "all-reduce": "bus bandwidth", "epoch": "time of an epoch"}
_OTHERS = "time of a collective"


def shapes(rows: Rows) -> Figure | None:
    """Figure of a panel for each measurement with the values of both fabrics by slice shape; None without values.

    An open diamond marks the measured electrical value times the published ratio.
    """
    rows = [row for row in rows if row.get("measure") and row.get("value")]
    measures = (*MEASURES, *SLICE_MEASURES)
    groups = [mine for measure in measures if (mine := [row for row in rows if row["measure"] == measure])]
    theirs = published_mark("our electrical x MORPHLUX's ratio")
    plots = [
        Plot(
            "shape",
            "value",
            ("slice", f"{_AXES.get(mine[0]['measure'], _OTHERS)} ({mine[0]['unit']})"),
            mine[0]["measure"],
            "predicted",
            series="fabric",
            looks={name: FABRICS[name] for name in (ELECTRICAL, PHOTONIC)},
            categories=list(dict.fromkeys((*SHAPES, *(row["shape"] for row in mine)))),
            apart=0.36,
            ticks=lambda shape: shape.replace(", ", "\n").replace(" ", "\n"),
            grid="y",
            published="their_value",
            published_look=PUBLISHED,
            derive=_with_published,
            extra=_write_gains,
            entries=[theirs] if any(row.get("published_ratio") for row in rows) else [],
            columns=4,
            height=2.5,
        )
        for mine in groups
    ]
    return figure_of(plots, rows, groups) if plots else None


def _with_published(rows: Rows) -> Rows:
    """The rows of a measurement, with the value that MORPHLUX's ratio makes of ours in that of the photonic fabric."""
    bases = {row["shape"]: row["value"] for row in rows if row["fabric"] == ELECTRICAL}

    def there(row: Row) -> Any:
        base, ratio = bases.get(row["shape"]), row.get("published_ratio")
        if row["fabric"] == ELECTRICAL or not base or not ratio:
            return None
        return base / ratio if row["unit"] == "s" else base * ratio

    return [{**row, "their_value": there(row)} for row in rows]


def _write_gains(panel: Panel) -> None:
    """Write the gain of the photonic fabric, ours and MORPHLUX's, above each shape."""
    rows, axes = panel.rows, panel.axes
    tallest = max(
        value or 0.0 for row in rows for value in (*values_of(row, "value"), row.get("predicted"), row["their_value"])
    )
    measure = rows[0]["measure"]
    for place, shape in enumerate(panel.places):
        of_fabric = {row["fabric"]: row for row in rows if row["shape"] == shape}
        published = next(iter(of_fabric.values())).get("published_ratio")
        theirs = f"\nMORPHLUX {published:.2f}x\n({RATIOS[measure].kind})" if published else ""
        text = _gain_in_words(of_fabric, rows, measure, shape) + theirs
        note(axes, text, (place, tallest), (0, 5), ha="center", va="bottom")
    axes.set_ylim(0, tallest * 1.45)


def _gain_in_words(of_fabric: Mapping[str, Any], rows: Rows, measure: str, shape: str) -> str:
    """The gain of the photonic fabric with its interval, paired within repeats."""
    ours = gain(rows, measure, shape)
    if not ours:
        return "-"
    electrical, photonic = (values_of(of_fabric[fabric], "value") for fabric in (ELECTRICAL, PHOTONIC))
    paired = paired_ratio(electrical, photonic) if rows[0]["unit"] == "s" else paired_ratio(photonic, electrical)
    if paired is None or paired.half_width is None:
        return f"{ours:.2f}x"
    return f"{paired.median:.2f}x\n±{paired.half_width:.2f}"


def batches(rows: Rows, lines: Rows) -> Figure | None:
    """Figure of electrical / photonic epochs over the batch size; None with fewer than two batch sizes.

    ``rows`` are measures by shape, ``lines`` those of ``batch_lines``; without measurements the model is drawn alone.
    """
    if len(lines) < 2:
        return None

    def measured(line: Row) -> list[float | None]:
        pair = {row["fabric"]: row for row in rows if row["measure"] == "epoch" and row["shape"] == line["shape"]}
        return ratios(*(values_of(pair[name], "value") for name in (ELECTRICAL, PHOTONIC))) if len(pair) == 2 else []

    plot = Plot(
        "batch",
        measured,
        ("batch size", "electrical / photonic epoch"),
        "Gain of steered ports by batch size",
        "predicted ratio",
        looks={"": FABRICS[PHOTONIC].named("ours")},
        published="published_ratio",
        published_look=PUBLISHED,
        ticks="{:g}".format,
        grid="y",
        extra=lambda panel: panel.axes.set_ylim(1.0, 2.0),
        entries=[published_mark(f"MORPHLUX ({EPOCH_GAINS.label})")],
        columns=2,
        height=2.2,
    )
    return figure_of(plot, [{**line, "faithful": line["faithful"] is not False} for line in lines])
