"""Checks that all was recorded which the other checks look at: none of them may pass on what is missing. Pure.

A process that died, a file that was cut or a counter that was not read leaves less data, and less data shows less
trouble. Each source therefore says how much it has recorded: the controller numbers its events and ends with that of
the finished job, an agent and the sampler end with the number of their events, and the sampler and the counters must
have readings from before the first measured step until after the last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from measure.metrics.checks import Check, Limits, does_not_apply, machine_names, not_measured, on_machine
from measure.metrics.intervals import Interval, difference, overlap, union
from measure.metrics.point import Point
from measure.metrics.steps import Steps
from railyard.timeline import Event
from topos.plan import FabricPlan

_WHOSE = {"qdisc": "interface", "switch": "switch", "forwarding": "machine"}
"""Kinds of counters, and the field that says whose they are."""


def records_checks(point: Point, events: Sequence[Event], limits: Limits) -> Iterable[Check]:
    """The checks of what a point must have recorded; of a part of a run only those that each part can be judged by."""
    interval = measured_interval(events)
    ranks = {rank for group in point.groups.values() for rank in group.members}
    ports = [port for switch in point.plan.switches for port in switch.ports if port.rank in ranks]
    if not point.part:
        yield logs_check(events)
        yield agents_check(ranks, events)
        yield controller_check(point.name if point.controlled else None, events)
        yield from remote_check(events)
        yield sampler_check(events)
    yield samples_check(interval, events, [port.interface for port in ports], limits)
    switches = [switch.name for switch in point.plan.switches]
    yield counters_check(interval, events, ranks, switches, lossy=point.plan.lossy)


def fabric_checks(
    events: Sequence[Event], plan: FabricPlan, limits: Limits, interval: Interval | None = None
) -> Iterable[Check]:
    """The checks that the files are whole and that all links, queues and switches of ``plan`` were read.

    ``interval``: from when to when; None: from the first sample of a link to the last.
    """
    times = [e.t for e in events if e.source == "link" and e.kind == "bytes"]
    interval = interval or (min(times, default=0.0), max(times, default=0.0))
    ports = [port for switch in plan.switches for port in switch.ports]
    yield logs_check(events)
    yield sampler_check(events)
    yield samples_check(interval, events, [port.interface for port in ports], limits)
    switches = [switch.name for switch in plan.switches]
    yield counters_check(interval, events, {port.rank for port in ports}, switches, lossy=plan.lossy)


def remote_check(events: Iterable[Event]) -> Iterable[Check]:
    """A check that fails, if a remote controller left during the point; none otherwise."""
    for e in events:
        if e.source == "run" and e.kind == "left":
            yield Check("your controller", 1.0, 0, "times left", False, e["what"])


def numbers_check(events: Iterable[Event]) -> Check:
    """The check that no number is missing among the events of processes that number theirs."""
    lost = sum(e["events"] for e in events if e.source == "run" and e.kind == "lost")
    if lost:
        return not_measured("event numbers", 0, "events missing", f"{lost} events of the run's processes are missing")
    return Check("event numbers", 0.0, 0, "events missing", True, "no number of an event is missing")


def measured_interval(events: Iterable[Event]) -> Interval:
    """From the start of the first complete step to the end of the last; empty at 0 if there is none."""
    steps = Steps.read(events)
    if not steps.complete:
        return 0.0, 0.0
    return steps.job(steps.complete[0])[0], steps.job(steps.complete[-1])[1]


def logs_check(events: Iterable[Event]) -> Check:
    """The check that every line of a log is readable (``railyard.timeline.events_in``)."""
    cut = sum(e["lines"] for e in events if e.source == "run" and e.kind == "cut")
    if cut:
        return not_measured("logs", 0, "lines", f"{cut} lines of the events' files are not readable")
    return Check("logs", 0.0, 0, "lines", True, "every line of the events' files is readable")


def agents_check(ranks: Collection[int], events: Iterable[Event]) -> Check:
    """The check that every agent of ``ranks`` came to its end, and that all of its events are there.

    The last event of an agent, ``sockets``, has the number of those before it.
    """
    name, unit = "agent events", "events missing"
    counts: Counter[int] = Counter()
    announced: dict[int, int] = defaultdict(int)
    for e in events:
        if e.source == "agent":
            counts[e["rank"]] += e.kind != "sockets"
            if e.kind == "sockets" and e.get("events") is not None:
                announced[e["rank"]] += e["events"]
    silent = sorted(set(ranks) - set(announced))
    if silent:
        return not_measured(name, 0, unit, f"the events of rank {silent[0]} have no end")
    missing = {rank: announced[rank] - counts[rank] for rank in sorted(ranks) if counts[rank] < announced[rank]}
    if missing:
        rank = next(iter(missing))
        what = f"{missing[rank]} of {announced[rank]} events of rank {rank} are missing"
        return not_measured(name, 0, unit, what)
    return Check(name, 0.0, 0, unit, True, f"all events of {len(ranks)} agents are there")


def controller_check(job: str | None, events: Iterable[Event]) -> Check:
    """The check that all events of the controller are there, up to the end of ``job`` (None: it needs no controller).

    The controller numbers its events, those of switches included; ``finished`` of the job ends them. Events that are
    missing before the first one are known from an event ``lost`` of the run.
    """
    name, unit = "controller events", "events missing"
    if job is None:
        return does_not_apply(name, 0, unit, "packets are forwarded without Railyard's controller")
    events = list(events)
    mine = [e for e in events if e.source in ("controller", "switch")]
    end = max((e.get("n", -1) for e in mine if e.kind == "finished" and e["job"] == job), default=-1)
    if end < 0:
        return not_measured(name, 0, unit, f"the controller's events have no end of job {job}")
    numbers = {e["n"] for e in mine if 0 <= e.get("n", -1) <= end}
    before = sum(e["events"] for e in events if e.source == "run" and e.kind == "lost")
    missing = max(before, end + 1 - min(numbers) - len(numbers))
    if missing:
        return not_measured(
            name, 0, unit, f"{missing} of {missing + len(numbers)} events of the controller are missing"
        )
    return Check(name, 0.0, 0, unit, True, f"all {len(numbers)} events of the controller are there")


def sampler_check(events: Iterable[Event]) -> Check:
    """The check that all events of the sampler are there; the last one, ``sampled``, has the number of those before."""
    name, unit = "sampler events", "events missing"
    found, announced = 0, defaultdict[str | None, int](int)
    events = list(events)
    for e in events:
        if e.source == "link":
            found += e.kind in ("bytes", "cpu")
            if e.kind == "sampled":
                announced[e.get("machine")] += e["events"]
    endless = [machine for machine in machine_names(events) if machine not in announced]
    if endless:
        return on_machine(endless[0], not_measured(name, 0, unit, "the events of the sampler have no end"))
    whole = sum(announced.values())
    missing = whole - found
    if missing > 0:
        return not_measured(name, 0, unit, f"{missing} of {whole} events of the sampler are missing")
    return Check(name, 0.0, 0, unit, True, f"all {found} events of the sampler are there")


def samples_check(interval: Interval, events: Iterable[Event], interfaces: Collection[str], limits: Limits) -> Check:
    """The check that processors of every machine and ``interfaces`` were sampled during the whole ``interval``."""
    name, (start, end) = "samples", interval
    limit = max(limits.sample_gap_s, min(limits.sample_gap_most_s, limits.sample_gap_share * (end - start)))
    events = list(events)
    covered: dict[str | None, list[Interval]] = {machine: [] for machine in machine_names(events)}
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for e in events:
        if e.source != "link":
            continue
        if e.kind == "cpu" and e.end is not None:
            covered[e.get("machine")].append((e.t, e.end))
        elif e.kind == "bytes":
            first[e["interface"]] = min(e.t, first.get(e["interface"], e.t))
            last[e["interface"]] = max(e.t, last.get(e["interface"], e.t))
    gaps = {machine: _longest_gap(interval, times) for machine, times in covered.items()}
    gap = max(gaps.values())
    if gap > limit:
        says = f"for {gap:.3g} s of {end - start:.3g} s of wall-clock time no processor was sampled"
        return on_machine(max(gaps, key=lambda each: gaps[each]), not_measured(name, limit, "s", says))
    missing = [each for each in interfaces if each not in first]
    if missing:
        return not_measured(name, limit, "s", f"no counters of {missing[0]} were sampled")
    late = {each: max(first[each] - start, end - last[each]) for each in interfaces}
    if late and max(late.values()) > limit:
        worst = max(late, key=lambda each: late[each])
        return not_measured(
            name, limit, "s", f"for {late[worst]:.3g} s of wall-clock time no counters of {worst} were sampled"
        )
    return Check(
        name, gap, limit, "s", True, f"the longest time between two samples was {gap:.3g} s of wall-clock time"
    )


def _longest_gap(interval: Interval, covered: Sequence[Interval]) -> float:
    """The longest time of ``interval`` without a sample, or within one."""
    gaps = difference([interval], union(covered))
    return max((until - since for since, until in (*gaps, *overlap([interval], covered))), default=0.0)


def counters_check(
    interval: Interval,
    events: Iterable[Event],
    ranks: Collection[int],
    switches: Collection[str],
    *,
    lossy: bool = False,
) -> Check:
    """The check that queues of ``ranks``, ``switches`` and the datapath were read before and after ``interval``."""
    name, unit = "counters", "not read"
    readings: dict[tuple[str, object], list[float]] = defaultdict(list)
    lost, events = False, list(events)
    for e in events:
        if e.source == "link" and e.kind in ("qdisc", "switch", "forwarding"):
            readings[e.kind, e.get(_WHOSE[e.kind])].append(e.t)
            if e.kind == "qdisc":
                readings["queues of rank", e["rank"]].append(e.t)
        lost = lost or (e.source == "link" and e.kind == "lost")
    wanted: list[tuple[str, object]] = [("queues of rank", rank) for rank in sorted(ranks)]
    wanted += [("switch", switch) for switch in switches]
    wanted += [("forwarding", machine) for machine in machine_names(events)]
    wanted += [key for key in readings if key[0] == "qdisc"]
    bad = [key for key in wanted if not _around(readings.get(key, ()), interval)]
    if bad:
        kind, which = bad[0]
        where = f" on {which}" if which else ""
        what = {"forwarding": f"how packets are forwarded{where}", "qdisc": f"the queue of {which}"}.get(
            kind, f"{kind} {which}"
        )
        return not_measured(name, 0, unit, f"{what} was not read before and after the steps")
    if lossy and not lost:
        return not_measured(name, 0, unit, "the packets lost on lossy links were not read")
    return Check(name, 0.0, 0, unit, True, f"{len(wanted)} counters were read before and after the steps")


def _around(times: Collection[float], interval: Interval) -> bool:
    return len(times) > 1 and min(times) <= interval[0] and max(times) >= interval[1]
