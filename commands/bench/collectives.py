"""Benchmarks of collectives: ring all-reduces against line rate, bounds, StragglAR's law, circuits in slots.

Ideal: every rank sends 2 (n - 1) / n of the buffer (Patarasuk and Yuan, JPDC 2009) at its rate, with Ethernet, IP and
TCP headers. As in nccl-tests, all-reduces run one after another, and each is measured from the end of the one before on
the last rank (result complete, all of its data acknowledged) to its own end.

The duty cycle of slots is the payload that the ranks sent as a share of what their ports carry without a pause. All
need root.
"""

from __future__ import annotations

import statistics
from functools import cached_property, partial
from typing import Any, NamedTuple

from commands.bench import Measurement, NotMeasured, at_most, not_measured
from commands.bench.bed import Bed, Played, laps_s, play, rows_of
from experiments.collectives.all_to_all.experiment import FULL_CYCLES, LAST_CYCLE, AllToAll, AllToAllSettings
from experiments.collectives.collective.experiment import Collectives, CollectiveSettings
from experiments.collectives.row import wire_bound_s
from experiments.collectives.straggler.experiment import Stragglers, StragglerSettings
from experiments.collectives.straggler.findings import break_even_s
from experiments.collectives.straggler.law import StragglerLaw
from experiments.collectives.trial import Trial, TrialFabric
from experiments.settings import validated
from measure.live.calibration import this_machine
from measure.live.machine_benchmark import busy_processors, highest_rate
from measure.results.row import Row
from railyard.errors import MachineError, RailyardError
from railyard.scale import goodput_bytes_per_s, goodput_share
from topos.rails import RailTopo
from workloads.agent.launcher import AgentLauncher
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.program import Collective, Group, Program

_SLACK = 6.0
"""Timeout of a run as a multiple of the ideal time, to which a minute is added."""


class Size(NamedTuple):
    """One all-reduce: ``hosts`` that send ``rate_mbps`` each reduce a buffer of ``bytes``, ``steps`` times.

    The first step fills the TCP windows and is not counted. ``limits`` of measured / ideal time are those with bpf and
    with other datapaths, None where there is none.
    """

    hosts: int
    rate_mbps: float
    bytes: int
    limits: tuple[float | None, float | None] = (None, None)
    steps: int = 4


SCALING = (
    Size(8, 50.0, 8_000_000, (1.01, 1.05)),
    Size(16, 50.0, 16_000_000, (1.01, 1.05)),
    Size(32, 50.0, 16_000_000, (1.01, 1.05)),
    Size(64, 50.0, 32_000_000, (1.01, 1.05), 3),
    Size(64, 100.0, 64_000_000, (1.01, None), 3),
)
"""Chunks of 0.5 to 1 MB, which take 80 to 160 ms."""
LARGE = (
    Size(128, 10.0, 16_000_000, (1.02, 1.03), 3),
    Size(128, 50.0, 64_000_000, (1.015, None), 3),
    Size(256, 25.0, 64_000_000, (1.05, None), 2),
    Size(512, 10.0, 51_200_000, (1.1, None), 2),
)
"""Chunks that take 80 to 100 ms; one step takes up to a minute and a half."""
MOST_HOSTS, READY_LIMIT_S, MEMORY_LIMIT_GB = 512, 8.0, 1.5
"""The agents of so many hosts are to be ready within a time, with so much memory."""
MOST_BUSY = 0.4
"""Largest share of a core that the busiest agent may take at ``_BUSY_MBPS`` with bpf, in percent."""
_BUSY_MBPS = 50.0


def ring_program(hosts: int, size_bytes: int) -> Program:
    """Program of one all-reduce of ``size_bytes`` over ``hosts``."""
    group = Group("dp0", "dp", tuple(range(hosts)))
    operation = Collective(0, "all-reduce", "all_reduce", group.name, size_bytes, algorithm="ring")
    return Program("ring-all-reduce", ((operation,),) * hosts, {group.name: group})


