"""One link that transfers share fairly, each limited by a rate of its own: a fluid model of a trunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.propius.model.clock import Clock

DONE_BITS = 1e-3


@dataclass(eq=False)
class _Flow:
    left: float
    most: float
    done: Callable[[], None]
    rate: float = 0.0


class SharedLink:
    """A link of ``bits_per_s`` on ``clock``; None: it limits nobody. Shares are max-min fair."""

    def __init__(self, clock: Clock, bits_per_s: float | None) -> None:
        self._clock = clock
        self._rate = bits_per_s
        self._flows: list[_Flow] = []
        self._since = 0.0
        self._state = 0
        self.bytes = 0.0

    def send(self, size_bytes: float, most_bits_per_s: float, done: Callable[[], None]) -> None:
        """Move ``size_bytes`` at no more than ``most_bits_per_s``, then call ``done``."""
        self.bytes += size_bytes
        if self._rate is None:
            self._clock.later(size_bytes * 8 / most_bits_per_s, done)
            return
        self._advance()
        self._flows.append(_Flow(size_bytes * 8, most_bits_per_s, done))
        self._share()

    def _advance(self) -> None:
        passed, self._since = self._clock.now - self._since, self._clock.now
        for flow in self._flows:
            flow.left -= flow.rate * passed

    def _share(self) -> None:
        """Give each flow its rate: the slow ones what they can take, the others equal parts of the rest."""
        assert self._rate is not None
        left, flows = self._rate, sorted(self._flows, key=lambda flow: flow.most)
        for place, flow in enumerate(flows):
            flow.rate = min(flow.most, left / (len(flows) - place))
            left -= flow.rate
        self._state += 1
        if flows:
            first = min(max(0.0, flow.left) / flow.rate for flow in flows)
            self._clock.later(first, self._due, self._state)

    def _due(self, state: int) -> None:
        if state != self._state:
            return
        self._advance()
        ended = [flow for flow in self._flows if flow.left <= max(DONE_BITS, flow.rate * 1e-9)]
        self._flows = [flow for flow in self._flows if flow not in ended]
        self._share()
        for flow in ended:
            flow.done()
