"""Where models and updates go in virtual time: the authors' flat server without a network, or a tree of leaves.

Approximations, for the scale of packets: a transfer moves at the goodput of its client's access link, or at its fair
share of the one link of the root that all regions use, whichever is less, and takes one round trip besides
(``experiments.propius.model.formulas``). A leaf is joined to its clients without a narrower link in between. The two
directions of the root's link do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Literal

from experiments.propius.data.clients import Binding, ClientProfile, Outcome
from railyard.loop import Timers
from railyard.scale import goodput_share
from railyard.timeline import Event


class Clock(Timers):
    """Calls in virtual time, from second 0 on."""

    def at(self, moment: float, call: Callable[..., object], *args: Any) -> None:
        """Call ``call`` at virtual second ``moment``, or now if that has passed; never if it is infinite."""
        if moment < inf:
            super().at(max(moment, self.now), partial(call, *args))

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        self.at(self.now + seconds, call, *args)


DONE_BITS = 1e-3


@dataclass(eq=False)
class _Flow:
    left: float
    most: float
    done: Callable[[], None]
    rate: float = 0.0


class SharedLink:
    """A link of ``bits_per_s`` on ``clock``. Shares are max-min fair."""

    def __init__(self, clock: Clock, bits_per_s: float) -> None:
        self._clock = clock
        self._rate = bits_per_s
        self._flows: list[_Flow] = []
        self._since = 0.0
        self._state = 0

    def send(self, size_bytes: float, most_bits_per_s: float, done: Callable[[], None]) -> None:
        """Move ``size_bytes`` at no more than ``most_bits_per_s``, then call ``done``."""
        self._advance()
        self._flows.append(_Flow(size_bytes * 8, most_bits_per_s, done))
        self._share()

    def _advance(self) -> None:
        passed, self._since = self._clock.now - self._since, self._clock.now
        for flow in self._flows:
            flow.left -= flow.rate * passed

    def _share(self) -> None:
        """Give each flow its rate: the slow ones what they can take, the others equal parts of the rest."""
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


MODEL_BYTES = 9_252_000
"""MobileNetV2 as the authors' clients transfer it: 74,016 kbit."""
_MTU = 1500
_FLUSH_IDLE_S = 10.0


@dataclass(frozen=True)
class Network:
    """The links and servers between clients and root; times are real seconds, round trips are there and back.

    ``flat`` is the authors' harness: no network but the client's own rate, all clients of a round start together when
    the last is bound, the round closes at the update that completes it, and whoever comes later is sent away.
    In a ``tree`` each region has a leaf server in mode ``fixed``, the root's link has ``trunk_mbps``, and the job polls
    the root for its sum.
    """

    topology: Literal["flat", "tree"] = "flat"
    model_bytes: float = MODEL_BYTES
    trunk_mbps: float = 100.0
    access_round_trip_s: float = 0.0
    trunk_round_trip_s: float = 0.0

    @property
    def goodput_share(self) -> float:
        """Payload per byte on a wire; 1 without a network."""
        return 1.0 if self.topology == "flat" else goodput_share(_MTU)


@dataclass
class _Held:
    """The round of a job at the root."""

    round: int
    attempt: int
    count: int = 0
    closed: bool = False


@dataclass
class _Leaf:
    model: dict[int, int] = field(default_factory=dict)
    fetching: dict[tuple[int, int], list[Callable[[], None]]] = field(default_factory=dict)
    sums: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    touched: dict[tuple[int, int], float] = field(default_factory=dict)


