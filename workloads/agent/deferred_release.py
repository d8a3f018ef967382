"""Deferred release of circuits: after a buffered send the rank goes on, but its bytes may not have arrived yet."""

from __future__ import annotations

from collections import Counter

from workloads.agent.executor import ReleaseCircuits


class DeferredRelease:
    """Defers the release of a group until the last buffered send of this rank in it is acknowledged."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._held: dict[str, ReleaseCircuits] = {}

    def began(self, group: str) -> None:
        """Count a buffered send of ``group``."""
        self._under_way[group] += 1

    def may_go(self, release: ReleaseCircuits) -> bool:
        """Whether ``release`` may be sent now; otherwise ``ended`` returns it later."""
        if not self._under_way[release.group]:
            return True
        self._held[release.group] = release
        return False

    def ended(self, group: str) -> ReleaseCircuits | None:
        """Count an acknowledged send of ``group``; returns the deferred release if it was the last one."""
        self._under_way[group] -= 1
        return None if self._under_way[group] else self._held.pop(group, None)
