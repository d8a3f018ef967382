"""What the events of one point say, kept so that a page can ask for any window of it: an index that grows with them.

Times that go out are seconds of the real system since the start of the point.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.page.view.bars import KIND, Bars, Labels
from commands.page.view.lanes import EdgeLanes, Lane, lanes_of
from commands.page.view.ports import PortCounters, PortStates
from commands.page.view.ranks import Ranks, StepTable
from measure.metrics.stall import CircuitWait, Dark
from measure.sentences import mark_kind, ranks_of, says
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.program import Group

SAMPLE_WALL_S = 0.1
"""How often the counters of links are sampled, in wall-clock seconds."""
_MOST_BARS, _MOST_MARKS = 3_000_000, 20_000
_SLACK_S = 2.0
"""Wall-clock time before and after a point in which its counters are read."""
_SHORTEST_WAIT_S = 1e-4
"""Wall-clock time between two operations of a rank that is no wait: the agent's own work."""
_UNUSED = frozenset({b"transfer", b"qdisc", b"checkin", b"phase", b"sent_in_slot"})
"""Kinds that no view shows: such lines, a third of all, are not parsed."""
_KIND, _HEAD = b'"kind":"', 80
"""Where the kind of an event stands: in the first bytes of its line."""
_BYTES = re.compile(
    rb'\{"t":(\d{1,12}\.\d{1,24}),"source":"link","kind":"bytes","interface":"([\w-]{1,64})","rank":\d{1,9},"lane":\d{1,9},'
    rb'"tx_bytes":(\d{1,18}),"rx_bytes":(\d{1,18}),"dropped":\d{1,18}\}\n?'
)
"""The counters of an interface as the sampler writes them: another third of all lines."""
_Fields = Mapping[str, Any]


@dataclass(frozen=True)
class PointFacts:
    """Facts of a point beside its events. ``t0`` and ``end`` are wall-clock seconds; None: not ended.

    ``predicted`` are the times of steps by the model in real seconds, of which the last holds for all later ones.
    ``groups`` are those of the program; further ones are known from the events. What somebody did over REST before
    ``t0`` counts from its start on.
    """

    number: int
    plan: FabricPlan | None
    scale: Scale
    t0: float
    end: float | None = None
    groups: Mapping[str, Group] = field(default_factory=dict)
    predicted: tuple[float, ...] = ()
    warmup: int | None = None


@dataclass(frozen=True)
class ShownMark:
    """A mark on the time line."""

    t: float
    end: float | None
    kind: str
    says: str
    ranks: tuple[int, ...]
    rail: str | None
    ports: tuple[int, ...]


