"""Events that say how exactly the delayed links of a network held packets, and how many packets lossy links lost."""

from __future__ import annotations

import time

from measure.live.counters import Counters
from railyard.timeline import Event
from topos.kernel.link_delays import LinkDelays


class LinkDelayLog:
    """Reads the errors and losses of ``delays``; each reading is of the time since the one before.

    The error of netem is not known (None): the kernel does not say how late it is.
    """

    def __init__(self, delays: LinkDelays) -> None:
        self._delays = delays
        self._began = time.monotonic()
        self._overflowed = 0
        self._lost: dict[str, int] = {}

    def read(self) -> list[Event]:
        """A ``link delay`` event if links are delayed, and a ``link lost`` event for each lossy end, since the last.

        Raises ``MachineError`` if the relay of delayed links has ended.
        """
        delays, netns_fd = self._delays, self._delays.netns_fd
        if netns_fd is None:
            return []
        began, self._began = self._began, time.monotonic()
        report = delays.report() or {"frames": None, "late_p50_s": None, "late_p95_s": None, "late_worst_s": None}
        with Counters(netns_fd) as counters:
            lost, overflowed = counters.filter_drops(), sum(counters.queue_drops().values())
        events = []
        if delays.method != "none":
            report = {"overflowed": overflowed - self._overflowed, **report}
            events.append(Event(began, "link", "delay", self._began, {"method": delays.method, **report}))
        for passage in delays.passages:
            if passage.way.loss_percent:
                name = passage.leaves.name
                fields = {"interface": passage.sender.name, "dropped": lost[name] - self._lost.get(name, 0)}
                events.append(Event(began, "link", "lost", self._began, fields))
        self._lost, self._overflowed = lost, overflowed
        return events
