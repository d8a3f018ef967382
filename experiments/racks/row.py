"""Rows of faults in ``summary.json``: times of the recovery beside those of the model and the papers.

Sources of the ``paper_`` columns: LUMION (arXiv 2505.23105) for the effect (job restarted within about 1 s, fine-tuning
nearly twice as fast); MORPHLUX (arXiv 2508.03674) for all parts of the recovery, of which LUMION gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import fmean

from experiments.racks.neighbour import NeighbourEffect
from experiments.racks.predicted_recovery import PredictedRecovery
from experiments.racks.recovery import Recovery
from measure.metrics.fidelity import Verdict
from measure.results.row import Row
from topos.plan import FabricPlan

PAPER_CIRCUITS_S = 1.2
"""Seconds from the failure to the circuits of the replacement (MORPHLUX, recovery on the testbed)."""
PAPER_TIMELINE: tuple[tuple[str, float], ...] = (
    ("circuits up, job launched", 1.1),
    ("collective library synchronised", 4.5),
    ("data tokenised", 14.5),
    ("model loaded", 16.6),
    ("first iteration", 25.6),
)
"""Seconds after the failure (MORPHLUX, recovery timeline of the testbed)."""
PAPER_SLOWDOWN = (1.6, 2.0)
"""Range of step time on the electrical racks E1 and E2 relative to the photonic one."""
PAPER_MIGRATION_S = 10.0
"""Seconds to rewire the OCS of a TPU torus when a job moves to another rack (MORPHLUX, baselines)."""
PHOTONIC, MIGRATE = "photonic", "migrate"


def fault_row(
    recovery: Recovery,
    predicted: PredictedRecovery | None,
    *,
    experiment: str,
    system: str,
    fabric: str,
    plan: FabricPlan,
    checksum_ok: bool | None,
    verdicts: Iterable[Verdict],
    **more: object,
) -> Row:
    """The row of the job that lost a chip, in real seconds; None for parts that the recovery did not reach.

    ``verdicts`` are those of the job's incarnations before and after (``experiments.racks.points``); the row is
    faithful if there is at least one and all are. ``more`` are further columns.
    """
    event = f"kill {recovery.rank}" if recovery.state != "no member" else f"kill {recovery.rank} (spare)"
    row: Row = _head(experiment, system, fabric, recovery.job, event)
    row |= {
        "detect_s": recovery.detect_s,
        "decide_s": recovery.decide_s,
        "rewire_s": recovery.rewire_s,
        "checkpoint_s": recovery.checkpoint_s,
        "restart_s": recovery.restart_s,
        "first_step_s": recovery.first_step_s,
        "outage_s": recovery.outage_s,
        "step_time_before_s": recovery.step_time_before_s,
        "step_time_after_s": recovery.step_time_after_s,
        "lost_steps": recovery.lost_steps,
        "checksum_ok": checksum_ok,
        "faithful": False,
        "state": recovery.state,
        "reason": recovery.reason,
        "cause": recovery.cause,
        "rank": recovery.rank,
        "replaced_by": next((new for old, new in recovery.replacements if old == recovery.rank), None),
        "unfinished_steps": recovery.unfinished,
        "changed_ports": recovery.changed_ports,
        "circuits_s": recovery.circuits_s,
        "launch_s": recovery.launch_s,
        "first_collective_s": recovery.first_collective_s,
        "busbw_before_gb_s": recovery.bandwidth_before.busbw_gb_s if recovery.bandwidth_before else None,
        "busbw_after_gb_s": recovery.bandwidth_after.busbw_gb_s if recovery.bandwidth_after else None,
        **_predicted_columns(predicted),
        **_paper_columns(fabric, given={stage.name for stage in recovery.stages if stage.given}),
        **reserve_columns(plan),
        **more,
        "breakdown": [list(part) for part in recovery.breakdown],
        "predicted_breakdown": [list(part) for part in predicted.breakdown] if predicted else [],
        "stages": [asdict(stage) for stage in recovery.stages],
        "steps_done": {str(rank): steps for rank, steps in recovery.steps_done.items()},
    }
    return row | verdict_columns(verdicts)


def neighbour_row(
    effect: NeighbourEffect,
    *,
    experiment: str,
    system: str,
    fabric: str,
    plan: FabricPlan,
    checksum_ok: bool | None,
    verdicts: Iterable[Verdict],
    predicted_before_s: float | None = None,
    predicted_after_s: float | None = None,
    **more: object,
) -> Row:
    """The row of a tenant that did not lose a chip: event ``neighbour``, step times before and after the fault."""
    row = _head(experiment, system, fabric, effect.neighbour, "neighbour")
    nothing = ("detect_s", "decide_s", "rewire_s", "checkpoint_s", "restart_s", "first_step_s", "outage_s")
    row |= dict.fromkeys(nothing)
    row |= {
        "step_time_before_s": effect.before_s,
        "step_time_after_s": effect.after_s,
        "lost_steps": None,
        "checksum_ok": checksum_ok,
        "faithful": False,
        "step_time_during_s": effect.during_s,
        "change": effect.change,
        "steps_before": effect.steps[0],
        "steps_during": effect.steps[1],
        "steps_after": effect.steps[2],
        "predicted_step_time_before_s": predicted_before_s,
        "predicted_step_time_after_s": predicted_after_s,
        **reserve_columns(plan),
        **more,
    }
    return row | verdict_columns(verdicts)


def prediction_row(
    predicted: PredictedRecovery, *, experiment: str, system: str, fabric: str, tenant: str, plan: FabricPlan
) -> Row:
    """The row of a prediction without a run: the columns of the model and the papers."""
    return {
        **_head(experiment, system, fabric, tenant, "predicted"),
        **_predicted_columns(predicted),
        **_paper_columns(fabric, given=set(dict(predicted.stages))),
        **reserve_columns(plan),
        "predicted_breakdown": [list(part) for part in predicted.breakdown],
    }


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows with ``after_to_photonic``: step time after the fault relative to the same tenant on the photonic rack.

    ``before_to_photonic`` and ``predicted_after_to_photonic`` are added too, and neighbours have all three. The values
    are None if the photonic rack was not measured.
    """
    base = {_tenant_key(row): row for row in reversed(rows) if row["fabric"] == PHOTONIC}
    made = []
    for row in rows:
        other = base.get(_tenant_key(row), {})
        ratios = {
            f"{name}_to_photonic": _ratio(row.get(key), other.get(key))
            for name, key in (
                ("before", "step_time_before_s"),
                ("after", "step_time_after_s"),
                ("predicted_after", "predicted_step_time_after_s"),
            )
        }
        made.append({**row, **ratios})
    return made


