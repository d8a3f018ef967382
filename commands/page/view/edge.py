"""The lanes of an edge network: what each client and each job does, and which region has the trunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from commands.page.view.bars import KIND, Bars
from commands.page.view.lanes import Lane
from topos.plan import FabricPlan


class EdgeLanes:
    """The bars of clients, jobs and the trunk, by the ids of their lanes. ``labels`` numbers names."""

    def __init__(self, plan: FabricPlan, labels: Callable[[str], int]) -> None:
        assert plan.edge is not None
        self._labels = labels
        self._regions = [region.switch for region in plan.edge.regions]
        self.bars: dict[str, Bars] = {}

    def add(self, t: float, end: float, data: Mapping[str, Any]) -> None:
        """An event of an edge run."""
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
        """The lanes of jobs and of the trunk that have bars."""
        for name in sorted(self.bars, key=lambda each: (len(each), each)):
            if name.startswith("job"):
                yield Lane(name, f"job {name[3:]}", "jobs", "job")
        for region in self._regions:
            if f"trunk:{region}" in self.bars:
                yield Lane(f"trunk:{region}", region, "trunk", "trunk")
