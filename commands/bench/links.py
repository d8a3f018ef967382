"""Benchmark of link fidelity: 16 hosts in a ring, all sending at once, beside stock ``TCLink``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from commands.bench import Measurement, NotMeasured, not_measured
from commands.bench.bed import Bed
from commands.bench.rings import ring_goodput
from measure.live.machine_benchmark import busy_processors
from railyard.errors import MachineError
from railyard.scale import MTU_BYTES, goodput_share
from topos.rails import RailTopo

LEAST_SHARE = 0.99, 0.98
"""Share of the line-rate goodput that the slowest host has to reach, with bpf and with other datapaths."""
LEAST_SHARE_BESIDE_LOAD = 0.985
MOST_SPREAD = 0.005, 0.02
"""Highest (max - min) / median over the hosts, with bpf and with other datapaths."""
_UNIT = "of line rate"
_STOCK_MTU = 1500


def share_of_line(goodput_mbps: Sequence[float], rate_mbps: float, mtu_bytes: int = MTU_BYTES) -> list[float]:
    """Goodput of each host as a share of the TCP goodput that a line of ``rate_mbps`` can carry."""
    return [mbps / (rate_mbps * goodput_share(mtu_bytes)) for mbps in goodput_mbps]


def spread(values: Sequence[float]) -> float:
    """Spread of ``values``: (max - min) / median; ``NotMeasured`` if the median is 0."""
    middle = statistics.median(values)
    if not middle:
        raise NotMeasured("the spread of goodput: half of the hosts received nothing")
    return (max(values) - min(values)) / middle


def links(bed: Bed, hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0) -> list[Measurement]:
    """Goodput of the slowest host and spread over all hosts, also of stock Mininet; needs root."""
    ours, name = _goodputs(bed, hosts, rate_mbps, seconds), f"links_{hosts}x{rate_mbps:g}"
    least, apart, missing = None, None, []
    try:
        theirs = bed.stock(_shape(hosts, rate_mbps), ring_s=seconds)["goodput_mbps"]
        least, apart = min(share_of_line(theirs, rate_mbps, _STOCK_MTU)), spread(theirs)
    except MachineError as error:
        missing.append(not_measured(f"{name}_stock", error))
    slowest = bed.at_least(f"{name}_slowest", min(share_of_line(ours, rate_mbps)), _UNIT, *LEAST_SHARE)
    apart_ours = bed.at_most(f"{name}_spread", spread(ours), "of median", *MOST_SPREAD)
    slowest.baseline, apart_ours.baseline = least, apart
    slowest.ratio = slowest.value / least if least and slowest.value else None
    apart_ours.ratio = apart / apart_ours.value if apart is not None and apart_ours.value else None
    return [slowest, apart_ours, *missing]


def links_beside_load(bed: Bed, hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0) -> list[Measurement]:
    """Goodput of the slowest host beside a process that keeps one core busy; needs root."""
    with busy_processors(1):
        found = _goodputs(bed, hosts, rate_mbps, seconds)
    name, least = f"links_{hosts}x{rate_mbps:g}_slowest_loaded", LEAST_SHARE_BESIDE_LOAD
    return [bed.at_least(name, min(share_of_line(found, rate_mbps)), _UNIT, least)]


def _shape(hosts: int, rate_mbps: float) -> dict[str, Any]:
    return {"servers": hosts, "gpus": 1, "ports": 1, "fabric": "electrical", "rate_mbps": rate_mbps}


def _goodputs(bed: Bed, hosts: int, rate_mbps: float, seconds: float) -> list[float]:
    with bed.make(RailTopo(**_shape(hosts, rate_mbps))) as net:
        return ring_goodput(net.hosts, rate_mbps, seconds)