class PointIndex:
    """The index of one point.

    ``latest`` is the last moment of the events that were read, ``horizon`` the latest start of one, both in seconds of
    the point: of events in order of time, all that began before the horizon were read.
    """

    def __init__(self, facts: PointFacts) -> None:
        self.facts = facts
        self.labels = Labels()
        self.latest = self.horizon = 0.0
        self.left_out = 0
        """Bars that were not kept, because there are too many."""
        self.decisions = 0
        """Events so far of the run, the controller and switches: what circuits, failures and acts follow from."""
        self.settled = 0.0
        """Up to where ``settle`` was asked."""
        plan = facts.plan
        self.lanes: list[Lane] = lanes_of(plan)
        self.kinds: dict[int, int] = {}
        """The kinds of the bars of groups, by label."""
        for group in facts.groups.values():
            self._learn(group.name, group.dimension)
            self._learn(group.dimension, group.dimension)
        self.ranks = Ranks(plan.ranks if plan else 0, self.labels, facts.scale.real_s(_SHORTEST_WAIT_S))
        self.circuits = PortStates(plan, self.labels, self.kinds, facts.groups) if plan else None
        self.counters = PortCounters(
            _line_rates(plan, facts.scale), 8 / (facts.scale.rate * facts.scale.time), facts.scale.real_s(SAMPLE_WALL_S)
        )
        self.steps = StepTable()
        self.edge = EdgeLanes(plan, self.labels) if plan and plan.edge else None
        self.marks: list[ShownMark] = []
        self.members: set[int] = set()
        """Ranks that jobs were started on."""
        self._bars = 0
        self._slack = facts.scale.real_s(_SLACK_S)
        self._end = math.inf if facts.end is None else facts.scale.real_s(facts.end - facts.t0)

    # ---- reading -----------------------------------------------------------------------------------------------

    def add_line(self, line: bytes) -> bool:
        """Take one line of a file; False if it is cut short."""
        start = line.find(_KIND, 0, _HEAD) + len(_KIND)
        kind = line[start : line.find(b'"', start, start + 32)]
        if kind in _UNUSED:
            return True
        if kind == b"bytes" and (counters := _BYTES.fullmatch(line)) is not None:
            t, interface, tx, rx = counters.groups()
            self._counted(self._time(float(t)), interface.decode(), float(tx), float(rx))
            return True
        try:
            event = json.loads(line.decode())
        except ValueError:
            return False
        self.add(event)
        return True

    def _counted(self, t: float, interface: str, tx: float, rx: float) -> None:
        """Take a reading of counters, the most frequent event."""
        if self._inside("link", t, t):
            self.counters.add(t, interface, tx, rx)
            self.latest, self.horizon = max(self.latest, t), max(self.horizon, t)

    def add(self, data: dict[str, Any]) -> None:
        source, kind = data["source"], data["kind"]
        t, end = self._time(data["t"]), data.get("end")
        until = t if end is None else self._time(end)
        if (source, kind) == _ACT:
            t, until = max(t, 0.0), max(until, 0.0)
        if not self._inside(source, t, until) and kind != "circuits":
            return
        self.decisions += source in ("run", "controller", "switch")
        take = _TAKERS.get((source, kind))
        if take is not None:
            take(self, t, until, data)
        if (source, kind) not in _NEVER_MARKS:
            self._mark(t, None if end is None else until, source, kind, data)
        if not (source == "run" and kind == "point"):
            self.horizon = max(self.horizon, t)
            self.latest = max(self.latest, until if source == "agent" else t)

    def settle(self, until: float = math.inf) -> None:
        """Divide waits and find gaps up to ``until`` (seconds of the point), before which all events were read."""
        if self.circuits is not None:
            self.ranks.settle(until, self.circuits.split)
        self.settled = until

    def _time(self, wall: float) -> float:
        return (wall - self.facts.t0) / self.facts.scale.time

    def _inside(self, source: str, t: float, until: float) -> bool:
        """Whether an event belongs to the point: others of the run may stand between two points.

        PortCounters are read a little before the point and after it.
        """
        slack = self._slack if source == "link" else 0.0
        return until >= -slack and t <= self._end + slack

    def _learn(self, group: str, dimension: str) -> int:
        kind = self.kinds[self.labels(group)] = KIND.get(dimension, KIND["other"])
        return kind

    def _lane(self, rank: int) -> Bars | None:
        """The lane of a rank for a further bar; None if there are too many bars, or the plan is not known yet."""
        if not self.ranks.lanes:
            return None
        if self._bars >= _MOST_BARS:
            self.left_out += 1
            return None
        self._bars += 1
        return self.ranks.lanes[rank]

    # ---- one method for each kind of event ---------------------------------------------------------------------

    def _compute(self, t: float, end: float, data: _Fields) -> None:
        if (lane := self._lane(data["rank"])) is not None:
            lane.add(t, end, KIND["compute"], self.labels(data["name"]), 0, data["step"])

    def _communicate(self, t: float, end: float, data: _Fields) -> None:
        rank, step, group = data["rank"], data["step"], data["group"]
        if (lane := self._lane(rank)) is None:
            return
        sent = self.facts.scale.real_bytes(data.get("sent_bytes") or data.get("bytes") or 0)
        posted = self._time(data["posted"]) if "posted" in data else t
        kind = self._learn(group, data["dimension"])
        lane.add(t, end, kind, self.labels(f"{data['name']} ({group})"), sent, step)
        self.ranks.posted(rank, group, posted, t, step)
        known = self.facts.groups.get(group)
        if group in self.steps.rotating:
            self.steps.wait(CircuitWait(posted, end, rank, step, group, self._members(group)))
        if known is None or known.domain == "scale-out":
            self.steps.sent(rank, step, end)

    def _wait(self, t: float, end: float, data: _Fields) -> None:
        rank, step, group = data["rank"], data["step"], data["group"]
        if self._lane(rank) is None:
            return
        self.ranks.waited(rank, t, end, group, step)
        self.steps.wait(CircuitWait(t, end, rank, step, group, self._members(group)))

    def _members(self, group: str) -> frozenset[int]:
        known = self.facts.groups.get(group)
        return frozenset(known.members if known else self.ranks.members[group])

    def _step(self, t: float, end: float, data: _Fields) -> None:
        if self._lane(data["rank"]) is not None:
            self.ranks.stepped(data["rank"], t, end)
            self.steps.step(data["rank"], data["step"], t, end)

    def _checkpoint(self, t: float, end: float, data: _Fields) -> None:
        if (lane := self._lane(data["rank"])) is not None:
            size = self.facts.scale.real_bytes(data["bytes"])
            lane.add(t, end, KIND["checkpoint"], self.labels("checkpoint"), size, data["step"])

    def _stage(self, t: float, end: float, data: _Fields) -> None:
        if (lane := self._lane(data["rank"])) is not None:
            lane.add(t, end, KIND["stage"], self.labels(f"start-up: {data['name']}"))

    def _bytes(self, t: float, end: float, data: _Fields) -> None:
        self._counted(t, data["interface"], data["tx_bytes"], data["rx_bytes"])

    def _cpu(self, t: float, end: float, data: _Fields) -> None:
        self.counters.sampled(end)

    def _launch(self, t: float, end: float, data: _Fields) -> None:
        self.members.update(data["members"])
        self.steps.launch(data["job"], data["incarnation"], data["members"])

    def _dies(self, t: float, end: float, data: _Fields) -> None:
        self.ranks.failed(data["rank"], t)

    def _ack(self, t: float, end: float, data: _Fields) -> None:
        self.ranks.members[data["group"]].update(data["ranks"])
        self.ranks.acknowledged(t, self._time(data["ready"]), data["group"])

    def _reconfigure(self, t: float, end: float, data: _Fields) -> None:
        if self.circuits is None:
            return
        self.circuits.reconfigured(t, end, data)
        name = self.circuits.name(data["rail"])
        rank_of = self.circuits.rank_of.get(name, {})
        ports = frozenset(p for p in data["ports"] if p in rank_of)
        ranks = frozenset(rank_of[p] for p in ports)
        joined = frozenset((rank_of[a], rank_of[b]) for a, b in data["circuits"] if a in rank_of and b in rank_of)
        asked = data.get("asked")
        asked_t = None if asked is None else self._time(asked)
        self.steps.dark(Dark(t, end, name, ports, ranks, joined, data.get("group") or "", asked_t))

    def _slot(self, t: float, end: float, data: _Fields) -> None:
        self.steps.rotating.add(data["group"])

    def _standing(self, t: float, end: float, data: _Fields) -> None:
        if self.circuits is not None:
            self.circuits.standing(data)

    def _port(self, t: float, end: float, data: _Fields) -> None:
        if self.circuits is not None:
            self.circuits.port(t, data)

    def _edge(self, t: float, end: float, data: _Fields) -> None:
        if self.edge is not None:
            self.edge.add(t, end, data)

    def _mark(self, t: float, end: float | None, source: str, kind: str, data: _Fields) -> None:
        named = Event(t, source, kind, end, {k: v for k, v in data.items() if k not in _HEAD_FIELDS})  # type: ignore[arg-type]
        shown = mark_kind(named)
        if shown is None or len(self.marks) >= _MOST_MARKS:
            return
        rail, ports = data.get("rail"), data.get("ports") or ([data["port"]] if "port" in data else [])
        self.marks.append(
            ShownMark(
                t,
                end,
                shown,
                says(named),
                tuple(ranks_of(named)),
                rail if isinstance(rail, str) else None,
                tuple(ports),
            )
        )


