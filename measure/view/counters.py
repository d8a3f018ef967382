"""The byte counters of interfaces over time: rates at a moment, and rates in intervals.

Times are seconds of the real system since the start of the point, rates Gb/s of the real system. A counter is recorded
where it changes (``measure.live.sampler``), so that between two records it is taken to grow evenly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


class Counter:
    """The records of one interface, in order of time."""

    __slots__ = ("_rx", "_t", "_tx")

    def __init__(self) -> None:
        self._t, self._tx, self._rx = array("d"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._t)

    def add(self, t: float, tx: float, rx: float) -> None:
        """Add a record; one that is not later than the last is left out, and a counter that was reset starts anew."""
        if self._t and t <= self._t[-1]:
            return
        self._t.append(t)
        self._tx.append(tx)
        self._rx.append(rx)

    def rates_at(self, t: float, fresh_s: float = 0.0) -> tuple[float, float]:
        """Bytes per second sent and received at ``t``; up to ``fresh_s`` after the last record those before it.

        Later than that, nothing was sent: a change would have been recorded.
        """
        place = bisect_right(self._t, t)
        if place == len(self._t) and place and t <= self._t[-1] + fresh_s:
            place -= 1
        if not 0 < place < len(self._t):
            return 0.0, 0.0
        seconds = self._t[place] - self._t[place - 1]
        tx, rx = self._tx[place] - self._tx[place - 1], self._rx[place] - self._rx[place - 1]
        return max(0.0, tx) / seconds, max(0.0, rx) / seconds

    def sent(self, edges: Times) -> Times:
        """Bytes sent in each interval of ``edges``; 0 where nothing was recorded."""
        if len(self._t) < 2:
            return np.zeros(len(edges) - 1)
        grown = np.diff(np.frombuffer(self._tx), prepend=self._tx[0])
        total = np.cumsum(np.maximum(grown, 0.0))
        return np.diff(np.interp(edges, np.frombuffer(self._t), total))


class Counters:
    """The counters of all interfaces, with the line rate of each that is shown in ``line_gbps``.

    ``to_bits`` are real bits per emulated byte, ``sample_s`` is the time between two samples.
    """

    def __init__(self, line_gbps: dict[str, float], to_bits: float, sample_s: float) -> None:
        self._line_gbps, self._to_gbit = line_gbps, to_bits / 1e9
        self._fresh_s = 2.5 * sample_s
        self._of: dict[str, Counter] = {name: Counter() for name in line_gbps}

    def add(self, t: float, interface: str, tx: float, rx: float) -> None:
        """Add a record of an interface, unless it is none of the fabric."""
        counter = self._of.get(interface)
        if counter is not None:
            counter.add(t, tx, rx)

    def at(self, t: float) -> dict[str, dict[str, float]]:
        """``tx_gbps``, ``rx_gbps`` and ``share`` of the line rate (of the larger) of each recorded interface."""
        found = {}
        for name, counter in self._of.items():
            if not len(counter):
                continue
            tx, rx = (rate * self._to_gbit for rate in counter.rates_at(t, self._fresh_s))
            share = min(1.0, max(tx, rx) / self._line_gbps[name]) if self._line_gbps[name] else 0.0
            found[name] = {"tx_gbps": _short(tx), "rx_gbps": _short(rx), "share": round(share, 4)}
        return found

    def sent_gbps(self, interfaces: Iterable[str], edges: Times) -> tuple[float, Times] | None:
        """Line rate of ``interfaces`` together, and what they sent in each interval; None if nothing was recorded."""
        shown = [name for name in interfaces if len(self._of.get(name, ())) > 1]
        if not shown:
            return None
        sent = np.sum([self._of[name].sent(edges) for name in shown], axis=0)
        rates = sent * self._to_gbit / np.diff(edges)
        return sum(self._line_gbps[name] for name in shown), rates


def _short(rate: float) -> float:
    return float(f"{rate:.4g}")
