"""Rows of the server-fabric experiment: performance of a slice on fixed and on steered ports, by its shape.

Published ratios are MORPHLUX's (arXiv 2508.03674), testbed of 4 hosts with 2 ports of 10 Gb/s on a 2 x 2 torus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from measure.published import Published, published
from measure.results.row import MeasuredRow

Measure = Literal["iperf3", "all-reduce", "epoch", "reduce-scatter", "TP all-reduce", "DP all-reduce"]
MEASURES: tuple[Measure, ...] = ("iperf3", "all-reduce", "epoch")
"""On the prototype."""
SLICE_MEASURES: tuple[Measure, ...] = ("reduce-scatter", "TP all-reduce", "DP all-reduce")
"""On a slice of a rack: over all its chips; over the tensor- and the data-parallel ring of each chip at once."""
Shape = Literal["2x1x1", "1x2x1", "fragmented"]
SHAPES: tuple[Shape, ...] = ("2x1x1", "1x2x1", "fragmented")
RATIOS: Mapping[str, Published] = {measure: published(f"morphlux-{measure}") for measure in MEASURES}
"""Gain of the photonic fabric by shape: photonic / electrical bandwidth, electrical / photonic epoch time."""
UNITS: Mapping[str, str] = {"iperf3": "Gb/s", "all-reduce": "Gb/s", "epoch": "s", **dict.fromkeys(SLICE_MEASURES, "s")}
ELECTRICAL, PHOTONIC = "electrical", "photonic"


@dataclass(kw_only=True)
class ServerFabricRow(MeasuredRow):
    """One measure of one slice on one fabric, in ``unit`` of the real system; an all-reduce gives its busbw."""

    main: ClassVar[tuple[str, ...]] = ("value",)
    given: ClassVar[frozenset[str]] = MeasuredRow.given | {
        *("predicted", "lanes", "batch", "steps", "law", "ports", "fibres"),
    }

    measure: Annotated[Measure, "what was measured"]
    shape: Annotated[str, "shape of the slice, with the batch size if it is not that of the settings"]
    fabric: Annotated[str, "electrical or photonic"]
    value: Annotated[float | None, "the measured value"] = None
    unit: Annotated[str, "unit of value and predicted"] = ""
    predicted: Annotated[float | None, "the value of the model"] = None
    published_ratio: Annotated[float | None, "gain of MORPHLUX for the measure (morphlux-*)"] = None
    system: Annotated[str, "system that the fabric stands for"] = ""
    lanes: Annotated[int | None, "lanes that iperf3 used"] = None
    retransmits: Annotated[int | None, "TCP segments that iperf3 sent again"] = None
    batch: Annotated[int | None, "batch size"] = None
    paper_s: Annotated[float | None, "epoch of MORPHLUX (morphlux-epoch-*)"] = None
    steps: Annotated[int | None, "steps of the epoch"] = None
    checksum_ok: Annotated[bool | None, "whether every step has the checksum of an undisturbed job"] = None
    law: Annotated[float | None, "closed form of a collective on a slice; none where rings share a link"] = None
    ports: Annotated[int | None, "ports of a chip that the ring of the collective uses"] = None
    fibres: Annotated[int | None, "most fibres between two servers that the slice's circuits take"] = None
    allocated: Annotated[str, "what the allocator of the fabric answered to the request of the slice"] = ""

    def __post_init__(self) -> None:
        self.unit = UNITS[self.measure]
        if self.published_ratio is None and self.measure in RATIOS:
            self.published_ratio = RATIOS[self.measure].values.get(self.shape)


def gain(rows: Sequence[Mapping[str, Any]], measure: str, shape: str, column: str = "value") -> float | None:
    """Gain of the photonic fabric, in bandwidth or time as in ``RATIOS``; None if the value of a fabric is missing.

    ``column`` ``predicted`` gives the gain of the model.
    """
    found = {r["fabric"]: r.get(column) for r in rows if r.get("measure") == measure and r.get("shape") == shape}
    photonic, electrical = found.get(PHOTONIC), found.get(ELECTRICAL)
    if not photonic or not electrical:
        return None
    return float(electrical / photonic if UNITS[measure] == "s" else photonic / electrical)
