"""Starts the agents of a job on the machines that their hosts are on."""

from __future__ import annotations

import select
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.cluster.machines import Cluster
from railyard.errors import MachineError
from workloads.agent.config import AgentConfig, configs_to_json
from workloads.agent.launcher import Launcher, TakesReports

_LAUNCH_S = 60.0


class ClusterLauncher(Launcher):
    """The agents of all machines of a cluster; ``machine_of`` gives the machine of each rank."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.machine_of: Mapping[int, str] = {}
        self._connections = {machine.connection.fileno(): machine.connection for machine in cluster.machines.values()}
        for fd in self._connections:
            self._ready.register(fd, select.EPOLLIN)

    def fork(self, number: int, team: TakesReports, configs: Sequence[AgentConfig], netns_fds: Sequence[int]) -> None:
        """Fork one agent per config on the machine of its rank, in the namespace of its host."""
        self._teams[number] = team
        own: dict[str, list[AgentConfig]] = {}
        for config in configs:
            own.setdefault(self.machine_of[config.rank], []).append(config)
        orders = {name: {"team": number, "configs": configs_to_json(configs).decode()} for name, configs in own.items()}
        self.cluster.ask("launch", orders, timeout_s=_LAUNCH_S)

    def send(self, message: dict[str, Any]) -> None:
        """Send an order about a team to all machines."""
        errors = []
        for machine in self.cluster.machines.values():
            try:
                machine.connection.tell("order", message=message)
            except MachineError as error:
                errors.append(error)  # the other machines get it all the same
        if errors:
            raise errors[0]

    def listen(self, timeout: float) -> bool:
        """Pass messages of the machines to their teams; as ``Launcher.listen``."""
        pending = any(connection.pending for connection in self._connections.values())
        return super().listen(0.0 if pending else timeout)

    def receive(self, ready: Collection[int]) -> bool:
        """Pass what has come from the machines to the teams; ``MachineError`` for a machine that is gone."""
        heard = False
        for fd, connection in self._connections.items():
            if fd not in ready and not connection.pending:
                continue
            for message in connection.messages():
                heard = True
                if message["op"] == "error":
                    raise MachineError(f"on machine {connection.peer}: {message['error']}")
                self.report(message["message"])
        return heard
