"""An optical trunk in virtual time: the arbiter of the product, and leaves and circuits that take their time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from experiments.propius.control.trunk import Actions, CircuitEnded, Granted, TrunkArbiter, TurnTo
from railyard.loop import Timers

BYTES_PER_S = 1e6
MBPS = 8.0


class TrunkPlayer(Timers):
    """Plays ``arbiter`` on a trunk of ``BYTES_PER_S`` whose reconfigurations take ``delay_s``; time begins at 0."""

    def __init__(self, arbiter: TrunkArbiter, delay_s: float) -> None:
        super().__init__()
        self.arbiter = arbiter
        self.delay_s = delay_s
        self.circuit: int | None = None
        self.log: list[tuple[float, str, int]] = []
        """(time, what, region): ``rewire``, ``up``, ``begin`` and ``end`` of a transfer."""
        self.ended: list[CircuitEnded] = []
        self._asked: dict[int, tuple[int, float, Callable[[], object]]] = {}
        self._running: set[int] = set()
        self._busy_until = 0.0
        self._do(arbiter.start(0.0))

    def transfer(self, region: int, seconds: float, then: Callable[[], object] = lambda: None) -> int:
        """Ask for the trunk, hold it for ``seconds`` and call ``then``; the token."""
        token, actions = self.arbiter.ask(region, round(seconds * BYTES_PER_S), self.now)
        self._asked[token] = region, seconds, then
        self._do(actions)
        return token

    def play(self, until: Callable[[], bool]) -> None:
        """Let time pass until ``until`` is true; fails if nothing is left that could happen."""
        while not until():
            due = self.arbiter.due()
            if due is not None and due < self.next_time:
                self.now = max(self.now, due)
                self._do(self.arbiter.tick(self.now))
                continue
            assert self.next_time < inf, "nothing more happens"
            self.step()

    def _do(self, actions: Actions) -> None:
        for action in actions:
            if isinstance(action, TurnTo):
                assert not self._running, "a transfer under way is cut off"
                self.circuit = None
                self.log.append((self.now, "rewire", action.region))
                self.at(self.now + self.delay_s, lambda region=action.region: self._up(region))  # type: ignore[misc]
            elif isinstance(action, Granted):
                self._begin(action.token)
            else:
                self.ended.append(action)

    def _up(self, region: int) -> None:
        self.circuit = region
        self.log.append((self.now, "up", region))
        self._do(self.arbiter.tuned(self.now))

    def _begin(self, token: int) -> None:
        if token not in self._asked:  # granted by the call that asks for it
            self.at(self.now, lambda: self._begin(token))
            return
        region, seconds, then = self._asked.pop(token)
        assert self.circuit == region, "granted without its circuit"
        self._running.add(token)
        self._busy_until = max(self.now, self._busy_until) + seconds
        self.log.append((self.now, "begin", region))

        def end() -> None:
            self.log.append((self.now, "end", region))
            self._running.remove(token)
            self._do(self.arbiter.done(token, self.now))
            then()

        self.at(self._busy_until, end)
