"""Which machine runs which point of a sweep. Pure.

Points that are compared go to one machine, one after another; repeats of the same comparison go to different machines.
A machine that has nothing left to do takes over what another one has not begun.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from commands.sweep.spec import SweepPoint


@dataclass(frozen=True)
class PointBatch:
    """Points that one machine runs one after another; ``series`` names those that differ in nothing but the repeat."""

    points: tuple[SweepPoint, ...]
    series: str
    avoided: frozenset[str] = frozenset()
    """Machines that have measured it already, not faithfully."""


def pieces(points: Sequence[SweepPoint], *, together: bool = True) -> list[PointBatch]:
    """The points of each comparison as a piece, in the order of their first ones; each alone unless ``together``."""
    groups: dict[object, list[SweepPoint]] = {}
    for point in points:
        groups.setdefault((point.comparison, point.repeat) if together else point.name, []).append(point)
    return [PointBatch(tuple(group), _series(group)) for group in groups.values()]


def _series(group: Iterable[SweepPoint]) -> str:
    return repr(sorted(repr(sorted(point.swept.items())) for point in group))


def assign(
    points: Sequence[SweepPoint], machines: Sequence[str], *, together: bool = True
) -> Mapping[str, list[PointBatch]]:
    """The pieces that each machine is to run, in order: equally many points each, repeats on different machines.

    A piece goes to the machine that has the fewest of its series, of these to the one with the fewest points.
    """
    plan: dict[str, list[PointBatch]] = {machine: [] for machine in machines}
    load, used = Counter(dict.fromkeys(machines, 0)), Counter[tuple[str, str]]()
    for piece in pieces(points, together=together):
        machine = min(machines, key=lambda each: (used[each, piece.series], load[each]))
        plan[machine].append(piece)
        load[machine] += len(piece.points)
        used[machine, piece.series] += 1
    return plan


class Dispatch:
    """Gives each machine its next point, and points that must be run again to another one."""

    def __init__(self, plan: Mapping[str, Sequence[PointBatch]]) -> None:
        self._queues = {machine: deque(queue) for machine, queue in plan.items()}
        self._begun: dict[str, deque[SweepPoint]] = {machine: deque() for machine in plan}

    @property
    def machines(self) -> Collection[str]:
        return self._queues.keys()

    @property
    def left(self) -> int:
        queued = sum(len(piece.points) for queue in self._queues.values() for piece in queue)
        return queued + sum(map(len, self._begun.values()))

    def next(self, machine: str) -> SweepPoint | None:
        """The next point for a machine that has nothing to do; None if there is none for it."""
        begun = self._begun[machine]
        if not begun:
            piece = self._taken(machine)
            if piece is None:
                return None
            begun.extend(piece.points)
        return begun.popleft()

    def _taken(self, machine: str) -> PointBatch | None:
        """The next piece of the machine's own queue, or the last that another machine has not begun."""
        if self._queues[machine]:
            return self._queues[machine].popleft()
        for queue in sorted(self._queues.values(), key=len, reverse=True):
            for piece in reversed(queue):
                if machine not in piece.avoided:
                    queue.remove(piece)
                    return piece
        return None

    def again(self, point: SweepPoint, avoided: Iterable[str]) -> None:
        """Let a point be run once more, on a machine that is none of ``avoided`` if there is one."""
        self._queue(PointBatch((point,), _series([point]), frozenset(avoided)))

    def lost(self, machine: str, running: Sequence[SweepPoint] = ()) -> None:
        """Forget a machine; what it had not finished, ``running`` among it, goes to the others, whole comparisons.

        Of the last machine nothing is forgotten, so that ``left`` counts its points.
        """
        queue, begun = self._queues.pop(machine), self._begun.pop(machine)
        begun.extendleft(reversed(running))
        if not self._queues:
            self._queues[machine], self._begun[machine] = queue, begun
            return
        rest = [PointBatch(tuple(begun), _series(begun))] if begun else []
        for piece in (*rest, *queue):
            self._queue(piece)

    def _queue(self, piece: PointBatch) -> None:
        """Give a piece to the machine with the fewest points to run, of those that have not run it if there are any."""
        others = self._queues.keys() - piece.avoided
        places = sorted(others or self._queues.keys())
        place = min(places, key=lambda each: sum(len(one.points) for one in self._queues[each]))
        self._queues[place].append(replace(piece, avoided=piece.avoided if others else frozenset()))
