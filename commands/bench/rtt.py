"""Benchmark of the round-trip time of a ping over a circuit, beside stock Mininet."""

from __future__ import annotations

from statistics import median
from typing import Any

from commands.bench import Measurement, not_measured
from commands.bench.bed import Bed
from commands.bench.echo import echo_times
from controllers.northbound.client import ChannelClient
from railyard.errors import MachineError

LIMIT_US = 60.0
_SHAPE: dict[str, Any] = {"servers": 2, "gpus": 1, "ports": 1, "rate_mbps": 100.0}


def round_trip(bed: Bed) -> list[Measurement]:
    """Median and 99th percentile of the round-trip time of 64-byte pings 10 ms apart, in microseconds; needs root."""
    with (
        bed.controlled(**_SHAPE, fabric="ocs") as (net, controller),
        ChannelClient(controller.files.channel) as client,
    ):
        client.rewire("rail0", [(1, 2)], "overwrite", delay_s=0.0)
        times = sorted(echo_times(net.netns_fd("g0"), net["g1"].IP()))
    found = bed.at_most("rtt_median", median(times) * 1e6, "us", LIMIT_US)
    missing = []
    try:
        found.baseline = bed.stock(_SHAPE | {"fabric": "electrical"}, pings=True)["rtt_s"] * 1e6
        found.ratio = found.baseline / found.value if found.value else None
    except MachineError as error:
        missing.append(not_measured("rtt_stock", error))
    return [found, Measurement("rtt_p99", times[int(0.99 * len(times))] * 1e6, "us"), *missing]
