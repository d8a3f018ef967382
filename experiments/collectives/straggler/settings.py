"""Settings of the straggler experiment: the cost of a late rank for Ring, halving-doubling, Direct and StragglAR.

Studies: ``delay`` (of the late rank), ``ranks`` (their number), ``size`` (of the buffer), ``reconfiguration`` (circuits
that follow the schedule), ``prediction`` (share of correct predictions of the late rank), ``detector`` (predictions
from earlier arrivals), ``step`` (an all-reduce as a share of a training step) and ``injection`` (another cause of
lateness). Source of the system: StragglAR, arXiv 2505.23523.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from experiments.collectives.experiment import TrialSettings
from experiments.collectives.straggler.law import LAW_ALGORITHMS, StragglerLaw
from experiments.collectives.trial import FabricKind, Trial, TrialFabric
from experiments.settings import Delay, Mtu, Option, PortGbps, Sizes
from measure.published import published
from railyard.errors import ConfigError
from railyard.scale import ROCE_MTU_BYTES, goodput_bytes_per_s
from workloads.collectives.catalog import schedule
from workloads.schedule import Schedule
from workloads.stragglers.detector import AUTO, choose
from workloads.stragglers.injection import parse_injection

Study = Literal["delay", "ranks", "size", "reconfiguration", "prediction", "detector", "step", "injection"]
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
SIZES = tuple(1 << power for power in (12, 14, 16, 18, 20, 22))
RECONFIGURATIONS_MS = (0.0, 10.0, 25.0, 50.0, 100.0)


class StragglerSettings(TrialSettings):
    """Settings of the straggler experiment, in real units."""

    studies: Annotated[tuple[Study, ...], Option("--study")] = Field(
        default=("delay",), min_length=1, description="studies to measure"
    )
    algorithms: Annotated[tuple[str, ...], Option("--algorithms", "NAME,...")] = Field(
        default=LAW_ALGORITHMS,
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
    inject: Annotated[str | None, Option(metavar="CAUSE")] = Field(
        default=None, description="another cause of lateness, for study injection; help lists the causes"
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
            for n in self.ranks if study in _TRIALS else ():
                for size in self.sizes or SIZES if study == "size" else self.size_of(n):
                    for trial in _TRIALS[study](self, n, size):
                        yield replace(trial, study=study)
            if study == "step":
                yield from (replace(trial, study=study) for trial in _log_trials(self))

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
        """The buffer sizes for ``n`` ranks, in bytes."""
        return self.sizes or (n * BYTES_PER_RANK,)

    def fabric_of(self, n: int, kind: FabricKind | None = None, slow: str = "") -> TrialFabric:
        """The fabric for ``n`` ranks; ``slow`` lists ranks with slower links."""
        return TrialFabric(kind or self.fabric, n, port_gbps=self.port_gbps, mtu=self.mtu, slow=slow)

    def law(self, n: int, size: int, alpha_s: float = 0.0) -> StragglerLaw:
        """The closed forms for ``n`` ranks and a buffer of ``size`` bytes, at the goodput of the ports."""
        rounds = self.plan("stragglar", n)
        bytes_per_s = goodput_bytes_per_s(self.port_gbps, self.mtu)
        return StragglerLaw(n, size, alpha_s, bytes_per_s, rounds.rounds - rounds.first_phase)

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

    def trials_of(self, n: int, size: int, delay_s: float, **changes: Any) -> Iterator[Trial]:
        """A trial of every algorithm with a rank that is expected to be, and is, ``delay_s`` late.

        ``auto`` is Ring or StragglAR, by the law's break-even; the row says which one was chosen.
        """
        for name in self.algorithms:
            if name != AUTO:
                yield self.trial(self.plan(name, n), size, delay_s, **changes)
                continue
            chosen = choose(delay_s, self.law(n, size).critical_delay_s)
            plan = replace(self.plan(chosen, n), algorithm=AUTO)
            yield self.trial(plan, size, delay_s, **changes, tags=(("chosen", chosen),))

    def trial(self, plan: Schedule, size: int, delay_s: float, **changes: Any) -> Trial:
        """A trial with a rank that is ``delay_s`` late; ``changes`` override fields of the trial."""
        late = self.late_rank(plan.n)
        values: dict[str, Any] = {
            "schedule": plan,
            "bytes": size,
            "fabric": self.fabric_of(plan.n),
            "injection": parse_injection(f"fixed:{delay_s:.9g}") if delay_s > 0 else None,
            "late_rank": late,
            "straggler_delay_s": delay_s,
        }
        return Trial(**values | changes)


def _delay_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    for delay_s in e.delays_s(e.law(n, size)):
        yield from e.trials_of(n, size, delay_s)


def _rank_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    """Trials of every algorithm with a delay in which Direct too, whose first phase is longest, finishes that phase."""
    yield from e.trials_of(n, size, LATE_ENOUGH * e.law(n, size).direct_first_phase_s)


def _size_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    yield from e.trials_of(n, size, max(e.long_delay_s(n, size), 0.1))


def _reconfiguration_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    """Trials of Ring and StragglAR on circuits that follow the schedule, and on packet switches."""
    delay_s = e.long_delay_s(n, size)
    for algorithm in PAIR:
        yield e.trial(e.plan(algorithm, n), size, delay_s, fabric=e.fabric_of(n, "electrical"))
    for change_ms in e.reconfiguration_delays_ms:
        for algorithm in PAIR:
            yield e.trial(
                e.plan(algorithm, n),
                size,
                delay_s + (n - 2) * change_ms / 1e3,
                fabric=e.fabric_of(n, "ocs"),
                reconfiguration_delay_s=change_ms / 1e3,
            )


def _prediction_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    delay_s = e.long_delay_s(n, size)
    for probability in PROBABILITIES:
        late = parse_injection(f"persistent:{delay_s:.9g}@{probability:g}")
        tags, steps = (("persistence", probability),), VARIED * e.iterations
        for algorithm in PAIR:
            yield e.trial(e.plan(algorithm, n), size, delay_s, injection=late, tags=tags, steps=steps)


def _step_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    """Trials of training steps (compute and all-reduce), by the share of the all-reduce in the step."""
    delay_s, law, steps = e.long_delay_s(n, size), e.law(n, size), VARIED * e.iterations
    late = parse_injection(f"persistent:{delay_s:.9g}@{PREDICTED_RIGHT:g}")
    measured = late.delays(n, steps + 1, e.late_rank(n), e.seed)[e.late_rank(n)][1:]
    right = sum(delay > 0 for delay in measured) / steps
    for share in SHARES:
        for algorithm in PAIR:
            yield e.trial(
                e.plan(algorithm, n),
                size,
                delay_s,
                injection=late,
                compute_s=max(0.0, law.ring_s / share - law.ring_s - delay_s),
                steps=steps,
                tags=_step_tags(law, share, right),
            )


def _log_trials(e: StragglerSettings) -> Iterator[Trial]:
    """Trials of the training step of the authors' log, in which the late rank comes before the break-even.

    Delay and compute are in the log's proportions to its all-reduce. The late rank is expected in every step, the best
    case for StragglAR.
    """
    e = e.model_copy(update={"straggler": None})
    size = max(1, e.size_of(LOG_RANKS)[0] // LOG_BYTES_SHARE)
    law = e.law(LOG_RANKS, size)
    delay_s = LOG_DELAY * law.ring_s
    compute_s = law.ring_s / LOG_SHARE - law.ring_s - delay_s
    for algorithm in PAIR:
        plan, tags = e.plan(algorithm, LOG_RANKS), _step_tags(law, LOG_SHARE, 1.0)
        yield e.trial(plan, size, delay_s, compute_s=compute_s, tags=tags)


def _step_tags(law: StragglerLaw, share: float, right: float) -> tuple[tuple[str, Any], ...]:
    """Tags of a training step: Ring's share of it, that of steps with the expected late rank, and the break-even."""
    critical_s = law.critical_delay_s if math.isfinite(law.critical_delay_s) else None
    return ("expected_late", right), ("all_reduce_share", share), ("critical_delay_s", critical_s)


def _injection_trials(e: StragglerSettings, n: int, size: int) -> Iterator[Trial]:
    """Trials of every algorithm with the injected cause of lateness."""
    injection, expected = parse_injection(e.inject or "none"), e.late_rank(n)
    late = injection.late_rank(n, expected)
    slow = "/".join(f"{rank}:{share:g}" for rank, share in injection.slow_links(n, expected).items())
    delays = injection.delays(n, e.iterations + 1, expected, e.seed)[late][1:]
    delay_s, fabric = sum(delays) / len(delays), e.fabric_of(n, slow=slow)
    yield from e.trials_of(n, size, delay_s, injection=injection, fabric=fabric)


_TRIALS: dict[Study, Callable[[StragglerSettings, int, int], Iterator[Trial]]] = {
    "delay": _delay_trials,
    "ranks": _rank_trials,
    "size": _size_trials,
    "reconfiguration": _reconfiguration_trials,
    "prediction": _prediction_trials,
    "step": _step_trials,
    "injection": _injection_trials,
}
