"""The lanes of a time line in the order of the fabric: ranks of each rail, then ports of its optical switch.

In an edge network they are those of clients, and of the jobs and the trunk that events tell of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from commands.page.view.bars import KIND, Bars
from topos.plan import FabricPlan, SwitchPlan

MOST_LANES = 600
"""Lanes of a time line; what is further is left out."""


@dataclass(frozen=True)
class Lane:
    """A lane: its ``id`` in payloads, its name and group for people, and what it belongs to (None: does not apply)."""

    id: str
    name: str
    group: str
    kind: Literal["rank", "port", "client", "job", "trunk"]
    rank: int | None = None
    port: int | None = None

    def shown(self) -> dict[str, Any]:
        return asdict(self)


def lanes_of(plan: FabricPlan | None) -> list[Lane]:
    """The lanes of a fabric; those of jobs and of a trunk that is no optical switch come from the events."""
    if plan is None:
        return []
    found = _edge_lanes(plan) if plan.edge is not None else _rail_lanes(plan)
    return found[:MOST_LANES]


def _rail_lanes(plan: FabricPlan) -> list[Lane]:
    rails = plan.network("rail")
    together = len(rails) > 1 and all(len({p.rank for p in rail.ports}) == 1 for rail in rails)
    found: list[Lane] = []
    seen: set[int] = set()
    for rail in rails:
        ranks = sorted({p.rank for p in rail.ports} - seen)
        seen.update(ranks)
        group = "ranks" if together else rail.name
        found += [Lane(f"rank{rank}", f"rank {rank}", group, "rank", rank) for rank in ranks]
        found += port_lanes(rail)
    return found


def port_lanes(switch: SwitchPlan) -> list[Lane]:
    """The lanes of the ports of an optical switch; none for another switch."""
    if switch.kind != "ocs":
        return []
    return [
        Lane(f"{switch.name}:{p.number}", f"port {p.number} (rank {p.rank})", switch.name, "port", p.rank, p.number)
        for p in switch.ports
    ]


def _edge_lanes(plan: FabricPlan) -> list[Lane]:
    edge = plan.edge
    assert edge is not None
    return [
        Lane(f"client{client}", f"client {client}", region.switch, "client", edge.client_rank(client))
        for region in edge.regions
        for client in region.clients
    ]


class EdgeLanes:
    """The bars of clients, jobs and the trunk, by the ids of their lanes. ``labels`` numbers names."""

    def __init__(self, plan: FabricPlan, labels: Callable[[str], int]) -> None:
        assert plan.edge is not None
        self._labels = labels
        self._regions = [region.switch for region in plan.edge.regions]
        self.bars: dict[str, Bars] = {}

    def add(self, t: float, end: float, data: Mapping[str, Any]) -> None:
        kind = data["kind"]
        if kind == "trunk":
            region = data["region"]
            self._lane(f"trunk:{self._regions[region]}").add(t, end, KIND["trunk"], self._labels("has the trunk"))
            return
        name = f"job {data['job']}, round {data['round']}"
        if kind == "round":
            self._lane(f"job{data['job']}").add(t, end, KIND["round"], self._labels(name))
            return
        label = f"{name}: {data['outcome']}" if "outcome" in data else name
        lane = self._lane(f"client{data['client']}")
        lane.add(t, end, KIND[kind], self._labels(label), data.get("bytes", 0), data["round"])

    def _lane(self, name: str) -> Bars:
        return self.bars.setdefault(name, Bars())

    def more_lanes(self) -> Iterator[Lane]:
        for name in sorted(self.bars, key=lambda each: (len(each), each)):
            if name.startswith("job"):
                yield Lane(name, f"job {name[3:]}", "jobs", "job")
        for region in self._regions:
            if f"trunk:{region}" in self.bars:
                yield Lane(f"trunk:{region}", region, "trunk", "trunk")
