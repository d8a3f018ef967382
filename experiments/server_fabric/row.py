"""Rows of the server-fabric experiment: performance of a slice on fixed and on steered ports, by its shape.

Source of the paper's ratios: MORPHLUX (arXiv 2508.03674), testbed of 4 hosts with 2 ports of 10 Gb/s on a 2 x 2 torus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from experiments.racks.row import verdict_columns
from measure.metrics.fidelity import Verdict
from measure.results.row import Row

Measure = Literal["iperf3", "all-reduce", "epoch"]
MEASURES: tuple[Measure, ...] = ("iperf3", "all-reduce", "epoch")
SHAPES = ("2x1x1", "1x2x1", "fragmented")
PAPER_RATIO: Mapping[str, Mapping[str, float]] = {
    "iperf3": dict.fromkeys(SHAPES, 2.0),
    "all-reduce": {"2x1x1": 1.79, "1x2x1": 1.79, "fragmented": 1.82},
    "epoch": {"2x1x1": 1.72, "1x2x1": 1.60, "fragmented": 1.57},
}
"""Gain of the photonic fabric: photonic / electrical bandwidth, electrical / photonic epoch time."""
UNITS: Mapping[str, str] = {"iperf3": "Gb/s", "all-reduce": "Gb/s", "epoch": "s"}
ELECTRICAL, PHOTONIC = "electrical", "photonic"


def server_fabric_row(
    measure: Measure,
    shape: str,
    fabric: str,
    value: float,
    *,
    predicted: float | None,
    verdicts: Iterable[Verdict],
    **more: Any,
) -> Row:
    """The row of one measurement, in the unit of ``UNITS`` and of the real system; an all-reduce gives its busbw."""
    return {
        "experiment": "server-fabric",
        "measure": measure,
        "shape": shape,
        "fabric": fabric,
        "value": value,
        "unit": UNITS[measure],
        "predicted": predicted,
        "paper_ratio": PAPER_RATIO[measure].get(shape),
        **more,
        **verdict_columns(verdicts),
    }


def gain(rows: Sequence[Mapping[str, Any]], measure: str, shape: str, column: str = "value") -> float | None:
    """Gain of the photonic fabric as in ``PAPER_RATIO``; None if the value of a fabric is missing.

    ``column`` ``predicted`` gives the gain of the model.
    """
    found = {r["fabric"]: r.get(column) for r in rows if r.get("measure") == measure and r.get("shape") == shape}
    photonic, electrical = found.get(PHOTONIC), found.get(ELECTRICAL)
    if not photonic or not electrical:
        return None
    return float(electrical / photonic if measure == "epoch" else photonic / electrical)
