"""The photonic mesh inside each optical rail, as a person writes it: ``7x3``, ``7x3@0/5/11/16`` or ``7x3@choose``."""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING

from railyard.errors import ConfigError
from topos.plan import MeshPlan

if TYPE_CHECKING:
    from controllers.mesh.geometry import Mesh

CHOOSE = "choose"
_WRITTEN = re.compile(r"(\d+)x(\d+)(?:@(.+))?")
_MOST_LATENCY_US = 1e6


def mesh_plan(value: object, ports: int, cell_latency_us: object) -> MeshPlan | None:
    """The mesh for a switch of ``ports`` ports; None for None.

    After ``@`` stand the mesh ports behind the switch's ports 1, 2, ..., or ``choose`` for those that
    ``controllers.mesh.ports.choose_ports`` takes; without it they are evenly spaced. ``cell_latency_us``:
    microseconds. Raises ``ConfigError`` naming the option.
    """
    latency_us = _latency(cell_latency_us)
    if value is None or str(value).lower() in ("", "none"):
        if latency_us:
            raise ConfigError("is that of a mesh; say which, as in mesh=5x5", key="cell_latency_us")
        return None
    written = _WRITTEN.fullmatch(str(value))
    if written is None:
        raise ConfigError(f"must be a mesh as in 7x3, 7x3@0/5/11/16 or 7x3@{CHOOSE}, not {value}", key="mesh")
    mesh = _mesh(int(written[1]), int(written[2]))
    if ports > len(mesh.ports):
        raise ConfigError(
            f"a mesh of {mesh.width}x{mesh.height} has {len(mesh.ports)} ports, too few for the {ports} of a rail "
            "(servers x ports per GPU); take a larger mesh or fewer servers",
            key="mesh",
        )
    return MeshPlan(mesh.width, mesh.height, _chosen(mesh, ports, written[3]), latency_us)


def _mesh(width: int, height: int) -> Mesh:
    """The geometry, which is the controller's; asked for only here, so that a topology without a mesh needs none."""
    from controllers.mesh.geometry import Mesh

    try:
        return Mesh.of(width, height)
    except ConfigError as error:
        raise ConfigError(str(error), key="mesh") from None


def _chosen(mesh: Mesh, count: int, written: str | None) -> tuple[int, ...]:
    if written is None:
        from controllers.mesh.geometry import evenly_spaced

        return evenly_spaced(mesh, count)
    if written == CHOOSE:
        from controllers.mesh.ports import choose_ports

        try:
            return choose_ports(mesh, count)
        except ConfigError as error:
            raise ConfigError(str(error), key="mesh") from None
    parts = written.split("/")
    if len(parts) != count:
        raise ConfigError(f"must name {count} mesh ports, one for each port of a rail, not {len(parts)}", key="mesh")
    for part in parts:
        if not part.isdecimal() or int(part) >= len(mesh.ports):
            raise ConfigError(
                f"port {part} is not on a mesh of {mesh.width}x{mesh.height}, which has {len(mesh.ports)}: 0 to "
                f"{len(mesh.ports) - 1}",
                key="mesh",
            )
    ports = tuple(int(part) for part in parts)
    for port in ports:
        if ports.count(port) > 1:
            raise ConfigError(f"port {port} stands there twice; each port of a rail needs one of its own", key="mesh")
    return ports


def _latency(value: object) -> float:
    try:
        latency_us = float(str(value))
    except ValueError:
        latency_us = -1.0
    if not (isfinite(latency_us) and 0 <= latency_us <= _MOST_LATENCY_US):
        raise ConfigError(f"must be from 0 to {_MOST_LATENCY_US:g} microseconds, not {value}", key="cell_latency_us")
    return latency_us
