"""Checks of the load of machines: what others take of their processors, these, and whatever forwards packets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from measure.metrics.checks import Check, Limits, does_not_apply, not_measured
from measure.metrics.machines import by_machine
from railyard.timeline import Event

STEAL, OTHERS = "other guests", "other processes"
"""Names of the checks of what others take of the processors' time."""


def steal_says(share: float) -> str:
    """In words, what other guests took of the processors' time."""
    return f"other guests took {share:.1%} of the processors"


def others_says(busy: float, cores: int) -> str:
    """In words, how many processors' time processes took that are not the run's."""
    return f"other processes kept {busy:.2f} of {cores} processors busy"


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
    says = f"{steal_says(steal)}, {over} {limits.steal_share:.0%}"
    return Check(STEAL, steal, limits.steal_share, unit, steal <= limits.steal_share, says)


@by_machine
def _others_check(events: Sequence[Event], limits: Limits) -> Check:
    samples, limit = _samples(events), limits.other_cores
    others, cores = _mean(samples, "other"), max((e["cores"] for e in samples), default=0)
    if others is None:
        return not_measured(OTHERS, limit, "processors", "no CPU sample was recorded")
    busy = others * cores
    says = f"{others_says(busy, cores)}, {'more than' if busy > limit else 'at most'} {limit:g}"
    return Check(OTHERS, busy, limit, "processors", busy <= limit, says)


def _samples(events: Iterable[Event]) -> list[Event]:
    return [e for e in events if e.source == "link" and e.kind == "cpu"]


def _mean(samples: Iterable[Event], field: str) -> float | None:
    """Mean over the time of the samples that have ``field``; None without any."""
    known = [(e.seconds or 1.0, float(e[field])) for e in samples if e.get(field) is not None]
    whole = sum(seconds for seconds, _ in known)
    return sum(seconds * share for seconds, share in known) / whole if whole else None


def _saturation(events: Iterable[Event], limits: Limits, field: str) -> float | None:
    """Share of the sampled time in which ``field`` of the CPU samples was saturated; None without samples."""
    samples = [(e.seconds or 1.0, e[field]) for e in events if e.kind == "cpu" and e.get(field) is not None]
    whole = sum(seconds for seconds, _ in samples)
    return sum(s for s, busy in samples if busy >= limits.saturated) / whole if whole else None


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
