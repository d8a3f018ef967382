"""Benchmarks of dark time, measured in-band by probes that are lost while a circuit is moved. Need root.

Probes leave one port every 0.1 ms (0.05 ms for the floor), while its circuit is moved repeatedly from one receiver to
another and back. Dark time is from the first probe that no receiver got to the first that a receiver got again, by
their send times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, median

from commands.bench import Measurement, NotMeasured, at_most
from commands.bench.bed import Bed
from controllers.northbound.client import ChannelClient
from measure.live.packets import Tap
from measure.live.probes import DarkTime, ProbeTrain
from topos.kernel.emulation import Emulation

DELAYS_MS = (1.0, 10.0, 100.0)
MEDIAN_LIMITS_MS = 0.1, 1.0
WORST_LIMITS_MS = 1.0, 8.0
"""Limits with bpf and with other datapaths; those of the others are for delays of at least ``_OTHERS_MS``."""
_OTHERS_MS = 10.0
SWAP_LIMIT_MS = 5.0
"""Longest loss of packets in a swap with delay 0, in ms."""
MOVES = 50
FLOORS_MS = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2)
FLOOR_SHARE, FLOOR_LIMIT_MS, FLOOR_MOVES = 0.05, 0.5, 30
INTERVAL_S, FLOOR_INTERVAL_S = 0.0001, 0.00005
WIRINGS = (((1, 3), (5, 7)), ((1, 5), (3, 7)))
"""The two configurations; ports of lane 0 of four hosts have odd numbers, since each host has two ports."""
_MBPS = 1000.0
"""Rate of the links, at which no probe waits for another one."""
_UNSURE_S, _LEAST_SEEN = 0.001, 0.2
"""A move counts if its dark time is known to ``_UNSURE_S``: the process that sends probes may have to wait for a
processor. If fewer than ``_LEAST_SEEN`` of all moves count, nothing was measured."""
_LEAD_S = 0.06
_GAP_S = 0.03
"""Time between the answer to a move and the next request; it grows to the double, so that moves do not keep step with
probes."""
_ANSWER_S = 0.02
"""Time for an answer beside the delay, for which the train is long enough; a slower controller is not measured."""


def dark_times(bed: Bed) -> list[Measurement]:
    """Median and worst |measured - configured| dark time in ms for each delay, and the loss of a swap with delay 0."""
    found = []
    with _circuit(bed, INTERVAL_S) as circuit:
        for delay_ms in DELAYS_MS:
            errors = [abs(seen.seconds * 1e3 - delay_ms) for seen in circuit.move(delay_ms / 1e3, MOVES)]
            found.append(Measurement(f"dark_{delay_ms:g}ms_seen_of_{MOVES}", len(errors), "moves"))
            name = f"dark_{delay_ms:g}ms"
            for what, error_ms, (bpf, others) in (
                ("median", median(errors), MEDIAN_LIMITS_MS),
                ("worst", max(errors), WORST_LIMITS_MS),
            ):
                limit = others if delay_ms >= _OTHERS_MS else None
                found.append(bed.at_most(f"{name}_error_{what}", error_ms, "ms", bpf, limit))
        swaps = [seen.seconds * 1e3 for seen in circuit.move(0.0, MOVES)]
        found.append(at_most("dark_0ms_swap_median", median(swaps), "ms", SWAP_LIMIT_MS))
        found.append(Measurement("dark_0ms_swap_worst", max(swaps), "ms"))
        found.append(at_most("dark_misdelivered", circuit.misdelivered, "probes", 0))
    return found


def shortest_dark_time(bed: Bed) -> list[Measurement]:
    """The shortest dark time that is shown within 5 %, as are the longer ones; by the mean of the middle half."""
    found, shortest = [], None
    with _circuit(bed, FLOOR_INTERVAL_S) as circuit:
        for delay_ms in FLOORS_MS:
            shown_ms = middle_mean([seen.seconds * 1e3 for seen in circuit.move(delay_ms / 1e3, FLOOR_MOVES)])
            found.append(Measurement(f"floor_dark_{delay_ms:g}ms_shown", shown_ms, "ms"))
            if abs(shown_ms - delay_ms) > FLOOR_SHARE * delay_ms:
                break
            shortest = delay_ms
    if shortest is None:
        raise NotMeasured(f"the shortest dark time: {found[0].value:.3g} ms were shown for {FLOORS_MS[0]:g} ms")
    return [bed.at_most("floor_dark_time", shortest, "ms", FLOOR_LIMIT_MS), *found]


def middle_mean(values: Sequence[float]) -> float:
    """The mean of the middle half of ``values``, which single late changes do not move."""
    ordered, cut = sorted(values), len(values) // 4
    return fmean(ordered[cut : len(ordered) - cut])


@contextmanager
def _circuit(bed: Bed, interval_s: float) -> Iterator[_Circuit]:
    with (
        bed.controlled(servers=4, ports=2, rate_mbps=_MBPS) as (net, controller),
        ChannelClient(controller.files.channel) as client,
    ):
        yield _Circuit(net, client, interval_s)


class _Circuit:
    """Four hosts on one OCS; probes leave port 1 and arrive at port 3 or 5."""

    def __init__(self, net: Emulation, client: ChannelClient, interval_s: float) -> None:
        self._client, self._interval_s = client, interval_s
        ports = {port.number: port for port in net.plan.switches[0].ports}
        taps = {number: Tap(net.netns_fd(port.host), port.interface) for number, port in ports.items()}
        self._sender, self._mac = taps[1], ports[3].mac
        self._receivers = {str(number): taps[number] for number in (3, 5)}
        self._now = 0
        self.misdelivered = 0
        self._rewire(0.0)

    def move(self, delay_s: float, count: int) -> list[DarkTime]:
        """Dark times of ``count`` moves of the circuit under one train of probes."""
        seconds = _LEAD_S + count * (delay_s + 1.5 * _GAP_S + _ANSWER_S)
        asked, ends, frames = [], [], round(seconds / self._interval_s)
        with ProbeTrain(
            [self._sender], [self._mac], self._receivers, count=frames, interval_s=self._interval_s
        ) as train:
            train_ends = time.monotonic() + seconds
            time.sleep(_LEAD_S)
            for number in range(count):
                if time.monotonic() > train_ends - delay_s - _GAP_S:
                    raise NotMeasured(f"the dark time at {delay_s * 1e3:g} ms: the controller was too slow for it")
                old = WIRINGS[self._now][0][1]
                self._now = 1 - self._now
                ends.append((str(old), str(WIRINGS[self._now][0][1])))
                asked.append(time.monotonic())
                self._rewire(delay_s)
                time.sleep(_GAP_S * (1 + number / count))
            parts = [*train.frames().split(asked)]
        moves = [(part, part.dark_time(*end)) for part, end in zip(parts, ends, strict=True)]
        self.misdelivered += sum(seen.misdelivered for _, seen in moves)
        found = [seen for part, seen in moves if part.unsure_s(seen) <= _UNSURE_S]
        if len(found) < _LEAST_SEEN * count:
            raise NotMeasured(
                f"the dark time at {delay_s * 1e3:g} ms: in {count - len(found)} of {count} moves the probes had to "
                "wait for a processor"
            )
        if any(seen.up_t is None and seen.first_lost_t is not None for seen in found):
            raise NotMeasured(f"the dark time at {delay_s * 1e3:g} ms: no probe came out again before the next move")
        return found

    def _rewire(self, delay_s: float) -> None:
        self._client.rewire("rail0", WIRINGS[self._now], "overwrite", delay_s=delay_s)
