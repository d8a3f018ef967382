"""The straggler experiment: the cost of a late rank for Ring, halving-doubling, Direct and StragglAR.

Studies: ``delay`` (of the late rank), ``ranks`` (their number), ``size`` (of the buffer), ``reconfiguration`` (circuits
that follow the schedule), ``prediction`` (share of correct predictions of the late rank), ``detector`` (predictions
from earlier arrivals), ``step`` (an all-reduce as a share of a training step), ``buckets`` (several all-reduces a
step), ``two`` (late ranks), ``groups`` (tensor parallel ones, one of them with a late rank) and ``injection`` (another
cause of lateness). Source of the system: StragglAR, arXiv 2505.23523.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from experiments.collectives.experiment import TrialExperiment, TrialSettings
from experiments.collectives.row import TrialRow
from experiments.collectives.straggler.law import EAGER, PAPER_ALGORITHMS, StragglerLaw
from experiments.collectives.trial import CircuitKind, FabricKind, Trial, TrialFabric
from experiments.repeats import Piece
from experiments.settings import Delay, Mtu, Option, PortGbps, Sizes
from measure.published import published
from measure.results.row import MeasuredRow
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES, Scale, goodput_bytes_per_s
from workloads.collectives.catalog import schedule
from workloads.schedule import Schedule
from workloads.stragglers.detector import AUTO, Detector, choose
from workloads.stragglers.injection import INJECTIONS, parse_injection

if TYPE_CHECKING:
    from experiments.runner import Measured, Runner
    from measure.metrics.collective import CollectiveTimes
    from measure.model.prediction import Prediction
    from railyard.timeline import Event

Study = Literal[
    "delay", "ranks", "size", "reconfiguration", "prediction", "detector", "step", "injection", "buckets", "two",
    "groups",
]  # fmt: skip
STUDIES: tuple[Study, ...] = get_args(Study)
PAIR = ("ring", "stragglar")
"""The algorithms of studies that compare StragglAR with Ring alone."""
BYTES_PER_RANK = 1 << 19
"""Default buffer per rank of a group, in bytes: a round of StragglAR then takes about 90 ms at 50 Mb/s."""
LATE_ENOUGH = 1.25
"""Long delay as a multiple of a first phase: its algorithm has then finished all work before the arrival."""
VARIED = 4
"""Factor on the number of iterations in studies in which the late rank varies."""
PREDICTED_RIGHT = published("stragglar-predicted-right").value
"""Share of steps in which the expected rank is late, in training steps."""
PROBABILITIES = (0.0, 0.5, published("stragglar-persistence").bounds[0], PREDICTED_RIGHT, 1.0)
SHARES = (0.2, 0.4, 0.6)
LOG_RANKS = 4
"""GPUs of the authors' log of a training job, in which StragglAR would lose."""
LOG_DELAY = published("stragglar-gaps").values["mean"] / published("stragglar-log-all-reduce").value
"""Mean delay of the late rank in that log, as a share of the all-reduce."""
LOG_SHARE = published("stragglar-log-all-reduce").value / published("stragglar-log-step").value
"""Share of the all-reduce in a step of that log."""
LOG_BYTES_SHARE = 4
"""The buffer of that point is this many times smaller than others, as its step is 41 all-reduces long."""
DELAYS_IN_T_CRIT = (0.0, 0.5, 0.8, 1.2, 1.6)
SECOND_LATE = (0.0, 0.3, 0.6, 1.0)
"""Lateness of a second rank, as a share of that of the first."""
SIZES = tuple(1 << power for power in (12, 14, 16, 18, 20, 22))
RECONFIGURATIONS_MS = (0.0, 10.0, 25.0, 50.0, 100.0)


