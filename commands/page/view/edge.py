"""The lanes of an edge network: what each client and each job does, and which region has the trunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from commands.page.view.bars import KIND, Bars
from commands.page.view.lanes import MOST_LANES, Lane
from topos.plan import FabricPlan


class EdgeLanes:
    """The bars of clients, jobs and the trunk, by the ids of their lanes. ``labels`` numbers names."""

    def __init__(self, plan: FabricPlan, labels: Callable[[str], int]) -> None:
        assert plan.edge is not None
        self._labels = labels
        self._regions = [region.switch for region in plan.edge.regions]
        self.bars: dict[str, Bars] = {}
        self._clients = plan.edge.clients

    def add(self, t: float, end: float, data: Mapping[str, Any]) -> None:
        """An event of an edge run; raises ``ValueError`` for a client, job or region that there is not."""
        kind = data["kind"]
        if kind == "trunk":
            region = data["region"]
            self._lane(f"trunk:{self._regions[region]}").add(t, end, KIND["trunk"], self._labels("has the trunk"))
            return
        job = _number(data["job"], MOST_LANES)
        name = f"job {job}, round {_number(data['round'], 1 << 31)}"
        if kind == "round":
            self._lane(f"job{job}").add(t, end, KIND["round"], self._labels(name))
            return
        client, size = _number(data["client"], self._clients), data.get("bytes", 0)
        outcome = data.get("outcome")
        label = f"{name}: {outcome}" if isinstance(outcome, str) else name
        step = data["round"]
        self._lane(f"client{client}").add(t, end, KIND[kind], self._labels(label), float(size), step)

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


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value < most:
        raise ValueError("not a number of a client, a job or a round")
    return value
