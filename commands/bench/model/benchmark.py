"""Benchmark ``model``: the rows of its parts, measured beside predicted, those over their limit first."""

from __future__ import annotations

from commands.bench import Measurement, ModelRow, not_measured
from commands.bench.bed import Bed, rows_of
from commands.bench.model.parts import PARTS, compared
from railyard.errors import RailyardError


def model_parts(bed: Bed) -> list[Measurement]:
    """Measure the parts that the bed asks for (None: all); one that cannot be measured gives its reason."""
    found: list[Measurement] = []
    for name in bed.parts or PARTS:
        part = PARTS[name]
        try:
            rows = rows_of(part.made(bed.repeats, bed.option), bed.repeats)
        except RailyardError as error:
            found.append(not_measured(f"model_{name}", error))
            continue
        for each in (one for row in rows for one in compared(name, part, row)):
            row = ModelRow(each.name, each.off, "of the model", limit=each.limit, ok=each.ok)
            row.measured_s, row.predicted_s, row.n = each.measured_s, each.predicted_s, each.n
            row.faithful = each.faithful
            found.append(row)
    return sorted(found, key=lambda row: (row.ok is True, -abs(row.value or 0.0)))