class StragglerSettings(TrialSettings):
    """Settings of the straggler experiment, in real units."""

    read_by: ClassVar[Mapping[str, str]] = {
        "buckets": "buckets",
        "groups": "groups",
        "circuits": "reconfiguration",
        "reconfiguration_delays_ms": "reconfiguration",
    }

    studies: Annotated[tuple[Study, ...], Option("--study")] = Field(
        default=("delay",), min_length=1, description="studies to measure"
    )
    algorithms: Annotated[tuple[str, ...], Option("--algorithms", "NAME,...")] = Field(
        default=PAPER_ALGORITHMS,
        min_length=1,
        description="algorithms of the collective; auto is ring below the break-even delay, else stragglar",
    )
    ranks: tuple[int, ...] = Field(default=(8,), min_length=1, description="number of ranks")
    sizes: Sizes | None = Field(default=None, description="buffer sizes, in bytes or as 4K, 1M (default 512K a rank)")
    straggler: Annotated[int | None, Option(metavar="RANK")] = Field(
        default=None, ge=0, description="the late rank (default the last)"
    )
    delays_ms: Annotated[tuple[Delay, ...] | None, Option("--straggler-delays", "MS,...")] = Field(
        default=None, description="delays of the late rank, in ms (default around the break-even delay)"
    )
    reconfiguration_delays_ms: tuple[Delay, ...] = Field(
        default=RECONFIGURATIONS_MS, description="reconfiguration delays of the optical switch, in ms"
    )
    circuits: tuple[CircuitKind, ...] = Field(
        default=("on-demand", "provisioned"),
        min_length=1,
        description="circuits of a round (study reconfiguration): set up when it begins, or in turn on two ports of "
        "half the rate, each while the round before is sent",
    )
    inject: Annotated[str | None, Option(metavar="CAUSE")] = Field(
        default=None, description="another cause of lateness, for study injection; help lists the causes"
    )
    buckets: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Option(metavar="N,...")] = Field(
        default=(1, 2, 4, 8), min_length=1, description="numbers of all-reduces that share the buffer, in study buckets"
    )
    groups: Annotated[tuple[Annotated[int, Field(ge=2, le=16)], ...], Option(metavar="N,...")] = Field(
        default=(2,), min_length=1, description="numbers of groups of --ranks ranks, in study groups"
    )
    alpha_ms: Annotated[Delay, Option("--alpha", "MS")] = Field(
        default=0.0, description="latency of each round of every algorithm, in ms"
    )
    round_cost: Annotated[float, Option(metavar="E")] = Field(
        default=0.0,
        ge=0,
        le=10,
        description="cost of each round of StragglAR (calls, a kernel that adds), in times of the buffer on a link",
    )
    fabric: FabricKind = Field(
        default="electrical", description="packet switches, or circuits that follow the schedule"
    )
    port_gbps: PortGbps = 0.05
    mtu: Mtu = ROCE_MTU_BYTES

    @field_validator("ranks")
    @classmethod
    def _ranks(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        for n in value:
            if not 3 <= n <= 256:
                raise ValueError(f"must be from 3 to 256 (without the straggler two must be left), not {n}")
        return value

    @field_validator("delays_ms", "reconfiguration_delays_ms")
    @classmethod
    def _ascending(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if value is None else tuple(sorted(value))

    @model_validator(mode="after")
    def _inject_has_a_study(self) -> StragglerSettings:
        if ("injection" in self.studies) != (self.inject is not None):
            raise ConfigError("names the cause that study injection measures; each needs the other", key="inject")
        return self

    def trials(self) -> Iterator[Trial]:
        """The trials of all studies except ``detector``, whose trials depend on measured arrivals."""
        for study in self.studies:
            for n in self.ranks if study in _TABLE else ():
                for size in self.sizes or SIZES if study == "size" else self.size_of(n):
                    yield from self._expand(study, n, size)
            if study == "step":
                e = self.model_copy(update={"straggler": None})
                yield from e._expand("log", LOG_RANKS, max(1, e.size_of(LOG_RANKS)[0] // LOG_BYTES_SHARE))

    def _expand(self, study: str, n: int, size: int) -> Iterator[Trial]:
        """The trials of a line of ``_TABLE``: every algorithm at every point."""
        algorithms, points = _TABLE[study]
        for point in points(self, n, size):
            eager = (EAGER,) if study in ("prediction", "two") and EAGER in self.algorithms else ()
            for algorithm in (*algorithms, *eager) or self.algorithms:
                trial = self._late(algorithm, n, size, study="step" if study == "log" else study, **point)
                yield from trial.with_circuits(self.circuits if study == "reconfiguration" else ("on-demand",))

    # ---- shared by the studies -----------------------------------------------------------------------------------

    def late_rank(self, n: int) -> int:
        """The late rank among ``n`` ranks; ``ConfigError`` if there is no such rank."""
        rank = n - 1 if self.straggler is None else self.straggler
        if rank >= n:
            raise ConfigError(f"is rank {rank}, and with {n} ranks they are 0 to {n - 1}", key="straggler")
        return rank

    def plan(self, algorithm: str, n: int, expected: int | None = None) -> Schedule:
        """The schedule of ``algorithm`` with rank ``expected`` as the predicted straggler (None: the late rank)."""
        aware = algorithm in ("stragglar", "straggler-direct")
        rank = self.late_rank(n) if expected is None else expected
        return schedule("all_reduce", n, algorithm, straggler=rank if aware else None)

    def size_of(self, n: int) -> tuple[int, ...]:
        return self.sizes or (n * BYTES_PER_RANK,)

    def fabric_of(self, n: int, kind: FabricKind | None = None, slow: str = "") -> TrialFabric:
        """The fabric for ``n`` ranks; ``slow`` lists ranks with slower links."""
        return TrialFabric(kind or self.fabric, n, port_gbps=self.port_gbps, mtu=self.mtu, slow=slow)

    def law(self, n: int, size: int) -> StragglerLaw:
        """The closed forms for ``n`` ranks and a buffer of ``size`` bytes, at the goodput of the ports."""
        rounds = self.plan("stragglar", n)
        bytes_per_s = goodput_bytes_per_s(self.port_gbps, self.mtu)
        own, round_s = rounds.rounds - rounds.first_phase, self.round_cost * size / bytes_per_s
        return StragglerLaw(n, size, self.alpha_ms / 1e3, bytes_per_s, own, round_s)

    def long_delay_s(self, n: int, size: int) -> float:
        """A delay in seconds after which StragglAR has no work left that needs no late rank."""
        return LATE_ENOUGH * self.law(n, size).first_phase_s

    def delays_s(self, law: StragglerLaw) -> tuple[float, ...]:
        """The delays to measure in seconds: ``delays_ms``, or from 0 over the break-even to beyond the first phase."""
        if self.delays_ms is not None:
            return tuple(delay / 1e3 for delay in self.delays_ms)
        critical, first = law.critical_delay_s, law.first_phase_s
        if critical > first:
            return (0.0, first / 2, first, LATE_ENOUGH * first)
        around = [share * critical for share in DELAYS_IN_T_CRIT]
        return tuple(sorted({*(d for d in around if d < first), first, LATE_ENOUGH * first}))

    def _late(self, algorithm: str, n: int, size: int, delay_s: float, buckets: int = 1, **changes: Any) -> Trial:
        """A trial of an algorithm with a rank that is expected to be, and is, ``delay_s`` late for the first bucket.

        ``auto`` is Ring or StragglAR, by the law's break-even; the row says which one was chosen.
        """
        size, law, tags = size // buckets, self.law(n, size // buckets), [*changes.pop("tags", ())]
        tags.append(("critical_delay_s", law.critical_delay_s if math.isfinite(law.critical_delay_s) else None))
        lateness = (delay_s, *(0.0,) * (buckets - 1))
        names = [choose(late_s, law.critical_delay_s) if algorithm == AUTO else algorithm for late_s in lateness]
        plan, *then = (self.costly(self.plan(name, n), law) for name in names)
        if algorithm == AUTO:
            plan = replace(plan, algorithm=AUTO)
            tags.append(("chosen", "/".join(dict.fromkeys(names))))
        late, fabric = changes.get("injection"), changes.get("fabric", self.fabric_of(n))
        alone = late if late is not None and "+" not in late.text else None
        second, wrong = (alone.second, alone.wrong) if alone is not None else (None, False)
        fixed = fabric.kind == "electrical" and (late is None or second is not None or wrong)
        if fixed and all(map(law.knows, names)):
            across_s = law.across_s(changes["groups"]) if "groups" in changes else 0.0
            own_s = law.buckets_s(names, delay_s, second.seconds if second else 0.0)
            tags.append(("law_s", law.wrong_s(delay_s, names[0]) if wrong else own_s + across_s))
        return self.trial(plan, size, delay_s, **changes, then=tuple(then), tags=tuple(tags))

    def costly(self, plan: Schedule, law: StragglerLaw) -> Schedule:
        """The schedule with the pauses that ``alpha_ms`` and ``round_cost`` ask for."""
        cost_s = law.alpha_s + (law.round_s if plan.algorithm.startswith("stragglar") else 0.0)
        return replace(plan, lockstep=True, pause_s=cost_s) if cost_s else plan

    def trial(self, plan: Schedule, size: int, delay_s: float, **changes: Any) -> Trial:
        """A trial with a rank that is ``delay_s`` late; ``changes`` override fields of the trial."""
        late = self.late_rank(plan.n)
        changes["tags"] = (*changes.get("tags", ()), ("round_cost", self.round_cost), ("alpha_ms", self.alpha_ms))
        values: dict[str, Any] = {
            "schedule": plan,
            "bytes": size,
            "fabric": self.fabric_of(plan.n * changes.get("groups", 1)),
            "injection": parse_injection(f"fixed:{delay_s:.9g}") if delay_s > 0 else None,
            "late_rank": late,
            "straggler_delay_s": delay_s,
        }
        return Trial(**values | changes)


Points = Iterator[dict[str, Any]]
"""What the trials of each point of a study have in common: ``delay_s``, and fields of ``Trial``."""


def _around_break_even(e: StragglerSettings, n: int, size: int) -> Points:
    yield from ({"delay_s": delay_s} for delay_s in e.delays_s(e.law(n, size)))


def _after_all_first_phases(e: StragglerSettings, n: int, size: int) -> Points:
    """A delay in which Direct too, whose first phase is longest, finishes that phase."""
    yield {"delay_s": LATE_ENOUGH * e.law(n, size).direct_first_phase_s}


def _in_time_and_late(e: StragglerSettings, n: int, size: int) -> Points:
    yield from ({"delay_s": delay_s} for delay_s in (0.0, max(e.long_delay_s(n, size), 0.1)))


def _buckets(e: StragglerSettings, n: int, size: int) -> Points:
    if max(e.buckets) > size:
        raise ConfigError(f"{max(e.buckets)} do not share a buffer of {size} bytes; give larger --sizes", key="buckets")
    for count in e.buckets:
        yield {"delay_s": e.long_delay_s(n, size), "buckets": count, "tags": (("buckets", count),)}


def _two_late(e: StragglerSettings, n: int, size: int) -> Points:
    delay_s = e.long_delay_s(n, size)
    for second_s in (share * delay_s for share in SECOND_LATE):
        late = parse_injection(f"two:{delay_s:.9g},{second_s:.9g}")
        yield {"delay_s": delay_s, "injection": late, "tags": (("second_delay_s", second_s),)}


def _groups(e: StragglerSettings, n: int, size: int) -> Points:
    for count in e.groups:
        yield {"delay_s": e.long_delay_s(n, size), "groups": count, "tags": (("groups", count),)}


def _reconfigurations(e: StragglerSettings, n: int, size: int) -> Points:
    """Packet switches, then circuits that follow the schedule, with first phases over also at half the rate."""
    delay_s, circuits = 2 * e.long_delay_s(n, size), e.fabric_of(n, "ocs")
    yield {"delay_s": delay_s, "fabric": e.fabric_of(n, "electrical")}
    for change_ms in e.reconfiguration_delays_ms:
        change_s = change_ms / 1e3
        yield {"delay_s": delay_s + change_s, "fabric": circuits, "reconfiguration_delay_s": change_s}


def _predictions(e: StragglerSettings, n: int, size: int) -> Points:
    delay_s, steps = e.long_delay_s(n, size), VARIED * e.iterations
    for probability in PROBABILITIES:
        late = parse_injection(f"persistent:{delay_s:.9g}@{probability:g}")
        yield {"delay_s": delay_s, "injection": late, "tags": (("persistence", probability),), "steps": steps}


def _steps(e: StragglerSettings, n: int, size: int) -> Points:
    """Training steps (compute and all-reduce), by the share of the all-reduce in the step."""
    delay_s, law, steps = e.long_delay_s(n, size), e.law(n, size), VARIED * e.iterations
    late = parse_injection(f"persistent:{delay_s:.9g}@{PREDICTED_RIGHT:g}")
    measured = late.delays(n, steps + 1, e.late_rank(n), e.seed)[e.late_rank(n)][1:]
    right = sum(delay > 0 for delay in measured) / steps
    for share in SHARES:
        yield {**_step(law, share, right, delay_s), "injection": late, "steps": steps}


def _log_step(e: StragglerSettings, n: int, size: int) -> Points:
    """The training step of the authors' log, in which the late rank comes before the break-even.

    Delay and compute are in the log's proportions to its all-reduce. The late rank is expected in every step, the best
    case for StragglAR.
    """
    law = e.law(n, size)
    yield _step(law, LOG_SHARE, 1.0, LOG_DELAY * law.ring_s)


def _step(law: StragglerLaw, share: float, right: float, delay_s: float) -> dict[str, Any]:
    """A training step: Ring's ``share`` of it, and the share of steps whose late rank is the expected one."""
    return {
        "delay_s": delay_s,
        "compute_s": max(0.0, law.ring_s / share - law.ring_s - delay_s),
        "tags": (("expected_late", right), ("all_reduce_share", share)),
    }


def _injected(e: StragglerSettings, n: int, size: int) -> Points:
    injection, expected = parse_injection(e.inject or "none"), e.late_rank(n)
    late = injection.late_rank(n, expected)
    slow = "/".join(f"{rank}:{share:g}" for rank, share in injection.slow_links(n, expected).items())
    delays = injection.delays(n, e.iterations + 1, expected, e.seed)[late][1:]
    yield {"delay_s": sum(delays) / len(delays), "injection": injection, "fabric": e.fabric_of(n, slow=slow)}


_TABLE: dict[str, tuple[tuple[str, ...], Callable[[StragglerSettings, int, int], Points]]] = {
    "delay": ((), _around_break_even),
    "ranks": ((), _after_all_first_phases),
    "size": ((), _in_time_and_late),
    "reconfiguration": (PAIR, _reconfigurations),
    "prediction": (PAIR, _predictions),
    "step": (PAIR, _steps),
    "log": (PAIR, _log_step),
    "buckets": ((*PAIR, AUTO), _buckets),
    "two": (PAIR, _two_late),
    "groups": (PAIR, _groups),
    "injection": ((), _injected),
}
"""Study -> its algorithms (none: those of the settings), and its points for a number of ranks and a buffer size."""

DETECTOR_STEPS = 16
DETECTOR_PERSISTENCE = 0.9
LEAST_GAP_S = 0.01
"""Smallest gap between arrivals that counts as a straggler, in wall-clock seconds."""


@dataclass(kw_only=True)
class StragglerRow(TrialRow):
    """One collective with a late rank, on one fabric."""

    given: ClassVar[frozenset[str]] = TrialRow.given | {
        *("persistence", "all_reduce_share", "step", "round_cost", "alpha_ms", "buckets", "second_delay_s", "groups")
    }

    persistence: Annotated[float | None, "probability that the predicted rank is the late one"] = None
    all_reduce_share: Annotated[float | None, "share of the all-reduce in a step, in study step"] = None
    expected_late: Annotated[float | None, "share of steps whose late rank is the expected one, in study step"] = None
    critical_delay_s: Annotated[float | None, "break-even delay T_crit of the law"] = None
    law_s: Annotated[float | None, "time from the first arrival by the closed form"] = None
    buckets: Annotated[int | None, "all-reduces of a step, in study buckets"] = None
    second_delay_s: Annotated[float | None, "delay of a second late rank, in study two"] = None
    groups: Annotated[int | None, "tensor parallel groups, in study groups"] = None
    alpha_ms: Annotated[float, "latency of a round of every algorithm"] = 0.0
    round_cost: Annotated[float, "cost of a round of StragglAR, in times of the buffer on a link"] = 0.0
    chosen: Annotated[str | None, "algorithm that auto chose for the expected delay"] = None
    early_share: Annotated[float | None, "share of the buffer that stragglar-eager began before all were there"] = None
    predicted_early_share: Annotated[float | None, "the same of the model"] = None
    step: Annotated[int | None, "number of the step, in study detector"] = None
    right: Annotated[bool | None, "whether the detector predicted the late rank"] = None

    def predict(self, trial: Trial, scale: Scale, prediction: Prediction) -> None:
        super().predict(trial, scale, prediction)
        self.predicted_early_share = _early_share(trial, prediction.events, 1)

    def measure(self, trial: Trial, scale: Scale, found: Measured, times: CollectiveTimes) -> None:
        super().measure(trial, scale, found, times)
        self.early_share = _early_share(trial, found.events, found.point.warmup(found.metrics.steps))


def _early_share(trial: Trial, events: Iterable[Event], warmup_steps: int) -> float | None:
    """Mean share of the pieces of the first phase that were begun; None where it is not eager."""
    begun = [event["begun"] for event in events if event.kind == "roll_call" and event["step"] >= warmup_steps]
    return sum(begun) / len(begun) / trial.schedule.pieces if begun else None


class Stragglers(TrialExperiment[StragglerSettings]):
    """The cost of a late rank for an all-reduce: Ring, halving-doubling, Direct and StragglAR, beside the model."""

    name = "straggler"
    Settings = StragglerSettings
    row = StragglerRow
    rows = (StragglerRow,)
    quick: ClassVar = {"iterations": 1, "algorithms": ["ring", "stragglar"], "sizes": ["2M"]}
    examples = (
        "                   # time against delay, 8 ranks",
        "--quick            # in under two minutes",
        "--ranks 4,8,16 --study ranks",
        "--study size,reconfiguration",
        "--study prediction,detector,step",
        "--algorithms ring,stragglar,auto",
        "--inject slow-link:0.4    # --inject help lists causes",
        "--study ranks --round-cost 0.0127",
        "--predict --ranks 8       # the model alone; needs no root",
    )

    @classmethod
    def adapt(cls, values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """A cause that is given is measured by study injection, unless studies are given; ``help`` lists the causes."""
        if given.get("inject") == "help":
            print("\n".join(f"{word:<14} such as {example}" for word, example in INJECTIONS.items()))
            raise SystemExit(0)
        return {**values, "studies": ["injection"]} if given.get("inject") and "studies" not in given else values

    def points(self) -> int:
        detected = len(self.settings.ranks) if "detector" in self.settings.studies else 0
        return super().points() + detected * DETECTOR_STEPS

    def pieces(self) -> list[Piece]:
        """Every trial, and all steps of the detector as one piece: its trials depend on earlier arrivals."""
        detected = self.settings.ranks if "detector" in self.settings.studies else ()
        return [*super().pieces(), *(Piece(f"detector, {n} ranks", n) for n in detected)]

    def measure(self, runner: Runner, piece: Piece) -> Sequence[MeasuredRow]:
        return super().measure(runner, piece) if isinstance(piece.of, Trial) else self._detect(runner, piece.of)

    def _detect(self, runner: Runner, n: int) -> list[TrialRow]:
        """Run the detector step by step: predict the late rank, run StragglAR for it, and observe the arrivals.

        The detector begins with a wrong prediction. The late rank of each step is drawn beforehand with the seed.
        """
        settings = self.settings
        size = settings.size_of(n)[0]
        delay_s = settings.long_delay_s(n, size)
        late = settings.late_rank(n)
        plan = parse_injection(f"persistent:{delay_s:.9g}@{DETECTOR_PERSISTENCE}")
        delays = plan.delays(n, DETECTOR_STEPS, late, settings.seed)
        detector = Detector(n, first=(late + 1) % n, least_s=LEAST_GAP_S)
        rows = []
        for step in range(DETECTOR_STEPS):
            late_rank = max(range(n), key=lambda rank: delays[rank][step])
            expected = detector.predict()
            trial = settings.trial(
                settings.costly(settings.plan("stragglar", n, expected), settings.law(n, size)),
                size,
                delays[late_rank][step],
                study="detector",
                late_rank=late_rank,
                steps=1,
                tags=(("step", step), ("right", late_rank == expected)),
            )
            row, times = self.measure_trial(runner, trial)
            detector.observe(times.steps[-1].arrivals)
            rows.append(row)
        return rows
