"""Descriptions of switches and jobs as plain data, for answers of the northbound interfaces."""

from __future__ import annotations

from typing import Any

from controllers.engine.engine import Engine
from controllers.mesh.switch import STATES, PipSwitch
from controllers.openflow.datapaths import Datapaths
from topos.plan import FabricPlan


def describe_switches(plan: FabricPlan, datapaths: Datapaths, engine: Engine) -> list[dict[str, Any]]:
    """All switches as plain data: circuits and port states of optical ones, and the mesh of those made of one."""
    switches = []
    for switch in plan.switches:
        datapath = datapaths.connected.get(switch.name)
        entry: dict[str, Any] = {
            "name": switch.name,
            "dpid": switch.dpid,
            "kind": switch.kind,
            "network": switch.network,
            "connected": datapath is not None and datapath.filled,
        }
        device = engine.optical.switches.get(switch.name)
        if device is not None:
            entry["circuits"] = [list(c.ports) for c in device.target]
            entry["ports"] = {str(port): state for port, state in device.states().items()}
        if isinstance(device, PipSwitch):
            entry["mesh"] = describe_mesh(device)
        switches.append(entry)
    return switches


def describe_mesh(device: PipSwitch) -> dict[str, Any]:
    """The mesh inside a switch as plain data.

    ``ports`` are the mesh ports behind the ports of the switch (in order), ``gates`` the state of every gate,
    ``blocked`` the ports without a circuit, ``paths`` the gates and the latency (us) of each circuit.
    """
    states = device.states()
    return {
        "width": device.mesh.width,
        "height": device.mesh.height,
        "ports": list(device.mesh.ports),
        "gates": [STATES[crossed] for crossed in device.layout.routed.states],
        "blocked": [port for port in states if device.target.peer(port) is None],
        "paths": [
            {"circuit": list(circuit.ports), "gates": list(path), "latency_us": device.latency_us(circuit)}
            for circuit in device.target
            for path in [device.path(circuit)]
        ],
        "gate_latency_us": device.mesh.gate_latency_us,
        "latency": device.latency,
    }


def describe_jobs(engine: Engine) -> list[dict[str, Any]]:
    """All jobs as data for JSON: state, present groups and members, and failed members."""
    return [
        {
            "name": job.name,
            "state": membership.state,
            "changes": membership.number,
            "dead": membership.dead,
            "reason": membership.reason,
            "members": membership.ranks,
            "mode": job.mode,
            "reconfiguration_delay_s": job.reconfiguration_delay_s,
            "link_recovery_s": job.link_recovery_s,
            "groups": job.groups,
        }
        for membership in engine.registry.jobs.values()
        for job in [membership.job]
    ]
