"""The critical path of a step: what the job waited for at each moment, read off a measured or a predicted timeline.

The path is followed from the end of the last rank back to the end of the step before: from an operation to what made
it possible, and where that was a message, to the rank that sent it. So its parts fill the step without a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Literal, NamedTuple, get_args

from measure.metrics.intervals import Interval, difference, overlap, union
from measure.metrics.stall import Dark
from measure.metrics.steps import Steps
from railyard.timeline import Event

Kind = Literal["compute", "late", "wire", "transfer", "ask", "dark", "peers"]
"""What a part of a path is:

- ``compute``: computing, ``late``: after the end of a compute, until its rank goes on;
- ``wire``: a transfer, from its first to its last byte or for as long as the model takes for its bytes, whichever is
  more (a sender with credit in its token bucket begins later and ends no sooner);
- ``transfer``: before that, from the moment at which the rank could send, and after the last byte, until the rank goes
  on: the start of an operation, wake-ups, acknowledgements;
- ``ask``: from a request for circuits to its acknowledgement, without the dark time;
- ``dark``: the circuits of the operation are dark;
- ``peers``: circuits are held by another group or requested by a member that waits for none, or ports serve other
  members.
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
_CLOCK_S = 1e-9
"""Events closer than this are simultaneous."""


class PathPart(NamedTuple):
    """A part of a critical path: wall-clock seconds, with rank, name and class of the operation that it belongs to.

    The class is the dimension and the kind of a communication (``dp all-gather``), or ``compute``.
    """

    seconds: float
    kind: Kind
    name: str
    operation: str
    rank: int


class _Path:
    """The parts of one path, which is followed backwards from ``t`` to ``start``."""

    def __init__(self, start: float, t: float) -> None:
        self.start, self.t = start, t
        self.parts: list[PathPart] = []

    def back(self, to: float, kind: Kind, of: Event) -> None:
        """Go back to ``to`` (at most to the start): the time since then is of ``kind``."""
        to = max(self.start, min(to, self.t))
        if to < self.t:
            self.parts.append(PathPart(self.t - to, kind, str(of["name"]), _operation(of), int(of["rank"])))
        self.t = to

    def through(self, to: float, times: Sequence[tuple[Kind, Sequence[Interval]]], rest: Kind, of: Event) -> None:
        """Go back to ``to``: of the first kind whose intervals hold the time, else of ``rest``."""
        left = [(max(self.start, min(to, self.t)), self.t)]
        found: list[tuple[Interval, Kind]] = []
        for kind, given in times:
            intervals = union(given)
            found += [(interval, kind) for interval in overlap(left, intervals)]
            left = difference(left, intervals)
        found += [(interval, rest) for interval in left]
        for (begin, _), kind in sorted(found, reverse=True):
            self.back(begin, kind, of)


def _operation(event: Event) -> str:
    if event.kind == "compute":
        return "compute"
    kind = "send-recv" if event["op_kind"] in ("send", "recv") else event["op_kind"].replace("_", "-")
    return f"{event['dimension']} {kind}"


@dataclass(eq=False)
class _Operation:
    """A communication of one rank with the transfers that it received and sent; ``done``: when the rank went on."""

    event: Event
    transfers: list[_Transfer] = field(default_factory=list)

    @property
    def posted(self) -> float:
        return float(self.event.get("posted", self.event.t))

    @property
    def done(self) -> float:
        return max(self.posted, self.event.t if self.event.end is None else self.event.end)

    @property
    def place(self) -> tuple[int, int, int]:
        return _place(self.event)


@dataclass(eq=False)
class _Transfer:
    """A transfer from the first to the last byte, with the operations of its two ranks (None: unknown)."""

    t: float
    end: float
    receiver: _Operation
    sender: _Operation | None
    key: tuple[int, int, int]
    """Receiver, operation and number of the transfer, the same in every step."""


