"""Benchmark of link fidelity: 16 hosts in a ring, all sending at once, beside stock ``TCLink``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.bench import Measurement, NotMeasured, not_measured
from experiments.bench.rings import ring_goodput
from experiments.bench.stock import stock
from railyard.errors import MachineError
from railyard.scale import MTU_BYTES, goodput_share
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo

LEAST_SHARE = 0.98
"""Share of the line-rate goodput that the slowest host has to reach."""
MOST_SPREAD = 0.02
"""Highest (max - min) / median over the hosts."""
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


def links(hosts: int = 16, rate_mbps: float = 100.0, seconds: float = 4.0, baseline: bool = True) -> list[Measurement]:
    """Goodput of the slowest host and spread over all hosts, with ``baseline`` also for stock Mininet; needs root."""
    shape: dict[str, Any] = {"servers": hosts, "gpus": 1, "ports": 1, "fabric": "electrical", "rate_mbps": rate_mbps}
    with Emulation(RailTopo(**shape), openflow=None) as net:
        ours = ring_goodput(net.hosts, rate_mbps, seconds)
    shares = share_of_line(ours, rate_mbps)
    name, least, apart = f"links_{hosts}x{rate_mbps:g}", None, None
    missing = []
    if baseline:
        try:
            theirs = stock(shape, seconds)["goodput_mbps"]
            least, apart = min(share_of_line(theirs, rate_mbps, _STOCK_MTU)), spread(theirs)
        except MachineError as error:
            missing.append(not_measured(f"{name}_stock", error))
    return [_least(f"{name}_slowest", min(shares), least), _spread(f"{name}_spread", spread(ours), apart), *missing]


def _least(name: str, value: float, baseline: float | None) -> Measurement:
    ratio = value / baseline if baseline else None
    unit = "of line-rate goodput"
    return Measurement(name, value, unit, baseline, ratio, LEAST_SHARE, value >= LEAST_SHARE)


def _spread(name: str, value: float, baseline: float | None) -> Measurement:
    ratio = baseline / value if baseline is not None and value else None
    return Measurement(name, value, "(max - min) / median", baseline, ratio, MOST_SPREAD, value <= MOST_SPREAD)