def reserve_columns(plan: FabricPlan) -> Row:
    """Columns with the number of spare chips and of all chips of the fabric."""
    spares = len(plan.rack.spares) if plan.rack is not None else 0
    return {"reserve_chips": spares, "chips": plan.ranks}


def verdict_columns(verdicts: Iterable[Verdict]) -> Row:
    """Columns ``faithful``, ``verdict`` and ``checks`` of several points together; without points not faithful."""
    found = list(verdicts)
    failed = [str(verdict) for verdict in found if not verdict.faithful]
    return {
        "faithful": bool(found) and not failed,
        "verdict": failed[0] if failed else "faithful" if found else "no point was judged",
        "checks": [asdict(check) for verdict in found for check in verdict.checks],
    }


def _head(experiment: str, system: str, fabric: str, tenant: str, event: str) -> Row:
    return {"experiment": experiment, "system": system, "fabric": fabric, "tenant": tenant, "event": event}


def _tenant_key(row: Row) -> tuple[str, bool]:
    return row["tenant"], row["event"] == "neighbour"


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _predicted_columns(predicted: PredictedRecovery | None) -> Row:
    names = ("detect_s", "decide_s", "rewire_s", "checkpoint_s", "restart_s", "first_step_s")
    more = ("step_time_before_s", "step_time_after_s")
    row = {f"predicted_{name}": getattr(predicted, name, None) for name in (*names, *more)}
    outage = predicted.outage if predicted else None
    for key, bound in (("", "mean"), ("_low", "low"), ("_high", "high")):
        row[f"predicted_outage{key}_s"] = getattr(outage, bound, None)
    for key in ("low", "high"):
        row[f"predicted_detect_{key}_s"] = getattr(predicted.detect, key) if predicted else None
    return row


def _paper_columns(fabric: str, given: Iterable[str]) -> Row:
    """Columns with the papers' values; their outage only if the ``given`` stages include their slow stages."""
    photonic = fabric == PHOTONIC
    electrical = fabric not in (PHOTONIC, MIGRATE)
    theirs = {"library", "data"} <= set(given)
    return {
        "paper_circuits_s": PAPER_CIRCUITS_S if photonic else None,
        "paper_rewire_s": PAPER_MIGRATION_S if fabric == MIGRATE else None,
        "paper_outage_s": PAPER_TIMELINE[-1][1] if photonic and theirs else None,
        "paper_after_to_photonic_low": PAPER_SLOWDOWN[0] if electrical else None,
        "paper_after_to_photonic_high": PAPER_SLOWDOWN[1] if electrical else None,
        "paper_after_to_photonic": fmean(PAPER_SLOWDOWN) if electrical else None,
    }
