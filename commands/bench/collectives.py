"""Benchmarks of collectives on real packets: each against its alpha-beta bound, StragglAR against its law."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from commands.bench import Measurement, at_most, not_measured
from commands.bench.bed import Bed, rows_of
from experiments.collectives.collective.experiment import Collectives
from experiments.collectives.collective.settings import CollectiveSettings
from experiments.collectives.row import wire_bound_s
from experiments.collectives.straggler.experiment import Stragglers
from experiments.collectives.straggler.findings import break_even_s
from experiments.collectives.straggler.law import StragglerLaw
from experiments.collectives.straggler.settings import StragglerSettings
from experiments.collectives.trial import Trial, TrialFabric
from experiments.settings import validated
from measure.live.calibration import this_machine
from workloads.collectives.catalog import ALGORITHMS, schedule

RANKS, GPUS_PER_SERVER = 16, 4
SIZE = 4 << 20
BOUND_LIMIT = 1.08
SPEEDUPS = {n: StragglerLaw(n, 1, 0.0, 1.0).speedup for n in (4, 8, 16)}
"""Ranks -> time of Ring over StragglAR after arrival by the alpha-beta law, without latency, past the first phase."""
SPEEDUP_TOLERANCE, BREAK_EVEN_TOLERANCE = 0.05, 0.10
_STEPS = 2


def against_bounds(bed: Bed) -> list[Measurement]:
    """Measured / bound for every algorithm and collective at 16 ranks of 50 Mb/s and 4 MiB; needs root.

    The bound includes the message latency of this machine (``railyard calibrate``) in each round.
    """
    alpha_s = this_machine().of(bed.option).alpha_s
    found = []
    experiment = BoundTrials(validated(CollectiveSettings, {"iterations": _STEPS, "datapath": bed.option}))
    for trial, row in zip(experiment.trials, rows_of(experiment), strict=True):
        name = f"{trial.schedule.kind}_{trial.schedule.algorithm}_over_bound"
        if not row["after_arrival_s"]:
            found.append(not_measured(name, "no step of it was seen from its first byte to its last"))
            continue
        ratio = row["after_arrival_s"] / wire_bound_s(trial, alpha_s)
        found.append(at_most(name, ratio, "ratio", BOUND_LIMIT))
    return found


class BoundTrials(Collectives):
    """Every algorithm and collective once, ordered so that fabrics are brought up once."""

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The trials, those on one fabric after another."""
        return tuple(sorted(_trials(), key=lambda trial: trial.fabric.gpus_per_server))


def _trials() -> Iterator[Trial]:
    for name, algorithm in ALGORITHMS.items():
        servers = GPUS_PER_SERVER if algorithm.servers else 1
        for kind in algorithm.kinds:
            plan = schedule(kind, RANKS, name, gpus_per_server=servers)
            yield Trial(plan, SIZE, TrialFabric(ranks=RANKS, gpus_per_server=servers))


def stragglar(bed: Bed) -> list[Measurement]:
    """Time of Ring over StragglAR after arrival at 4, 8 and 16 ranks, and the break-even delay at 8 ranks; needs root.

    The ratios and the break-even delay are compared with the law.
    """
    found = []
    values = {"studies": ["ranks"], "ranks": list(SPEEDUPS), "iterations": 3, "datapath": bed.option}
    rows = rows_of(Stragglers(validated(StragglerSettings, values)))
    after = {(row["n"], row["algorithm"]): row["after_arrival_s"] for row in rows}
    for n, law in SPEEDUPS.items():
        name = f"stragglar_{n}_ranks_ring_over_it"
        ring, other = after.get((n, "ring")), after.get((n, "stragglar"))
        if not ring or not other:
            found.append(
                not_measured(name, f"the runs of {n} ranks gave {ring} s for Ring and {other} s for StragglAR")
            )
            continue
        ratio = ring / other
        ok = abs(ratio / law - 1) <= SPEEDUP_TOLERANCE
        found.append(Measurement(name, ratio, "ratio", limit=law, ok=ok))
    return [*found, _break_even(bed)]


def _break_even(bed: Bed) -> Measurement:
    values = {"algorithms": ["ring", "stragglar"], "iterations": 3, "datapath": bed.option}
    settings = validated(StragglerSettings, values)
    measured = break_even_s(rows_of(Stragglers(settings)))
    name = "stragglar_8_ranks_break_even_over_law"
    if measured is None:
        return not_measured(name, "StragglAR was not faster than Ring at any delay that was measured")
    law = settings.law(8, settings.size_of(8)[0]).critical_delay_s
    ok = abs(measured / law - 1) <= BREAK_EVEN_TOLERANCE
    return Measurement(name, measured / law, "ratio", limit=1.0, ok=ok)
