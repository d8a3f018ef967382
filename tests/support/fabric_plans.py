"""Small plans and jobs for tests, one of them with a photonic mesh as its rail."""

from __future__ import annotations

from dataclasses import replace

from controllers.engine.jobs import Job
from topos.mesh import Mesh, evenly_spaced
from topos.plan import FabricPlan, HostPort, MeshPlan, SwitchPlan
from workloads.program import Group


def rail_plan(servers: int, gpus: int = 1, ports: int = 2, kind: str = "ocs") -> FabricPlan:
    """A plan as ``topos.rails`` makes it."""
    switches = []
    for rail in range(gpus):
        plugged = tuple(
            HostPort(
                number=server * ports + lane + 1,
                host=f"g{server * gpus + rail}",
                rank=server * gpus + rail,
                lane=lane,
                interface=f"g{server * gpus + rail}-r{lane}",
                mac=f"02:00:{rail:02x}:{lane:02x}:{server // 256:02x}:{server % 256:02x}",
                ip=f"10.{rail}.{lane}.{server + 1}",
                rate_mbps=100.0,
            )
            for server in range(servers)
            for lane in range(ports)
        )
        switches.append(SwitchPlan(f"rail{rail}", 0x10000 + rail, kind, "rail", plugged))  # type: ignore[arg-type]
    return FabricPlan("ocs" if kind == "ocs" else kind, servers, gpus, ports, 9000, tuple(switches))


def pipeline_groups(dp: int, pp: int, rail: int = 0, gpus: int = 1) -> tuple[Group, ...]:
    """The dp rings and pp pairs on one rail, servers in the order stage by stage."""

    def rank(stage: int, index: int) -> int:
        return (stage * dp + index) * gpus + rail

    rings = [
        Group(f"dp-s{s}-r{rail}", "dp", tuple(rank(s, d) for d in range(dp)), stage=s) for s in range(pp) if dp > 1
    ]
    pairs = [
        Group(f"pp-s{s}-d{d}-r{rail}", "pp", (rank(s, d), rank(s + 1, d)), stage=s)
        for s in range(pp - 1)
        for d in range(dp)
    ]
    return tuple(rings + pairs)


def job(dp: int, pp: int, delay_s: float = 0.0, name: str = "job") -> Job:
    """A job on one rail."""
    return Job(name, pipeline_groups(dp, pp), "on-demand", delay_s)


def pip_plan(
    ports: int, width: int = 3, height: int = 3, at: tuple[int, ...] | None = None, gate_latency_us: float = 0.5
) -> FabricPlan:
    """``ports`` servers with one port each; ``at``: the mesh ports (None: evenly spaced)."""
    plan = rail_plan(ports, ports=1)
    mesh = MeshPlan(width, height, at or evenly_spaced(Mesh.of(width, height), ports), gate_latency_us)
    return replace(plan, switches=(replace(plan.switches[0], mesh=mesh),))
