"""Columns of an all-to-all's row in addition to those of every trial, and the checks of delivery and loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import fmean

from controllers.circuits.rotation import Cycle
from experiments.all_to_all.formula import bytes_per_s, formula, slots_of
from experiments.trials.plan import TrialPlan
from experiments.trials.run import predicted_row
from experiments.trials.trial import WORLD, Trial
from measure.live.delivery import Delivery, Payload, payload
from measure.metrics.collective import CollectiveTimes
from measure.metrics.fidelity import NOT_FAITHFUL, Check
from measure.metrics.point import Point
from measure.results.row import Row
from railyard.timeline import Event

SPARE = 0.05
"""Share of a slot that may stay empty for the slot to count as full."""
MOST_LOST = 0.005
"""Largest share of bytes that may be lost at dark ports; they are sent again in a later slot and take its time."""


def all_to_all_columns(
    trial: Trial, point: Point, events: Sequence[Event], row: Row, times: CollectiveTimes, delivered: Delivery | None
) -> Row:
    """The columns of an all-to-all, in seconds, bytes and bits of the real system.

    ``time_s`` counts from the last arrival. ``formula_s`` is the sum over slots of the longest transfer and one
    reconfiguration, for uniform demand (n - 1)(D / B + T) (PIP, arXiv 2501.18136); without slots it is the bound of the
    wire. B is a port's goodput with full packets. ``duty_cycle`` is the share of B that a rank sent, on average: over
    the whole all-to-all, or with slots of fixed length over the cycles in which every rank fills its slots
    (``full_cycles``); ``ideal_duty_cycle`` is the largest possible value there.
    """
    real, scale = point.scale.real_s, point.scale
    time_s = real(times.after_arrival_s)
    rate = bytes_per_s(trial)
    slots = [_slots_within(events, step.arrivals, step.ends) for step in times.steps]
    moved = payload(events, [WORLD])
    formula_s = formula(trial)
    per_rank = trial.bytes * (1 - (0 if trial.schedule.weights else 1 / trial.schedule.n))
    cycle = trial.cycle
    duty = duty_cycle(trial, point, events, times)
    return {
        "time_s": time_s,
        "predicted_time_s": row["predicted_after_arrival_s"],
        "formula_s": formula_s,
        "over_formula": time_s / formula_s if formula_s else None,
        "slots": sum(slots) / len(slots) if cycle is not None and slots else None,
        "duty_cycle": duty if duty is not None else per_rank / rate / time_s if time_s else None,
        "ideal_duty_cycle": _ideal_duty(cycle, trial.reconfiguration_delay_s),
        "full_cycles": full_cycles(trial),
        "goodput_gbps": per_rank * 8 / time_s / 1e9 if time_s else None,
        "payload_sent_bytes": scale.real_bytes(moved.sent_bytes),
        "payload_received_bytes": scale.real_bytes(moved.received_bytes),
        "misdelivered": None if delivered is None else delivered.misdelivered,
        "sent_bytes": None if delivered is None else delivered.sent_bytes,
        "received_bytes": None if delivered is None else delivered.received_bytes,
        "lost_packets": None if delivered is None else delivered.lost_packets,
        **_judged(row, (delivery_check(delivered, moved), loss_check(delivered))),
    }


def delivery_check(delivered: Delivery | None, moved: Payload) -> Check:
    """The check that all bytes arrived, and no packet at a wrong host."""
    wrong = (delivered.misdelivered or 0) if delivered is not None else 0
    ok = wrong == 0 and moved.conserved
    says = f"{wrong} packets arrived at a host other than their destination"
    if not moved.conserved:
        says = f"{moved.sent_bytes} bytes were sent and {moved.received_bytes} received"
    return Check("delivery", float(wrong), 0.0, "packets", ok, says)


def loss_check(delivered: Delivery | None) -> Check:
    """The check that few bytes were lost at dark ports.

    A port of the emulator that is late in its slot sends the rest while its circuit is down, which the real system does
    not.
    """
    name, unit = "loss", "of bytes"
    if delivered is None or not delivered.sent_bytes:
        return Check(name, None, MOST_LOST, unit, True, f"{name}: not counted")
    share = delivered.lost_bytes / delivered.sent_bytes
    says = f"{delivered.lost_packets} packets were lost, {share:.2%} of all bytes (limit {MOST_LOST:.1%})"
    return Check(name, share, MOST_LOST, unit, share <= MOST_LOST, says)


def _judged(row: Row, checks: Sequence[Check]) -> Row:
    """The verdict columns of a row with further checks."""
    failed = [check.says for check in checks if not check.ok]
    if failed and not row["faithful"]:
        failed.insert(0, row["verdict"])
    elif failed:
        failed[0] = f"{NOT_FAITHFUL}: {failed[0]}"
    faithful = row["faithful"] and all(check.ok for check in checks)
    return {
        "faithful": faithful,
        "verdict": "; ".join(failed) or row["verdict"],
        "checks": [*row["checks"], *map(asdict, checks)],
    }


def predicted_all_to_all_row(trial: Trial, plan: TrialPlan) -> Row:
    """The row of a prediction, for a trial that is not run."""
    row = predicted_row(trial, plan)
    return {
        "experiment": plan.experiment,
        "study": trial.study,
        "fabric": trial.fabric.kind,
        "n": trial.schedule.n,
        "reconfiguration_delay_ms": trial.reconfiguration_delay_s * 1e3,
        **dict(trial.tags),
        "predicted_time_s": row["predicted_after_arrival_s"],
        "formula_s": formula(trial),
        "ideal_duty_cycle": _ideal_duty(trial.cycle, trial.reconfiguration_delay_s),
    }


def _ideal_duty(cycle: Cycle | None, delay_s: float) -> float | None:
    if cycle is None or cycle.slot_s is None:
        return None
    return (cycle.slot_s - cycle.guard_s) / (cycle.slot_s + delay_s)


def full_cycles(trial: Trial) -> int:
    """Number of cycles in which ranks fill all slots; 0 without slots of fixed length or without uniform demand."""
    cycle = trial.cycle
    if cycle is None or cycle.slot_s is None or cycle.demand or trial.schedule.weights:
        return 0
    return int(trial.bytes / trial.schedule.n / ((cycle.slot_s - cycle.guard_s) * bytes_per_s(trial)) * (1 + SPARE))


def duty_cycle(trial: Trial, point: Point, events: Sequence[Event], times: CollectiveTimes) -> float | None:
    """Share of their ports' payload rate that ranks sent in the full cycles, as the mean over the measured steps.

    The time includes the dark time before each slot. None without full cycles.
    """
    cycles = full_cycles(trial)
    count = cycles * len(slots_of(trial)) if cycles else 0
    shares = []
    for step in times.steps if count else ():
        slots = [e for e in events if e.kind == "slot" and min(step.arrivals) <= e.t < max(step.ends)][:count]
        if len(slots) < count or slots[-1].end is None:
            return None
        first, last = slots[0].t, slots[-1].t
        sent = sum(e["bytes"] for e in events if e.kind == "sent_in_slot" and first <= e.t <= last)
        could = bytes_per_s(trial) * point.scale.rate * (slots[-1].end - max(step.arrivals)) * trial.schedule.n
        shares.append(sent / could)
    return fmean(shares) if shares else None


def _slots_within(events: Iterable[Event], arrivals: Sequence[float], ends: Sequence[float]) -> int:
    """Number of slots that overlap the time of a collective."""
    first, last = min(arrivals), max(ends)
    return sum(1 for e in events if e.kind == "slot" and e.end is not None and e.end > first and e.t < last)
