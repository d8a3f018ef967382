"""Benchmarks of the highest aggregate rate: of plain streams, beside stock Mininet, and of the agents' all-reduce."""

from __future__ import annotations

import statistics
from typing import Any

from commands.bench import Measurement, NotMeasured, not_measured
from commands.bench.bed import Bed
from commands.bench.ring_all_reduce import Size, ideal_s, run
from commands.bench.rings import ring_goodput
from measure.live.machine_benchmark import highest_rate
from railyard.errors import MachineError
from topos.rails import RailTopo

LEAST_RATIO = 4.0
"""Least aggregate of plain streams with bpf, as a multiple of that of stock Mininet with ``TCLink``."""
LEAST_AGGREGATE_MBPS = 6000.0
"""Least aggregate of the all-reduce with bpf."""
WITHIN = 1.05
RATES_MBPS = (250.0, 1000.0)
"""Rates of the links of the plain streams: the higher is the highest that ``TCLink`` accepts."""
STREAM_HOSTS, STREAM_S = 16, 3.0
HOSTS = 64
START_MBPS, MOST_MBPS, HALVINGS = 50.0, 400.0, 3
"""Rates of a host in the search: the first, the highest, and the steps of bisection (three: to 9 percent)."""
_CHUNK_S = 0.04
_STEPS = 3


def plain_streams(bed: Bed) -> list[Measurement]:
    """The largest sum of goodputs of 16 hosts in a ring over links that are faster than this machine; needs root."""
    name, baseline, missing = f"ceiling_plain_streams_{STREAM_HOSTS}", None, []
    ours = 0.0
    for rate_mbps in RATES_MBPS:
        with bed.make(RailTopo(**_shape(rate_mbps))) as net:
            ours = max(ours, sum(ring_goodput(net.hosts, rate_mbps, STREAM_S)))
    try:
        theirs = [bed.stock(_shape(rate_mbps), ring_s=STREAM_S)["goodput_mbps"] for rate_mbps in RATES_MBPS]
        baseline = max(map(sum, theirs))
    except MachineError as error:
        missing.append(not_measured(f"{name}_stock", error))
    ratio, limit = ours / baseline if baseline else None, bed.limit(LEAST_RATIO)
    ok = None if limit is None or ratio is None else ratio >= limit
    return [Measurement(name, ours, "Mb/s", baseline, ratio, limit, ok), *missing]


def _shape(rate_mbps: float) -> dict[str, Any]:
    return {"servers": STREAM_HOSTS, "gpus": 1, "ports": 1, "fabric": "electrical", "rate_mbps": rate_mbps}


def size_of(hosts: int, rate_mbps: float) -> Size:
    """The all-reduce whose chunks take ``_CHUNK_S`` at line rate."""
    return Size(hosts, rate_mbps, round(hosts * rate_mbps * 1e6 / 8 * _CHUNK_S) // 4 * 4, steps=_STEPS)


def highest_aggregate(bed: Bed, hosts: int = HOSTS) -> list[Measurement]:
    """The highest sum of the hosts' rates at which an all-reduce stays within ``WITHIN`` of the ideal time; needs root.

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