def ideal_s(hosts: int, rate_mbps: float, size_bytes: int) -> float:
    """Seconds of a ring all-reduce of ``size_bytes`` at line rate, headers included."""
    sent = 2 * (hosts - 1) / hosts * size_bytes
    return sent / goodput_share() * 8 / (rate_mbps * 1e6)


def ring_all_reduce(bed: Bed, size: Size) -> list[Measurement]:
    """Measured / ideal time of an all-reduce, as the median of its steps, and the busiest agent's load."""
    times, played = run(bed, size)
    name = f"allreduce_{size.hosts}x{size.rate_mbps:g}"
    ratio = statistics.median(times) / ideal_s(size.hosts, size.rate_mbps, size.bytes)
    most = MOST_BUSY if size.rate_mbps == _BUSY_MBPS else None
    return [
        bed.at_most(f"{name}_over_ideal", ratio, "ratio", *size.limits),
        bed.at_most(f"{name}_busiest_agent", max(played.shares) * 100, "% of a core", most),
        Measurement(f"{name}_all_agents", sum(played.shares) * 100, "% of a core"),
        *(
            bed.at_most(f"{name}_{key}", value, unit, limit if size.hosts == MOST_HOSTS else None)
            for key, value, unit, limit in (
                ("ready", played.ready_s, "s", READY_LIMIT_S),
                ("memory", played.memory_bytes / 1e9, "GB", MEMORY_LIMIT_GB),
            )
        ),
    ]


def run(bed: Bed, size: Size) -> tuple[list[float], Played]:
    """Seconds of each counted step, and what the agents were seen to do and take."""
    topo = RailTopo(servers=size.hosts, gpus=1, ports=1, fabric="electrical", rate_mbps=size.rate_mbps)
    patience_s = 60 + _SLACK * size.steps * ideal_s(size.hosts, size.rate_mbps, size.bytes)
    program = ring_program(size.hosts, size.bytes)
    with AgentLauncher.start() as launcher, bed.make(topo) as net:
        played = play(net, launcher, program, size.steps, patience_s, bed.agents_per_process)
    (laps,) = laps_s(played.events, program.groups).values()
    return laps, played


SCALED, SCALED_LARGE = (tuple(partial(ring_all_reduce, size=size) for size in sizes) for sizes in (SCALING, LARGE))
"""The parts of two benchmarks: an all-reduce of each size."""


LEAST_AGGREGATE_MBPS = 24_000.0
"""Least aggregate of the all-reduce with bpf."""
WITHIN = 1.05
CEILING_HOSTS = 64
START_MBPS, MOST_MBPS, HALVINGS = 50.0, 400.0, 3
"""Rates of a host in the search: the first, the highest, and the steps of bisection (three: to 9 percent)."""
_CHUNK_S = 0.04
_CEILING_STEPS = 3


