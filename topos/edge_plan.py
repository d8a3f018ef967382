"""The part of a plan that describes an edge network: where root, control plane, leaves and clients are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Trunk = Literal["electrical", "ocs"]
"""What joins the regions to the root: a switch on which all of them share the root's link, or an optical circuit switch
that connects one region at a time."""

ROOT, CONTROL = 0, 1
"""Ranks of the root server's host and of the control plane's. The leaves follow, then the clients."""


@dataclass(frozen=True)
class EdgeRegion:
    """One region: its ``switch``, the addresses by which its hosts reach the leaf server and the control plane.

    ``clients`` are the numbers of its clients. ``trunk_port`` is the port of the trunk that leads to the region.
    """

    switch: str
    leaf_ip: str
    control_ip: str
    trunk_port: int
    clients: tuple[int, ...]


@dataclass(frozen=True)
class EdgePlan:
    """An edge network (``topos.edge``): its regions, and the addresses of the root and, as the root sees it, control.

    Ranks: root 0, control 1, the leaf of region r 2 + r, then client i.
    """

    trunk: Trunk
    trunk_mbps: float
    root_ip: str
    control_ip: str
    regions: tuple[EdgeRegion, ...]

    @property
    def clients(self) -> int:
        return len(self._region_of_client)

    def leaf_rank(self, region: int) -> int:
        return 2 + region

    def client_rank(self, client: int) -> int:
        return 2 + len(self.regions) + client

    def region_of(self, client: int) -> int:
        """The region of client ``client``; ``KeyError`` if there is no such client."""
        return self._region_of_client[client]

    @cached_property
    def _region_of_client(self) -> dict[int, int]:
        return {client: number for number, region in enumerate(self.regions) for client in region.clients}
