"""Check-in of a rank before the first step: learns which groups request circuits, and the paths of the other groups."""

from __future__ import annotations

from typing import Any

from railyard.errors import ControlError
from workloads.agent.config import AgentConfig
from workloads.agent.job_channel import JobChannel
from workloads.agent.transport.comm_engine import CommEngine
from workloads.agent.transport.paths import paths_in, wired_paths


class CheckIn:
    """Check-in of one rank; the paths and circuit groups go to ``comm_engine``."""

    def __init__(self, config: AgentConfig, comm_engine: CommEngine) -> None:
        self._config = config
        self._comm_engine = comm_engine
        used = {op.group for op in config.program.communications(config.rank)}
        self._groups = [
            group
            for group in config.program.groups.values()
            if group.name in used or (group.parent in used and config.rank in group.members)
        ]
        self.circuit_groups: set[str] = set()
        """Groups whose phases request their circuits."""
        self.missing: set[str] = set()
        """Groups for which the controller has not answered yet."""

    def use_wired_paths(self) -> None:
        """Take the wired paths where there is no controller; ``ControlError`` if the mode needs one."""
        if self._config.mode != "native":
            raise ControlError(f"mode {self._config.mode} needs a controller, and no job channel was given")
        ports = self._config.plan.ports_per_gpu
        self._comm_engine.paths.update({group.name: wired_paths(group, ports) for group in self._groups})

    def send(self, channel: JobChannel) -> None:
        """Check in with every group; the controller answers for each when all its members have checked in."""
        self.missing = {group.name for group in self._groups}
        for group in self._groups:
            channel.request("checkin", group=group.name)

    def answered(self, name: str, answer: dict[str, Any]) -> None:
        """Process the answer for group ``name``: all its members have checked in."""
        self.missing.discard(name)
        group = self._config.program.groups[name]
        if answer.get("asks") and group.domain == "scale-out":
            (self._comm_engine.circuit_clients.groups if group.parent else self.circuit_groups).add(name)
            if answer.get("rotates"):
                self._comm_engine.slot_connections.groups.add(name)
            return
        paths = paths_in(answer)
        self._comm_engine.paths[name] = paths if paths or group.domain == "scale-out" else wired_paths(group)
