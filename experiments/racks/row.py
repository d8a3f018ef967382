"""Rows of tenants of a rack around the death of a chip: recovery and step times beside the model and published values.

The ``paper_`` fields are MORPHLUX's (arXiv 2508.03674), measured on its testbed; LUMION (arXiv 2505.23105) gives no
parts of a recovery. The ``derived_`` fields are derived by us from both (``measure.published``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

from experiments.racks.setting import TIMELINE, FabricSetting
from measure.metrics.checks import Check, Verdict
from measure.published import published
from measure.results.row import MeasuredRow

CIRCUITS = published("morphlux-circuits")
"""Time from the failure to the circuits of the replacement on MORPHLUX's testbed."""
SLOWDOWN = published("after-splice")
"""Range of step time on the electrical racks E1 and E2 relative to the photonic one, a bracket of ours."""
PHOTONIC, FIXED, MIGRATE = "photonic", "fixed", "migrate"
CIRCUIT_FABRICS = (PHOTONIC, FIXED)
"""Fabrics on which a spare gets circuits; on the others it gets routes."""
RAILS = "rails"
NEIGHBOUR = "neighbour"

State = Literal["recovered", "stranded", "not detected", "not decided", "not resumed", "no member", "differs"]
"""Outcome of a fault: the job resumed; no spare was left; the controller did not detect the fault; it detected the
fault and made no decision; it named a replacement and the job did no step afterwards; the dead chip was a spare; not
the same in each repeat."""
Parts = Sequence[tuple[str, float]]

Latency = tuple[float, float | None]
"""When a request came, in seconds after the fault, and its latency; None if it was dropped."""


