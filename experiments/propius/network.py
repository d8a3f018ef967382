"""The edge network of the Propius experiment, as a fabric of the runner."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.job_point import Fabric
from experiments.propius.settings import PropiusSettings
from topos.edge import EdgeTopo
from topos.edge_plan import Trunk


def edge_fabric(
    settings: PropiusSettings,
    clients: int,
    *,
    trunk: Trunk = "electrical",
    time: float | None = None,
    access_delay_ms: float | None = None,
    trunk_delay_ms: float | None = None,
    trunk_loss: float | None = None,
    trunk_mbps: float | None = None,
    client_mbps: float | Sequence[float] | None = None,
) -> Fabric:
    """The network for ``clients`` clients; delays are real milliseconds, emulated at ``time`` seconds per second.

    What is not given is taken from the settings.
    """
    scale = settings.scale.scale()
    emulated = scale.time if time is None else time
    access = settings.access_delay_ms if access_delay_ms is None else access_delay_ms
    uplink = settings.trunk_delay_ms if trunk_delay_ms is None else trunk_delay_ms
    options = {
        "clients": clients,
        "regions": settings.regions,
        "trunk": trunk,
        "trunk_mbps": settings.trunk_mbps if trunk_mbps is None else trunk_mbps,
        "client_mbps": client_mbps,
        "access_delay_ms": access * emulated,
        "trunk_delay_ms": uplink * emulated,
        "control_delay_ms": uplink * emulated,
        "access_loss": settings.access_loss,
        "trunk_loss": settings.trunk_loss if trunk_loss is None else trunk_loss,
    }
    key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
    return Fabric(f"edge-{clients}-{trunk}", key, lambda: EdgeTopo(**options))
