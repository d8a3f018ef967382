"""A job as the control plane knows it: its groups and its delays."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.circuits.rotation import Cycle
from workloads.program import Group


@dataclass(frozen=True)
class Detection:
    """What counts as the failure of a chip of a job.

    ``heartbeat_s``: its agent says that it lives so often (wall-clock seconds; 0: it does not), and is silent when
    ``misses`` in a row have not come. ``exit``: its agent's connection ended. ``port``: one of its ports lost its
    light. A chip that somebody reports (REST, job channel) has failed in any case.
    """

    heartbeat_s: float = 0.0
    misses: int = 3
    exit: bool = False
    port: bool = False


@dataclass(frozen=True)
class Job:
    """``reconfiguration_delay_s`` is the switch itself, ``link_recovery_s`` what transceivers and NICs need afterwards.

    Both in wall-clock (emulated) seconds. ``mode`` is the name of the mode as the run knows it; the engine does not
    read it. ``detection`` None: nobody watches over its chips. ``cycle``: how circuits are to take turns, for policies
    that let them.
    """

    name: str
    groups: tuple[Group, ...]
    mode: str
    reconfiguration_delay_s: float = 0.0
    link_recovery_s: float = 0.0
    detection: Detection | None = None
    cycle: Cycle | None = None

    @property
    def dark_s(self) -> float:
        """How long the ports of one reconfiguration are dark."""
        return self.reconfiguration_delay_s + self.link_recovery_s
