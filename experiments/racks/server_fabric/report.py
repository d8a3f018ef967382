"""Report of the server-fabric experiment: both fabrics by measure and shape, and the recovery after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from controllers.circuits.fibres import FIBRES
from experiments.racks.report import fault_rows, point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.racks.server_fabric.experiment import EPOCH_GAINS, EPOCH_SHAPE
from experiments.racks.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, RATIOS, SLICE_MEASURES, gain
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table
from measure.published import published
from measure.results.row import Row

BEFORE = published("morphlux-before")
"""Throughput of the electrical baseline before the failure."""


_COLUMNS = (
    Column("measured", "measure", left=True),
    Column("slice", "shape", left=True),
    Column("unit", "unit", left=True),
    Column("elec-\ntrical", f"{ELECTRICAL} value", ".4g"),
    Column("elec.\nmodel", f"{ELECTRICAL} predicted", ".4g", wide=True),
    Column("photo-\nnic", f"{PHOTONIC} value", ".4g"),
    Column("photo.\nmodel", f"{PHOTONIC} predicted", ".4g", wide=True),
    Column("ratio", "ratio", ".2f"),
    Column("model\nratio", "predicted ratio", ".2f"),
    Column("MORPH-\nLUX", "published_ratio", ".2f"),
    FAITHFUL,
)
_BATCHES = (
    Column("batch", "batch", "d"),
    Column("elec-\ntrical", f"{ELECTRICAL} value", ".4g"),
    Column("MORPH-\nLUX", f"{ELECTRICAL} paper_s", ".4g"),
    Column("photo-\nnic", f"{PHOTONIC} value", ".4g"),
    Column("MORPH-\nLUX", f"{PHOTONIC} paper_s", ".4g"),
    Column("ratio", "ratio", ".2f"),
    Column("model\nratio", "predicted ratio", ".2f"),
    Column("MORPH-\nLUX", "published_ratio", ".2f"),
    FAITHFUL,
)


_SLICES = (
    Column("slice", "shape", left=True),
    Column("measured", "measure", left=True),
    Column("ports", f"{PHOTONIC} ports", "d"),
    Column("fib-\nres", f"{PHOTONIC} fibres", "d", wide=True),
    *(
        Column(head, f"{fabric} {key}", ".2f", wide=key != "value")
        for fabric, names in ((ELECTRICAL, ("elec-\ntrical", "elec.")), (PHOTONIC, ("photo-\nnic", "photo.")))
        for head, key in ((names[0], "value"), (f"{names[1]}\nmodel", "predicted"), (f"{names[1]}\nlaw", "law"))
    ),
    Column("ratio", "ratio", ".2f"),
    Column("model\nratio", "predicted ratio", ".2f", wide=True),
    Column("law", "law ratio", ".2f"),
    FAITHFUL,
)
_OF_FABRIC = ("value", "predicted", "paper_s", "law", "ports", "fibres")


def shape_rows(rows: Sequence[Row], measures: Sequence[str] = MEASURES) -> list[Row]:
    """The rows of measures by shape: those on the prototype, or those of other ``measures``."""
    return [row for row in rows if row.get("measure") in measures]


def _lines(rows: Sequence[Row]) -> Iterator[Row]:
    """A line for each measure and shape, with the values of both fabrics."""
    for measure in (*MEASURES, *SLICE_MEASURES):
        mine = [row for row in rows if row["measure"] == measure]
        for shape in dict.fromkeys(row["shape"] for row in mine):
            pair = [row for row in mine if row["shape"] == shape]
            values = {f"{row['fabric']} {key}": row.get(key) for row in pair for key in _OF_FABRIC}
            verdicts = [row.get("faithful") for row in pair]
            yield {
                **pair[0],
                **values,
                "ratio": gain(rows, measure, shape),
                "predicted ratio": gain(rows, measure, shape, "predicted"),
                "law ratio": gain(rows, measure, shape, "law"),
                "faithful": None if None in verdicts else all(verdicts),
            }


def batch_lines(rows: Sequence[Row]) -> list[Row]:
    """A line for each batch size of the epochs of ``EPOCH_SHAPE``."""
    epochs = [row for row in rows if row["shape"].startswith(EPOCH_SHAPE) and row["measure"] == "epoch"]
    return sorted(_lines(epochs), key=lambda line: line["batch"])


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    if fault_rows(rows):
        yield from recovery_tables(rows)
    lines = list(_lines(shape_rows(rows)))
    if lines:
        title = "Ports fixed to a dimension (electrical) and steered to the slice's peers (photonic)"
        title += f"; MORPHLUX's ratio: {RATIOS['epoch'].label}"
        yield Table(title, _COLUMNS, lines)
    slices = list(_lines(shape_rows(rows, SLICE_MEASURES)))
    if slices:
        title = "Collectives on slices of a rack of 4x4x4 chips, in s (ports: of a chip, for the\n"
        yield Table(f"{title}ring, if steered; fibres: most between two servers, of {FIBRES})", _SLICES, slices)
    batches = batch_lines(shape_rows(rows))
    if len(batches) > 1:
        title = f"Epochs of {EPOCH_SHAPE} by batch size, in s; MORPHLUX: {EPOCH_GAINS.label} ({EPOCH_GAINS.where})"
        yield Table(title, _BATCHES, batches)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.racks.server_fabric.figures import batches, shapes

    yield from recovery_figures(recorded)
    shown = shape_rows(recorded.rows)
    yield Drawn("server-fabric", shapes(shown), shown)
    slices = shape_rows(recorded.rows, SLICE_MEASURES)
    yield Drawn("server-fabric-slices", shapes(slices), slices)
    lines = batch_lines(shown)
    yield Drawn("server-fabric-batch", batches(shown, lines), lines)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    yield from recovery_findings(rows)
    answers = [(row["shape"], row.get("allocated", "")) for row in shape_rows(rows, SLICE_MEASURES)]
    for shape, answer in dict.fromkeys(pair for pair in answers if pair[1].startswith("refused")):
        yield f"{shape}: {answer} without a photonic fabric; {ELECTRICAL} times are over idle links of other slices"
    before = [row["before_to_photonic"] for row in fault_rows(rows) if row["fabric"] == ELECTRICAL]
    if before and before[0]:
        there = 1 / (1 - BEFORE.value / 100)
        yield (
            f"{ELECTRICAL}: no host is left for the slice, so the job does not resume, as MORPHLUX's baseline; "
            f"its steps took {before[0]:.2f} of the photonic ones before the failure, "
            f"{there:.2f} there ({BEFORE.label}: throughput {BEFORE.value:g} % lower)"
        )


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    if any(row.get("measure") not in ("iperf3", *SLICE_MEASURES) for row in rows):
        yield "epoch-compute"
    if settings.get("second_path", 2) < 2:
        yield "second-path"
    if any("tenant" in row for row in rows):
        yield "rack-stages"


REPORT = Report(
    tables=_tables,
    point=lambda row: f"{row['measure']}, {row['shape']}, {row['fabric']}" if row.get("measure") else point_name(row),
    findings=_findings,
    figures=_figures,
    calibrated=_calibrated,
)
