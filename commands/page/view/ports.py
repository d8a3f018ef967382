"""The ports of switches over time: circuits of optical ones, and the byte counters of the interfaces at all of them.

A port is in one state after another: with a starting circuit, dark, with the circuit of a group, without a circuit (no
bar), failed. Times are seconds of the real system since the start of the point, rates Gb/s of the real system. A
counter is recorded where it changes (``measure.live.sampler``), so that between two records it is taken to grow evenly.
The sampler notes the time and then reads, so that on a busy machine a record may hold bytes of later than its time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commands.page.view.bars import BAR, KIND, KINDS, Bars, Table
from measure.metrics.intervals import Interval, difference, overlap
from topos.plan import FabricPlan
from workloads.program import Group

_START, _DARK, _FAILED, _OTHER, _NONE = KIND["start"], KIND["dark"], KIND["failed"], KIND["other"], -1
_STARTING = "start of "
"""Beginning of the group of a reconfiguration that sets up the starting circuits of a job."""
Place = tuple[str, int]
"""A port: name of its switch, and number."""


class PortLane:
    """The states of one port: those that are over, and the present one since ``since``."""

    __slots__ = ("bars", "kind", "label", "peer", "resolved", "since")

    def __init__(self, kind: int, label: int) -> None:
        self.bars = Bars()
        self.kind, self.label, self.peer, self.since = kind, label, 0, 0.0
        self.resolved = (0, 0)
        """Number of bars and of known groups when the kinds of the bars were last looked up."""

    @property
    def untouched(self) -> bool:
        """Whether the lane is in its first state, of which the peer is not known."""
        return not len(self.bars) and self.since == 0.0 and self.kind == _START and not self.peer

    def turn(self, t: float, kind: int, label: int, peer: int = 0) -> None:
        """Be in another state from ``t`` on; ``kind`` -1: without a circuit."""
        if t > self.since:
            self._end(t)
        self.kind, self.label, self.peer, self.since = kind, label, peer, max(t, self.since)

    def _end(self, t: float) -> None:
        if self.kind != _NONE:
            self.bars.add(self.since, t, self.kind, self.label, 0, -1, self.peer)

    def now(self, until: float) -> Table:
        """The bar of the present state, which lasts until ``until``; none without a circuit."""
        if self.kind == _NONE or until <= self.since:
            return np.empty(0, BAR)
        return np.array([(self.since, until, self.kind, self.label, 0, -1, self.peer)], BAR)

    def within(self, start: float, end: float, until: float, width: float) -> Table:
        """The bars that overlap the window, thinned, the present state included."""
        found, now = self.bars.thinned(start, end, width), self.now(until)
        overlapping = len(now) and now["s"][0] < end and now["e"][0] > start
        return np.concatenate((found, now)) if overlapping else found

    def at(self, t: float) -> tuple[int, int, int, float] | None:
        """Kind, label, peer and start of the state at ``t``; None without a circuit."""
        if t >= self.since:
            return None if self.kind == _NONE else (self.kind, self.label, self.peer, self.since)
        found = self.bars.at(t)
        if not len(found):
            return None
        last = found[-1]
        return int(last["k"]), int(last["l"]), int(last["p"]), float(last["s"])


class PortStates:
    """The ports of all optical switches of ``plan``; ``labels`` numbers names.

    ``kinds`` are the kinds of groups, and of dimensions, by their label. They may be added at any time: the dimension
    of a group may be known later than its first circuit. ``groups`` are those of the program.
    """

    def __init__(
        self,
        plan: FabricPlan,
        labels: Callable[[str], int],
        kinds: Mapping[int, int],
        groups: Mapping[str, Group] | None = None,
    ) -> None:
        self._labels, self._kinds, self._groups = labels, kinds, groups or {}
        self._joining: dict[tuple[str, frozenset[int]], str] = {}
        """By dimension and ranks, the names that ``_group_of`` found."""
        self.switches = {s.name: s for s in plan.network("rail") if s.kind == "ocs"}
        start = labels("starting circuit")
        self.lanes: dict[Place, PortLane] = {
            (s.name, p.number): PortLane(_START, start) for s in self.switches.values() for p in s.ports
        }
        if plan.edge is not None:
            regions = [(s.name, r.trunk_port) for s in self.switches.values() for r in plan.edge.regions]
            self.lanes |= {place: PortLane(_START, start) for place in regions}
        self.rank_of: dict[str, dict[int, int]] = {
            s.name: {p.number: p.rank for p in s.ports} for s in self.switches.values()
        }
        """By switch the rank of each port."""
        self._dark: dict[int, tuple[array[float], array[float]]] = {}
        """By rank the starts and ends of the times in which a port of it is dark; none of them touch."""

    # ---- events ------------------------------------------------------------------------------------------------

    def name(self, rail: Any) -> str:
        """The name of the switch that an event names or numbers."""
        return rail if isinstance(rail, str) else f"rail{rail}"

    def standing(self, event: Mapping[str, Any]) -> None:
        """``controller circuits``: what stands when the point begins, on ports that have not changed since."""
        rail, label = self.name(event["rail"]), self._labels("starting circuit")
        known = {number: lane for (name, number), lane in self.lanes.items() if name == rail and lane.untouched}
        failed = set(event.get("failed") or ())
        peers = {a: b for pair in event["circuits"] for a, b in (tuple(pair), tuple(pair)[::-1])}
        for number, lane in known.items():
            if number in failed:
                lane.turn(0.0, _FAILED, self._labels("failed"))
            elif number in peers:
                lane.turn(0.0, _START, label, peers[number])
            else:
                lane.turn(0.0, _NONE, 0)

    def reconfigured(self, t: float, end: float, event: Mapping[str, Any]) -> None:
        """``controller reconfigure``: ports are dark from ``t`` to ``end``, and then have new circuits or none."""
        rail, group = self.name(event["rail"]), str(event.get("group") or "")
        dark = self._labels(f"dark for {group}" if group else "dark")
        held = set()
        for number in event["ports"]:
            if self._turn(rail, number, t, _DARK, dark):
                self._turn(rail, number, end, _NONE, 0)
                held.add(self.rank_of[rail].get(number, -1))
        for rank in held - {-1}:
            self._darken(rank, t, end)
        kind = _START if group.startswith(_STARTING) else _OTHER
        for a, b in event["circuits"]:
            self._join(rail, a, b, end, kind, self._labels(self._group_of(rail, a, b, group) or "circuit"))

    def _group_of(self, rail: str, a: int, b: int, changed_for: str) -> str:
        """The group of a circuit that was set up when ``changed_for`` asked: of its phase, others get theirs too.

        It is that group or the only one of its dimension that has the ranks of both ends, else the dimension.
        """
        known, rank_of = self._groups.get(changed_for), self.rank_of.get(rail, {})
        if known is None or a not in rank_of or b not in rank_of:
            return changed_for
        ends = frozenset((rank_of[a], rank_of[b]))
        if ends.issubset(known.members):
            return changed_for
        if (known.dimension, ends) not in self._joining:
            alike = [g.name for g in self._groups.values() if g.dimension == known.dimension]
            fitting = [name for name in alike if ends.issubset(self._groups[name].members)]
            self._joining[known.dimension, ends] = fitting[0] if len(fitting) == 1 else known.dimension
        return self._joining[known.dimension, ends]

    def _darken(self, rank: int, t: float, end: float) -> None:
        """Add a dark time of ``rank``, joined with those that it touches."""
        starts, ends = self._dark.setdefault(rank, (array("d"), array("d")))
        first, last = bisect_left(ends, t), bisect_right(starts, end)
        if first < last:
            t, end = min(t, starts[first]), max(end, ends[last - 1])
        starts[first:last], ends[first:last] = array("d", [t]), array("d", [end])

    def port(self, t: float, event: Mapping[str, Any]) -> None:
        """``controller port``: it has failed, or works again and has no circuit yet."""
        rail, number = self.name(event["rail"]), event["port"]
        failed = event["state"] == "failed"
        lane = self.lanes.get((rail, number))
        if lane is None:
            return
        peer = lane.peer
        lane.turn(t, _FAILED if failed else _NONE, self._labels("failed") if failed else 0)
        other = self.lanes.get((rail, peer))
        if failed and other is not None and other.peer == number and other.kind != _FAILED:
            other.turn(t, _NONE, 0)

    def _turn(self, rail: str, number: int, t: float, kind: int, label: int, peer: int = 0) -> bool:
        lane = self.lanes.get((rail, number))
        if lane is None or (lane.kind == _FAILED and kind != _FAILED):
            return False
        lane.turn(t, kind, label, peer)
        return True

    def _join(self, rail: str, a: int, b: int, t: float, kind: int, label: int) -> None:
        self._turn(rail, a, t, kind, label, b)
        self._turn(rail, b, t, kind, label, a)

    # ---- questions ---------------------------------------------------------------------------------------------

    def dark_of(self, rank: int, start: float, end: float) -> list[Interval]:
        """When ports of ``rank`` were dark between ``start`` and ``end``, by start; none of the times overlap."""
        starts, ends = self._dark.get(rank, ((), ()))
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        return list(zip(starts[first:last], ends[first:last], strict=True))

    def split(self, rank: int, start: float, end: float) -> tuple[list[Interval], list[Interval]]:
        """The parts of a wait of ``rank`` in which one of its ports was dark, and the others."""
        whole, dark = [(start, end)], self.dark_of(rank, start, end)
        return overlap(whole, dark), difference(whole, dark)

    def within(self, place: Place, start: float, end: float, until: float, width: float = 0.0) -> Table:
        """The bars of a port that overlap the window, thinned; its present state lasts until ``until``."""
        lane = self.lanes[place]
        rows, known = lane.bars.table(), (len(lane.bars), len(self._kinds))
        if lane.resolved != known:
            self._resolve(rows)
            lane.bars.changed()
            lane.resolved = known
        rows = lane.within(start, end, until, width).copy()
        self._resolve(rows)
        return rows

    def _resolve(self, rows: Table) -> None:
        """Give bars of groups whose dimension is known by now its kind."""
        unknown = rows["k"] == _OTHER
        if unknown.any():
            kinds = np.full(int(rows["l"].max()) + 1, _OTHER, "u1")
            for label, kind in self._kinds.items():
                if label < len(kinds):
                    kinds[label] = kind
            rows["k"][unknown] = kinds[rows["l"][unknown]]

    def state(self, t: float, texts: Sequence[str]) -> dict[str, Any]:
        """The ``circuits``, ``dark`` and ``failed`` ports of each switch at ``t``; ``texts`` are the labels."""
        circuits: dict[str, list[dict[str, Any]]] = {name: [] for name in self.switches}
        dark: dict[str, list[int]] = {name: [] for name in self.switches}
        failed: dict[str, list[int]] = {name: [] for name in self.switches}
        for (rail, number), lane in self.lanes.items():
            found = lane.at(t)
            if found is None:
                continue
            kind, label, peer, since = found
            kind = self._kinds.get(label, kind) if kind == _OTHER else kind
            if kind == _DARK:
                dark[rail].append(number)
            elif kind == _FAILED:
                failed[rail].append(number)
            elif number < peer:
                group = "" if kind == _START else texts[label]
                shown = {"a": number, "b": peer, "kind": KINDS[kind], "group": group, "since": round(since, 6)}
                circuits[rail].append(shown)
        return {"circuits": circuits, "dark": dark, "failed": failed}


# ---- counters --------------------------------------------------------------------------------------------------------


Times = NDArray[np.float64]
_MOST_LATE = 5
"""Times between two samples by which a record may be late; an interface that stays above its rate for longer has a
higher rate than its plan says."""
MOST_SHARE = 1.02
"""Share of line rate that a port may reach between two samples; more was read later than the record says."""


class Counter:
    """The records of one interface, in order of time.

    A record with more than ``most`` bytes a second since the one before it was read late, by up to ``late_s``: it
    counts at the first moment at which the port can have carried its bytes.
    """

    __slots__ = ("_late_s", "_most", "_rx", "_seen", "_t", "_tx")

    def __init__(self, most: float = inf, late_s: float = 0.0) -> None:
        self._t, self._tx, self._rx = array("d"), array("d"), array("d")
        self._seen, self._most, self._late_s = -inf, most, late_s

    def __len__(self) -> int:
        return len(self._t)

    @property
    def last(self) -> float:
        """When the last record counts; endlessly early without one."""
        return self._t[-1] if self._t else -inf

    def add(self, t: float, tx: float, rx: float) -> None:
        """Add a record; one that is not later than the last is left out, and a counter that was reset starts anew."""
        if t <= self._seen:
            return
        self._seen = t
        if self._t:
            carried = self._t[-1] + max(tx - self._tx[-1], rx - self._rx[-1], 0.0) / self._most
            t = max(t, carried) if carried <= t + self._late_s else max(t, nextafter(self._t[-1], inf))
            if t <= self._t[-1]:  # nothing more than in the record before, which was read later than this one says
                return
        self._t.append(t)
        self._tx.append(tx)
        self._rx.append(rx)

    def rates_at(self, t: float, fresh_s: float = 0.0) -> tuple[float, float]:
        """Bytes per second sent and received at ``t``; up to ``fresh_s`` after the last record those before it.

        Later than that, nothing was sent: a change would have been recorded.
        """
        place = bisect_right(self._t, t)
        if place == len(self._t) and place and t <= self._t[-1] + fresh_s:
            place -= 1
        if not 0 < place < len(self._t):
            return 0.0, 0.0
        seconds = self._t[place] - self._t[place - 1]
        tx, rx = self._tx[place] - self._tx[place - 1], self._rx[place] - self._rx[place - 1]
        return max(0.0, tx) / seconds, max(0.0, rx) / seconds

    def sent(self, edges: Times) -> Times:
        """Bytes sent in each interval of ``edges``; 0 where nothing was recorded."""
        if len(self._t) < 2:
            return np.zeros(len(edges) - 1)
        grown = np.diff(np.frombuffer(self._tx), prepend=self._tx[0])
        total = np.cumsum(np.maximum(grown, 0.0))
        return np.diff(np.interp(edges, np.frombuffer(self._t), total))


class PortCounters:
    """The counters of all interfaces, with the line rate of each that is shown in ``line_gbps``.

    ``to_bits`` are real bits per emulated byte, ``sample_s`` is the time between two samples. ``known`` is the time
    from the first sample to the last one, or to the last record that counts later.
    """

    def __init__(self, line_gbps: dict[str, float], to_bits: float, sample_s: float) -> None:
        self._line_gbps, self._to_gbit = line_gbps, to_bits / 1e9
        self._fresh_s = 2.5 * sample_s
        late_s = _MOST_LATE * sample_s
        self._of: dict[str, Counter] = {
            name: Counter(MOST_SHARE * gbps / self._to_gbit or inf, late_s) for name, gbps in line_gbps.items()
        }
        self.known = (inf, -inf)

    def sampled(self, t: float) -> None:
        """The counters were read at ``t``; those without a record had not changed."""
        self.known = min(self.known[0], t), max(self.known[1], t)

    def add(self, t: float, interface: str, tx: float, rx: float) -> None:
        """Add a record of an interface, unless it is none of the fabric."""
        counter = self._of.get(interface)
        if counter is not None:
            counter.add(t, tx, rx)
            self.known = min(self.known[0], t), max(self.known[1], t, counter.last)

    def at(self, t: float) -> dict[str, dict[str, float]]:
        """``tx_gbps``, ``rx_gbps`` and ``share`` of the line rate (of the larger) of each recorded interface."""
        found = {}
        for name, counter in self._of.items():
            if not len(counter):
                continue
            tx, rx = (rate * self._to_gbit for rate in counter.rates_at(t, self._fresh_s))
            share = min(1.0, max(tx, rx) / self._line_gbps[name]) if self._line_gbps[name] else 0.0
            found[name] = {"tx_gbps": _short(tx), "rx_gbps": _short(rx), "share": round(share, 4)}
        return found

    def sent_gbps(self, interfaces: Iterable[str], edges: Times) -> tuple[list[float], Times] | None:
        """Line rates of those ``interfaces`` that were recorded, and what they sent together in each interval.

        NaN in intervals before the first sample or after the last one; None if nothing was recorded.
        """
        shown = [name for name in interfaces if len(self._of.get(name, ())) > 1]
        if not shown:
            return None
        sent = np.sum([self._of[name].sent(edges) for name in shown], axis=0)
        seconds = np.diff(np.clip(edges, *self.known))
        rates = np.divide(sent * self._to_gbit, seconds, out=np.full(len(sent), np.nan), where=seconds > 0)
        return [self._line_gbps[name] for name in shown], rates


def _short(rate: float) -> float:
    return float(f"{rate:.4g}")
