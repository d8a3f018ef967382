"""Holds the frames of delayed links until they are due, and measures by how much they are late. Pure decisions.

Times are nanoseconds of one clock, given as arguments.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

_STEP_NS = 10_000
"""Resolution of the measured lateness."""


class Line:
    """One way of a delayed link. Frames leave in the order in which they came."""

    def __init__(
        self, delay_ns: int, jitter_ns: int, room_bytes: int, uniform: Callable[[float, float], float]
    ) -> None:
        self._delay_ns, self._jitter_ns = delay_ns, jitter_ns
        self._room = self._most = room_bytes
        self._uniform = uniform
        self._latest_ns = 0
        self.frames: deque[tuple[int, bytes]] = deque()
        """The frames under way with the times at which they are due."""

    def change(self, delay_ns: int, jitter_ns: int, room_bytes: int) -> None:
        """Delay the frames that come from now on so. Those that are held keep their time, and room never shrinks."""
        self._delay_ns, self._jitter_ns = delay_ns, jitter_ns
        self._room += max(0, room_bytes - self._most)
        self._most = max(self._most, room_bytes)

    @property
    def shortest_ns(self) -> int:
        return self._delay_ns - self._jitter_ns

    def take(self, frame: bytes, arrived_ns: int) -> bool:
        """Hold a frame that arrived at ``arrived_ns``; False if there is no room, so that it is lost."""
        if len(frame) > self._room:
            return False
        self._room -= len(frame)
        due = arrived_ns + self._delay_ns
        if self._jitter_ns:
            due += round(self._uniform(-self._jitter_ns, self._jitter_ns))
        self._latest_ns = due = max(due, self._latest_ns)
        self.frames.append((due, frame))
        return True

    def release(self) -> tuple[int, bytes]:
        """Give out the first frame, and the time at which it is due."""
        first = self.frames.popleft()
        self._room += len(first[1])
        return first


class Holding:
    """The frames of all lines, released in the order in which they are due."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._heads: list[tuple[int, int]] = []

    @property
    def next_ns(self) -> int | None:
        """When the next frame is due; None if no frame is held."""
        return self._heads[0][0] if self._heads else None

    def take(self, number: int, frame: bytes, arrived_ns: int) -> bool:
        """Hold a frame of line ``number``; False if that line has no room."""
        line = self._lines[number]
        if not line.take(frame, arrived_ns):
            return False
        if len(line.frames) == 1:
            heappush(self._heads, (line.frames[0][0], number))
        return True

    def due(self, until_ns: int) -> Iterator[tuple[int, int, bytes]]:
        """Give out (line, due time, frame) for every frame that is due by ``until_ns``."""
        heads = self._heads
        while heads and heads[0][0] <= until_ns:
            _, number = heappop(heads)
            line = self._lines[number]
            due, frame = line.release()
            if line.frames:
                heappush(heads, (line.frames[0][0], number))
            yield number, due, frame


class Lateness:
    """How late frames were released, to 10 us, and how many were lost for want of room."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self._worst_ns = 0
        self.overflowed = 0

    def add(self, late_ns: int) -> None:
        """Count one frame; early ones (negative) count with their distance."""
        late_ns = abs(late_ns)
        self._steps[late_ns // _STEP_NS] += 1
        if late_ns > self._worst_ns:
            self._worst_ns = late_ns

    def _quantile_s(self, share: float) -> float | None:
        left = share * self._steps.total()
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                return min((step + 1) * _STEP_NS, self._worst_ns) / 1e9
        return None

    def report(self) -> dict[str, float | int | None]:
        """``frames``, ``late_p50_s``, ``late_p95_s``, ``late_worst_s`` (None without frames) and ``overflowed``."""
        frames = self._steps.total()
        return {
            "frames": frames,
            "late_p50_s": self._quantile_s(0.50),
            "late_p95_s": self._quantile_s(0.95),
            "late_worst_s": self._worst_ns / 1e9 if frames else None,
            "overflowed": self.overflowed,
        }
