"""A job as the control plane knows it: its groups and its delays."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.program import Group


@dataclass(frozen=True)
class Job:
    """``reconfiguration_delay_s`` is the switch itself, ``link_recovery_s`` what transceivers and NICs need afterwards.

    Both in wall-clock (emulated) seconds. ``mode`` is the name of the mode as the run knows it; the engine does not
    read it.
    """

    name: str
    groups: tuple[Group, ...]
    mode: str
    reconfiguration_delay_s: float = 0.0
    link_recovery_s: float = 0.0

    @property
    def dark_s(self) -> float:
        """How long the ports of one reconfiguration are dark."""
        return self.reconfiguration_delay_s + self.link_recovery_s
