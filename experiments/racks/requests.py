"""The requests of an inference job around the death of a chip: latencies, drops, and when the p99 is back.

Measured requests are read from the events of a run, predicted ones follow from Lindley's recursion: a request begins
when it has come and the one before it is answered (Lindley, "The theory of queues with a single server", 1952). Without
a failure the mean latency of Poisson arrivals at rate r with constant service s is s + r s^2 / (2 (1 - r s))
(Pollaczek and Khinchine).

Times are real seconds after the chip's death. A request whose time is out when the job goes on is not served any more;
one that is answered later than its client waits is dropped too. The request that is served when the chip dies is served
again from its beginning if its time is not out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import ceil

from experiments.faults import Kill
from experiments.job_point import JobPoint
from experiments.racks.recovery import JobIncarnation
from experiments.racks.row import FailoverRow
from measure.metrics.checks import Limits
from measure.metrics.quantiles import quantiles
from railyard.scale import Scale
from workloads.program import OpenLoop

MARGIN = 1 + Limits().model_share
"""Ratio to the p99 of before up to which a latency counts as one of before: as far as a faithful step may be off."""

NEAR_S = 10.0
"""Requests that came so long before or after the chip's death are kept one by one."""


@dataclass(frozen=True)
class Requests:
    """All requests of a job in order: when each came and was answered (infinity: never), and the patience of clients.

    ``resumed_s``: when the job went on.
    """

    came_s: tuple[float, ...]
    answered_s: tuple[float, ...]
    patience_s: float
    resumed_s: float

    @property
    def latencies_s(self) -> tuple[float, ...]:
        """The latency of each request; that of a dropped one is infinite."""
        waited = (end - came for came, end in zip(self.came_s, self.answered_s, strict=True))
        return tuple(wait if wait <= self.patience_s else float("inf") for wait in waited)


def measured(
    arrivals: OpenLoop, lives: Sequence[JobIncarnation], epoch: float, fault_t: float, resumed_s: float, scale: Scale
) -> Requests:
    """The requests of a run, from the steps of all ``lives`` of the job; ``epoch``, when the first of them began, and
    ``fault_t`` are on the clock of the events.
    """
    ended = {step: life.steps.job(step)[1] for life in lives for step in life.steps.complete}
    after = [scale.real_s(ended[k] - fault_t) if k in ended else float("inf") for k in range(len(arrivals.at_s))]
    before_s = scale.real_s(fault_t - epoch)
    return Requests(tuple(at - before_s for at in arrivals.at_s), tuple(after), arrivals.patience_s, resumed_s)


def predicted(
    arrivals: OpenLoop, fault_s: float, before_s: Sequence[float], after_s: Sequence[float], resumed_s: float
) -> Requests:
    """The requests by the model: a chip dies ``fault_s`` after the first step began, and the job goes on after that.

    ``before_s`` and ``after_s`` are service times before and after, taken in turn.
    """
    answered = dict(served(arrivals, 0, 0.0, before_s))
    done = {step: end for step, end in answered.items() if end <= fault_s}
    on = fault_s + resumed_s
    done |= dict(served(arrivals, arrivals.first_wanted(len(done), on), on, after_s))
    came = tuple(at - fault_s for at in arrivals.at_s)
    ends = tuple(done.get(step, float("inf")) - fault_s for step in range(len(came)))
    return Requests(came, ends, arrivals.patience_s, resumed_s)


def served(arrivals: OpenLoop, first: int, free_s: float, service_s: Iterable[float]) -> Iterator[tuple[int, float]]:
    """Each request from ``first`` on with the end of its service; nothing is served before ``free_s``."""
    for step, seconds in zip(range(first, len(arrivals.at_s)), cycle(service_s), strict=False):
        free_s = max(free_s, arrivals.at_s[step]) + seconds
        yield step, free_s


def request_times(requests: Requests, circuits_s: float) -> dict[str, object]:
    """The quantities of a row by name; ``circuits_s`` is when the circuits to the spare were up."""
    parts: Mapping[str, list[float]] = {"before": [], "during": [], "after": []}
    pairs = list(zip(requests.came_s, requests.answered_s, requests.latencies_s, strict=True))
    for came, answered, latency in pairs:
        when = "before" if answered <= 0 else "during" if came < requests.resumed_s else "after"
        parts[when].append(latency)
    found = {when: quantiles(wait for wait in waits if wait < float("inf")) for when, waits in parts.items()}
    before, limit = parts["before"], found["before"].p99 * MARGIN if found["before"] else 0.0
    usual = max(ceil(0.01 * len(before)), sum(wait > limit for wait in before))
    later = pairs[len(before) :]
    slow = [wait > limit for _, _, wait in later]
    kept = next(place for place in range(len(slow) + 1) if sum(slow[place:]) <= usual)
    answered_s = (end for _, end, _ in later[:kept] if end < float("inf"))
    interrupted = later[0] if later and later[0][0] < 0 else None
    latencies = {
        f"latency_{name}_{when}_s": getattr(found[when], name) if found[when] else None
        for when in parts
        for name in ("p50", "p99")
    }
    near = [(came, None if wait == float("inf") else wait) for came, _, wait in pairs if abs(came) <= NEAR_S]
    return {
        **latencies,
        "requests": near,
        "dropped_requests": sum(wait == float("inf") for waits in parts.values() for wait in waits),
        "retried_requests": None if interrupted is None else int(interrupted[2] < float("inf")),
        "p99_back_s": max((requests.resumed_s, *answered_s)) - circuits_s,
    }


def set_requests(
    row: FailoverRow, job: JobPoint, epoch: float | None, incarnations: Sequence[JobIncarnation], scale: Scale
) -> None:
    """Set the fields of requests of a recovered inference job; ``epoch`` is as in ``measured``."""
    arrivals = job.arrivals
    if arrivals is not None and epoch is not None and row.state == "recovered" and row.fault_t is not None:
        resumed_s = scale.real_s(row.restart_t - row.fault_t)
        found = measured(arrivals, incarnations, epoch, row.fault_t, resumed_s, scale)
        vars(row).update(request_times(found, row.circuits_s or 0.0))


def predict_requests(
    row: FailoverRow, job: JobPoint, kill: Kill, before_s: Sequence[float], after_s: Sequence[float]
) -> None:
    """Set the same fields of the model, for a kill at a step; those of the recovery and the step times are set.

    ``before_s`` and ``after_s`` are as in ``predicted``.
    """
    outage_s, step_s = row.predicted_outage_s, row.predicted_step_time_before_s
    if job.arrivals is None or kill.step is None or outage_s is None or step_s is None:
        return
    parts = dict(row.predicted_breakdown)
    fault_s = job.arrivals.at_s[int(kill.step)] + kill.step % 1 * step_s
    found = predicted(job.arrivals, fault_s, before_s, after_s, outage_s - parts["first step"])
    circuits_s = parts["detect"] + parts["decide"] + parts["rewire"]
    vars(row).update({f"predicted_{name}": value for name, value in request_times(found, circuits_s).items()})
