"""Report of the straggler experiment: a table for each study, findings, and figures with the law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.collectives.report import trial_point, trial_tables
from experiments.collectives.straggler.experiment import StragglerSettings
from experiments.collectives.straggler.findings import findings
from experiments.collectives.straggler.law import StragglerLaw
from experiments.report import Drawn, Recorded, Report, to_nothing
from experiments.settings import recorded_settings
from measure.results.row import Row
from railyard.scale import goodput_bytes_per_s


def laws(rows: Sequence[Row]) -> list[StragglerLaw]:
    """The closed forms for every number of ranks and buffer size at which StragglAR was measured."""
    found = {
        (row["n"], row["bytes"]): row
        for row in rows
        if row["algorithm"] == "stragglar" and row.get("circuits") != "provisioned"
    }
    return [
        StragglerLaw(n, size, alpha_s, rate, row["second_phase_rounds"], row.get("round_cost", 0.0) * size / rate)
        for (n, size), row in found.items()
        for rate, alpha_s in [(goodput_bytes_per_s(row["port_gbps"], row["mtu"]), row.get("alpha_ms", 0.0) / 1e3)]
    ]


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    yield from findings(recorded_settings(StragglerSettings, settings), rows)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.collectives.straggler.figures import straggler_figures

    for name, figure in straggler_figures(recorded.rows, laws(recorded.rows)).items():
        yield Drawn(name, figure, recorded.rows)


REPORT = Report(tables=trial_tables, point=trial_point, findings=_findings, figures=_figures, calibrated=to_nothing)
