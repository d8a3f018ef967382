"""Report of the server-fabric experiment: both fabrics by measure and shape, and the recovery after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.report import fault_rows, point_name, recovery_figures, recovery_findings, recovery_tables
from experiments.report import FAITHFUL, Column, Drawn, Recorded, Report, Table
from experiments.server_fabric.row import ELECTRICAL, MEASURES, PHOTONIC, RATIOS, gain, ratio_kind
from measure.results.row import Row


def _published_ratio(row: Row) -> str | None:
    ratio = row.get("published_ratio")
    return None if ratio is None else f"{ratio:.2f}{'*' if ratio_kind(row) == 'derived' else ''}"


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
    Column("MORPH-\nLUX", _published_ratio),
    FAITHFUL,
)


def shape_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of measures by shape."""
    return [row for row in rows if row.get("measure")]


def _lines(rows: Sequence[Row]) -> Iterator[Row]:
    """A line for each measure and shape, with the values of both fabrics."""
    for measure in MEASURES:
        mine = [row for row in rows if row["measure"] == measure]
        for shape in dict.fromkeys(row["shape"] for row in mine):
            pair = [row for row in mine if row["shape"] == shape]
            values = {f"{row['fabric']} {key}": row.get(key) for row in pair for key in ("value", "predicted")}
            verdicts = [row.get("faithful") for row in pair]
            yield {
                **pair[0],
                **values,
                "ratio": gain(rows, measure, shape),
                "predicted ratio": gain(rows, measure, shape, "predicted"),
                "faithful": None if None in verdicts else all(verdicts),
            }


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    if fault_rows(rows):
        yield from recovery_tables(rows)
    lines = list(_lines(shape_rows(rows)))
    if lines:
        title = "Ports fixed to a dimension (electrical) and steered to the slice's peers (photonic)"
        title += f"; MORPHLUX's ratio: {RATIOS['epoch'].label}"
        if any(ratio_kind(line) == "derived" for line in lines):
            title += "; *: derived by us from two of its epochs"
        yield Table(title, _COLUMNS, lines)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.server_fabric.figures import shapes

    yield from recovery_figures(recorded)
    shown = shape_rows(recorded.rows)
    yield Drawn("server-fabric", shapes(shown), shown)


def _calibrated(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    if any(row.get("measure") != "iperf3" for row in rows):
        yield "epoch-compute"
    if any("tenant" in row for row in rows):
        yield "rack-stages"


REPORT = Report(
    tables=_tables,
    point=lambda row: f"{row['measure']}, {row['shape']}, {row['fabric']}" if row.get("measure") else point_name(row),
    findings=lambda rows, settings: recovery_findings(rows),
    figures=_figures,
    calibrated=_calibrated,
)
