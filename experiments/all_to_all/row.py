"""What an all-to-all has in its row beside the columns of every case."""

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
"""A slot that is filled but for so much counts as full."""
MOST_LOST = 0.005
"""Bytes that may meet a dark port: they are sent again in a later light of their pair and take that much of it."""


def all_to_all_columns(
    trial: Trial, point: Point, events: Sequence[Event], row: Row, times: CollectiveTimes, delivered: Delivery | None
) -> Row:
    """The columns; seconds, bytes and bits of the real system.

    ``time_s`` is counted from the last arrival. ``formula_s``: with turns, each as long as its longest transfer and
    one reconfiguration, for uniform demand (n - 1)(D / B + T) (PIP, arXiv 2501.18136); else the bound of the wire. B is
    what full packets leave of a port's rate. ``duty_cycle`` is the share of B that a rank sent, on average: over the
    whole all-to-all, or where slots have a length over the cycles in which everybody has enough for a full slot
    (``full_cycles``); ``ideal_duty_cycle`` is what is possible there.
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
    """Whether everything arrived, and nowhere else."""
    wrong = (delivered.misdelivered or 0) if delivered is not None else 0
    ok = wrong == 0 and moved.conserved
    says = f"{wrong} packets came out at a host that they were not meant for"
    if not moved.conserved:
        says = f"{moved.sent_bytes} bytes were sent and {moved.received_bytes} received"
    return Check("delivery", float(wrong), 0.0, "packets", ok, says)


def loss_check(delivered: Delivery | None) -> Check:
    """Whether what was sent met light: a port that is late in its slot sends the rest into the dark, which the system
    that it stands for does not.
    """
    name, unit = "loss", "of bytes"
    if delivered is None or not delivered.sent_bytes:
        return Check(name, None, MOST_LOST, unit, True, f"{name}: not counted")
    share = delivered.lost_bytes / delivered.sent_bytes
    says = f"{delivered.lost_packets} packets were lost, {share:.2%} of all bytes (limit {MOST_LOST:.1%})"
    return Check(name, share, MOST_LOST, unit, share <= MOST_LOST, says)


def _judged(row: Row, checks: Sequence[Check]) -> Row:
    """The verdict of a row with some more checks."""
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
    """What can be said of a case without running it."""
    row = predicted_row(trial, plan)
    return {
        "experiment": plan.experiment,
        "study": trial.study,
        "fabric": trial.fabric.kind,
        "n": trial.schedule.n,
        "reconfiguration_delay_ms": trial.reconfiguration_delay_s * 1e3,
        **dict(trial.labels),
        "predicted_time_s": row["predicted_after_arrival_s"],
        "formula_s": formula(trial),
        "ideal_duty_cycle": _ideal_duty(trial.cycle, trial.reconfiguration_delay_s),
    }


def _ideal_duty(cycle: Cycle | None, delay_s: float) -> float | None:
    if cycle is None or cycle.slot_s is None:
        return None
    return (cycle.slot_s - cycle.guard_s) / (cycle.slot_s + delay_s)


def full_cycles(trial: Trial) -> int:
    """How many cycles of slots of a length everybody can fill; 0 where slots have none, or demand is not uniform."""
    cycle = trial.cycle
    if cycle is None or cycle.slot_s is None or cycle.demand or trial.schedule.weights:
        return 0
    return int(trial.bytes / trial.schedule.n / ((cycle.slot_s - cycle.guard_s) * bytes_per_s(trial)) * (1 + SPARE))


def duty_cycle(trial: Trial, point: Point, events: Sequence[Event], times: CollectiveTimes) -> float | None:
    """The share of their ports' payload rate that the ranks sent in the full cycles, the dark before each slot
    included: mean over the measured steps. None where there are none.
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
    """How many slots there were while a collective was under way."""
    first, last = min(arrivals), max(ends)
    return sum(1 for e in events if e.kind == "slot" and e.end is not None and e.end > first and e.t < last)
