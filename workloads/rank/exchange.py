"""One rank's part of one communication: which message may go now, and which received part may be applied. Pure.

The order follows from the use of each slot, round by round, reads before writes (``Transfer``: it reads the state at
the start of its round): a read waits for the writes of the rounds before it, a write for the reads and writes before
it. Chunks do not wait for each other otherwise, so a ring keeps all its links busy.

A schedule that uses one port per rank (``one_port``) is executed that way: a rank goes on to its next receiver when the
data for the one before has left it, and lets its next sender start when the data of the one before begins to come in.
Otherwise all senders of a rank in a schedule would share its port from the beginning, and the first round would end
with the last. In any other schedule a rank that sends to several others in one round serves them in order, beginning
with the one after it, so that not all ranks send to the same one first. In lock-step a rank neither sends nor lets
others send before all its work of earlier rounds is done, and the pause before the round, if there is one, is over.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Literal, NamedTuple

from railyard.errors import VerifyError
from railyard.scale import Scale
from workloads.collectives.catalog import schedule_of
from workloads.program import Collective, Group, Program
from workloads.rank.schedule_facts import ScheduleFacts
from workloads.schedule import Schedule, Transfer

ELEMENT_BYTES = 4
"""Buffers are made of float32 elements, also when their content does not matter."""

Bounds = tuple[tuple[int, int], ...]
"""First element and end of every slot of a buffer."""
Action = Literal["announce", "send", "keep", "apply", "pause"]
"""``announce``: tell the part's peer that everything up to the part's round may come by its path, after what comes in
by now (``Exchange.began``). ``send``: read the part's elements and send them. ``keep``: read them for an ``apply``
of the same transfer later (it stays on this rank). ``apply``: add or store the received or kept elements. ``pause``:
wait for ``Schedule.pause_s`` before the round of the part, and call ``Exchange.paused``."""


class MessagePart(NamedTuple):
    """One transfer as seen by one of its ends: elements ``start`` to ``end`` to or from rank ``peer``."""

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
        return (self.end - self.start) * ELEMENT_BYTES

    @property
    def path(self) -> tuple[int, int, bool]:
        return self.peer, self.lane, self.scale_up


Step = tuple[Action, MessagePart]
"""A step that an event makes possible; the steps of one event are done in their order."""


class Exchange:
    """The part of one rank in a communication, as a graph of steps that enable each other.

    ``incoming`` are its parts by transfer, ``outgoing`` those it sends; ``awaits_sent`` are the transfers for which
    ``sent`` must be called when they have left the rank.
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
        self._pauses: dict[int, int] = {}

    # -- building ----------------------------------------------------------------------------------

    def node(self, step: Step | None, after: Iterable[int] = ()) -> int:
        """Add a step (None: a mere event) that follows the nodes ``after``; returns its number."""
        number = len(self._steps)
        self._steps.append(step)
        self._followers.append([])
        self._missing.append(0)
        self.follow(number, after)
        return number

    def follow(self, node: int, after: Iterable[int]) -> None:
        """Let ``node`` wait for the nodes ``after`` too."""
        for other in after:
            self._followers[other].append(node)
            self._missing[node] += 1

    def arrival(self, part: MessagePart) -> int:
        self.incoming[part.transfer] = part
        self._arrivals[part.transfer] = number = self.node(None)
        self._missing[number] = 1
        return number

    def beginning(self, transfer: int) -> int:
        self._beginnings[transfer] = number = self.node(None)
        self._missing[number] = 1
        return number

    def departure(self, transfer: int) -> int:
        if transfer not in self._departures:
            self._departures[transfer] = number = self.node(None)
            self._missing[number] = 1
        return self._departures[transfer]

    def pause(self, part: MessagePart, after: Iterable[int]) -> int:
        """Add a pause before the round of ``part`` that follows the nodes ``after``; returns the node of its end."""
        self.node(("pause", part), after)
        self._pauses[part.transfer] = number = self.node(None)
        self._missing[number] = 1
        return number

    def __len__(self) -> int:
        return len(self._steps)

    def copy(self) -> Exchange:
        """The same exchange to be run once more; this one must not have begun."""
        other = Exchange()
        other.incoming, other.outgoing, other._steps = self.incoming, self.outgoing, self._steps
        other._followers, other._missing = self._followers, self._missing.copy()
        other._arrivals, other._beginnings = self._arrivals.copy(), self._beginnings.copy()
        other._departures, other._pauses = self._departures.copy(), self._pauses.copy()
        return other

    # -- running -----------------------------------------------------------------------------------

    @property
    def awaits_sent(self) -> Collection[int]:
        """The transfers for which ``sent`` must be called."""
        return self._departures.keys()

    @property
    def received_all(self) -> bool:
        return not self._arrivals

    @property
    def awaited(self) -> tuple[MessagePart, ...]:
        return tuple(self.incoming[transfer] for transfer in sorted(self._arrivals))

    def begin(self) -> list[Step]:
        return self._run([node for node, missing in enumerate(self._missing) if missing == 0])

    def began(self, transfer: int) -> list[Step]:
        """Process the first bytes of ``transfer``: the sender that follows it may be told to start."""
        node = self._beginnings.pop(transfer, None)
        return [] if node is None else self._run([node])

    def arrived(self, transfer: int) -> list[Step]:
        """Process the arrival of ``transfer`` (``began`` is implied). ``VerifyError`` if it is not awaited."""
        if transfer not in self._arrivals:
            raise VerifyError(f"transfer {transfer} arrived, which this rank does not await (any more)")
        began = self._beginnings.pop(transfer, None)
        return self._run([*([] if began is None else [began]), self._arrivals.pop(transfer)])

    def sent(self, transfer: int) -> list[Step]:
        return self._run([self._departures.pop(transfer)])

    def paused(self, transfer: int) -> list[Step]:
        return self._run([self._pauses.pop(transfer)])

    def _run(self, free: list[int]) -> list[Step]:
        """Complete the nodes ``free`` and all that only waited for them."""
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
        return steps


