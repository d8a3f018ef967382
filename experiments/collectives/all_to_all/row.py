"""The row of an all-to-all, and the checks of delivery and loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, ClassVar

from controllers.circuits.rotation import Cycle
from experiments.collectives.all_to_all.formula import bytes_per_s, formula, slots_of
from experiments.collectives.row import TrialRow
from experiments.collectives.trial import WORLD, Trial
from measure.live.delivery import Delivery, Payload, payload
from measure.metrics.checks import Check, Verdict, not_measured
from measure.metrics.collective import CollectiveTimes
from measure.metrics.point import Point
from measure.model.prediction import Prediction
from railyard.scale import Scale
from railyard.timeline import Event

if TYPE_CHECKING:
    from experiments.runner import Measured

SPARE = 0.05
"""Share of a slot that may stay empty for the slot to count as full."""
MOST_LOST = 0.005
"""Largest share of bytes that may be lost at dark ports; they are sent again in a later slot and take its time."""


@dataclass(kw_only=True)
class AllToAllRow(TrialRow):
    """One all-to-all; ``time_s`` counts from the last arrival, in seconds of the real system.

    ``formula_s`` is the sum over slots of the longest transfer and one reconfiguration, for uniform demand
    (n - 1)(D / B + T) (PIP, arXiv 2501.18136); without slots it is the bound of the wire. B is a port's goodput with
    full packets.
    """

    main: ClassVar[tuple[str, ...]] = (*TrialRow.main, "duty_cycle")
    given: ClassVar[frozenset[str]] = TrialRow.given | {"slot_ms", "guard_ms", "formula_s", "ideal_duty_cycle"}

    policy: Annotated[str, "variant: electrical, rotor, valiant, demand or multi-hop"]
    bytes_per_pair: Annotated[int, "bytes from each rank to each other, on average"]
    slot_ms: Annotated[float | None, "up time of a slot; empty: until all ranks have sent"] = None
    guard_ms: Annotated[float | None, "guard time in slots of fixed length"] = None
    demand: Annotated[str, "demand matrix"] = "uniform"
    mesh: Annotated[str, "size of the photonic mesh that serves as switch"] = ""
    slots: Annotated[float | None, "slots in an all-to-all, mean over the iterations"] = None
    duty_cycle: Annotated[float | None, "share of a port's goodput that a rank sent, in full cycles or overall"] = None
    ideal_duty_cycle: Annotated[float | None, "largest possible duty cycle of slots of fixed length"] = None
    full_cycles: Annotated[int, "cycles in which every rank fills its slots"] = 0
    goodput_gbps: Annotated[float | None, "bytes of a rank over the time"] = None
    payload_sent_bytes: Annotated[float | None, "payload that ranks sent, in bytes of the real system"] = None
    payload_received_bytes: Annotated[float | None, "payload that ranks received, likewise"] = None

    def predict(self, trial: Trial, scale: Scale, prediction: Prediction) -> None:
        super().predict(trial, scale, prediction)
        self.by_formula(trial)

    def measure(self, trial: Trial, scale: Scale, found: Measured, times: CollectiveTimes) -> None:
        super().measure(trial, scale, found, times)
        self.by_measurement(trial, found, times)

    def by_formula(self, trial: Trial) -> None:
        """Set the fields that need no measurement; the time of the model counts from the last arrival too."""
        self.predicted_time_s = self.predicted_after_arrival_s
        self.formula_s = formula(trial)
        self.ideal_duty_cycle = _ideal_duty(trial.cycle, trial.reconfiguration_delay_s)
        self.full_cycles = full_cycles(trial)

    def by_measurement(self, trial: Trial, found: Measured, times: CollectiveTimes) -> None:
        """Set the measured fields, and add the checks of delivery and loss to the verdict."""
        time_s = self.time_s = self.after_arrival_s
        slots = [_slots_within(found.events, step.arrivals, step.ends) for step in times.steps]
        per_rank = trial.bytes * (1 - (0 if trial.schedule.weights else 1 / trial.schedule.n))
        self.slots = fmean(slots) if trial.cycle is not None and slots else None
        self.duty_cycle = duty_cycle(trial, found.point, found.events, times)
        if time_s:
            self.over_formula = time_s / self.formula_s if self.formula_s else None
            self.goodput_gbps = per_rank * 8 / time_s / 1e9
            if self.duty_cycle is None:
                self.duty_cycle = per_rank / bytes_per_s(trial) / time_s
        moved, scale = payload(found.events, [WORLD]), found.point.scale
        self.payload_sent_bytes = scale.real_bytes(moved.sent_bytes)
        self.payload_received_bytes = scale.real_bytes(moved.received_bytes)
        checks = (*found.verdict.checks, delivery_check(found.delivered, moved), loss_check(found.delivered))
        self.judge(Verdict(all(check.ok for check in checks), checks))


def delivery_check(delivered: Delivery | None, moved: Payload) -> Check:
    """The check that all bytes arrived, and no packet at a wrong host."""
    name, unit = "delivery", "packets"
    if delivered is None:
        return not_measured(name, 0.0, unit, "the counters of the rails were not read")
    if delivered.misdelivered is None:
        return not_measured(name, 0.0, unit, "a kernel before 5.19 does not count packets at a wrong host")
    if not moved.sent_bytes:
        return not_measured(name, 0.0, unit, "no agent reported what it sent")
    wrong = delivered.misdelivered
    says = f"{wrong} packets arrived at a host other than their destination"
    if not moved.conserved:
        says = f"{moved.sent_bytes} bytes were sent and {moved.received_bytes} received"
    return Check(name, float(wrong), 0.0, unit, not wrong and moved.conserved, says)


def loss_check(delivered: Delivery | None) -> Check:
    """The check that few bytes were lost at dark ports.

    A port of the emulator that is late in its slot sends the rest while its circuit is down, which the real system does
    not.
    """
    name, unit = "loss", "of bytes"
    if delivered is None or not delivered.sent_bytes:
        return not_measured(name, MOST_LOST, unit, "the counters of the rails were not read, or count nothing")
    share = delivered.lost_bytes / delivered.sent_bytes
    says = f"{delivered.lost_packets} packets were lost, {share:.2%} of all bytes (limit {MOST_LOST:.1%})"
    return Check(name, share, MOST_LOST, unit, share <= MOST_LOST, says)


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
