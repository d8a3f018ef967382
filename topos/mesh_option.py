"""The option ``mesh``, the photonic mesh inside each optical rail: ``7x3``, ``7x3@0/5/11/16`` or ``7x3@choose``."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite

from railyard.errors import ConfigError
from topos.mesh import Mesh, evenly_spaced
from topos.plan import MeshPlan

CHOOSE = "choose"
_WRITTEN = re.compile(r"(\d+)x(\d+)(?:@(.+))?")
_MOST_LATENCY_US = 1e6


ChoosePorts = Callable[[Mesh, int], tuple[int, ...]]
"""(mesh, number of ports) -> ports between which every matching of an all-to-all can be routed."""


def mesh_plan(
    value: object, ports: int, cell_latency_us: object, choose_ports: ChoosePorts | None = None
) -> MeshPlan | None:
    """The mesh that option ``value`` gives for a switch of ``ports`` ports; None where the value is None or ``none``.

    The numbers after ``@`` are the mesh ports behind the switch's ports 1, 2, ...; without ``@`` the ports are evenly
    spaced. For ``@choose`` the function ``choose_ports`` (``controllers.mesh.ports.choose_ports``) searches them.
    ``cell_latency_us`` is in microseconds. Raises ``ConfigError`` naming the option.
    """
    latency_us = _latency(cell_latency_us)
    if value is None or str(value).lower() in ("", "none"):
        if latency_us:
            raise ConfigError("needs a mesh; name one, as in mesh=5x5", key="cell_latency_us")
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
    return MeshPlan(mesh.width, mesh.height, _chosen(mesh, ports, written[3], choose_ports), latency_us)


def _mesh(width: int, height: int) -> Mesh:
    """The mesh of ``width`` x ``height`` hexagons; errors name the option ``mesh``."""
    try:
        return Mesh.of(width, height)
    except ConfigError as error:
        raise ConfigError(str(error), key="mesh") from None


def _chosen(mesh: Mesh, count: int, written: str | None, choose_ports: ChoosePorts | None) -> tuple[int, ...]:
    if written is None:
        return evenly_spaced(mesh, count)
    if written == CHOOSE:
        if choose_ports is None:
            raise ConfigError(
                f"@{CHOOSE} works in Railyard's own runs only; name the ports, as scripts/pip_mesh.py "
                f"--width {mesh.width} --height {mesh.height} --ports {count} --choose prints them",
                key="mesh",
            )
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
            raise ConfigError(
                f"port {port} is named twice; each port of a rail needs a mesh port of its own", key="mesh"
            )
    return ports


def _latency(value: object) -> float:
    try:
        latency_us = float(str(value))
    except ValueError:
        latency_us = -1.0
    if not (isfinite(latency_us) and 0 <= latency_us <= _MOST_LATENCY_US):
        raise ConfigError(f"must be from 0 to {_MOST_LATENCY_US:g} microseconds, not {value}", key="cell_latency_us")
    return latency_us
