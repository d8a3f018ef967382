"""Report of the fabric-cost experiment: parts, cost and power by fabric, beside the published ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.fabric_cost.experiment import COUNTED
from experiments.report import Column, Drawn, Recorded, Report, Table, to_nothing
from measure.published import published
from measure.results.row import Row

_COLUMNS = (
    Column("parts", "count", left=True),
    Column("GPUs", "gpus", ","),
    Column("fabric", "fabric", left=True),
    Column("tiers", "tiers", "d"),
    Column("switches", lambda row: row["switches"] or row["circuit_switches"] or None, ",", wide=True),
    Column("ports\n/ GPU", lambda row: (row["switch_ports"] + row["ocs_ports"]) / row["gpus"], ".2f", wide=True),
    Column("optics\n/ GPU", lambda row: row["optics"] / row["gpus"], ".2f", wide=True),
    Column("USD\n/ GPU", lambda row: row["cost_usd"] / row["gpus"], ",.0f"),
    Column("W\n/ GPU", lambda row: row["power_w"] / row["gpus"], ".1f"),
    Column("cost to\nphotonic", lambda row: f"{row['cost_ratio']:.2f}x"),
    Column("power to\nphotonic", lambda row: f"{row['power_ratio']:.2f}x"),
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    ordered = sorted(rows, key=lambda row: list(COUNTED).index(row["count"]))
    yield Table("Cost and power of fabrics, one network port a GPU", _COLUMNS, ordered)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[str]:
    price, power = published("opus-part-cost"), published("opus-part-power")
    each = ", ".join(f"{part} {price.values[part]:g} USD and {power.values[part]:g} W" for part in price.values)
    yield f"Parts ({price.label}; {price.source.reference}): {each}."
    cost, watts = published("opus-cost-h200"), published("opus-power-h200")
    sizes = ", ".join(
        f"{ratio:.2f}x / {watts.values[gpus]:.1f}x ({gpus:,} GPUs)" for gpus, ratio in cost.values.items()
    )
    yield f"Cost / power of electrical over photonic rails by the authors' formula ({cost.label}): {sizes}."
    yield (
        f"Abstract ({published('opus-cost').label}): {published('opus-cost').value:g}x the cost and over "
        f"{published('opus-power').value:g}x the power."
    )
    most = settings["ocs_ports"] // settings["ports_per_gpu"] * settings["gpus_per_server"]
    if any(row["gpus"] > most for row in rows):
        yield (
            f"Above {most:,} GPUs a rail needs several circuit switches here; they are not joined, so that the ring of "
            "a job has to fit one of them."
        )


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.fabric_cost.figures import ratios

    yield Drawn("fabric-cost", ratios(recorded.rows), recorded.rows)


REPORT = Report(tables=_tables, findings=_findings, figures=_figures, calibrated=to_nothing)
