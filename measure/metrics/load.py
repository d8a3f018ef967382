"""Checks of the load of machines: what others take of their processors, these, and whatever forwards packets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from measure.metrics.checks import Check, Limits, by_machine, does_not_apply, not_measured
from railyard.timeline import Event
from railyard.verdict import OTHERS, STEAL

GUESTS = "other guests of the hardware"
"""Who is behind stolen time, as nobody can name them."""
ADVICE = "Stop what takes the processors, or, if it ends by itself, let each attempt wait for it: --wait-quiet 60."
"""What to do about a load that disturbs a run; the documents say it in the same words."""
_MOST_NAMES, _LEAST_PART = 3, 0.1
"""How many processes are named, and how much of the time of all each of them took, but for the largest."""


def steal_says(share: float) -> str:
    return f"{GUESTS} took {share:.1%} of the processors"


def others_says(busy: float, cores: int, largest: Iterable[tuple[str, float]] = ()) -> str:
    """In words, how many processors' time processes took that are not the run's, and the ``largest`` of them."""
    names = _named(largest)
    return f"other processes kept {busy:.2f} of {cores} processors busy{f' ({names})' if names else ''}"


_NAMES = re.compile(r"(processors busy) \([^()]*\)")


def without_names(says: str) -> str:
    """A verdict in which ``others_says`` names no process: what somebody else runs is theirs to tell."""
    return _NAMES.sub(r"\1", says)


def _named(processors: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {busy:.2f}" for name, busy in processors)


def largest_of(processors: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The processes to name, by how many processors' time each took, the largest first."""
    ordered = sorted(processors.items(), key=lambda each: -each[1])[:_MOST_NAMES]
    least = _LEAST_PART * sum(processors.values())
    return (*ordered[:1], *(each for each in ordered[1:] if each[1] >= least))


def interference_checks(events: Iterable[Event], limits: Limits) -> tuple[Check, Check]:
    """Checks of the share of all processors' time that other guests took, and of the processors that others kept busy.

    They come first in a verdict: what fails the others is often their consequence.
    """
    events = list(events)
    return _steal_check(events, limits), _others_check(events, limits)


@by_machine
def _steal_check(events: Sequence[Event], limits: Limits) -> Check:
    unit, steal = "of the processors", _mean(_samples(events), "steal")
    if steal is None:
        return not_measured(STEAL, limits.steal_share, unit, "no CPU sample was recorded")
    over = "more than" if steal > limits.steal_share else "at most"
    unnamed = " (which ones cannot be seen from within this one)" if steal > limits.steal_share else ""
    says = f"{steal_says(steal)}{unnamed}, {over} {limits.steal_share:.0%}"
    return Check(STEAL, steal, limits.steal_share, unit, steal <= limits.steal_share, says)


@by_machine
def _others_check(events: Sequence[Event], limits: Limits) -> Check:
    samples = _samples(events)
    spared = next((e["spared_cores"] for e in events if e.get("spared_cores")), 0.0)
    limit, left = limits.other_cores + spared, f" ({spared:.2f} are left to them by the scale)" if spared else ""
    others, cores = _mean(samples, "other"), max((e["cores"] for e in samples), default=0)
    if others is None:
        return not_measured(OTHERS, limit, "processors", "no CPU sample was recorded")
    busy = others * cores
    if busy <= limit:
        return Check(OTHERS, busy, limit, "processors", True, f"{others_says(busy, cores)}, at most {limit:.3g}{left}")
    largest = largest_of({name: share * cores for name, share in _mean_by_name(samples).items()})
    says = f"{others_says(busy, cores, largest)}, more than {limit:.3g}{left}"
    return Check(OTHERS, busy, limit, "processors", False, says, largest=largest)


def same_load(measurements: Sequence[Iterable[Check]]) -> str | None:
    """In words, the load that disturbed each of some ``measurements``, from their checks; None if it was not the same.

    It is the same if processes that are named in each of them (``Check.largest``) took more than the limit by
    themselves each time, or if other guests took too much each time.
    """
    failed = [[c for c in checks if not c.ok and c.value is not None] for checks in measurements]
    worst = [max((c for c in mine if c.name == OTHERS), key=lambda c: c.excess, default=None) for mine in failed]
    processes = [(dict(c.largest), c.limit) for c in worst if c is not None]
    if processes and len(processes) == len(failed):
        names = set.intersection(*(set(parts) for parts, _ in processes))
        if all(sum(parts[name] for name in names) > limit for parts, limit in processes):
            typical = {name: fmean(parts[name] for parts, _ in processes) for name in sorted(names)}
            return f"{_named(largest_of(typical))} processors"
    return GUESTS if failed and all(any(c.name == STEAL for c in mine) for mine in failed) else None


def _samples(events: Iterable[Event]) -> list[Event]:
    return [e for e in events if e.source == "link" and e.kind == "cpu"]


