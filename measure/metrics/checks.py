"""The parts of a verdict: checks with a value, a limit and a reason. Pure.

On several machines each is judged by itself: the samples of another machine have a field ``machine``; those of a run on
one machine have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from math import inf
from typing import Concatenate, ParamSpec

from railyard.timeline import Event
from railyard.verdict import NOT_FAITHFUL

CAUSES = frozenset((
    *("other guests", "other processes", "cores", "datapath thread", "fast path", "timer lag", "timer lag of a step"),
    *("control plane", "link delay", "dark time", "worst dark time", "lateness of the timetable"),
    *("underlay loss", "underlay rate", "clock uncertainty"),
    *("event numbers", "logs", "agent events", "controller events", "sampler events", "samples", "counters"),
))  # fmt: skip
"""Names of the checks of the machine: whether it was disturbed, kept the times that were set, and lost no record.

All others look at the result: how long the steps were, how they spread, at what rate bytes moved and which were lost.
"""
_NO_LIMIT = 1e-12


@dataclass(frozen=True)
class Check:
    """One fidelity check: ``value`` against ``limit``, in ``unit``; ``value`` is None if nothing was measured.

    ``judged`` is False where the check says nothing of a point that could have been wrong all the same. ``repeat`` is
    the number of the measurement, from 1, of which a row of several repeats has the check; None in all others.
    ``largest`` names what took the most of the value of a check that failed, each with its part, the largest first.
    """

    name: str
    value: float | None
    limit: float
    unit: str
    ok: bool
    says: str
    judged: bool = True
    repeat: int | None = None
    largest: tuple[tuple[str, float], ...] = ()

    @property
    def excess(self) -> float:
        """How far the value is from the limit, as a share of it; endless where nothing was measured.

        Limits of repeats may differ. From a limit of 0 any value is farther than from another, the larger the farther.
        """
        return inf if self.value is None else abs(self.value - self.limit) / (abs(self.limit) or _NO_LIMIT)

    @property
    def cause(self) -> bool:
        return self.name in CAUSES


@dataclass(frozen=True)
class Verdict:
    """The checks of a point, which is faithful if none of them failed."""

    faithful: bool
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if not c.ok)

    def worst(self, name: str) -> float | None:
        """The largest value of the checks with this name; None if there is no value."""
        return max((c.value for c in self.checks if c.name == name and c.value is not None), default=None)

    def __str__(self) -> str:
        if self.faithful:
            return "faithful"
        return f"{NOT_FAITHFUL}: " + "; ".join(c.says for c in self.failed)


@dataclass(frozen=True)
class Limits:
    """Limits of the fidelity checks, and the reason for each.

    - ``steal_share``: processor time that the hypervisor gave to other guests while this machine had work. It delays
      whoever had the work, by many milliseconds at a time.
    - ``other_cores``: processor time of processes that are not the run's, in processors, as one that is kept busy does
      the same harm beside one other as beside many. Beside nobody they took 0.006 to 0.046 processors. What that
      does to a run depends on where the scheduler puts it: steps of small jobs moved by less than 0.5 %, timers came up
      to twice as late, and a run that needs both processors stands still. One measurement cannot tell which it was.
      A scale that was chosen beside a load leaves it its processors, and so many more are then allowed.
    - ``line_rate_share``: a link that gives less than this stretches every transfer by more than the differences
      between modes that the experiment wants to show (the goodput over TCP/IP and Ethernet headers is 1.0 here). The
      median of transfers of at least ``long_s`` counts: in a shorter one the start of the agents weighs as much.
    - ``saturated_share`` of the time with all cores at least ``saturated`` busy, or with the datapath's busiest
      thread so: from there on work queues behind work and all of it is late. Short bursts do no harm.
    - ``polling_share`` instead, for the datapath's thread, where links reached ``full_line_rate``: a userspace thread
      polls all ports continuously, so with hundreds of ports it is busy whenever bytes move, long before it is late.
    - ``lag_step_share``: the p99 of timer lag, and of the control plane's answer, against the step: a step has some ten
      of either on its critical path and one in a hundred is at the p99, so 1 % moves the step by far less. Never under
      ``lag_floor_s`` and ``control_floor_s``, which this class of machine keeps when it is idle.
    - ``lag_sum_share``: all timer lags of a step together, of the worst rank: this is what the step grows by.
    - ``dark_median_s``, ``dark_worst_s`` or their share of the configured time, whichever is more: an error
      goes into the step time once per exposed reconfiguration (Opus: 6 per step), where it must stay under 1 %. Of
      a delay that is shorter than some milliseconds the median may be off by ``dark_short_share``.
    - ``dark_step_share`` instead of ``dark_worst_s``, if that is more, where no delay is configured: circuits are then
      dark for as long as the switch takes to swap them, some milliseconds longer where it has to wait for a processor.
      What counts is the effect: by how much all swaps of a step that took longer than usual (the median and
      ``dark_median_s``) make it longer. Under 1 % of the step it does not show beside the other limits.
    - ``model_share``: how far the step may be from the prediction, which is made of the same decisions. A run of one
      step has no other way to show that something went wrong in it.
    - ``packet_share``: packets lost on links, queues or outside dark time, and segments sent again, against all
      packets: TCP pays a retransmission time-out (25 ms, or more where ports are slow) for each, which shows in the
      spread of the steps where it matters; the emulated network drops packets only at dark ports.
    - ``step_spread``: longest less shortest measured step, against the median. A step is the same work every time, so
      steps that differ show a disturbance: a time-out, another program on the machine. Steps that differ on
      purpose (a straggler) are compared with the prediction of each.
    - ``noise_s``: what a step may be off, lag or spread in any case. A step that is one small collective takes less
      than the scheduler may keep a process waiting, and no share of it is a limit that this class of machine can keep:
      where it is off or spreads by more than that share and less than this, neither is judged.
    - ``message_s``: what a long transfer takes for the receiver's ``ready`` and the last acknowledgement, which no rate
      is counted over; and what a round of messages may take beyond its bytes where no round moves bytes for ``long_s``:
      such a run shows the latency of the machine and cannot show a slow link.
    - ``link_delay_s``: how far from its due time a frame may leave a delayed link at the p95; delays of wide-area links
      are 5 ms and more, of which this is a fifth.
    - ``up_share``: packets that the kernel gave to Open vSwitch, where it should forward them itself: they wait for a
      process, and their circuits change later than the controller is told. A single bridge that does that for a moment
      (a mirror, a full map) moves more.
    - ``sample_gap_s``, or ``sample_gap_share`` of the time up to ``sample_gap_most_s``: the longest time between two
      samples, of which the sampler takes ten a second. What happens in between is seen only as a mean.
    - ``underlay_loss_share``: packets that the network between machines lost, where links travel through it: the
      emulated links lose none, and TCP answers each loss with a pause.
    - ``underlay_rate_share``: of the rate of that network, what all links that travel through it may ask for together.
      Nearer to it, packets queue there that would not queue on links of their own.
    - ``underlay_round_trip_ms``: of a packet between two machines. A transfer over a link that is cut takes this longer
      for each message that it waits for, and a barrier of the switches too.
    - ``clock_delay_share``: by how much the clock of a machine may be unknown, of the shortest reconfiguration delay:
      dark times and waits are differences of times on two machines. Never under ``clock_floor_s``.
    - ``act_s``: how late an act of a timetable may be, at the p99: what is done to a link shows in the next packets.
    - ``packet_floor``: losses and retransmissions of a run that sends few packets; a time-out shows in its spread.
    """

    steal_share: float = 0.04
    other_cores: float = 0.2
    line_rate_share: float = 0.90
    long_s: float = 0.010
    saturated: float = 0.98
    saturated_share: float = 0.25
    polling_share: float = 0.50
    full_line_rate: float = 0.97
    lag_step_share: float = 0.01
    lag_sum_share: float = 0.02
    lag_floor_s: float = 0.002
    control_floor_s: float = 0.010
    dark_median_s: float = 0.001
    dark_median_share: float = 0.02
    dark_short_share: float = 0.20
    dark_worst_s: float = 0.008
    dark_worst_share: float = 0.10
    dark_step_share: float = 0.01
    packet_share: float = 5e-4
    model_share: float = 0.10
    step_spread: float = 0.05
    noise_s: float = 0.003
    message_s: float = 0.002
    packet_floor: int = 2
    act_s: float = 0.002
    up_share: float = 0.01
    sample_gap_s: float = 0.3
    sample_gap_share: float = 0.05
    sample_gap_most_s: float = 1.0
    link_delay_s: float = 0.001
    underlay_loss_share: float = 0.001
    underlay_rate_share: float = 0.80
    underlay_round_trip_ms: float = 5.0
    clock_delay_share: float = 0.10
    clock_floor_s: float = 0.0002


def not_measured(name: str, limit: float, unit: str, what: str) -> Check:
    """A check that fails because its data is missing; ``what`` says which."""
    return Check(name, None, limit, unit, False, f"{name} not measured: {what}")


def does_not_apply(name: str, limit: float, unit: str, why: str) -> Check:
    """A check that a point does not need, since it has nothing of the kind, and ``why``; it passes."""
    return Check(name, None, limit, unit, True, f"{name}: {why}")


def not_judged(name: str, limit: float, unit: str, why: str, value: float | None = None) -> Check:
    """A check that passes although it says nothing of this point, and ``why``: nobody may call it kept."""
    return Check(name, value, limit, unit, True, f"{name}: {why}", judged=False)


P = ParamSpec("P")

_SAMPLES = frozenset(("cpu", "sampled", "forwarding"))


def with_machine(events: Iterable[Event], name: str) -> list[Event]:
    """``events`` of machine ``name``, its samples with the field ``machine``."""
    return [
        replace(e, fields={**e.fields, "machine": name}) if e.source == "link" and e.kind in _SAMPLES else e
        for e in events
    ]


def machine_names(events: Iterable[Event]) -> tuple[str | None, ...]:
    """The machines that ``events`` are of, by name; None is the one whose events have no name of a machine."""
    found = {e.get("machine") for e in events if e.source == "link" and (e.kind in _SAMPLES or e.kind == "clock")}
    return tuple(sorted(found or {None}, key=lambda name: name or ""))


def by_machine(
    check: Callable[Concatenate[Sequence[Event], P], Check],
) -> Callable[Concatenate[Iterable[Event], P], Check]:
    """``check`` of the events of each machine by itself: the worst of the results, which names its machine."""

    @wraps(check)
    def worst(events: Iterable[Event], /, *args: P.args, **kwargs: P.kwargs) -> Check:
        events = list(events)
        names = machine_names(events)
        if names == (None,):
            return check(events, *args, **kwargs)
        of_links = [e for e in events if e.source == "link"]
        found = [(name, check([e for e in of_links if e.get("machine") == name], *args, **kwargs)) for name in names]
        return max((on_machine(name, each) for name, each in found), key=_badness)

    return worst


def on_machine(name: str | None, check: Check) -> Check:
    return check if name is None else replace(check, says=f"on {name} {check.says}")


def _badness(check: Check) -> tuple[bool, bool, float]:
    """The worst check is the greatest: failed, then not measured, then nearer to its limit or further beyond."""
    return not check.ok, not check.ok and check.value is None, (check.value or 0.0) / (check.limit or 1.0)