class Bounds(NamedTuple):
    """Bounds of a time that depends on the moment of the fault: shortest, mean and longest, in real seconds."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class StartupStage:
    """A start-up stage before the first step of an incarnation; ``seconds`` is the time of the slowest rank.

    The first rank begins the stage ``from_s`` after the fault, and all ranks have finished it ``until_s`` after the
    fault. ``given``: the duration was given and not measured. Times are in real seconds.
    """

    name: str
    seconds: float
    given: bool
    from_s: float
    until_s: float


@dataclass(kw_only=True)
class FailoverRow(MeasuredRow):
    """A tenant around a fault: the job that lost a chip, a neighbour, or the model's prediction.

    A fault of an incarnation that another fault had already ended loses no steps.
    """

    main: ClassVar[tuple[str, ...]] = ("outage_s", "circuits_s", "step_time_before_s", "step_time_after_s")
    given: ClassVar[frozenset[str]] = MeasuredRow.given | {
        *("rank", "replaced_by", "ring_hops", "shared_links", "most_on_link", "reserve_chips", "chips", "fault_t"),
        *("first_step", "incarnation"),
    }
    faults: ClassVar[frozenset[str]] = MeasuredRow.faults | {"lost_steps", "unfinished_steps"}
    outcomes: ClassVar[Mapping[str, str]] = {"state": "reason"}

    system: Annotated[str, "system that the fabric stands for"] = ""
    fabric: Annotated[str, "name of the fabric"] = ""
    tenant: Annotated[str, "name of the job"] = ""
    event: Annotated[str, "kill RANK; neighbour: the job lost no chip; predicted: not measured"] = ""
    detect_s: Annotated[float | None, "from the chip's death until the controller counts it as dead"] = None
    decide_s: Annotated[float | None, "from there until the policy has chosen a spare"] = None
    rewire_s: Annotated[float | None, "from there until circuits or routes to the spare are up"] = None
    checkpoint_s: Annotated[float | None, "copy of the checkpoint on the slowest rank"] = None
    restart_s: Annotated[float | None, "from the circuits being up to the start of the first step on a rank"] = None
    first_step_s: Annotated[float | None, "first step after the restart"] = None
    outage_s: Annotated[float | None, "from the chip's death to the end of the first step after it"] = None
    step_time_before_s: Annotated[float | None, "step time before the fault, median"] = None
    step_time_after_s: Annotated[float | None, "step time after the recovery, median"] = None
    lost_steps: Annotated[int | None, "steps that all members had finished and repeated"] = None
    checksum_ok: Annotated[bool | None, "whether every step has the checksum of an undisturbed job"] = None
    state: Annotated[State | None, "outcome of the fault"] = None
    reason: Annotated[str, "why the job is stranded, or how often which outcome was"] = ""
    cause: Annotated[str, "what the controller noticed of the fault"] = ""
    rank: Annotated[int | None, "the chip that died"] = None
    replaced_by: Annotated[int | None, "the spare in its place"] = None
    unfinished_steps: Annotated[int | None, "steps under way when the chip died, 0 or 1"] = None
    rounds_done: Annotated[int | None, "rounds of the all-reduce under way that had come to a rank by then"] = None
    changed_ports: Annotated[int | None, "ports whose circuits or routes changed"] = None
    circuits_s: Annotated[float | None, "from the fault until circuits or routes to the spare are up"] = None
    launch_s: Annotated[float | None, "part of restart_s until the launch of new agents, before they are forked"] = None
    first_collective_s: Annotated[float | None, "from the first step's start to its first all-reduce's end"] = None
    busbw_before_gb_s: Annotated[float | None, "busbw of the all-reduces before the fault, median"] = None
    busbw_after_gb_s: Annotated[float | None, "the same after it"] = None
    step_time_during_s: Annotated[float | None, "a neighbour's step time during the recovery, median"] = None
    change: Annotated[float | None, "relative change of a neighbour's step time; 0.03: 3 % longer"] = None
    steps_before: Annotated[int | None, "a neighbour's steps before the fault"] = None
    steps_during: Annotated[int | None, "those during the recovery"] = None
    steps_after: Annotated[int | None, "those after it, until the job's end"] = None
    predicted_detect_s: Annotated[float | None, "detect_s of the model, mean over all moments of the death"] = None
    predicted_detect_low_s: Annotated[float | None, "the shortest"] = None
    predicted_detect_high_s: Annotated[float | None, "the longest"] = None
    predicted_decide_s: Annotated[float | None, "decide_s of the model"] = None
    predicted_rewire_s: Annotated[float | None, "rewire_s of the model"] = None
    predicted_checkpoint_s: Annotated[float | None, "checkpoint_s of the model"] = None
    predicted_restart_s: Annotated[float | None, "restart_s of the model"] = None
    predicted_first_step_s: Annotated[float | None, "first_step_s of the model"] = None
    predicted_outage_s: Annotated[float | None, "outage_s of the model, mean"] = None
    predicted_outage_low_s: Annotated[float | None, "the shortest"] = None
    predicted_outage_high_s: Annotated[float | None, "the longest"] = None
    predicted_step_time_before_s: Annotated[float | None, "step_time_before_s of the model"] = None
    predicted_step_time_after_s: Annotated[float | None, "step_time_after_s of the model"] = None
    ring_hops: Annotated[int | None, "links (both ways round) or fibres that the ring crosses after the fault"] = None
    shared_links: Annotated[int | None, "links, or pairs of servers, that another ring crosses too"] = None
    most_on_link: Annotated[int | None, "hops on the fullest link of the ring, or fibres between two servers"] = None
    latency_p50_before_s: Annotated[float | None, "median latency of the requests answered before the fault"] = None
    latency_p99_before_s: Annotated[float | None, "their 99th percentile"] = None
    latency_p50_during_s: Annotated[float | None, "the same of those that came before the job went on"] = None
    latency_p99_during_s: Annotated[float | None, "their 99th percentile"] = None
    latency_p50_after_s: Annotated[float | None, "the same of those that came afterwards"] = None
    latency_p99_after_s: Annotated[float | None, "their 99th percentile"] = None
    dropped_requests: Annotated[int | None, "requests not answered within the patience of their client"] = None
    retried_requests: Annotated[int | None, "requests served as the chip died and answered later, 0 or 1"] = None
    p99_back_s: Annotated[float | None, "from circuits being up until the p99 of the rest is that of before"] = None
    requests: Annotated[Sequence[Latency], "requests near the fault: when each came, and its latency"] = ()
    predicted_requests: Annotated[Sequence[Latency], "the same of the model"] = ()
    predicted_latency_p50_before_s: Annotated[float | None, "latency_p50_before_s of the model"] = None
    predicted_latency_p99_before_s: Annotated[float | None, "latency_p99_before_s of the model"] = None
    predicted_latency_p50_during_s: Annotated[float | None, "latency_p50_during_s of the model"] = None
    predicted_latency_p99_during_s: Annotated[float | None, "latency_p99_during_s of the model"] = None
    predicted_latency_p50_after_s: Annotated[float | None, "latency_p50_after_s of the model"] = None
    predicted_latency_p99_after_s: Annotated[float | None, "latency_p99_after_s of the model"] = None
    predicted_dropped_requests: Annotated[int | None, "dropped_requests of the model"] = None
    predicted_retried_requests: Annotated[int | None, "retried_requests of the model"] = None
    predicted_p99_back_s: Annotated[float | None, "p99_back_s of the model"] = None
    paper_circuits_s: Annotated[float | None, "circuits_s of MORPHLUX (morphlux-circuits)"] = None
    paper_outage_s: Annotated[float | None, "outage_s, if its slow stages are given (morphlux-timeline)"] = None
    derived_after_to_photonic_low: Annotated[float | None, "after_to_photonic, derived, least (after-splice)"] = None
    derived_after_to_photonic_high: Annotated[float | None, "the most (after-splice)"] = None
    before_to_photonic: Annotated[float | None, "step_time_before_s relative to the photonic rack"] = None
    after_to_photonic: Annotated[float | None, "step_time_after_s relative to the photonic rack"] = None
    predicted_after_to_photonic: Annotated[float | None, "the same of the model"] = None
    reserve_chips: Annotated[int | None, "spare chips of the fabric"] = None
    chips: Annotated[int | None, "all chips of the fabric"] = None
    kill: Annotated[str, "all kills of the run"] = ""
    fault_t: Annotated[float | None, "moment of the fault on the clock of the events, in seconds"] = None
    first_step: Annotated[int | None, "number of the first step after the restart"] = None
    incarnation: Annotated[int | None, "number of the incarnation that did it"] = None
    breakdown: Annotated[Parts, "parts of the recovery by name, which add up to the outage"] = ()
    predicted_breakdown: Annotated[Parts, "the same of the model"] = ()
    stages: Annotated[Sequence[StartupStage], "start-up stages before the first step"] = ()
    steps_done: Annotated[Mapping[int, int], "steps that each rank did for the job in the whole run"] = field(
        default_factory=dict
    )
    acknowledged_checkpoints: Annotated[Sequence[int], "checkpoints that all members stored"] = ()
    resumed: Annotated[Sequence[tuple[int, int]], "(first step, repeated steps) of every restart"] = ()

    @property
    def restart_t(self) -> float:
        """Start of the first step after the fault, or where the recovery ended; on the event clock, in seconds."""
        reached_s = sum(seconds for name, seconds in self.breakdown if name != "first step")
        return (self.fault_t or 0.0) + reached_s * self.time_scale

    def on(self, setting: FabricSetting, seed: int) -> None:
        """Set the fields of the fabric and of published values; an outage counts if the slow stages are given."""
        self.at(setting.scale, seed)
        self.system, self.fabric = setting.system, setting.name
        self.reserve_chips, self.chips = len(setting.plan.spares), setting.plan.ranks
        if self.event == NEIGHBOUR:
            return
        given = {stage.name for stage in self.stages if stage.given} or set(dict(self.predicted_breakdown))
        if setting.name in CIRCUIT_FABRICS:
            self.paper_circuits_s = CIRCUITS.value
            self.paper_outage_s = TIMELINE.values["first step"] if {"library", "data"} <= given else None
        elif setting.plan.rack is not None and setting.name != MIGRATE:
            self.derived_after_to_photonic_low, self.derived_after_to_photonic_high = SLOWDOWN.bounds

    def predict(self, detect: Bounds, parts: Mapping[str, float]) -> None:
        """Set the fields of the model's recovery, from the bounds of its detection and the parts after that."""
        self.predicted_detect_low_s, self.predicted_detect_s, self.predicted_detect_high_s = detect
        self.predicted_decide_s, self.predicted_rewire_s = parts["decide"], parts["rewire"]
        self.predicted_checkpoint_s, self.predicted_first_step_s = parts.get("checkpoint"), parts["first step"]
        rest = sum(parts.values())
        self.predicted_restart_s = rest - parts["decide"] - parts["rewire"] - parts["first step"]
        outage = (rest + each for each in detect)
        self.predicted_outage_low_s, self.predicted_outage_s, self.predicted_outage_high_s = outage
        self.predicted_breakdown = (("detect", detect.mean), *parts.items())