@dataclass
class _Slot:
    """Latest accesses to a slot: the writes of one round, and the reads since."""

    writes: list[int]
    reads: list[int]


class _Builder:
    """Puts the transfers of one position into the order that its slots impose."""

    def __init__(self, members: Sequence[int], me: int, bounds: Bounds) -> None:
        self.exchange = Exchange()
        self.me = me
        self.members = members
        self.bounds = bounds
        self.slots: dict[int, _Slot] = defaultdict(lambda: _Slot([], []))
        self.sends: list[tuple[MessagePart, int]] = []
        """Outgoing parts with their nodes, in order of rounds."""
        self.receives: list[tuple[MessagePart, int]] = []
        """Incoming parts with the nodes of their arrival."""
        self.of_round: dict[int, list[int]] = {}
        """Nodes that must be done before the next round in lock-step."""

    def part(self, number: int, t: Transfer, peer: int, slot: int) -> MessagePart:
        start, end = self.bounds[slot]
        return MessagePart(
            number, self.members[peer], slot, t.lane, start, end, t.op == "reduce", round=t.round, scale_up=t.scale_up
        )

    def round(self, number: int, transfers: Sequence[tuple[int, Transfer]]) -> None:
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

    # -- order of the peers -------------------------------------------------------------------------

    def announce_at_once(self, parts: Iterable[MessagePart]) -> None:
        """Let every path that brings something bring all of it."""
        last: dict[tuple[int, int, bool], MessagePart] = {}
        for part in parts:
            last[part.path] = part
        for part in last.values():
            self.exchange.node(("announce", part))

    def one_at_a_time(self) -> None:
        """Allow one receiver and one sender at a time, on each network."""
        for network in (False, True):
            self._order_of_sends([entry for entry in self.sends if entry[0].scale_up == network])
            self._order_of_receives([entry for entry in self.receives if entry[0].scale_up == network])

    def spread(self) -> None:
        """Order the sends of a round with several receivers, beginning with the rank after this one."""
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

    def _order_of_receives(self, receives: list[tuple[MessagePart, int]]) -> None:
        """Announce the paths one after another.

        When the last part of a path has begun to arrive, all its others are here.
        """
        before: list[MessagePart] = []
        for run in _runs(receives):
            self.exchange.node(("announce", run[-1][0]), [self.exchange.beginning(part.transfer) for part in before])
            before = [part for part, _ in run]

    def piece_by_piece(self, rounds: int) -> None:
        """Begin each piece of ``rounds`` rounds when the middle of the one before has left: two keep the port busy."""
        first = [node for part, node in self.sends if part.round % rounds == 0]
        middle = [part.transfer for part, _ in self.sends if part.round % rounds == (rounds - 1) // 2]
        for (before, node), transfer in zip(pairwise(first), middle, strict=False):
            self.exchange.follow(node, [before, self.exchange.departure(transfer)])

    def lock_step(self, circuits: Collection[int], *, pauses: bool) -> None:
        """Delay everything of a round, announcements included, until all earlier rounds (and its pause) are over."""
        round_starts: dict[int, int] = {}
        over: list[int] = []
        firsts = {part.round: part for part, _ in (*self.sends, *self.receives)} if pauses else {}
        for number, nodes in self.of_round.items():
            first = firsts.get(number)
            round_starts[number] = self.exchange.node(None, over) if first is None else self.exchange.pause(first, over)
            departures = [self.exchange.departure(part.transfer) for part, _ in self.sends if part.round == number]
            over = [round_starts[number], *nodes, *departures]
        for part, node in self.sends:
            self.exchange.follow(node, [round_starts[part.round]])
        announced = set()
        for part, _ in self.receives:
            if part.transfer not in circuits and (part.path, part.round) not in announced:
                announced.add((part.path, part.round))
                self.exchange.node(("announce", part), [round_starts[part.round]])


def _runs(entries: list[tuple[MessagePart, int]]) -> list[list[tuple[MessagePart, int]]]:
    return [list(run) for _, run in groupby(entries, key=lambda entry: entry[0].path)]


def collective_exchange(
    schedule: Schedule,
    members: Sequence[int],
    rank: int,
    elements: int | Bounds,
    mine: Iterable[tuple[int, Transfer]] | None = None,
    circuits: Collection[int] = (),
) -> Exchange:
    """The part of ``rank`` in ``schedule`` over ``members`` on a buffer of ``elements`` float32, or of given slots.

    ``mine``: the numbered transfers that the rank takes part in, where the caller knows them already. ``circuits``:
    transfers with a circuit of their own while they last, which need no order among senders.
    """
    me = members.index(rank)
    if mine is None:
        mine = [(number, t) for number, t in enumerate(schedule.transfers) if me in (t.src, t.dst)]
    bounds = schedule.chunk_bounds(elements) if isinstance(elements, int) else elements
    builder = _Builder(members, me, bounds)
    by_round: dict[int, list[tuple[int, Transfer]]] = defaultdict(list)
    for number, t in mine:
        by_round[t.round].append((number, t))
    for number in sorted(by_round):
        builder.round(number, by_round[number])
    if schedule.lockstep:
        builder.lock_step(circuits, pauses=schedule.pause_s > 0)
    elif schedule.pieces and schedule.first_phase:
        builder.announce_at_once(part for part, _ in builder.receives)
        builder.piece_by_piece(schedule.first_phase // schedule.pieces)
    elif schedule.one_port and not circuits:
        builder.one_at_a_time()
    else:
        builder.announce_at_once(part for part, _ in builder.receives if part.transfer not in circuits)
        if not circuits:
            builder.spread()
    return builder.exchange


def on_circuits(
    mine: Iterable[tuple[int, Transfer]], circuit_transfers: Collection[int] | None, *, in_slots: bool
) -> Collection[int]:
    """The transfers among ``mine`` that have a circuit of their own while they last.

    Those are the ``circuit_transfers`` or, where circuits come in slots (``in_slots``), all transfers on the rails.
    """
    if circuit_transfers is not None:
        return circuit_transfers
    return frozenset(number for number, t in mine if not (t.local or t.scale_up)) if in_slots else ()


def send_exchange(peer: int, elements: int, stripes: Sequence[int] = ()) -> Exchange:
    """A send of the whole buffer to ``peer``, in parts of the weights ``stripes`` (``Program.stripes``)."""
    exchange = Exchange()
    for part in _stripes(peer, elements, stripes):
        exchange.outgoing.append(part)
        exchange.node(("send", part))
    return exchange


def recv_exchange(peer: int, elements: int, stripes: Sequence[int] = (), *, announced: bool = True) -> Exchange:
    """A receive of the whole buffer from ``peer``; without ``announced`` the peer sends without a credit."""
    exchange = Exchange()
    for part in _stripes(peer, elements, stripes):
        arrival = exchange.arrival(part)
        if announced:
            exchange.node(("announce", part))
        exchange.node(("apply", part), [arrival])
    return exchange


def _stripes(peer: int, elements: int, weights: Sequence[int]) -> Iterable[MessagePart]:
    """The parts of a message, part k on lane k: of ``elements`` in the proportion of ``weights`` (none: one part)."""
    ends = [elements * share // (sum(weights) or 1) for share in accumulate(weights)] or [elements]
    for lane, (start, end) in enumerate(pairwise((0, *ends))):
        yield MessagePart(lane, peer, lane, lane, start, end, False)


def elements_of(emulated_bytes: int) -> int:
    """float32 elements that carry ``emulated_bytes`` (rounded up)."""
    return -(-emulated_bytes // ELEMENT_BYTES)


MOST_STEPS = 4_000
"""Number of steps of exchanges, each some 300 bytes, that a rank keeps for the next time."""


class ExchangePlans:
    """Exchanges of ``rank``. ``facts`` may be shared by the ranks of a program."""

    def __init__(self, rank: int, facts: ScheduleFacts) -> None:
        self._rank, self._facts = rank, facts
        self._planned: dict[tuple[int, str, int | Bounds, frozenset[int]], tuple[Schedule, Exchange]] = {}
        """By schedule (its identity, so it is kept), group, elements (or slots) and transfers with own circuits."""
        self._left, self._full = MOST_STEPS, False

    def exchange(self, schedule: Schedule, group: Group, elements: int | Bounds, circuits: frozenset[int]) -> Exchange:
        """A new exchange of ``group`` over ``elements`` (or given slots).

        ``circuits`` are the transfers with a circuit of their own while they last.
        """
        key = id(schedule), group.name, elements, circuits
        if key not in self._planned:
            mine = self._facts.transfers(schedule, group.members.index(self._rank))
            exchange = collective_exchange(schedule, group.members, self._rank, elements, mine, circuits)
            if len(exchange) > self._left:
                self._full = True
                return exchange
            self._left -= len(exchange)
            self._planned[key] = schedule, exchange
        return self._planned[key][1].copy()

    def prepare(self, program: Program, scale: Scale, rotating: Collection[str]) -> None:
        """Plan the collectives of the rank as far as they are kept; slots change those of groups ``rotating``."""
        for op in program.communications(self._rank):
            if self._full:
                return
            if isinstance(op, Collective) and op.group not in rotating:
                elements = elements_of(scale.emulated_bytes(op.bytes))
                self.exchange(schedule_of(program, op), program.groups[op.group], elements, frozenset())
