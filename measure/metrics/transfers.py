"""Bandwidth of whole operations across their members, by the definitions of nccl-tests and against line rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from measure.metrics.critical import Critical
from measure.metrics.point import Point
from measure.metrics.quantiles import median
from railyard.timeline import Event
from workloads.schedule import bus_factor

_TOGETHER = 0.1
"""Largest difference between the starts of the members, as a share of the operation's duration."""


@dataclass(frozen=True)
class ObservedTransfer:
    """One collective, or one send with its receive. Wall-clock seconds, emulated bytes.

    - ``first_t`` and ``t``: when the first and the last member began; ``end``: when the last member finished;
    - ``ideal_s``: the least time at the rate of the ports: that of the bytes of the busiest member or, if longer, of
      the critical path of the schedule (``Point.critical``); where links between switches are shared, the time by the
      model (``Point.operations_s``);
    - ``line_rate_share``: ``ideal_s`` against ``seconds``; None where no rate is known (scale-up);
    - ``rounds``: number of successive rounds of messages (0: unknown); ``changes``: number of changes of circuits
      between them.
    """

    kind: str
    group: str
    members: int
    bytes: int
    t: float
    end: float
    first_t: float
    ideal_s: float
    line_rate_share: float | None
    rounds: int = 0
    changes: int = 0

    @property
    def together(self) -> bool:
        """Whether the members began almost together; else data sent before ``t`` makes the rate too high."""
        return self.t - self.first_t <= _TOGETHER * (self.ideal_s or self.seconds)

    @property
    def seconds(self) -> float:
        """Duration from the last member's start to the last member's end."""
        return self.end - self.t


@dataclass(frozen=True)
class Bandwidth:
    """Median algbw and busbw of one kind of operation in GB/s (1e9 bytes/s) of the real system, and their count.

    ``seconds`` and ``bytes`` are medians, too, in units of the real system.
    """

    count: int
    algbw_gb_s: float
    busbw_gb_s: float
    seconds: float
    bytes: float


def read_transfers(point: Point, events: Iterable[Event], measured: Iterable[int]) -> tuple[ObservedTransfer, ...]:
    """The operations on the rails in the measured steps, matched across ranks.

    The k-th operation of a group and kind in a step is the same operation on every member; a send is matched with the
    receive of its peer. Operations that some members did not finish are left out.
    """
    wanted = set(measured)
    queues: dict[tuple[int, str, str], dict[tuple[int, str], list[Event]]] = defaultdict(lambda: defaultdict(list))
    for e in events:
        if e.source == "agent" and e.kind == "communicate" and e.end is not None and e["step"] in wanted:
            group = point.groups.get(e["group"])
            if group is None or group.domain != "scale-out":
                continue
            kind = e["op_kind"]
            shared = "send_recv" if kind in ("send", "recv") else kind
            queues[e["step"], e["group"], shared][e["rank"], kind].append(e)
    found: list[ObservedTransfer] = []
    for (_, group_name, kind), of_rank in queues.items():
        members = point.groups[group_name].members
        found += _pairs(point, of_rank, members) if kind == "send_recv" else _collectives(point, of_rank, members)
    return tuple(sorted(found, key=lambda t: t.t))


def _collectives(
    point: Point, of_rank: dict[tuple[int, str], list[Event]], members: Sequence[int]
) -> Iterable[ObservedTransfer]:
    if {rank for rank, _ in of_rank} != set(members):
        return []
    ordered = [sorted(queue, key=lambda e: e.t) for queue in of_rank.values()]
    return [_transfer(point, together, len(members)) for together in zip(*ordered, strict=False)]


def _pairs(
    point: Point, of_rank: dict[tuple[int, str], list[Event]], members: Sequence[int]
) -> Iterable[ObservedTransfer]:
    for sender, receiver in ((members[0], members[-1]), (members[-1], members[0])):
        sent = sorted(of_rank.get((sender, "send"), []), key=lambda e: e.t)
        received = sorted(of_rank.get((receiver, "recv"), []), key=lambda e: e.t)
        for pair in zip(sent, received, strict=False):
            yield _transfer(point, pair, 2)