def size_of(hosts: int, rate_mbps: float) -> Size:
    """The all-reduce whose chunks take ``_CHUNK_S`` at line rate."""
    return Size(hosts, rate_mbps, round(hosts * rate_mbps * 1e6 / 8 * _CHUNK_S) // 4 * 4, steps=_CEILING_STEPS)


def highest_aggregate(bed: Bed, hosts: int = CEILING_HOSTS) -> list[Measurement]:
    """The highest sum of the hosts' rates at which an all-reduce stays within ``WITHIN`` of the ideal time.

    The rate per host is doubled until a run exceeds the limit, then the gap is halved; a run takes about 20 seconds.
    """

    def holds(rate_mbps: float) -> bool:
        size = size_of(hosts, rate_mbps)
        return statistics.median(run(bed, size)[0]) <= WITHIN * ideal_s(hosts, rate_mbps, size.bytes)

    try:
        found = highest_rate(holds, START_MBPS, MOST_MBPS, HALVINGS).value
    except MachineError as error:
        raise NotMeasured(f"the highest aggregate rate of {hosts} hosts within {WITHIN:g}: {error}") from None
    name = f"ceiling_all_reduce_{hosts}_hosts"
    return [bed.at_least(name, found * hosts, "Mb/s", LEAST_AGGREGATE_MBPS)]


# ---- against bounds and laws -----------------------------------------------------------------------------------------


BOUND_RANKS, GPUS_PER_SERVER = 16, 4
BOUND_BYTES = 4 << 20
BOUND_LIMIT = 1.08
SPEEDUPS = {n: StragglerLaw(n, 1, 0.0, 1.0).speedup for n in (4, 8, 16)}
"""Ranks -> time of Ring over StragglAR after arrival by the alpha-beta law, without latency, past the first phase."""
SPEEDUP_TOLERANCE, BREAK_EVEN_TOLERANCE = 0.05, 0.10
_BOUND_STEPS = 2


def against_bounds(bed: Bed) -> list[Measurement]:
    """Measured / bound for every algorithm and collective at 16 ranks of 50 Mb/s and 4 MiB.

    The bound includes the message latency of this machine (``railyard calibrate``) in each round.
    """
    alpha_s, found = this_machine().of(bed.datapath).alpha_s, []
    experiment = BoundTrials(validated(CollectiveSettings, {"iterations": _BOUND_STEPS, "datapath": bed.datapath}))
    for trial, row in zip(experiment.trials, rows_of(experiment), strict=True):
        name = f"{trial.schedule.kind}_{trial.schedule.algorithm}_over_bound"
        if not row["after_arrival_s"]:
            found.append(not_measured(name, "no step of it was seen from its first byte to its last"))
            continue
        found.append(at_most(name, row["after_arrival_s"] / wire_bound_s(trial, alpha_s), "ratio", BOUND_LIMIT))
    return found


class BoundTrials(Collectives):
    """Every algorithm and collective once, ordered so that fabrics are brought up once."""

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        found = []
        for name, algorithm in sorted(ALGORITHMS.items(), key=lambda item: bool(item[1].servers)):
            fabric = TrialFabric(ranks=BOUND_RANKS, gpus_per_server=GPUS_PER_SERVER if algorithm.servers else 1)
            for kind in algorithm.kinds:
                plan = schedule(kind, BOUND_RANKS, name, gpus_per_server=fabric.gpus_per_server)
                found.append(Trial(plan, BOUND_BYTES, fabric))
        return tuple(found)


def stragglar(bed: Bed) -> list[Measurement]:
    """Time of Ring over StragglAR after arrival at 4, 8 and 16 ranks, and the break-even delay at 8 ranks.

    The ratios and the break-even delay are compared with the law.
    """
    found = []
    values = {"studies": ["ranks"], "ranks": list(SPEEDUPS), "iterations": 3, "datapath": bed.datapath}
    rows = rows_of(Stragglers(validated(StragglerSettings, values)))
    after = {(row["n"], row["algorithm"]): row["after_arrival_s"] for row in rows}
    for n, law in SPEEDUPS.items():
        name = f"stragglar_{n}_ranks_ring_over_it"
        ring, other = after.get((n, "ring")), after.get((n, "stragglar"))
        if not ring or not other:
            why = f"the runs of {n} ranks gave {ring} s for Ring and {other} s for StragglAR"
            found.append(not_measured(name, why))
            continue
        ok = abs(ring / other / law - 1) <= SPEEDUP_TOLERANCE
        found.append(Measurement(name, ring / other, "ratio", limit=law, ok=ok))
    return [*found, _break_even(bed)]


def _break_even(bed: Bed) -> Measurement:
    values = {"algorithms": ["ring", "stragglar"], "iterations": 3, "datapath": bed.datapath}
    settings = validated(StragglerSettings, values)
    measured = break_even_s(rows_of(Stragglers(settings)))
    name = "stragglar_8_ranks_break_even_over_law"
    if measured is None:
        return not_measured(name, "StragglAR was not faster than Ring at any delay that was measured")
    law = settings.law(8, settings.size_of(8)[0]).critical_delay_s
    ok = abs(measured / law - 1) <= BREAK_EVEN_TOLERANCE
    return Measurement(name, measured / law, "ratio", limit=1.0, ok=ok)


# ---- circuits in slots of fixed length -------------------------------------------------------------------------------


LEAST_DUTY, MOST_LOST_PERCENT = 0.87, 0.1
SLOT_MS, DELAY_MS, GUARD_MS = 10.0, 1.0, 0.1
LEAST_OVER_PLAN = {10.0: 0.98, 5.0: 0.98, 2.0: 0.95}
"""Lengths of slots in ms, each with the least share of its planned duty cycle."""
SHORT_DELAY_MS = 0.5
SLOT_RANKS, PORT_GBPS = 8, 0.4
_MTU = 1500
"""At this rate a slot of 2 ms holds more than sixty packets of this MTU."""


class AnySlots(AllToAll):
    """The experiment with slots of any length: the benchmarks look for the shortest that this machine shows."""

    floored = False


def slots(bed: Bed) -> list[Measurement]:
    """Duty cycle of slots of 10 ms with 1 ms of delay, lost and misdelivered packets."""
    row = _slot_row(bed, SLOT_MS, DELAY_MS, SLOT_RANKS)
    name = f"slots_{SLOT_MS:g}ms"
    found = [bed.at_least(f"{name}_duty_cycle", row["duty_cycle"], "of goodput", LEAST_DUTY)]
    found.append(Measurement(f"{name}_ideal_duty_cycle", row["ideal_duty_cycle"], "of goodput"))
    if row["misdelivered"] is None:
        found.append(not_measured(f"{name}_misdelivered", "this kernel does not count misdelivered packets"))
    else:
        found.append(bed.at_most(f"{name}_misdelivered", row["misdelivered"], "packets", 0, 0))
    lost = 1 - row["received_bytes"] / row["sent_bytes"]
    return [*found, bed.at_most(f"{name}_lost", lost * 100, "% of bytes", MOST_LOST_PERCENT)]


def short_slots(bed: Bed) -> list[Measurement]:
    """The duty cycle of short slots over the planned one, at rest and beside a process that keeps one core busy."""
    found = []
    for busy, end in enumerate(("", "_loaded")):
        with busy_processors(busy):
            for slot_ms, least in LEAST_OVER_PLAN.items():
                name = f"floor_slot_{slot_ms:g}ms_over_plan{end}"
                try:
                    row = _slot_row(bed, slot_ms, SHORT_DELAY_MS, SLOT_RANKS // 2)
                    found.append(bed.at_least(name, row["duty_cycle"] / planned_duty(row), "ratio", least))
                except RailyardError as error:
                    found.append(not_measured(name, error))
    return found


def planned_duty(row: Row) -> float:
    """The duty cycle of ranks that send in each slot what is planned for it: less than its guard time leaves.

    The rest is for data that this machine sends late.
    """
    slot_bytes = row["bytes_per_pair"] / (FULL_CYCLES + LAST_CYCLE)
    period_s = (row["slot_ms"] + row["reconfiguration_delay_ms"]) / 1e3
    return float(slot_bytes / (goodput_bytes_per_s(row["port_gbps"], row["mtu"]) * period_s))


def _slot_row(bed: Bed, slot_ms: float, delay_ms: float, ranks: int) -> Row:
    values: dict[str, Any] = {
        "studies": ["slot"],
        "ranks": [ranks],
        "slots_ms": [slot_ms],
        "delays_ms": [delay_ms],
        "guard_ms": GUARD_MS,
        "port_gbps": PORT_GBPS,
        "mtu": _MTU,
        "iterations": 9,
        "datapath": bed.datapath,
    }
    (row,) = rows_of(AnySlots(validated(AllToAllSettings, values)))
    if row["duty_cycle"] is None:
        raise NotMeasured(f"the duty cycle of slots of {slot_ms:g} ms: no full cycle was seen")
    return row
