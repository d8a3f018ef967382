from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

from fabric_plans import rail_plan
from rack_plans import electrical_plan, photonic_plan
from refusals import refusals

from controllers.allocation.allocator import Allocator
from controllers.circuits.circuits import Matching
from controllers.circuits.decomposition import check_demand
from controllers.circuits.matchings import cyclic_shifts, one_factorization
from controllers.circuits.ocs import OpticalSwitch
from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from controllers.mesh.negotiation import route
from controllers.northbound import bodies, http_server
from controllers.northbound.messages import read_request
from controllers.openflow import app
from controllers.policies.catalog import load_policy
from controllers.policies.lumion import split_ports
from controllers.policies.rotor import DemandPolicy
from controllers.policies.static import split_bandwidth
from experiments.propius.control.policies import load_edge_policy
from experiments.propius.control.servers import ControlServer, ManagerServer
from experiments.propius.data.messages import EdgeRefused, Frame, perform
from railyard.errors import CircuitError, ConfigError
from railyard.protocol import to_json
from topos.mesh import Mesh
from topos.torus import Torus
from workloads.program import Group

EDGE_JOB = {"op": "register", "name": "a", "demand": 2, "bounds": [3, 2, 400, 4, 0], "private_bound": 100, "rounds": 3}
SQUARE = Torus((4, 4, 1), (2, 2, 1))


def policy(name: str = "opus", groups: Any = (), rack: str | None = None, servers: int = 4, **rails: Any) -> None:
    """Start a policy with groups, each named by its dimension, on rails or on a rack."""
    on_rails, on_rack = rail_plan(servers, **rails), photonic_plan(SQUARE)
    plan = {None: on_rails, "photonic": on_rack, "electrical": electrical_plan(SQUARE)}[rack]
    load_policy(name, plan).start([Group(dimension, dimension, tuple(members)) for dimension, members in groups])


def of_edge(server: type[ControlServer | ManagerServer], **fields: Any) -> None:
    asyncio.run(perform(server.__new__(server), Frame(to_json(fields))))


def demand(demand: list[list[float]], **cycle: Any) -> None:
    policy = DemandPolicy(rail_plan(4))
    policy.prepare(Job("job", (), "any", cycle=Cycle(demand=tuple(map(tuple, demand)), **cycle)))
    policy.start([Group("ep", "ep", (0, 1, 2, 3))])


def cycle(value: Any) -> None:
    job = {"name": "j", "mode": "on-demand", "groups": [], "cycle": value}
    read_request(json.dumps({"op": "register", "policy": "rotor", "job": job}).encode())


def slice_of_rack(chips: Any, *shape: Any) -> None:
    Allocator(Torus((4, 4, 4), (2, 2, 1)), photonic=True).allocate((chips, *shape) if shape else chips, "a")


test_refusals = refusals(
    Path(__file__).with_name("refusals.yaml"),
    {
        "cycle of a job": cycle,
        "request": lambda line: read_request(line.encode("latin-1")),
        "body": lambda body: bodies.fault_request(body.encode("latin-1")),
        "stream of a body": lambda stream, length=None, encoding=None: bodies.read_body(
            io.BytesIO(stream.encode()), length, encoding
        ),
        "address to listen at": http_server.listen,
        "registration of an edge job": (
            lambda **wrong: of_edge(ControlServer, **EDGE_JOB | {"over_selection": 1.2} | wrong),
            EdgeRefused,
        ),
        "request of an edge client": (lambda **fields: of_edge(ManagerServer, **fields), EdgeRefused),
        "demand of a cycle": check_demand,
        "cycle": Cycle,
        "one-factorization": one_factorization,
        "cyclic shifts": cyclic_shifts,
        "matching": (lambda *pairs: Matching(pairs), CircuitError),
        "matching on 8 ports": (
            lambda *pairs: OpticalSwitch("rail0", range(1, 9)).change_to(Matching(pairs)),
            CircuitError,
        ),
        "policy": policy,
        "demand of a group": demand,
        "ports for groups": lambda ports, **members: split_ports(
            rail_plan(5, ports=ports), [Group(name, "dp", tuple(ranks)) for name, ranks in members.items()]
        ),
        "pairs in a mesh of 3x3": (
            lambda *pairs: route(Mesh.of(3, 3), [(a, b) for a, b in pairs]),
            (ConfigError, CircuitError),
        ),
        "edge policy": load_edge_policy,
        "OpenFlow framework": app.check_installed,
        "bandwidth split by traffic": split_bandwidth,
        "slice of a rack": slice_of_rack,
        "allocator": lambda shape, server, **options: Allocator(Torus(tuple(shape), tuple(server)), **options),
    },
)