class Plane:
    """Moves models and updates on ``clock``; ``emit`` takes events, ``counted`` is told of updates at a flat server.

    ``sends_away`` tells whether clients of a round that is over are sent away, as the flat server does.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        regions: int,
        emit: Callable[[Event], None],
    ) -> None:
        self.network = network
        self._clock = clock
        self._emit = emit
        self.sends_away = network.topology == "flat"
        self.counted: Callable[[int, int], None] = lambda job, count: None
        self._trunk = network.trunk_mbps * 1e6 * network.goodput_share
        self._down, self._up = SharedLink(clock, self._trunk), SharedLink(clock, self._trunk)
        self._held: dict[int, _Held] = {}
        self._leaves = [_Leaf() for _ in range(regions)]

    # ---- the job's side ---------------------------------------------------------------------------------------

    def put(self, job: int, round: int, attempt: int) -> None:
        """The root holds the model of a round; its sum is empty."""
        self._held[job] = _Held(round, attempt)

    def close(self, job: int) -> None:
        """The round is complete or has failed: the flat server sends its clients away."""
        if job in self._held:
            self._held[job].closed = True

    def count(self, job: int) -> int:
        return self._held[job].count if job in self._held else 0

    def serves(self, binding: Binding) -> bool:
        held = self._held.get(binding.job)
        if held is None or held.round != binding.round:
            return False
        return not self.sends_away or (held.attempt == binding.attempt and not held.closed)

    # ---- the client's side ------------------------------------------------------------------------------------

    def get(self, client: ClientProfile, binding: Binding, got: Callable[[bool | None], None]) -> None:
        """Bring the model to a client, then tell whether its leaf held it (None: there are no leaves)."""
        network, rate = self.network, self._rate(client)
        if network.topology == "flat":
            self._clock.later(network.model_bytes * 8 / rate, got, None)
        else:
            self._get_at_leaf(client, binding, got)

    def push(self, client: ClientProfile, binding: Binding, pushed: Callable[[Outcome], None]) -> None:
        network, rate = self.network, self._rate(client)
        if network.topology == "flat":
            self._clock.later(network.model_bytes * 8 / rate, lambda: pushed(self._add(binding, 1)))
        else:
            seconds = network.model_bytes * 8 / rate + network.access_round_trip_s
            leaf = self._leaves[client.region]
            self._clock.later(seconds, self._at_leaf, leaf, client, binding, pushed)

    def _rate(self, client: ClientProfile) -> float:
        return client.rate_mbps * 1e6 * self.network.goodput_share

    def _add(self, binding: Binding, count: int) -> Outcome:
        held = self._held.get(binding.job)
        if held is None or held.round != binding.round or held.closed:
            return "late"
        if self.sends_away and held.attempt != binding.attempt:
            return "refused"
        held.count += count
        if self.sends_away:
            self.counted(binding.job, held.count)
        return "acknowledged"

    # ---- leaves -----------------------------------------------------------------------------------------------

    def _get_at_leaf(self, client: ClientProfile, binding: Binding, got: Callable[[bool | None], None]) -> None:
        leaf, of = self._leaves[client.region], (binding.job, binding.round)
        seconds = self.network.model_bytes * 8 / self._rate(client) + self.network.access_round_trip_s
        if leaf.model.get(binding.job) == binding.round:
            self._clock.later(seconds, got, True)
            return

        def reply() -> None:
            self._clock.later(seconds, got, False)

        if of in leaf.fetching:
            leaf.fetching[of].append(reply)
            return
        waiting = leaf.fetching[of] = [reply]

        def fetched() -> None:
            leaf.model[binding.job] = max(binding.round, leaf.model.get(binding.job, -1))
            del leaf.fetching[of]
            for answer in waiting:
                answer()

        self._over(self._down, fetched)

    def _over(self, link: SharedLink, done: Callable[[], None]) -> None:
        trip = self.network.trunk_round_trip_s
        link.send(self.network.model_bytes, self._trunk, lambda: self._clock.later(trip, done))

    def _at_leaf(self, leaf: _Leaf, client: ClientProfile, binding: Binding, pushed: Callable[[Outcome], None]) -> None:
        of = (binding.job, binding.round)
        leaf.sums.setdefault(of, []).append(client.number)
        leaf.touched[of] = self._clock.now
        self._clock.later(_FLUSH_IDLE_S, self._flush, leaf, client.region, binding, self._clock.now)
        pushed("acknowledged")

    def _flush(self, leaf: _Leaf, region: int, binding: Binding, touched: float) -> None:
        of, began = (binding.job, binding.round), self._clock.now
        if leaf.touched.get(of) != touched:
            return
        del leaf.touched[of]
        clients = leaf.sums.pop(of)

        def flushed() -> None:
            outcome = self._add(binding, len(clients))
            fields: dict[str, Any] = {"leaf": region, "job": of[0], "round": of[1], "count": len(clients)}
            fields |= {"clients": clients, "outcome": outcome}
            self._emit(Event(began, "edge", "flush", self._clock.now, fields))

        self._over(self._up, flushed)
