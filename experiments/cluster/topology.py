"""A Mininet topology as plain data, for a machine that makes a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mininet.topo import Topo

from railyard.errors import MachineError


def to_plain(topo: Topo) -> dict[str, Any]:
    """The nodes and links of a topology with their options, in order.

    ``MachineError`` for options that are no plain data, such as classes of nodes.
    """
    nodes = [[name, dict(topo.nodeInfo(name))] for name in topo.nodes()]
    links = [dict(info) for *_, info in topo.links(withInfo=True)]
    for name, options in (*nodes, *((f"{link['node1']}-{link['node2']}", link) for link in links)):
        for key, value in options.items():
            if not isinstance(value, str | int | float | bool | dict | None):
                raise MachineError(f"option {key} of {name} is no plain data, so no other machine can make it")
    return {"nodes": nodes, "links": links}


def from_plain(plain: Mapping[str, Any]) -> Topo:
    """The topology that ``to_plain`` described."""
    topo = Topo()
    for name, options in plain["nodes"]:
        topo.addNode(name, **options)
    for options in plain["links"]:
        ends = {"node1", "node2"}
        topo.addLink(options["node1"], options["node2"], **{k: v for k, v in options.items() if k not in ends})
    return topo
