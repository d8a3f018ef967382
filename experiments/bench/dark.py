"""Benchmark of dark time, measured in-band by probes that are lost while a circuit is moved. Needs root.

Probes leave one port every 0.3 ms, while its circuit is moved repeatedly from one receiver to another and back. Dark
time is from the first probe that no receiver got to the first that a receiver got again, by their send times.
"""

from __future__ import annotations

import time
from statistics import median

from controllers.northbound.client import ChannelClient
from experiments.bench import Measurement, NotMeasured, at_most
from experiments.bench.control import controlled
from measure.live.darktime import DarkTime
from measure.live.packets import Tap
from measure.live.probe import ProbeTrain
from topos.kernel.emulation import Emulation

DELAYS_MS = (10.0, 25.0, 100.0)
MEDIAN_LIMIT_MS = 1.0
WORST_LIMIT_MS = 8.0
SWAP_LIMIT_MS = 5.0
"""Longest loss of packets in a swap with delay 0, in ms."""
TRIALS = 15
WIRINGS = (((1, 3), (5, 7)), ((1, 5), (3, 7)))
"""The two configurations; ports of lane 0 of four hosts have odd numbers, since each host has two ports."""
_LEAD_S = 0.06
_TAIL_S = 0.06


def dark_time(trials: int = TRIALS) -> list[Measurement]:
    """Median and worst |measured - configured| dark time in ms for each delay, and the loss of a swap with delay 0."""
    with controlled(servers=4) as (net, files), ChannelClient(files.channel) as client:
        bench, found = _Bench(net, client), []
        for delay_ms in DELAYS_MS:
            errors = [abs(seen.seconds * 1e3 - delay_ms) for seen in bench.trials(delay_ms / 1e3, trials)]
            found += [
                at_most(f"dark_{delay_ms:g}ms_median_error", median(errors), "ms", MEDIAN_LIMIT_MS),
                at_most(f"dark_{delay_ms:g}ms_worst_error", max(errors), "ms", WORST_LIMIT_MS),
            ]
        swaps = [seen.seconds * 1e3 for seen in bench.trials(0.0, trials)]
        found.append(at_most("dark_0ms_swap_median", median(swaps), "ms", SWAP_LIMIT_MS))
        found.append(Measurement("dark_0ms_swap_worst", max(swaps), "ms"))
        found.append(at_most("dark_misdelivered", bench.misdelivered, "probes", 0))
    return found


class _Bench:
    """Four hosts on one OCS; probes leave port 1 and arrive at port 3 or 5."""

    def __init__(self, net: Emulation, client: ChannelClient) -> None:
        self._client = client
        ports = {port.number: port for port in net.plan.switches[0].ports}
        taps = {number: Tap(net.netns_fd(port.host), port.interface) for number, port in ports.items()}
        self._sender, self._mac = taps[1], ports[3].mac
        self._receivers = {str(number): taps[number] for number in (3, 5)}
        self._now = 0
        self.misdelivered = 0
        self._rewire(0.0)

    def trials(self, delay_s: float, count: int) -> list[DarkTime]:
        """Dark times of ``count`` moves of the circuit, each under a train of probes."""
        return [self._trial(delay_s) for _ in range(count)]

    def _trial(self, delay_s: float) -> DarkTime:
        old = WIRINGS[self._now][0][1]
        self._now = 1 - self._now
        new = WIRINGS[self._now][0][1]
        with ProbeTrain(self._sender, self._mac, self._receivers, seconds=_LEAD_S + delay_s + _TAIL_S) as train:
            time.sleep(_LEAD_S)
            self._rewire(delay_s)
            seen = train.dark_time(str(old), str(new))
        if seen.up_t is None and seen.first_lost_t is not None:
            raise NotMeasured(f"the dark time at {delay_s * 1e3:g} ms: no probe came out again within "
                              f"{_TAIL_S * 1e3:g} ms of the end of the delay")  # fmt: skip
        self.misdelivered += seen.misdelivered
        return seen

    def _rewire(self, delay_s: float) -> None:
        self._client.rewire("rail0", WIRINGS[self._now], "overwrite", delay_s=delay_s)
