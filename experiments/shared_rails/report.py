"""Tables, findings and figure of jobs that shared rails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.racks.report import fault_rows, recovery_findings, recovery_tables
from experiments.report import FAITHFUL, Cell, Column, Drawn, Recorded, Report, Table, off_percent, spread, to_nothing
from measure.results.row import Row
from railyard.digits import numbers_in, significant


def job_rows(rows: Sequence[Row], *, alone: bool | None = None) -> list[Row]:
    """The rows of jobs: all, those alone, or those that shared the rails."""
    return [row for row in rows if "gpus" in row and alone in (None, bool(row["alone"]))]


_STAYS = (
    Column("job", "job", left=True),
    Column("workload", "workload", left=True),
    Column("servers", "servers", left=True),
    Column("arrives\ns", "arrival_s", "g"),
    Column("waits\ns", "queue_s", ".2f"),
    Column("model\nwaits", "predicted_queue_s", ".2f"),
    Column("over after\ns", "completion_s", significant),
    Column("model\ns", "predicted_completion_s", significant),
    Column("off\n%", lambda row: off_percent(row["completion_s"], row["predicted_completion_s"]), "+.1f"),
    Column("GPUs", "gpus", "d", wide=True),
    Column("placement", "placement", left=True, wide=True),
    Column("ports free\nafter ms", lambda row: row["freed_wall_s"] and row["freed_wall_s"] * 1e3, ".1f", wide=True),
    Column("restarts", "restarts", "d", wide=True),
    Column("lost\nsteps", "lost_steps", "d", wide=True),
    Column("outcome", "outcome", left=True, wide=True),
)
_STEPS = (
    Column("job", "job", left=True),
    Column("step\ns", "step_time_s", significant),
    spread("step_time_s"),
    Column("alone\ns", "alone_step_time_s", significant),
    Column("over\nalone %", lambda row: off_percent(row["step_time_s"], row["alone_step_time_s"]), "+.2f"),
    Column("model\ns", "predicted_step_time_s", significant),
    Column("off\n%", lambda row: off_percent(row["step_time_s"], row["predicted_step_time_s"]), "+.1f"),
    Column("waits for\ncircuits s", "circuit_wait_s", ".3f"),
    Column("reconf.", "reconfigurations", "d"),
    Column("in\nvain", "in_vain", "d"),
    Column("wrong\nhost", "misdelivered", "d", wide=True),
    FAITHFUL,
)


def _tables(rows: Sequence[Row]) -> Iterator[Table]:
    shared = job_rows(rows, alone=False)
    if shared:
        first = shared[0]
        title = f"Jobs on shared rails, {first['mode']}, {first['reconfiguration_delay_ms']:g} ms"
        yield Table(f"{title}: their stay", _STAYS, shared)
        if any(row["step_time_s"] is not None for row in shared):
            yield Table("Their steps, beside those with the fabric to themselves", _STEPS, shared)
    if fault_rows(rows):
        yield from recovery_tables(rows)


def _findings(rows: Sequence[Row], settings: Mapping[str, Any]) -> Iterator[Cell]:
    shared = job_rows(rows, alone=False)
    stays = [row for row in shared if row["end_s"] is not None]
    if stays:
        until, gpus = max(row["end_s"] for row in stays), _gpus(shared, settings)
        held = sum(row["gpus"] * (row["end_s"] - row["start_s"]) for row in stays)
        in_vain, all_ = (sum(row[key] or 0 for row in stays) for key in ("in_vain", "reconfigurations"))
        yield f"All jobs are over after {until:.1f} s; they held {held / (gpus * until):.0%} of the ports until then."
        yield f"Circuits in vain: {in_vain} of {all_} reconfigurations."
    for row in shared:
        if row["reason"]:
            yield f"{row['job']}: {row['outcome']}: {row['reason']}"
    yield from recovery_findings(rows)


def _gpus(rows: Sequence[Row], settings: Mapping[str, Any]) -> int:
    """GPUs of the fabric without spares: those of its servers, or of all jobs at once."""
    per_server = max(row["gpus"] // len(numbers_in(row["servers"])) for row in rows)
    servers = settings.get("servers") or sum(len(numbers_in(row["servers"])) for row in rows)
    return int(servers * per_server)


def _figures(recorded: Recorded) -> Iterator[Drawn]:
    from experiments.shared_rails.figures import jobs_over_time

    rows = job_rows(recorded.rows, alone=False)
    yield Drawn("jobs-over-time", jobs_over_time(rows), rows)


def _point(row: Row) -> str:
    if "gpus" not in row:
        return f"{row['tenant']}, {row['event']}"
    return f"{row['job']}, alone" if row["alone"] else str(row["job"])


REPORT = Report(
    tables=_tables,
    point=_point,
    findings=_findings,
    figures=_figures,
    calibrated=to_nothing,
)
