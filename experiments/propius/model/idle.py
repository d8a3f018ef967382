"""Clients that ask for work in vain: their next check-ins, without simulating those that would change nothing.

A client without an offer asks again by its timers, over and over. As long as no job is open for it, each of these
check-ins only confirms that it is there. So an idle client is left alone until a job opens that it may serve, and
checks in at the time at which its own timers would have made it do so.
"""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from experiments.propius.data.device import Device, Wait


class Idle:
    """The idle ones of ``devices``; ``wanted`` tells which of all clients some open job would take."""

    def __init__(self, devices: list[Device], asks: int) -> None:
        count = len(devices)
        self._devices = devices
        self._asks = asks + 1
        self._anchor = np.zeros(count)
        self._offsets = np.zeros((count, self._asks))
        self._period = np.ones(count)
        self._idle = np.zeros(count, dtype=bool)
        self._wanted = np.zeros(count, dtype=bool)
        self._cycles = np.zeros(count, dtype=np.int64)
        self._asked = np.zeros(count, dtype=np.int64)
        self._due = np.full(count, inf)
        self._first: int | None = None

    def park(self, client: int, ask: float, now: float) -> None:
        """The client waits and will check in at ``ask``; its waits after that come from its own state machine."""
        device, waits = self._devices[client], []
        for _ in range(self._asks):
            waits.append(_wait(device, ask))
        self._anchor[client] = ask
        self._offsets[client, 1:] = np.cumsum(waits[:-1])
        self._period[client] = sum(waits)
        self._cycles[client] = self._asked[client] = 0
        self._idle[client] = True
        if self._wanted[client]:
            self._due[client] = ask
            if self._first is not None and ask < self._due[self._first]:
                self._first = client

    def want(self, wanted: npt.NDArray[np.bool_], now: float) -> None:
        """From ``now`` on these are the clients that some open job would take."""
        self._wanted = wanted
        self._first = None
        self._due.fill(inf)
        found = np.flatnonzero(wanted & self._idle)
        if not len(found):
            return
        anchor, period = self._anchor[found], self._period[found]
        cycles = np.maximum(0, np.floor((now - anchor) / period)).astype(np.int64)
        since = now - anchor - cycles * period
        asked = (self._offsets[found] < since[:, None]).sum(axis=1)
        cycles += asked == self._asks
        asked[asked == self._asks] = 0
        self._cycles[found], self._asked[found] = cycles, asked
        self._due[found] = anchor + cycles * period + self._offsets[found, asked]

    def refuse(self, client: int) -> None:
        """Nothing that is open now suits the client after all."""
        self._wanted[client] = False
        if self._due[client] < inf:
            self._due[client] = inf
            self._first = None

    @property
    def next_s(self) -> float:
        """The time of the next check-in that may lead to a binding; infinity if there is none."""
        if self._first is None:
            self._first = int(self._due.argmin())
        return float(self._due[self._first])

    def pop(self) -> tuple[int, int, list[float]]:
        """The client of ``next_s``, now about to check in; how often it did so in vain before, and when lately.

        The times are those since its last pause, the earliest first.
        """
        client = self._first if self._first is not None else int(self._due.argmin())
        device, asked, cycles = self._devices[client], int(self._asked[client]), int(self._cycles[client])
        start = float(self._anchor[client] + cycles * self._period[client])
        lately = [start + float(offset) for offset in self._offsets[client, :asked]]
        for time in lately:
            _wait(device, time)
        self._idle[client] = False
        self._due[client] = inf
        self._first = None
        return client, cycles * self._asks + asked, lately

    def skipped(self, now: float) -> int:
        """How many check-ins the clients that are idle now have left out until ``now``."""
        found = np.flatnonzero(self._idle)
        since = now - self._anchor[found]
        cycles = np.maximum(0, np.floor(since / self._period[found]))
        rest = since - cycles * self._period[found]
        return int((cycles * self._asks).sum() + (self._offsets[found] < rest[:, None]).sum())


def _wait(device: Device, now: float) -> float:
    """One check-in in vain: how long the device then waits before it is about to check in again."""
    wait = next(action for action in device.offered((), now) if isinstance(action, Wait))
    device.woke(now + wait.seconds)
    return wait.seconds
