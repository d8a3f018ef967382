"""The arbiter of a trunk that is an optical circuit switch with one root port: one region at a time may use it.

Leaf servers ask before they fetch a model or flush a sum, and send only while their request is granted. Policies:

- ``rotor``: the regions have slots of fixed length in turn, whether they ask or not. A request is granted in a slot of
  its region whose rest is long enough for its bytes. A transfer that takes longer than that holds up the rotation.
- ``demand``: the region with the most bytes in its queue is next; regions without requests are skipped.
- ``phase``: the region whose request is the oldest is next: a flush asks for its phase of the trunk, first come first
  served.

With ``demand`` and ``phase`` all requests that a region has when its turn begins are granted in it. No clock and no
socket: ``now`` is monotonic seconds, and the circuits are set up by whoever executes ``TurnTo``
(``experiments.propius.control.trunk_server``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from railyard.errors import ControlError

TrunkPolicy = Literal["phase", "demand", "rotor"]

LEASE_FACTOR, LEASE_S = 10.0, 5.0
"""A grant ends by itself after 10 times the time that its bytes take at the rate of the trunk, plus 5 s: its leaf has
been killed, or its connection is lost."""

_ROUNDING_S = 1e-9


class TurnTo(NamedTuple):
    """Connect the root with ``region``; ``TrunkArbiter.tuned`` is to be called when the circuit is up."""

    region: int


class Granted(NamedTuple):
    """Request ``token`` may use the trunk until it is done."""

    token: int


class CircuitEnded(NamedTuple):
    """The circuit to ``region``, up since ``began``, is given up; it carried ``transfers`` requests of ``bytes``."""

    region: int
    began: float
    transfers: int
    bytes: int


TrunkAction = TurnTo | Granted | CircuitEnded
Actions = list[TrunkAction]


@dataclass(frozen=True)
class _Request:
    token: int
    region: int
    size: int


class TrunkArbiter:
    """The turns of ``regions`` regions on a trunk of ``mbps`` Mb/s; each method returns the actions to execute.

    ``mbps`` counts the bytes of requests alone, without headers. ``slot_s`` is the time for which ``rotor`` leaves a
    circuit up.
    """

    def __init__(self, regions: int, policy: str, mbps: float, slot_s: float = 0.0) -> None:
        self._regions = regions
        self._policy = policy
        self._bytes_per_s = mbps * 1e6 / 8
        self._slot_s = slot_s
        self._queue: dict[int, _Request] = {}
        self._active: dict[int, float] = {}
        """Requests under way, and when the grant of each ends by itself."""
        self._region: int | None = None
        """The region whose circuit is up or tuning."""
        self._began: float | None = None
        """When that circuit came up; None while it is tuning."""
        self._carried: list[int] = []
        self._busy_until = 0.0
        """When all transfers granted so far are over if they take the rate of the trunk."""
        self._last_token = 0

    def start(self, now: float) -> Actions:
        return [self._turn_to(0)] if self._policy == "rotor" else []

    def ask(self, region: int, size: int, now: float) -> tuple[int, Actions]:
        """Queue a request of ``region`` to transfer ``size`` bytes: its token, and the actions.

        Raises ``ControlError`` for an unknown region, and for a transfer that fits into no slot of the rotor.
        """
        if not 0 <= region < self._regions:
            raise ControlError(f"there is no region {region}; the trunk has regions 0 to {self._regions - 1}")
        takes = size / self._bytes_per_s
        if self._policy == "rotor" and takes > self._slot_s + _ROUNDING_S:
            raise ControlError(
                f"{size} bytes take {takes:.3g} s on the trunk, and the slots of the rotor are "
                f"{self._slot_s:.3g} s long; make the slots longer"
            )
        self._last_token += 1
        self._queue[self._last_token] = _Request(self._last_token, region, size)
        return self._last_token, self._advance(now, asked=region)

    def done(self, token: int, now: float) -> Actions:
        """Take back a grant, or a request that still waits; nothing happens for any other token."""
        self._queue.pop(token, None)
        if self._active.pop(token, None) is None:
            return []
        return self._advance(now)

    def tuned(self, now: float) -> Actions:
        """Note that the circuit of the last ``TurnTo`` is up."""
        self._began = now
        return self._grant(now) + self._advance(now)

    def due(self) -> float | None:
        """When ``tick`` is to be called next; None: not before another call."""
        times = list(self._active.values())
        if self._policy == "rotor" and self._began is not None and not self._active:
            times.append(self._began + self._slot_s)
        return min(times, default=None)

    def tick(self, now: float) -> Actions:
        for token in [token for token, ends in self._active.items() if ends <= now]:
            del self._active[token]
        return self._advance(now)

    def stop(self) -> Actions:
        """The end of the circuit that is up, for the timeline; nothing may be called afterwards."""
        return self._ended()

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _advance(self, now: float, asked: int | None = None) -> Actions:
        """Go on after any change: what is granted now, or the turn to the next region. ``asked``: a new request."""
        if self._region is not None and self._began is None:
            return []
        if self._policy == "rotor":
            return self._advance_rotor(now, asked)
        if self._active or not self._queue:
            return []
        region = self._next()
        return self._grant(now) if region == self._region else [*self._ended(), self._turn_to(region)]

    def _advance_rotor(self, now: float, asked: int | None) -> Actions:
        assert self._region is not None and self._began is not None, "start() first"
        if now < self._began + self._slot_s:
            return self._grant(now) if asked == self._region else []
        if self._active:
            return []
        following = (self._region + 1) % self._regions
        if following != self._region:
            return [*self._ended(), self._turn_to(following)]
        ended = self._ended()  # the only region: its circuit stays up, and a slot follows the other
        self._began = now
        return ended + self._grant(now)

    def _next(self) -> int:
        """The region whose turn it is by ``demand`` or ``phase``; equals go by their oldest request."""
        queued: dict[int, int] = {}
        for request in self._queue.values():  # in the order of asking
            queued[request.region] = queued.get(request.region, 0) + request.size
        return max(queued, key=lambda region: queued[region]) if self._policy == "demand" else next(iter(queued))

    def _turn_to(self, region: int) -> TurnTo:
        self._region, self._began = region, None
        return TurnTo(region)

    def _ended(self) -> Actions:
        if self._region is None or self._began is None:
            return []
        ended = CircuitEnded(self._region, self._began, len(self._carried), sum(self._carried))
        self._carried = []
        return [ended]

    def _grant(self, now: float) -> Actions:
        """Grant the requests of the region whose circuit is up, in a rotation those that fit into the slot's rest."""
        granted: Actions = []
        for request in [request for request in self._queue.values() if request.region == self._region]:
            takes = request.size / self._bytes_per_s
            if not self._fits(takes, now):
                continue
            self._busy_until = max(now, self._busy_until) + takes
            del self._queue[request.token]
            self._active[request.token] = now + LEASE_FACTOR * takes + LEASE_S
            self._carried.append(request.size)
            granted.append(Granted(request.token))
        return granted

    def _fits(self, takes: float, now: float) -> bool:
        if self._policy != "rotor" or self._began is None:
            return True
        return max(now, self._busy_until) + takes <= self._began + self._slot_s + _ROUNDING_S