def _transfer(point: Point, together: Sequence[Event], members: int) -> ObservedTransfer:
    start, end = max(_began(e) for e in together), max(e.end or e.t for e in together)
    key = together[0]["group"], together[0].get("name", "")
    critical = point.critical.get(key)
    ideal = point.operations_s.get(key)
    if ideal is None:
        ideal = max(_sent_s(point, together, start, end), _critical_s(point, together, critical))
    kind = "send_recv" if together[0]["op_kind"] in ("send", "recv") else together[0]["op_kind"]
    share = ideal / (end - start) if ideal and end > start else None
    return ObservedTransfer(
        kind=kind,
        group=together[0]["group"],
        members=members,
        bytes=max(e["bytes"] for e in together),
        t=start,
        end=end,
        first_t=min(_began(e) for e in together),
        ideal_s=ideal,
        line_rate_share=share,
        rounds=critical.rounds if critical else 0,
        changes=critical.changes if critical else 0,
    )


def _began(e: Event) -> float:
    """When a member began: for a collective, when it was posted, since its first byte may come rounds later (in trees).

    A receive may be posted long before its send and begins with the data.
    """
    return float(e.t if e["op_kind"] in ("send", "recv") else e.get("posted", e.t))


def _sent_s(point: Point, together: Sequence[Event], start: float, end: float) -> float:
    """Seconds for the bytes of the busiest member at the rate of its ports.

    Members that began well before the last one are left out, since they may have sent data before ``start``.
    """
    ideal = 0.0
    for e in together:
        rate = _line_rate_bps(point, e)
        if rate and e.get("sent_bytes") and start - _began(e) <= _TOGETHER * (end - start):
            ideal = max(ideal, e["sent_bytes"] * 8 / rate)
    return ideal


def _critical_s(point: Point, together: Sequence[Event], critical: Critical | None) -> float:
    """Seconds for the critical path from the last member's start, at the rate of the slowest port."""
    rates = [port.rate_mbps for e in together for port in point.plan.rail_ports(e["rank"])]
    if critical is None or not rates:
        return 0.0
    *others, last = sorted(together, key=_began)
    gap = _began(last) - _began(others[-1]) if others else 0.0
    return critical.seconds(min(rates) * 1e6 / 8 * point.plan.goodput_share, last["rank"], gap)


def _line_rate_bps(point: Point, e: Event) -> float:
    """TCP goodput in bit/s of the ports an operation sends on: the event's ``lanes`` if given, else the default ones.

    By default a ring uses lanes 0 and 1, a send lane 0, or lane 2 of the four ports of one-shot.
    """
    ports = point.plan.rail_ports(e["rank"])
    lanes = e.get("lanes")
    if lanes is None:
        chain = e["op_kind"] in ("send", "recv")
        first = 2 if chain and len(ports) >= 4 else 0
        lanes = range(first, first + (1 if chain else 2))
    return sum(p.rate_mbps for p in ports if p.lane in lanes) * 1e6 * point.plan.goodput_share


def bandwidths(point: Point, transfers: Iterable[ObservedTransfer]) -> dict[str, Bandwidth]:
    """Median algbw and busbw per kind of operation, in the real system's units.

    algbw = bytes / time (nccl-tests), with the time from the last member's start to the last member's end. In
    nccl-tests all members begin together, so other operations are left out unless there are only such.
    """
    by_kind: dict[str, list[ObservedTransfer]] = defaultdict(list)
    for t in transfers:
        if t.end > t.t:
            by_kind[t.kind].append(t)
    found = {}
    for kind, everything in sorted(by_kind.items()):
        members = [t for t in everything if t.together] or everything
        algbw = [point.scale.real_bytes(t.bytes) / point.scale.real_s(t.seconds) / 1e9 for t in members]
        busbw = [a * bus_factor(kind, t.members) for a, t in zip(algbw, members, strict=True)]
        found[kind] = Bandwidth(
            count=len(members),
            algbw_gb_s=median(algbw) or 0.0,
            busbw_gb_s=median(busbw) or 0.0,
            seconds=median(point.scale.real_s(t.seconds) for t in members) or 0.0,
            bytes=median(point.scale.real_bytes(t.bytes) for t in members) or 0.0,
        )
    return found
