"""Ideal time of an all-to-all: slot by slot over circuits in slots, otherwise the time of its busiest port.

Source: PIP, arXiv 2501.18136: with D bytes per pair and a reconfiguration T before each of the n - 1 matchings,
(n - 1)(D / B + T). Other demands and variants have other slots, each as long as its longest transfer.
"""

from __future__ import annotations

from collections import defaultdict

from controllers.circuits.rotation import Cycle, Slot
from controllers.policies.catalog import load_policy
from controllers.policies.policy import slots_alone
from experiments.collectives.rounds import after_arrival_s
from experiments.collectives.trial import WORLD, Trial
from railyard.errors import ConfigError
from railyard.scale import Scale
from workloads.program import Group

Sizes = dict[tuple[int, int], float]
"""Bytes by (sender, receiver)."""


def formula(trial: Trial) -> float:
    """Ideal time of a trial in seconds of the real system.

    Provisioned rounds have their own law (``experiments.collectives.rounds``). In a schedule of two hops all data
    finishes the first hop before the second begins.
    """
    if trial.schedule.provisioned:
        return after_arrival_s(trial)
    if trial.cycle is None:
        return busiest_port_bytes(trial) / trial.fabric.bytes_per_s()
    rate = bytes_per_s(trial)
    return sum(size / rate + trial.reconfiguration_delay_s for size in _in_slots(trial, trial.cycle, slots_of(trial)))


def at_line_rate(trial: Trial) -> float:
    """Ideal time at line rate in real seconds; slots of fixed length count in full, except for the last."""
    if trial.cycle is None or trial.cycle.slot_s is None:
        return formula(trial)
    slots = slots_of(trial)
    longest = _in_slots(trial, trial.cycle, slots)
    stand = sum(slots[number % len(slots)].seconds or 0.0 for number in range(len(longest) - 1))
    return stand + longest[-1] / bytes_per_s(trial) + len(longest) * trial.reconfiguration_delay_s


def _in_slots(trial: Trial, cycle: Cycle, slots: tuple[Slot, ...]) -> list[float]:
    """The longest transfer of each slot, hop after hop."""
    rate = bytes_per_s(trial)
    return [size for hop in hops(trial) for size in longest_transfers(hop, slots, cycle.guard_s, rate)]


def bytes_per_s(trial: Trial) -> float:
    """Payload bytes per second that the ports of a rank carry together in one direction (in slots: that one port)."""
    ports = 2 if trial.cycle is None and trial.fabric.ports_per_rank > 1 else 1
    return ports * trial.fabric.bytes_per_s()


def busiest_port_bytes(trial: Trial) -> float:
    """Bytes that the busiest port sends or receives, including data that it forwards."""
    sizes, loads = chunk_sizes(trial), defaultdict[tuple[str, int, int], float](float)
    for t in trial.schedule.transfers:
        lane = t.lane if trial.fabric.ports_per_rank > 1 else 0
        loads["out", t.src, lane] += sizes[t.chunk]
        loads["in", t.dst, lane] += sizes[t.chunk]
    return max(loads.values(), default=0.0)


def chunk_sizes(trial: Trial) -> list[float]:
    """Bytes of each chunk of the trial's all-to-all."""
    plan = trial.schedule
    weights = plan.weights or (1,) * plan.chunks
    whole = sum(weights)
    return [trial.bytes * plan.n * (weight / whole) for weight in weights]


def slots_of(trial: Trial) -> tuple[Slot, ...]:
    """The slots of the trial's cycle, in times and rates of the real system."""
    policy = load_policy(trial.policy_name, trial.fabric.plan(Scale(1.0)))
    assert policy is not None
    return slots_alone(policy, Group(WORLD, trial.dimension, tuple(range(trial.schedule.n))), trial.cycle)


def hops(trial: Trial) -> list[Sizes]:
    """Bytes between each pair of ranks in each hop (round) of the schedule."""
    sizes = chunk_sizes(trial)
    found: list[Sizes] = [defaultdict(float) for _ in range(trial.schedule.rounds)]
    for t in trial.schedule.transfers:
        found[t.round][t.src, t.dst] += sizes[t.chunk]
    return found


def longest_transfers(sizes: Sizes, slots: tuple[Slot, ...], guard_s: float, rate: float) -> list[float]:
    """Bytes of the longest transfer of each slot until all of ``sizes`` is sent, at ``rate`` bytes per second.

    A slot of fixed length carries no more than fits before its guard time. ``ConfigError`` if no slot joins a pair that
    has bytes left.
    """
    left = {pair: size for pair, size in sizes.items() if size}
    longest: list[float] = []
    while left:
        in_cycle = [_serve(left, slot, guard_s, rate) for slot in slots]
        if not any(in_cycle):
            raise ConfigError(f"no slot joins position {min(left)[0]} to position {min(left)[1]}", key="policies")
        longest += in_cycle
    while longest and not longest[-1]:
        longest.pop()
    return longest


def _serve(left: Sizes, slot: Slot, guard_s: float, rate: float) -> float:
    """Subtract the bytes that one slot carries from ``left``; returns the bytes of its longest transfer."""
    room = float("inf") if slot.seconds is None else (slot.seconds - guard_s) * rate
    longest = 0.0
    for a, out, b, into in slot.paths:
        for pair in ((a, b), (b, a)) if out == into else ((a, b),):
            if pair in left:
                longest = max(longest, min(room, left[pair]))
                left[pair] -= room
                if left[pair] < 1:
                    del left[pair]
    return longest