def _mean(samples: Iterable[Event], field: str) -> float | None:
    """Mean over the time of the samples that have ``field``; None without any."""
    known = [(e.seconds or 1.0, float(e[field])) for e in samples if e.get(field) is not None]
    whole = sum(seconds for seconds, _ in known)
    return sum(seconds * share for seconds, share in known) / whole if whole else None


def _mean_by_name(samples: Iterable[Event]) -> dict[str, float]:
    """For each process that samples name, the mean of its share over the time of all samples with field ``other``."""
    known = [(e.seconds or 1.0, e) for e in samples if e.get("other") is not None]
    whole = sum(seconds for seconds, _ in known)
    found: dict[str, float] = {}
    for seconds, e in known:
        for name, share in e.get("largest", ()):
            found[name] = found.get(name, 0.0) + seconds * share / whole
    return found


def _saturation(events: Iterable[Event], limits: Limits, field: str) -> float | None:
    """Share of the sampled time in which ``field`` of the CPU samples was saturated; None without samples."""
    samples = [(e.seconds or 1.0, e[field]) for e in events if e.kind == "cpu" and e.get(field) is not None]
    whole = sum(seconds for seconds, _ in samples)
    return sum(s for s, busy in samples if busy >= limits.saturated) / whole if whole else None


def machine_checks(events: Sequence[Event], rate: Check, limits: Limits) -> tuple[Check, ...]:
    """The checks that the machine kept up, around ``rate``, that of the link rate: disturbers, cores and forwarding."""
    return (
        *interference_checks(events, limits),
        rate,
        cores_check(events, limits),
        datapath_check(events, rate, limits),
        fast_path_check(events, limits),
    )


@by_machine
def cores_check(events: Sequence[Event], limits: Limits) -> Check:
    """Check of the share of the time in which all cores were busy."""
    name, unit = "cores", "of the time saturated"
    share = _saturation(events, limits, "busy")
    if share is None:
        return not_measured(name, limits.saturated_share, unit, "no CPU sample was recorded")
    says = f"all cores were busy {share:.0%} of the time (limit {limits.saturated_share:.0%})"
    return Check(name, share, limits.saturated_share, unit, share <= limits.saturated_share, says)


@by_machine
def fast_path_check(events: Sequence[Event], limits: Limits) -> Check:
    """Check that the kernel forwarded the packets itself, where it should (datapath bpf)."""
    name, unit, limit = "fast path", "of packets", limits.up_share
    forwarding = [e for e in events if e.source == "link" and e.kind == "forwarding"]
    if len(forwarding) < 2:
        return not_measured(name, limit, unit, "it was not read before and after the steps how packets are forwarded")
    first, last = forwarding[0], forwarding[-1]
    if last["datapath"] == "ovs":
        return does_not_apply(name, limit, unit, "Open vSwitch forwards all packets")
    up, packets = last["up"] - first["up"], last["packets"] - first["packets"]
    share = up / packets if packets else 0.0
    says = f"{up} of {packets} packets went up to Open vSwitch (limit {limit:.0%})"
    return Check(name, share, limit, unit, share <= limit, says)


@by_machine
def datapath_check(events: Sequence[Event], links: Check, limits: Limits) -> Check:
    """Check of the share of the time in which what forwards packets was saturated; ``links``: the link rate.

    That is the busiest thread of Open vSwitch. Where the kernel forwards (bpf) it is also the processor that
    handles the most packets (softirq); the thread then has only what the kernel gives to Open vSwitch.
    """
    name, unit = "datapath thread", "of the time saturated"
    full = links.value is not None and links.value >= limits.full_line_rate
    limit = limits.polling_share if full else limits.saturated_share
    forwarding = [e for e in events if e.source == "link" and e.kind == "forwarding"]
    thread = _saturation(events, limits, "switch_thread")
    if not forwarding:
        return not_measured(name, limit, unit, "nothing was recorded about how packets were forwarded")
    if thread is None:
        return not_measured(name, limit, unit, "no CPU sample of Open vSwitch was recorded")
    by_thread = f"the busiest thread of Open vSwitch was saturated {thread:.0%} of the time (limit {limit:.0%})"
    if forwarding[-1]["datapath"] == "ovs":
        return Check(name, thread, limit, unit, thread <= limit, by_thread)
    softirq = _saturation(events, limits, "softirq")
    if softirq is None:
        return not_measured(name, limit, unit, "no CPU sample of the kernel's forwarding was recorded")
    most, kernel_ok = limits.saturated_share, softirq <= limits.saturated_share
    says = f"a processor did nothing but forward {softirq:.0%} of the time (limit {most:.0%})"
    if kernel_ok and thread > limit:
        return Check(name, thread, limit, unit, False, f"{by_thread}; {says}")
    return Check(name, softirq, most, unit, kernel_ok, says)
