"""The byte counters of interfaces over time: rates at a moment, and rates in intervals.

Times are seconds of the real system since the start of the point, rates Gb/s of the real system. A counter is recorded
where it changes (``measure.live.sampler``), so that between two records it is taken to grow evenly. The sampler notes
the time and then reads, so that on a busy machine a record may hold bytes of later than its time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
_MOST_LATE = 5
"""Times between two samples by which a record may be late; an interface that stays above its rate for longer has a
higher rate than its plan says."""
MOST_SHARE = 1.02
"""Share of line rate that a port may reach between two samples; more was read later than the record says."""


class Counter:
    """The records of one interface, in order of time.

    A record with more than ``most`` bytes a second since the one before it was read late, by up to ``late_s``: it
    counts at the first moment at which the port can have carried its bytes.
    """

    __slots__ = ("_late_s", "_most", "_rx", "_seen", "_t", "_tx")

    def __init__(self, most: float = inf, late_s: float = 0.0) -> None:
        self._t, self._tx, self._rx = array("d"), array("d"), array("d")
        self._seen, self._most, self._late_s = -inf, most, late_s

    def __len__(self) -> int:
        return len(self._t)

    @property
    def last(self) -> float:
        """When the last record counts; endlessly early without one."""
        return self._t[-1] if self._t else -inf

    def add(self, t: float, tx: float, rx: float) -> None:
        """Add a record; one that is not later than the last is left out, and a counter that was reset starts anew."""
        if t <= self._seen:
            return
        self._seen = t
        if self._t:
            carried = self._t[-1] + max(tx - self._tx[-1], rx - self._rx[-1], 0.0) / self._most
            t = max(t, carried) if carried <= t + self._late_s else max(t, nextafter(self._t[-1], inf))
            if t <= self._t[-1]:  # nothing more than in the record before, which was read later than this one says
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

    ``to_bits`` are real bits per emulated byte, ``sample_s`` is the time between two samples. ``known`` is the time
    from the first sample to the last one, or to the last record that counts later.
    """

    def __init__(self, line_gbps: dict[str, float], to_bits: float, sample_s: float) -> None:
        self._line_gbps, self._to_gbit = line_gbps, to_bits / 1e9
        self._fresh_s = 2.5 * sample_s
        late_s = _MOST_LATE * sample_s
        self._of: dict[str, Counter] = {
            name: Counter(MOST_SHARE * gbps / self._to_gbit or inf, late_s) for name, gbps in line_gbps.items()
        }
        self.known = (inf, -inf)

    def sampled(self, t: float) -> None:
        """The counters were read at ``t``; those without a record had not changed."""
        self.known = min(self.known[0], t), max(self.known[1], t)

    def add(self, t: float, interface: str, tx: float, rx: float) -> None:
        """Add a record of an interface, unless it is none of the fabric."""
        counter = self._of.get(interface)
        if counter is not None:
            counter.add(t, tx, rx)
            self.known = min(self.known[0], t), max(self.known[1], t, counter.last)

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

    def sent_gbps(self, interfaces: Iterable[str], edges: Times) -> tuple[list[float], Times] | None:
        """Line rates of those ``interfaces`` that were recorded, and what they sent together in each interval.

        NaN in intervals before the first sample or after the last one; None if nothing was recorded.
        """
        shown = [name for name in interfaces if len(self._of.get(name, ())) > 1]
        if not shown:
            return None
        sent = np.sum([self._of[name].sent(edges) for name in shown], axis=0)
        seconds = np.diff(np.clip(edges, *self.known))
        rates = np.divide(sent * self._to_gbit, seconds, out=np.full(len(sent), np.nan), where=seconds > 0)
        return [self._line_gbps[name] for name in shown], rates


def _short(rate: float) -> float:
    return float(f"{rate:.4g}")
