"""What the controller takes: lines of its job channel, bodies and paths of REST, plans, requests of edge learning."""

from __future__ import annotations

import json
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, get_args

from controllers.edge import messages as edge
from controllers.northbound import bodies
from controllers.northbound.messages import read_request
from fuzz.mutation import mutated_tree
from fuzz.target import Target
from railyard.errors import ConfigError
from railyard.validation import from_plain
from topos.plan import FabricPlan
from workloads.edge import wire

_JOB = {"name": "j", "groups": [{"name": "dp", "dimension": "dp", "members": [0, 1]}], "mode": "x"}
REQUESTS: list[dict[str, Any]] = [
    {"id": 1, "op": "register", "job": _JOB, "policy": "opus"},
    {"id": 2, "op": "checkin", "job": "j", "rank": 1, "group": "dp"},
    {"id": 3, "op": "request", "job": "j", "rank": 1, "group": "dp", "index": 0},
    {"op": "moved", "job": "j", "rank": 1, "group": "dp", "index": 0, "slot": 4, "idle": True},
    {"op": "alive", "job": "j", "rank": 0},
    {"id": 4, "op": "watch", "job": "j", "seen": 0, "rank": 1},
    {"id": 5, "op": "rewire", "switch": "rail0", "circuits": [[1, 2], [3, 4]], "delay_s": 0.1},
    {"id": 6, "op": "gates", "switch": "rail0", "gates": ["bar", "cross"], "blocked": [3]},
    {"id": 7, "op": "fault", "switch": "rail0", "port": 3, "state": "failed"},
    {"id": 8, "op": "failed", "rank": 3, "job": "", "cause": "hot"},
    {"id": 9, "op": "circuits"},
]
BODIES: list[dict[str, Any]] = [
    {"circuits": [[1, 4]], "update": "update"},
    {"gates": ["bar", "cross"], "blocked": []},
    {"pair": [{"ingress": 1, "egress": 4}]},
    {bodies.CROSS_CONNECTS: {"pair": [{"ingress": 1, "egress": 4}]}},
    {"switch": "rail0", "port": 3, "state": "failed"},
    {"rank": 5, "cause": "overheated"},
]


def _line(data: bytes, folder: Path) -> None:
    read_request(data)


def _body(data: bytes, folder: Path) -> None:
    """One body, for every resource that takes one; a part of them comes in chunks."""
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data and len(data) % 4 == 0 else data
    body = bodies.read_body(BytesIO(framed), str(len(framed)), None if framed is data else "chunked")
    for read in (bodies.rewire_request, bodies.gates_request, _pairs):
        with suppress(ConfigError):
            read(body, "rail0")
    bodies.fault_request(body)


def _pairs(body: bytes, switch: str) -> object:
    return bodies.pairs_request(body, switch, "update")


def _chunks(data: bytes, folder: Path) -> None:
    bodies.read_body(BytesIO(data), None, "chunked")


def _plan(data: bytes, folder: Path) -> None:
    from_plain(FabricPlan, data, "a fabric plan")


def _edge_request(data: bytes, folder: Path) -> None:
    for kind in _EDGE:
        try:
            wire.read(kind, wire.Frame(data))
        except wire.EdgeRefused:
            continue


_EDGE = [kind for kind in vars(edge).values() if isinstance(kind, type) and issubclass(kind, wire.Message)]


def _json_of(trees: list[dict[str, Any]], chance: Random) -> bytes:
    tree: Any = chance.choice(trees)
    for _ in range(chance.randrange(1, 3)):
        tree = mutated_tree(chance, tree)
    return json.dumps(tree).encode()


def _edge_trees() -> list[dict[str, Any]]:
    """For each request of edge learning, its keys with a number each, and its name."""
    names = {name: get_args(kind.model_fields["op"].annotation) for kind in _EDGE if "op" in kind.model_fields
             for name in [kind]}  # fmt: skip
    return [
        {key: found[0] if key == "op" else 1 for key in kind.model_fields} for kind, found in names.items() if found
    ]


def targets() -> list[Target]:
    """The targets of this module."""
    lines = [json.dumps(each).encode() for each in REQUESTS]
    texts = [json.dumps(each).encode() for each in BODIES]
    edges = _edge_trees()
    plan = {
        "fabric": "rails",
        "servers": 2,
        "gpus_per_server": 1,
        "ports_per_gpu": 2,
        "mtu": 9000,
        "switches": [_switch(0), _switch(1)],
    }
    return [
        Target("job-channel", _line, lines, make=lambda chance: _json_of(REQUESTS, chance)),
        Target("rest-body", _body, texts, make=lambda chance: _json_of(BODIES, chance)),
        Target(
            "rest-chunks", _chunks, [b"5\r\nhello\r\n0\r\n\r\n"], words=[b"\r\n", b"0\r\n\r\n", b"ffffffff"], weight=0.5
        ),
        Target("plan", _plan, [json.dumps(plan).encode()], make=lambda chance: _json_of([plan], chance), weight=0.5),
        Target(
            "edge-requests",
            _edge_request,
            [json.dumps(each).encode() for each in edges],
            make=lambda chance: _json_of(edges, chance),
        ),
    ]


def _switch(number: int) -> dict[str, Any]:
    port = {"number": 1, "host": "g0", "rank": 0, "lane": 0, "interface": "g0-eth0", "mac": "02:00:00:00:00:01",
            "ip": "10.0.0.1/24", "rate_mbps": 100.0}  # fmt: skip
    return {"name": f"rail{number}", "dpid": number, "kind": "ocs", "network": "rail", "ports": [port]}
