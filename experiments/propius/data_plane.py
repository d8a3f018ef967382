"""The data plane alone: a root server and leaf servers as processes on their hosts, for measurements without jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from experiments.propius.data.client_process import DataClient, Retries
from experiments.propius.data.endpoint import Address
from experiments.propius.data.messages import Mode
from experiments.propius.data.server_process import LeafSettings, RootSettings
from experiments.propius.process import MODULE
from railyard.child import Child
from railyard.ownership import make_folder
from railyard.timeline import Event, read_events
from topos.edge_plan import ROOT, EdgePlan

PORT = 7000
"""Port of every server; each has a host of its own."""


@dataclass(frozen=True)
class DataHosts:
    """Descriptors of the namespaces of root, leaves and clients, and the addresses by which clients reach servers.

    ``regions`` has the region of each client.
    """

    root_fd: int
    root_ip: str
    leaf_fds: Sequence[int]
    leaf_ips: Sequence[str]
    client_fds: Sequence[int]
    regions: Sequence[int]

    @staticmethod
    def of(edge: EdgePlan, netns_fds: Sequence[int]) -> DataHosts:
        """The hosts of an edge network; ``netns_fds`` are those of its hosts, by rank."""
        clients = range(edge.clients)
        return DataHosts(
            netns_fds[ROOT],
            edge.root_ip,
            [netns_fds[edge.leaf_rank(region)] for region in range(len(edge.regions))],
            [region.leaf_ip for region in edge.regions],
            [netns_fds[edge.client_rank(client)] for client in clients],
            [edge.region_of(client) for client in clients],
        )


class DataPlane:
    """The servers, from ``with`` on; models and updates have ``size`` bytes, times are seconds of the run.

    Events and journals are files in ``folder``. ``leaves`` False: a star, whose clients talk to the root. ``arbiters``
    are the addresses by which the leaves reach the arbiter of an optical trunk; none: the trunk is electrical.
    """

    def __init__(
        self,
        hosts: DataHosts,
        folder: Path,
        *,
        mode: Mode,
        size: int,
        idle_s: float,
        verify: bool = False,
        leaves: bool = True,
        arbiters: Sequence[Address] = (),
    ) -> None:
        self.hosts = hosts
        self.size = size
        self._folder = folder = folder.absolute()
        self._root_address: Address = (hosts.root_ip, PORT)
        root = RootSettings(hosts.root_fd, self._root_address, mode, size, str(folder / "root.jsonl"), verify)
        self._root = Child(
            MODULE, {"role": "root", "settings": asdict(root)}, {hosts.root_fd}, "the root server", patience_s=5
        )
        self._leaf_settings = [
            LeafSettings(
                leaf=region,
                netns_fd=fd,
                address=(ip, PORT),
                root=self._root_address,
                mode=mode,
                size=size,
                idle_s=idle_s,
                events=str(folder / f"leaf{region}.jsonl"),
                journal=str(folder / f"journal{region}"),
                verify=verify,
                arbiter=arbiters[region] if arbiters else None,
            )
            for region, (fd, ip) in enumerate(zip(hosts.leaf_fds, hosts.leaf_ips, strict=True))
            if leaves
        ]
        self._leaves = [self._leaf(region) for region in range(len(self._leaf_settings))]

    def _leaf(self, region: int) -> Child:
        fds = {self.hosts.leaf_fds[region]}
        settings = {"role": "leaf", "settings": asdict(self._leaf_settings[region])}
        return Child(MODULE, settings, fds, f"leaf server {region}", patience_s=5)

    def __enter__(self) -> DataPlane:
        make_folder(self._folder)
        with ExitStack() as undo:
            undo.callback(self.close)
            for child in (self._root, *self._leaves):
                child.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the servers."""
        for child in (*self._leaves, self._root):
            child.close()

    async def kill_leaf(self, region: int) -> None:
        """Kill the process of a leaf server, at whatever it does, and start its next incarnation."""
        dead, self._leaves[region] = self._leaves[region], self._leaf(region)
        os.kill(dead.pid, signal.SIGKILL)
        await asyncio.to_thread(dead.close)
        await asyncio.to_thread(self._leaves[region].start)

    def to_leaf(self, client: int, retries: Retries) -> DataClient:
        """A connection of a client to the leaf server of its region."""
        address = (self.hosts.leaf_ips[self.hosts.regions[client]], PORT)
        return DataClient(self.hosts.client_fds[client], address, self.size, retries=retries)

    def to_root(self, client: int | None, retries: Retries) -> DataClient:
        """A connection of a client, or (None) of a job on the root's host, to the root server."""
        fd = self.hosts.root_fd if client is None else self.hosts.client_fds[client]
        return DataClient(fd, self._root_address, self.size, retries=retries)

    def events(self) -> list[Event]:
        """The events that the servers have written so far, in order of time."""
        files = sorted(self._folder.glob("*.jsonl"))
        return sorted((event for file in files for event in read_events(file)), key=lambda event: event.t)
