"""The rotations that the groups of one rank are in: slots come in, what may be sent goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from controllers.rotation import Turn
from railyard.errors import ControlError
from railyard.scale import goodput_share
from topos.plan import FabricPlan
from workloads.paths import Path
from workloads.turnstile import Moved, Turnstile

_T = TypeVar("_T")


class Turns(Generic[_T]):
    """The turnstiles of ``rank`` by group; ``say`` tells the controller, ``whole`` as there."""

    def __init__(self, plan: FabricPlan, rank: int, say: Callable[[Moved], None], *, whole: bool = False) -> None:
        self._rank = rank
        self._whole = whole
        self._say = say
        self._bytes_per_s = {
            port.lane: port.rate_mbps * 1e6 / 8 * goodput_share(plan.mtu)
            for switch, port in plan.host_ports(rank)
            if switch.network == "rail"
        }
        self._found: dict[str, Turnstile[_T]] = {}

    def of(self, group: str) -> Turnstile[_T] | None:
        """The turnstile of ``group`` while its circuits take turns."""
        return self._found.get(group)

    def stands(self, group: str, index: int, turn: Turn, paths: Iterable[Path], now: float) -> list[_T]:
        """A slot of ``group`` has come: what may go."""
        paths = tuple(paths)
        if group not in self._found:
            self._found[group] = Turnstile(self._rank, group, index, self._rate(paths), self._say, whole=self._whole)
        return self._found[group].stands(turn, paths, now)

    def end(self, group: str) -> None:
        """The rank has let go of the circuits of ``group``."""
        self._found.pop(group, None)

    def _rate(self, paths: tuple[Path, ...]) -> float:
        out = paths[0][1] if paths else 0
        if out not in self._bytes_per_s:
            raise ControlError(f"a rotation sends by port {out} of a GPU, which rank {self._rank} has not")
        return self._bytes_per_s[out]