class Timeline:
    """The events of one point, measured or predicted, arranged for ``paths``.

    ``darks`` are its reconfigurations; ``model`` is the timeline predicted for it, if it is not that itself.
    """

    def __init__(self, events: Sequence[Event], darks: Sequence[Dark] = (), model: Timeline | None = None) -> None:
        self.steps = Steps.read(events)
        self._darks, self._model = darks, model
        self._members: dict[str, set[int]] = defaultdict(set)
        self._dark_of: dict[str, list[Interval]] = {}
        self._wires_s: dict[tuple[int, int, int], float] = {}
        """Seconds of each transfer, first to last byte, in the last step."""
        self._computes: dict[int, list[Event]] = defaultdict(list)
        self._operations: dict[tuple[int, int, int], _Operation] = {}
        self._waits: dict[tuple[int, int, int], list[Event]] = defaultdict(list)
        self._asked: dict[tuple[str, int], list[Event]] = defaultdict(list)
        self._ready: dict[tuple[str, int], float] = {}
        self._refused: set[tuple[str, int]] = set()
        self._slots: dict[str, list[Event]] = defaultdict(list)
        transfers: list[Event] = []
        for event in sorted(events, key=lambda e: e.t):
            self._add(event, transfers)
        self._match(transfers)
        self._ends = self._by_end()

    def _add(self, event: Event, transfers: list[Event]) -> None:
        match event.source, event.kind:
            case "agent", "compute":
                self._computes[event["rank"]].append(event)
            case "agent", "communicate":
                self._operations[_place(event)] = _Operation(event)
            case "agent", "transfer":
                transfers.append(event)
            case "agent", "wait":
                self._waits[_place(event)].append(event)
                self._asked[event["group"], event["index"]].append(event)
                self._members[event["group"]].add(event["rank"])
            case "controller", "ack":
                self._members[event["group"]].update(event.get("ranks", ()))
                self._ready[event["group"], event["index"]] = event.get("ready") or event["asked"]
            case "controller", "refused":
                self._refused.add((event["group"], event["index"]))
            case "controller", "slot":
                self._slots[event["group"]].append(event)

    def _match(self, transfers: Iterable[Event]) -> None:
        """Give each transfer to the operations of its receiver and its sender.

        The k-th collective of a group in a step is the same on every member, and the k-th receive that of the k-th
        send.
        """
        number: dict[tuple[int, int, int], int] = {}
        at: dict[tuple[int, int, str, str, int], _Operation] = {}
        count: dict[tuple[int, int, str, str], int] = defaultdict(int)
        for place, one in sorted(self._operations.items(), key=lambda item: (item[1].posted, item[0])):
            stream = one.event["rank"], one.event["step"], one.event["group"], one.event["op_kind"]
            number[place] = count[stream]
            at[(*stream, count[stream])] = one
            count[stream] += 1
        for event in transfers:
            receiver = self._operations.get(_place(event))
            if receiver is None:
                continue
            kind = receiver.event["op_kind"]
            sent = "send" if kind == "recv" else kind
            sender = at.get((event["peer"], event["step"], receiver.event["group"], sent, number[receiver.place]))
            key = event["rank"], event["op"], event["transfer"]
            found = _Transfer(event.t, event.t if event.end is None else event.end, receiver, sender, key)
            self._wires_s[key] = found.end - found.t
            for operation in (receiver, sender):
                if operation is not None:
                    operation.transfers.append(found)

    def _by_end(self) -> dict[int, tuple[list[float], list[Event | _Operation]]]:
        """Computes and communications by rank, in order of their ends."""
        ended: dict[int, list[tuple[float, Event | _Operation]]] = defaultdict(list)
        for rank, computes in self._computes.items():
            ended[rank] += [(event.t if event.end is None else event.end, event) for event in computes]
        for operation in self._operations.values():
            ended[operation.event["rank"]].append((operation.done, operation))
        found = {}
        for rank, ends in ended.items():
            ends.sort(key=lambda one: one[0])
            found[rank] = [end for end, _ in ends], [item for _, item in ends]
        return found

    # ---- the path ------------------------------------------------------------------------------------------------

    def paths(self) -> dict[int, tuple[PathPart, ...]]:
        """The critical path of each complete step of which an operation is known.

        Its parts, the latest one first, add up to the step's duration.
        """
        found, before = {}, -inf
        known = {e["step"] for e in chain(*self._computes.values(), *([o.event] for o in self._operations.values()))}
        for step in self.steps.complete:
            start, end = self.steps.job(step)
            if step in known:
                found[step] = self._path(step, max(start, before), end)
            before = end
        return found

    def _path(self, step: int, start: float, end: float) -> tuple[PathPart, ...]:
        path = _Path(start, end)
        seen: set[int] = set()
        rank = max((steps[step][1], rank) for rank, steps in self.steps.of_rank.items() if step in steps)[1]
        while path.t > start:
            item = self._last(rank, path.t, seen)
            if item is None:
                path.back(start, "peers", _nothing(step, rank))
            elif isinstance(item, _Operation):
                path.back(item.done, "transfer", item.event)
                rank = self._begin_of(path, self._through_transfers(path, item))
            else:
                path.back(item.t if item.end is None else item.end, "late", item)
                path.back(item.t, "compute", item)
        return tuple(path.parts)

    def _last(self, rank: int, t: float, seen: set[int]) -> Event | _Operation | None:
        """The operation that ended last on ``rank`` by ``t``, began before and is not in ``seen``; it is added."""
        ends, items = self._ends.get(rank, ([], []))
        place = bisect_right(ends, t + _CLOCK_S)
        for item in reversed(items[:place]):
            began = item.posted if isinstance(item, _Operation) else item.t
            if began < t and id(item) not in seen:
                seen.add(id(item))
                return item
        return None

    def _through_transfers(self, path: _Path, operation: _Operation) -> _Operation:
        """Go back through the transfers of an operation; returns that of the rank which the first one waited for."""
        seen: set[_Transfer] = set()
        ends, by, wired = [operation], path.t, path.t
        while True:
            transfer = self._latest(by, ends, seen)
            begun = max(ends, key=lambda one: min(one.posted, by))
            to = begun.posted if transfer is None or begun.posted >= transfer.end else transfer.end
            self._wait(path, max(to, wired), ends, "wire")
            self._wait(path, to, ends, "transfer")
            if path.t <= path.start or transfer is None or begun.posted >= transfer.end:
                return begun
            seen.add(transfer)
            ends, by = [one for one in (transfer.sender, transfer.receiver) if one is not None], transfer.t
            wired = min(transfer.t, transfer.end - self._predicted_s(transfer))

    def _predicted_s(self, transfer: _Transfer) -> float:
        """Seconds that the model takes for a transfer, from its first to its last byte."""
        return (self._model or self)._wires_s.get(transfer.key, 0.0)

    @staticmethod
    def _latest(t: float, ends: Sequence[_Operation], seen: set[_Transfer]) -> _Transfer | None:
        """The transfer of ``ends`` that ended last by ``t``, but not before its rank had begun."""
        return max(
            (
                one
                for operation in ends
                for one in operation.transfers
                if one not in seen and operation.posted < one.end <= t + _CLOCK_S
            ),
            key=lambda one: (one.end, one.t),
            default=None,
        )

    def _wait(self, path: _Path, to: float, ends: Sequence[_Operation], kind: Kind) -> None:
        """Go back to ``to`` between operations ``ends``: of ``kind``, but for dark times and waits for circuits."""
        if to >= path.t:
            return
        event = ends[0].event
        times: list[tuple[Kind, Sequence[Interval]]] = []
        if event["group"] in self._slots:
            times = self._between_slots(event["group"], {one.event["rank"] for one in ends})
        waits = [
            w for one in ends for w in self._waits[one.place] if w.t >= one.posted and w["group"] != event["group"]
        ]
        for wait in waits:
            end = wait.t if wait.end is None else wait.end
            ready = min(max(self._ready.get((wait["group"], wait["index"]), wait.t), wait.t), end)
            times += [
                ("dark", overlap([(wait.t, end)], self._dark(wait["group"]))),
                ("ask", [(ready, end)]),
                ("peers", [(wait.t, ready)]),
            ]
        path.through(to, times, kind, event)

    def _between_slots(self, group: str, ranks: set[int]) -> list[tuple[Kind, Sequence[Interval]]]:
        """Dark times of a rotation, and its slots in which the circuits between ``ranks`` are not up."""
        others = union(
            (slot.t, slot.t if slot.end is None else slot.end)
            for slot in self._slots[group]
            if len(ranks) > 1 and not any(ranks == set(pair) for pair in slot["pairs"])
        )
        return [("dark", self._dark(group)), ("peers", others)]

    def _dark(self, group: str) -> list[Interval]:
        if group not in self._dark_of:
            members = frozenset(self._members[group])
            self._dark_of[group] = union(one.interval for one in self._darks if one.connects(members))
        return self._dark_of[group]

    def _begin_of(self, path: _Path, operation: _Operation) -> int:
        """Go back from the start of an operation through its wait for circuits; returns the rank to go on with."""
        rank, event = int(operation.event["rank"]), operation.event
        waits = [w for w in self._waits[operation.place] if w["group"] == event["group"] and w.t < path.t]
        if not waits:
            return rank
        wait = max(waits, key=lambda one: one.t)
        key = wait["group"], wait["index"]
        ready = min(max(self._ready.get(key, wait.t), wait.t), path.t)
        dark = self._dark(wait["group"])
        held: list[Interval] = []
        if key in self._refused:
            held = [(ready, min((begin for begin, end in dark if end > ready), default=path.t))]
        path.through(ready, [("dark", dark), ("peers", held)], "ask", event)
        asked = [one for one in self._asked[key] if one["rank"] != rank]
        last = max(asked, key=lambda one: one.t, default=wait)
        if wait.t < last.t <= path.t:
            path.back(last.t, "ask", event)
            return int(last["rank"])
        path.back(wait.t, "peers" if last.t > path.t or not asked else "ask", event)
        return rank


def _place(event: Event) -> tuple[int, int, int]:
    return event["rank"], event["step"], event["op"]


def _nothing(step: int, rank: int) -> Event:
    """An event that stands for time in which a rank recorded nothing."""
    fields = {"rank": rank, "step": step, "name": "nothing recorded", "dimension": "no", "op_kind": "operation"}
    return Event(0.0, "agent", "communicate", None, fields)