_ACT = ("controller", "manual")
_HEAD_FIELDS = frozenset({"t", "source", "kind", "end"})
_Taker = Callable[[PointIndex, float, float, _Fields], None]
_TAKERS: Mapping[tuple[str, str], _Taker] = {
    ("agent", "compute"): PointIndex._compute,
    ("agent", "communicate"): PointIndex._communicate,
    ("agent", "wait"): PointIndex._wait,
    ("agent", "step"): PointIndex._step,
    ("agent", "checkpoint"): PointIndex._checkpoint,
    ("agent", "stage"): PointIndex._stage,
    ("link", "bytes"): PointIndex._bytes,
    ("link", "cpu"): PointIndex._cpu,
    ("run", "launch"): PointIndex._launch,
    ("run", "fault"): PointIndex._dies,
    ("controller", "failed"): PointIndex._dies,
    ("controller", "ack"): PointIndex._ack,
    ("controller", "reconfigure"): PointIndex._reconfigure,
    ("controller", "slot"): PointIndex._slot,
    ("controller", "circuits"): PointIndex._standing,
    ("controller", "port"): PointIndex._port,
    **{("edge", kind): PointIndex._edge for kind in ("get", "train", "push", "round", "trunk")},
}
_NEVER_MARKS = frozenset(_TAKERS) - {
    ("run", "launch"),
    ("run", "fault"),
    ("controller", "failed"),
    ("controller", "port"),
}


def _line_rates(plan: FabricPlan | None, scale: Scale) -> dict[str, float]:
    """The line rate of every interface of a host in Gb/s of the real system."""
    ports = [port for switch in plan.switches for port in switch.ports] if plan else []
    return {port.interface: port.rate_mbps / 1e3 / scale.rate for port in ports}