def judge_together(row: MeasuredRow, verdicts: Sequence[Verdict]) -> None:
    """Set the verdict of several points, in words that of the first bad one; a row without points is not faithful."""
    found = verdicts or [Verdict(False, (Check("points", 0.0, 1.0, "", False, "no point was judged"),))]
    checks = tuple(check for verdict in found for check in verdict.checks)
    row.judge(Verdict(all(verdict.faithful for verdict in found), checks))
    row.verdict = next((str(verdict) for verdict in found if not verdict.faithful), row.verdict)


def add_ratios(rows: Iterable[object]) -> None:
    """Set the ``.._to_photonic`` fields: step times relative to the same tenant on the photonic rack, if measured."""
    found = [row for row in rows if isinstance(row, FailoverRow)]
    photonic = {(row.tenant, row.event == NEIGHBOUR): row for row in reversed(found) if row.fabric == PHOTONIC}
    for row in found:
        base = photonic.get((row.tenant, row.event == NEIGHBOUR))
        if base is not None:
            row.before_to_photonic = _ratio(row.step_time_before_s, base.step_time_before_s)
            row.after_to_photonic = _ratio(row.step_time_after_s, base.step_time_after_s)
            row.predicted_after_to_photonic = _ratio(row.predicted_step_time_after_s, base.predicted_step_time_after_s)


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base
