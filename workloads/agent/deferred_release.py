"""Buffered sends: the rank has gone on and their bytes have not arrived; what they keep standing goes after them."""

from __future__ import annotations

from collections import Counter

from workloads.agent.executor import ReleaseCircuits


class DeferredRelease:
    """Holds the release of a group back until the last buffered send of this rank in it is acknowledged."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._held: dict[str, ReleaseCircuits] = {}

    def began(self, group: str) -> None:
        """The rank has gone on past a send of ``group``."""
        self._under_way[group] += 1

    def may_go(self, release: ReleaseCircuits) -> bool:
        """Whether nothing keeps ``release`` back; otherwise ``ended`` returns it later."""
        if not self._under_way[release.group]:
            return True
        self._held[release.group] = release
        return False

    def ended(self, group: str) -> ReleaseCircuits | None:
        """A send of ``group`` is acknowledged; the release that waited for it, if it was the last."""
        self._under_way[group] -= 1
        return None if self._under_way[group] else self._held.pop(group, None)
