"""The option ``mesh``, the photonic mesh inside each optical rail: ``7x3``, ``7x3@0/5/11/16`` or ``7x3@choose``."""

from __future__ import annotations

import re
from collections.abc import Callable

from railyard.errors import ConfigError, shortened
from topos.mesh import Mesh, evenly_spaced
from topos.options import number
from topos.plan import MeshPlan

CHOOSE = "choose"
_WRITTEN = re.compile(r"([0-9]{1,4})x([0-9]{1,4})(?:@(.+))?")
_MOST_LATENCY_US = 1e6


ChoosePorts = Callable[[Mesh, int], tuple[int, ...]]
"""(mesh, number of ports) -> ports between which every matching of an all-to-all can be routed."""


def mesh_plan(
    value: object, ports: int, gate_latency_us: object, choose_ports: ChoosePorts | None = None
) -> MeshPlan | None:
    """The mesh that option ``value`` gives for a switch of ``ports`` ports; None where the value is None or ``none``.

    The numbers after ``@`` are the mesh ports behind the switch's ports 1, 2, ...; without ``@`` the ports are evenly
    spaced. For ``@choose`` the function ``choose_ports`` (``controllers.mesh.ports.choose_ports``) searches them.
    ``gate_latency_us`` is in microseconds. Raises ``ConfigError`` naming the option.
    """
    latency_us = number("gate_latency_us", gate_latency_us, 0, _MOST_LATENCY_US, "microseconds")
    if value is None or str(value).lower() in ("", "none"):
        if latency_us:
            raise ConfigError("needs a mesh; name one, as in mesh=5x5", key="gate_latency_us")
        return None
    written = _WRITTEN.fullmatch(str(value))
    if written is None:
        raise ConfigError(
            f"must be a mesh as in 7x3, 7x3@0/5/11/16 or 7x3@{CHOOSE}, not {shortened(str(value))}", key="mesh"
        )
    try:
        mesh = Mesh.of(int(written[1]), int(written[2]))
        return MeshPlan(mesh.width, mesh.height, _ports(mesh, ports, written[3], choose_ports), latency_us)
    except ConfigError as error:
        raise ConfigError(str(error), key="mesh") from None


def _ports(mesh: Mesh, count: int, written: str | None, choose_ports: ChoosePorts | None) -> tuple[int, ...]:
    """The mesh ports behind the ``count`` ports of a switch, as ``written`` after the ``@``."""
    size = f"a mesh of {mesh.width}x{mesh.height}"
    if count > len(mesh.ports):
        raise ConfigError(
            f"{size} has {len(mesh.ports)} ports, too few for the {count} of a rail (servers x ports per GPU); take a "
            "larger mesh or fewer servers"
        )
    if written is None:
        return evenly_spaced(mesh, count)
    if written == CHOOSE:
        if choose_ports is None:
            raise ConfigError(
                f"@{CHOOSE} works in Railyard's own runs only; name the ports, as scripts/pip_mesh.py "
                f"--width {mesh.width} --height {mesh.height} --ports {count} --choose prints them"
            )
        return choose_ports(mesh, count)
    parts = written.split("/")
    if len(parts) != count:
        raise ConfigError(f"must name {count} mesh ports, one for each port of a rail, not {len(parts)}")
    ports: list[int] = []
    for part in parts:
        if not re.fullmatch("[0-9]{1,9}", part) or int(part) >= len(mesh.ports):
            last = len(mesh.ports) - 1
            raise ConfigError(f"port {shortened(part)} is not on {size}, which has {len(mesh.ports)}: 0 to {last}")
        if int(part) in ports:
            raise ConfigError(f"port {int(part)} is named twice; each port of a rail needs a mesh port of its own")
        ports.append(int(part))
    return tuple(ports)
