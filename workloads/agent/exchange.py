"""One rank's part of one communication: which message may go now, which arrived one may be applied. Pure.

Built on what happens to each slot, round by round, reads before writes (``Transfer``: it reads the state at the start
of its round): a read waits for the writes of the rounds before it, a write for the reads and writes before it. Chunks
do not wait for each other otherwise, so a ring keeps all its links busy.

A schedule that claims one port (``one_port``) is given one: a rank turns to its next receiver when what it sends to
the one before has left it, and tells its next sender to follow when what the one before sends begins to come in. Else
all senders that a rank has in a schedule would share its port from the beginning, and the first round would end with
the last. In any other schedule a rank that sends to several others in one round serves them in turn, beginning with
the one after it, so that not all send to the same one first. In lock-step a rank neither sends nor lets send before
everything it does in earlier rounds is done.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from railyard.errors import VerifyError
from workloads.schedule import Schedule, Transfer

ELEMENT_BYTES = 4
"""Buffers are made of float32 elements, also when their content does not matter."""

Action = Literal["announce", "send", "keep", "apply"]
"""``announce``: tell the part's peer that everything up to the part's round may come by its path, after what comes in
by now (``Exchange.began``). ``send``: read the part's elements and send them. ``keep``: read them for an ``apply`` of
the same transfer later (it stays on this rank). ``apply``: add or store what arrived or was kept.
"""


@dataclass(frozen=True)
class MessagePart:
    """One transfer as one of its ends sees it: elements ``start`` to ``end`` to or from rank ``peer``."""

    transfer: int
    peer: int
    chunk: int
    lane: int
    start: int
    end: int
    reduce: bool
    round: int = 0
    scale_up: bool = False

    @property
    def bytes(self) -> int:
        """Payload bytes."""
        return (self.end - self.start) * ELEMENT_BYTES

    @property
    def way(self) -> tuple[int, int, bool]:
        """What tells its path from others: peer, lane, network."""
        return self.peer, self.lane, self.scale_up


Step = tuple[Action, MessagePart]


@dataclass(frozen=True)
class Progress:
    """What an event sets free, to be done in this order."""

    steps: tuple[Step, ...] = ()

    def parts(self, action: Action) -> list[MessagePart]:
        """The parts of one kind of step."""
        return [part for kind, part in self.steps if kind == action]


class Exchange:
    """The part of one rank in a communication, as an order in which steps set each other free.

    ``incoming`` are its parts by transfer, ``outgoing`` those it sends; ``awaits_sent`` are the transfers of which it
    must be told (``sent``) that they have left the rank.
    """

    def __init__(self) -> None:
        self.incoming: dict[int, MessagePart] = {}
        self.outgoing: list[MessagePart] = []
        self._steps: list[Step | None] = []
        self._missing: list[int] = []
        self._followers: list[list[int]] = []
        self._arrivals: dict[int, int] = {}
        self._beginnings: dict[int, int] = {}
        self._departures: dict[int, int] = {}

    # -- building ----------------------------------------------------------------------------------

    def node(self, step: Step | None, after: Iterable[int] = ()) -> int:
        """A step (None: a mere moment) that follows the nodes ``after``; its number."""
        number = len(self._steps)
        self._steps.append(step)
        self._followers.append([])
        self._missing.append(0)
        self.follow(number, after)
        return number

    def follow(self, node: int, after: Iterable[int]) -> None:
        """``node`` waits for the nodes ``after`` too."""
        for other in after:
            self._followers[other].append(node)
            self._missing[node] += 1

    def arrival(self, part: MessagePart) -> int:
        """The moment at which ``part`` arrives."""
        self.incoming[part.transfer] = part
        self._arrivals[part.transfer] = number = self.node(None)
        self._missing[number] = 1
        return number

    def beginning(self, transfer: int) -> int:
        """The moment at which an incoming transfer begins to arrive."""
        self._beginnings[transfer] = number = self.node(None)
        self._missing[number] = 1
        return number

    def departure(self, transfer: int) -> int:
        """The moment at which an outgoing transfer has left."""
        if transfer not in self._departures:
            self._departures[transfer] = number = self.node(None)
            self._missing[number] = 1
        return self._departures[transfer]

    # -- running -----------------------------------------------------------------------------------

    @property
    def awaits_sent(self) -> Collection[int]:
        """The transfers for which ``sent`` must be called."""
        return self._departures.keys()

    @property
    def received_all(self) -> bool:
        """Every incoming part has arrived."""
        return not self._arrivals

    @property
    def awaited(self) -> tuple[MessagePart, ...]:
        """Incoming parts that have not arrived."""
        return tuple(self.incoming[transfer] for transfer in sorted(self._arrivals))

    def begin(self) -> Progress:
        """What can be done at once."""
        return self._run([node for node, missing in enumerate(self._missing) if missing == 0])

    def began(self, transfer: int) -> Progress:
        """The first bytes of ``transfer`` are here: whose turn comes after it may be told."""
        node = self._beginnings.pop(transfer, None)
        return Progress() if node is None else self._run([node])

    def arrived(self, transfer: int) -> Progress:
        """The payload of ``transfer`` is here (``began`` is implied). ``VerifyError`` if it is not awaited."""
        if transfer not in self._arrivals:
            raise VerifyError(f"transfer {transfer} arrived, which this rank does not await (any more)")
        began = self._beginnings.pop(transfer, None)
        return self._run([*([] if began is None else [began]), self._arrivals.pop(transfer)])

    def sent(self, transfer: int) -> Progress:
        """The payload of ``transfer`` has left this rank: the next may take the port."""
        return self._run([self._departures.pop(transfer)])

    def _run(self, free: list[int]) -> Progress:
        """Do the nodes ``free`` and all that only waited for them."""
        steps: list[Step] = []
        queue = deque(free)
        while queue:
            node = queue.popleft()
            step = self._steps[node]
            if step is not None:
                steps.append(step)
            for follower in self._followers[node]:
                self._missing[follower] -= 1
                if self._missing[follower] == 0:
                    queue.append(follower)
        return Progress(tuple(steps))


@dataclass
class _Slot:
    """Who touched a slot last: the writes of one round, and the reads since."""

    writes: list[int]
    reads: list[int]


class _Builder:
    """Puts the transfers of one position into the order that its slots impose."""

    def __init__(self, schedule: Schedule, members: Sequence[int], me: int, elements: int) -> None:
        self.exchange = Exchange()
        self.me = me
        self.members = members
        self.bounds = schedule.chunk_bounds(elements)
        self.slots: dict[int, _Slot] = defaultdict(lambda: _Slot([], []))
        self.sends: list[tuple[MessagePart, int]] = []
        """Outgoing parts with their nodes, in order of rounds."""
        self.receives: list[tuple[MessagePart, int]] = []
        """Incoming parts with the nodes of their arrival."""
        self.of_round: dict[int, list[int]] = {}
        """What must be over before the next round in lock-step."""

    def part(self, number: int, t: Transfer, peer: int, slot: int) -> MessagePart:
        start, end = self.bounds[slot]
        return MessagePart(
            number, self.members[peer], slot, t.lane, start, end, t.op == "reduce", round=t.round, scale_up=t.scale_up
        )

    def round(self, number: int, transfers: Sequence[tuple[int, Transfer]]) -> None:
        """One round: all reads, then all writes."""
        over = self.of_round[number] = []
        kept: dict[int, int] = {}
        for transfer, t in transfers:
            if t.src == self.me:
                kept[transfer] = self._read(transfer, t)
                over.append(kept[transfer])
        written: dict[int, list[int]] = {}
        for transfer, t in transfers:
            if t.dst == self.me:
                node = self._write(transfer, t, kept.get(transfer))
                written.setdefault(t.slot, []).append(node)
                over.append(node)
        for slot, nodes in written.items():
            self.slots[slot] = _Slot(nodes, [])

    def _read(self, number: int, t: Transfer) -> int:
        part = self.part(number, t, t.dst, t.chunk)
        slot = self.slots[t.chunk]
        node = self.exchange.node(("keep" if t.local else "send", part), slot.writes)
        slot.reads.append(node)
        if not t.local:
            self.exchange.outgoing.append(part)
            self.sends.append((part, node))
        return node

    def _write(self, number: int, t: Transfer, kept: int | None) -> int:
        part = self.part(number, t, t.src, t.slot)
        slot = self.slots[t.slot]
        here = kept
        if here is None:
            here = self.exchange.arrival(part)
            self.receives.append((part, here))
        return self.exchange.node(("apply", part), [here, *slot.writes, *slot.reads])

    # -- when the peers' turn comes ----------------------------------------------------------------

    def announce_at_once(self, parts: Iterable[MessagePart]) -> None:
        """Every path that brings something may bring all of it."""
        last: dict[tuple[int, int, bool], MessagePart] = {}
        for part in parts:
            last[part.way] = part
        for part in last.values():
            self.exchange.node(("announce", part))

    def take_turns(self) -> None:
        """One receiver and one sender after another, on each network."""
        for network in (False, True):
            self._order_of_sends([entry for entry in self.sends if entry[0].scale_up == network])
            self._turns_of_receives([entry for entry in self.receives if entry[0].scale_up == network])

    def spread(self) -> None:
        """In a round with several receivers one after another, the one after this rank first."""
        position = {rank: number for number, rank in enumerate(self.members)}
        by_round: dict[tuple[int, int, bool], list[tuple[MessagePart, int]]] = defaultdict(list)
        for part, node in self.sends:
            by_round[part.round, part.lane, part.scale_up].append((part, node))
        for sends in by_round.values():
            self._order_of_sends(sorted(sends, key=lambda s: (position[s[0].peer] - self.me) % len(position)))

    def _order_of_sends(self, sends: list[tuple[MessagePart, int]]) -> None:
        before: list[MessagePart] = []
        for run in _runs(sends):
            departures = [self.exchange.departure(part.transfer) for part in before]
            for _, node in run:
                self.exchange.follow(node, departures)
            before = [part for part, _ in run]

    def _turns_of_receives(self, receives: list[tuple[MessagePart, int]]) -> None:
        """One path brings its parts one after another: when the last has begun, all others are here."""
        before: list[MessagePart] = []
        for run in _runs(receives):
            self.exchange.node(("announce", run[-1][0]), [self.exchange.beginning(part.transfer) for part in before])
            before = [part for part, _ in run]

    def lock_step(self, circuits: Collection[int]) -> None:
        """Nothing of a round, the consent to receive included, before all of the rounds before is over."""
        round_starts: dict[int, int] = {}
        over: list[int] = []
        for number, nodes in self.of_round.items():
            round_starts[number] = self.exchange.node(None, over)
            departures = [self.exchange.departure(part.transfer) for part, _ in self.sends if part.round == number]
            over = [round_starts[number], *nodes, *departures]
        for part, node in self.sends:
            self.exchange.follow(node, [round_starts[part.round]])
        announced = set()
        for part, _ in self.receives:
            if part.transfer not in circuits and (part.way, part.round) not in announced:
                announced.add((part.way, part.round))
                self.exchange.node(("announce", part), [round_starts[part.round]])


def _runs(entries: list[tuple[MessagePart, int]]) -> list[list[tuple[MessagePart, int]]]:
    """``entries`` cut wherever the path changes."""
    return [list(run) for _, run in groupby(entries, key=lambda entry: entry[0].way)]


def collective_exchange(
    schedule: Schedule,
    members: Sequence[int],
    rank: int,
    elements: int,
    mine: Iterable[tuple[int, Transfer]] | None = None,
    circuits: Collection[int] = (),
) -> Exchange:
    """The part of ``rank`` in ``schedule`` over ``members`` on a buffer of ``elements`` float32.

    ``mine``: the numbered transfers that the rank takes part in, where the caller knows them already. ``circuits``:
    transfers that have a circuit of their own while they last, so that nobody's turn has to be awaited.
    """
    me = members.index(rank)
    if mine is None:
        mine = [(number, t) for number, t in enumerate(schedule.transfers) if me in (t.src, t.dst)]
    builder = _Builder(schedule, members, me, elements)
    by_round: dict[int, list[tuple[int, Transfer]]] = defaultdict(list)
    for number, t in mine:
        by_round[t.round].append((number, t))
    for number in sorted(by_round):
        builder.round(number, by_round[number])
    if schedule.lockstep:
        builder.lock_step(circuits)
    elif schedule.one_port and not circuits:
        builder.take_turns()
    else:
        builder.announce_at_once(part for part, _ in builder.receives if part.transfer not in circuits)
        if not circuits:
            builder.spread()
    return builder.exchange


def by_position(schedule: Schedule) -> list[list[tuple[int, Transfer]]]:
    """By position: the transfers that it takes part in, with their numbers."""
    mine: list[list[tuple[int, Transfer]]] = [[] for _ in range(schedule.n)]
    for number, t in enumerate(schedule.transfers):
        for position in {t.src, t.dst}:
            mine[position].append((number, t))
    return mine


def on_circuits(
    mine: Iterable[tuple[int, Transfer]], circuit_transfers: Collection[int] | None, *, in_slots: bool
) -> Collection[int]:
    """Which of the numbered transfers ``mine`` have a circuit of their own while they last: those that are
    ``circuit_transfers``; where circuits take turns all on the rails.
    """
    if circuit_transfers is not None:
        return circuit_transfers
    return frozenset(number for number, t in mine if not (t.local or t.scale_up)) if in_slots else ()


def send_exchange(peer: int, elements: int) -> Exchange:
    """A send of the whole buffer to ``peer``."""
    exchange = Exchange()
    part = MessagePart(0, peer, 0, 0, 0, elements, False)
    exchange.outgoing.append(part)
    exchange.node(("send", part))
    return exchange


def recv_exchange(peer: int, elements: int, *, announced: bool = True) -> Exchange:
    """A receive of the whole buffer from ``peer``; not ``announced``, the peer sends without being told to."""
    exchange = Exchange()
    part = MessagePart(0, peer, 0, 0, 0, elements, False)
    arrival = exchange.arrival(part)
    if announced:
        exchange.node(("announce", part))
    exchange.node(("apply", part), [arrival])
    return exchange


def elements_of(emulated_bytes: int) -> int:
    """float32 elements that carry ``emulated_bytes`` (rounded up)."""
    return -(-emulated_bytes // ELEMENT_BYTES)
