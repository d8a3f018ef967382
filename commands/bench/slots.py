"""Benchmarks of circuits in slots of fixed length: how much of a slot's goodput the ranks get, and the shortest slot.

Both run the all-to-all experiment with a rotor (``experiments.collectives.all_to_all``): full slots, with a
reconfiguration before each one. The duty cycle is the payload that the ranks sent as a share of
what their ports carry without a pause.
"""

from __future__ import annotations

from typing import Any

from commands.bench import Measurement, NotMeasured, not_measured
from commands.bench.bed import Bed, rows_of
from experiments.collectives.all_to_all.experiment import FULL_CYCLES, LAST_CYCLE, AllToAll, AllToAllSettings
from experiments.settings import validated
from measure.results.row import Row
from railyard.errors import RailyardError
from railyard.scale import goodput_bytes_per_s

LEAST_DUTY, MOST_LOST_PERCENT = 0.87, 0.1
SLOT_MS, DELAY_MS, GUARD_MS = 10.0, 1.0, 0.1
FLOORS_MS = (20.0, 10.0, 5.0, 2.0)
FLOOR_SHARE, FLOOR_LIMIT_MS, FLOOR_DELAY_MS = 0.05, 2.0, 0.5
RANKS, PORT_GBPS = 8, 0.4
_MTU = 1500
"""At this rate a slot of 2 ms holds more than sixty packets of this MTU."""


class AnySlots(AllToAll):
    """The experiment with slots of any length: the benchmarks look for the shortest that this machine shows."""

    floored = False


def slots(bed: Bed) -> list[Measurement]:
    """Duty cycle of slots of 10 ms with 1 ms of delay, lost and misdelivered packets; needs root."""
    row = _slot_row(bed, SLOT_MS, DELAY_MS, RANKS)
    name = f"slots_{SLOT_MS:g}ms"
    duty = row["duty_cycle"]
    if duty is None:
        raise NotMeasured(f"the duty cycle of slots of {SLOT_MS:g} ms: no full cycle was seen")
    found = [bed.at_least(f"{name}_duty_cycle", duty, "of goodput", LEAST_DUTY)]
    found.append(Measurement(f"{name}_ideal_duty_cycle", row["ideal_duty_cycle"], "of goodput"))
    if row["misdelivered"] is None:
        found.append(not_measured(f"{name}_misdelivered", "this kernel does not count misdelivered packets"))
    else:
        found.append(bed.at_most(f"{name}_misdelivered", row["misdelivered"], "packets", 0, 0))
    lost = 1 - row["received_bytes"] / row["sent_bytes"]
    return [*found, bed.at_most(f"{name}_lost", lost * 100, "% of bytes", MOST_LOST_PERCENT)]


def shortest_slot(bed: Bed) -> list[Measurement]:
    """The shortest slot whose duty cycle is within 5 % of the planned one, as are those of longer slots; needs root."""
    found, shortest, why = [], None, ""
    for slot_ms in FLOORS_MS:
        try:
            row = _slot_row(bed, slot_ms, FLOOR_DELAY_MS, RANKS // 2)
        except RailyardError as error:
            why = str(error)
            break
        if row["duty_cycle"] is None:
            why = "no full cycle was seen"
            break
        ratio = row["duty_cycle"] / planned_duty(row)
        found.append(Measurement(f"floor_slot_{slot_ms:g}ms_over_plan", ratio, "ratio"))
        if ratio < 1 - FLOOR_SHARE:
            why = f"the duty cycle at {slot_ms:g} ms is {ratio:.3g} of the planned one"
            break
        shortest = slot_ms
    if shortest is None:
        return [not_measured("floor_slot", why), *found]
    return [bed.at_most("floor_slot", shortest, "ms", FLOOR_LIMIT_MS), *found]


def planned_duty(row: Row) -> float:
    """The duty cycle of ranks that send in each slot what is planned for it: less than its guard time leaves.

    The rest is for data that this machine sends late.
    """
    slot_bytes = row["bytes_per_pair"] / (FULL_CYCLES + LAST_CYCLE)
    period_s = (row["slot_ms"] + row["reconfiguration_delay_ms"]) / 1e3
    return float(slot_bytes / (goodput_bytes_per_s(row["port_gbps"], row["mtu"]) * period_s))


def _slot_row(bed: Bed, slot_ms: float, delay_ms: float, ranks: int) -> Row:
    values: dict[str, Any] = {
        "studies": ["slot"],
        "ranks": [ranks],
        "slots_ms": [slot_ms],
        "delays_ms": [delay_ms],
        "guard_ms": GUARD_MS,
        "port_gbps": PORT_GBPS,
        "mtu": _MTU,
        "iterations": 9,
        "datapath": bed.option,
    }
    (row,) = rows_of(AnySlots(validated(AllToAllSettings, values)))
    return row
