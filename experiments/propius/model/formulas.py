"""What edge transfers cost by formula: one GET or PUSH, bytes on the link of the root server, a round over the trunk.

A connection is open before a transfer begins, so one round trip is counted: the request there and the first byte of
the answer back (GET), or the last byte there and the acknowledgement back (PUSH). The payload moves at the goodput of
the slowest link (``railyard.scale.goodput_share``). TCP's slow start is left out, which costs short transfers over
long delays some round trips more.

A round over the trunk is that of one job with equal clients in ``regions`` regions: each leaf server fetches the model
from the root and, ``work_s`` seconds after it has it, sends its sum to the root (what clients download, train and
upload, and the idle time of the leaf, are in ``work_s``). ``transfer_s`` is the time of one model, or sum, alone on the
trunk; ``delay_s`` that of a reconfiguration. All regions ask at once when the round begins, at 0. Derived by us;
``experiments.propius.control.trunk`` is the arbiter meant here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf

from experiments.propius.data.messages import Mode
from railyard.scale import MTU_BYTES, goodput_share


def transfer_s(size_bytes: float, rate_mbps: float, round_trip_s: float, mtu_bytes: int = MTU_BYTES) -> float:
    """Seconds of a GET or PUSH of ``size_bytes`` whose slowest link has ``rate_mbps``."""
    return size_bytes * 8 / (rate_mbps * 1e6 * goodput_share(mtu_bytes)) + round_trip_s


def root_bytes(clients_per_region: Sequence[int], size_bytes: float, topology: str, mode: Mode) -> tuple[float, float]:
    """Least and most payload bytes that leave the root to hand out one model; both are equal where the law is exact.

    In a star each client fetches the model from the root. In a tree of mode ``fixed`` each leaf with a client fetches
    it once. In mode ``authors`` each request that finds the leaf without the model fetches it: once a leaf if the
    clients come one after the other, once a client if they come together. What the updates bring to the root is the
    same number of bytes in a star, and one sum for each flush in a tree.
    """
    together = sum(clients_per_region) * size_bytes
    apart = sum(1 for clients in clients_per_region if clients) * size_bytes
    if topology == "star":
        return together, together
    return (apart, apart) if mode == "fixed" else (apart, together)


_ROUNDING = 1e-9


def turns_round_s(regions: int, transfer_s: float, work_s: float, delay_s: float) -> float:
    """Seconds of a round when the regions take turns on an optical trunk (policies ``phase`` and ``demand``).

    Models are handed out one after another, each after a
    reconfiguration; with u = ``delay_s`` + ``transfer_s``, the leaf of the k-th region (from 1) asks to flush at
    k u + ``work_s``. Requests for models are older, so the first flush waits for the last model. Flushes take u
    each and are asked for u apart, so they either all begin at once or all wait for each other:

        max((R + 1) u + work, 2 R u),

    but with one region the circuit stays up for the flush.
    """
    turn_s = delay_s + transfer_s
    if regions == 1:
        return turn_s + work_s + transfer_s
    return max((regions + 1) * turn_s + work_s, 2 * regions * turn_s)


def rotor_round_s(
    regions: int, transfer_s: float, work_s: float, delay_s: float, slot_s: float, began_s: float = 0.0
) -> float:
    """Seconds of a round when the regions have slots of ``slot_s`` seconds in turn, each after a reconfiguration.

    At the beginning of the round the rotation is ``began_s`` seconds after the beginning of a reconfiguration to region
    0. A transfer begins in a slot whose rest is at least ``transfer_s``, so ``slot_s`` may not be less (the result is
    then infinite). A single region keeps its circuit, and its slots follow each other without a gap.
    """
    if slot_s < transfer_s * (1 - _ROUNDING):
        return inf
    gap_s = delay_s if regions > 1 else 0.0
    ends = []
    for region in range(regions):
        first_s = region * (gap_s + slot_s) + delay_s  # the beginning of the first slot of the region

        def begins(asked_s: float, first_s: float = first_s) -> float:
            cycle_s = regions * (gap_s + slot_s)
            slot = max(floor((asked_s - first_s) / cycle_s + _ROUNDING), 0)
            into_s = asked_s - first_s - slot * cycle_s
            if into_s > slot_s - transfer_s + _ROUNDING:
                slot, into_s = slot + 1, 0.0
            return first_s + slot * cycle_s + max(into_s, 0.0)

        fetched_s = begins(began_s) + transfer_s
        ends.append(begins(fetched_s + work_s) + transfer_s)
    return max(ends) - began_s


def shared_round_s(regions: int, transfer_s: float, work_s: float) -> float:
    """Seconds of a round when all regions share an electrical trunk fairly: 2 R transfers and the work between.

    TCP shares less evenly, and a leaf that has its model sooner flushes beside the work of the others: measured rounds
    of 3 regions were 1 to 10 % shorter. No round is shorter than with turns that cost nothing,
    ``turns_round_s(R, s, work, 0)``.
    """
    return 2 * regions * transfer_s + work_s


def crossing_delay_s(regions: int, transfer_s: float, work_s: float) -> float:
    """The reconfiguration delay at which turns on an optical trunk take as long as sharing an electrical one.

    With a shorter delay turns are faster, since flushes go on beside the work of other regions. From
    (R + 1) (d + s) + work = 2 R s + work it is (R - 1) / (R + 1) s. That holds while the first flush waits for no
    model: work >= (R - 1) (d + s) = 2 R (R - 1) / (R + 1) s. With less work the equation is 2 R (d + s) = 2 R s + work,
    and the delay is work / (2 R).
    """
    return min((regions - 1) / (regions + 1) * transfer_s, work_s / (2 * regions))


def answer_s(checkins_per_s: float, service_s: float, managers: int) -> float:
    """Mean seconds until a check-in is answered by one of ``managers`` client managers, each with its own processor.

    Each manager is a queue of its own, M/M/1, since the load balancer deals the clients out: service / (1 - load), with
    a load of check-ins per second x ``service_s`` / managers. Infinite from a load of 1 on.
    """
    load = checkins_per_s * service_s / managers
    return service_s / (1 - load) if load < 1 else inf
