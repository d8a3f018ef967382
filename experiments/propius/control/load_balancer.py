"""The load balancer: which client manager a client talks to."""

from __future__ import annotations


class LoadBalancer:
    """Round robin over ``managers`` client managers; a client that has an id stays with the manager the id names."""

    def __init__(self, managers: int) -> None:
        self.managers = managers
        self._next = 0

    def manager_of(self, client: int | None) -> int:
        """The number of the manager for a client, whose id is None before its first check-in."""
        if client is not None:
            return client % self.managers
        chosen = self._next
        self._next = (chosen + 1) % self.managers
        return chosen
