"""The overhead of a mode over packet switches: by how much its step is longer, beside what was published."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.report import off_percent
from measure.metrics.estimate import Estimate
from measure.published import Published, published
from measure.results.estimates import ratio_of
from measure.results.row import Row

_JOBS = {"llama3-8b-16": "opus-llama", "pp-only": "opus-deepseek"}
"""The jobs of the catalog that have published steps, with the beginning of their keys."""
HEADING = f"derived by us from\n{published('opus-llama-on-demand').heading}, %"
"""The head of the column of these overheads: whose the steps are that they are derived from, and of which kind."""
_MODES = ("on-demand", "provisioned")


def electrical_row(rows: Sequence[Row]) -> Row | None:
    """The row of the electrical point, or else of the native one; None if there is neither."""
    return next((row for mode in ("electrical", "native") for row in rows if row["mode"] == mode), None)


def overhead(row: Row, base: Row | None) -> Estimate | None:
    """By how many percent the step of ``row`` is longer than that of ``base``, within a repeat."""
    found = None if base is None else ratio_of(row, base, "step_time_s")
    return None if found is None else found.plus(-1).times(100)


def published_steps(row: Row) -> Published | None:
    """The published steps of the job and mode of a row, by delay in ms; None if there are none."""
    job, mode = _JOBS.get(row["workload"]), row["mode"]
    if job is None or mode not in _MODES or (job, mode) == ("opus-deepseek", "provisioned"):
        return None
    return published(f"{job}-{mode}")


def published_overhead(row: Row) -> float | None:
    """By how many percent the published step at the delay of a row is longer than that of its mode without a delay.

    It is derived by us; None where none is published. The control plane of the authors takes time without a delay too,
    which a model of the delay does not have: so the native step is no base. A run beside it may have ports of another
    rate and other compute times.
    """
    steps = published_steps(row)
    return None if steps is None else off_percent(steps.values.get(row["reconfiguration_delay_ms"]), steps.values[0])
