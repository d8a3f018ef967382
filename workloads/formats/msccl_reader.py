"""Reads MSCCL XML, the format of Microsoft's MSCCL tools and runtime, as a verified Schedule.

Semantics are those of the interpreter of Azure/msccl-executor-nccl: a threadblock runs its steps in order; messages
between two threadblocks on a channel arrive in order; ``depid`` and ``deps`` name a step of another threadblock that
must be done before. Buffers are laid out as in NCCL, in place where the file says so.

Nodes stand for transfers, local copies and additions (and for joints between them). A transfer reads the place of its
send and writes the place of its receive, in one round. Constraints come from the order of a threadblock, from
dependencies between threadblocks, and from the slots: read after write, write after read, write after write.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from itertools import count, groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Literal, NamedTuple

from railyard.errors import ConfigError, VerifyError
from railyard.reading import read_text
from workloads.collectives.verify import verify
from workloads.formats.msccl_algo import MAX_BYTES, RECEIVES, SENDS, Algo, StepId, ThreadblockStep, build, parse_xml
from workloads.schedule import Schedule, Transfer

Connection = tuple[int, int, int]
"""(sender, receiver, channel): messages are received in the order in which they were sent."""


class Order(NamedTuple):
    """``steps`` in an order in which they can run; ``sender[r]`` is the send that receive r takes."""

    steps: list[ThreadblockStep]
    sender: dict[StepId, StepId]


def order(algo: Algo) -> Order:
    """Simulate the program: threadblocks in turn, a step when its dependencies are done.

    Sends do not wait for their receive. Raises ``ConfigError`` for a send or receive without its counterpart, and for
    steps that wait for each other in a cycle.
    """
    sender = _match(algo)
    done: set[StepId] = set()
    waiting: dict[StepId, list[deque[ThreadblockStep]]] = defaultdict(list)
    ready = deque(deque(block.steps) for block in algo.blocks if block.steps)
    ran: list[ThreadblockStep] = []
    while ready:
        steps = ready.popleft()
        for needed in (steps[0].waits_for, sender.get(steps[0].id)):
            if needed is not None and needed not in done:
                waiting[needed].append(steps)
                break
        else:
            ran.append(steps.popleft())
            done.add(ran[-1].id)
            ready.extend(waiting.pop(ran[-1].id, ()))
            if steps:
                ready.append(steps)
    if waiting:
        raise _cycle(waiting)
    return Order(ran, sender)


def _cycle(waiting: dict[StepId, list[deque[ThreadblockStep]]]) -> ConfigError:
    stuck = {steps[0].id[:2]: (needed, steps) for needed, blocked in waiting.items() for steps in blocked}
    key = min(stuck)
    seen: set[tuple[int, int]] = set()
    while key not in seen:
        seen.add(key)
        key = stuck[key][0][:2]
    needed, steps = stuck[key]
    awaited = next(step for step in stuck[needed[:2]][1] if step.id == needed)
    line = awaited.element.place.rpartition(":")[2]
    return steps[0].element.error(
        f"this step of gpu {key[0]}, threadblock {key[1]}, can never run: it waits for line {line}, which waits for it "
        "in a cycle"
    )


def _match(algo: Algo) -> dict[StepId, StepId]:
    """The send of every receive: on each connection, the k-th receive takes the k-th send."""
    sends, receives = _ends(algo, SENDS, "sends to"), _ends(algo, RECEIVES, "receives from")
    sender: dict[StepId, StepId] = {}
    for connection in {**sends, **receives}:
        out, into = sends.get(connection, ()), receives.get(connection, ())
        src, dst, chan = connection
        for number, (send, receive) in enumerate(zip_longest(out, into), 1):
            if receive is None:
                raise send.element.error(
                    f"is send {number} of gpu {src} to gpu {dst} on channel {chan}, which has only {len(into)} receives"
                )
            if send is None:
                raise receive.element.error(
                    f"is receive {number} of gpu {dst} from gpu {src} on channel {chan}, which has only {len(out)} "
                    "sends"
                )
            if send.cnt != receive.cnt:
                raise receive.element.error(
                    f"receives {receive.cnt} chunks, but send {number} of gpu {src} to gpu {dst} on channel {chan} "
                    f"has {send.cnt}"
                )
            sender[receive.id] = send.id
    return sender


def _ends(algo: Algo, types: tuple[str, ...], verb: str) -> dict[Connection, tuple[ThreadblockStep, ...]]:
    """The steps at one end of every connection; a connection ends in one threadblock."""
    ends: dict[Connection, tuple[ThreadblockStep, ...]] = {}
    for block in algo.blocks:
        steps = tuple(step for step in block.steps if step.type in types)
        if not steps:
            continue
        peer = block.send if types is SENDS else block.recv
        src, dst = (block.gpu, peer) if types is SENDS else (peer, block.gpu)
        if (src, dst, block.chan) in ends:
            raise steps[0].element.error(
                f"a second threadblock of gpu {block.gpu} {verb} gpu {peer} on channel {block.chan}: one must do"
            )
        ends[src, dst, block.chan] = steps
    return ends


Part = Literal["send", "receive", "local", "joint"]
Operator = Literal["copy", "reduce"]
Edge = tuple[int, int]
"""(later node, least distance in rounds: 0 or 1)."""

# Least distance in rounds from a part (the outer key) to a later part of its threadblock. A send or a local step starts
# after the receives before it; a connection carries one transfer at a time. Data that arrives before its receive step
# waits where it lands, so sends do not hold back a receive: only the slots do.
_SEQUENCE: dict[Part, dict[Part, int]] = {
    "send": {"send": 1, "local": 0},
    "receive": {"send": 1, "receive": 1, "local": 1},
    "local": {"send": 1, "local": 1},
    "joint": {"send": 0, "receive": 0, "local": 0, "joint": 0},
}
# The same from a part that a dependency names, which does hold back a receive.
_DEPENDENCY: dict[Part, dict[Part, int]] = {
    "send": {"send": 1, "receive": 0, "local": 0, "joint": 1},
    "receive": {"send": 1, "receive": 1, "local": 1, "joint": 1},
    "local": {"send": 1, "receive": 0, "local": 1, "joint": 1},
    "joint": {"send": 0, "receive": 0, "local": 0, "joint": 0},
}


@dataclass(frozen=True)
class Move:
    """The move of one node: the chunks at ``reads`` of ``src`` go to ``writes`` of ``dst``."""

    node: int
    src: int
    dst: int
    op: Operator
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass
class _Thread:
    """A threadblock of ``gpu`` while its steps are gathered.

    ``last``: the latest node of each part; ``waits_for``: the nodes that the dependency of the step stands for;
    ``carried``: those of the ``nop`` steps before it.
    """

    gpu: int
    last: dict[Part, int] = field(default_factory=dict)
    waits_for: dict[Part, int] = field(default_factory=dict)
    carried: list[dict[Part, int]] = field(default_factory=list)


@dataclass
class _Slot:
    """Latest writers and readers of a slot; ``gate``: a node before the additions that write it in any order."""

    settled: int = -1
    writers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    gate: int = -1


class Moves:
    """The moves of a program and their constraints, gathered in the order in which its steps can run.

    ``after[u]``: the constraints on the nodes that come after node u. ``apart``: sends whose chunks land in slots of
    their own, from where a local step takes them; needed where a transfer in one piece would form a cycle.
    ``sum_at_dst``: a receive-reduce adds to its ``dst``, not to its ``src``.
    """

    def __init__(self, algo: Algo, order: Order, apart: frozenset[StepId], sum_at_dst: bool):
        self.after: list[list[Edge]] = []
        self.moves: list[Move] = []
        self.wires: dict[int, StepId] = {}
        """By node that is a transfer in one piece: the id of its send."""
        self.temporaries = [0] * algo.n
        self._algo = algo
        self._first_temporary = algo.temporary
        self._apart = apart
        self._sum_at_dst = sum_at_dst
        self._sender = order.sender
        self._held: dict[tuple[int, int], _Slot] = defaultdict(_Slot)
        self._sent: dict[StepId, tuple[int, int, tuple[int, ...]]] = {}
        self._added: dict[int, tuple[int, ...]] = {}
        self._gather(order)

    def _gather(self, order: Order) -> None:
        algo = self._algo
        for gpu, source, target in algo.copies:
            self._local(_Thread(gpu), "copy", algo.slots(gpu, source, 1), algo.slots(gpu, target, 1))
        threads = {(block.gpu, block.id): _Thread(block.gpu) for block in algo.blocks}
        awaited = {step.waits_for for step in order.steps}
        seen: dict[StepId, dict[Part, int]] = {}
        for step in order.steps:
            thread = threads[step.id[:2]]
            thread.waits_for = seen[step.waits_for] if step.waits_for else {}
            if step.type == "nop":
                if step.id in awaited:
                    self._follow(self._node(), "joint", thread)
                thread.carried.append(thread.waits_for)
            else:
                self._step(thread, step)
                thread.carried = []
            if step.id in awaited:
                seen[step.id] = dict(thread.last)
        if algo.kind == "all_to_all" and algo.inplace:
            for gpu in range(algo.n):
                results = tuple(algo.result(gpu, c) for c in range(algo.chunks))
                self._local(_Thread(gpu), "copy", algo.slots(gpu, ("o", 0), algo.chunks), results)

    def _step(self, thread: _Thread, step: ThreadblockStep) -> None:
        src, dst = (self._algo.slots(thread.gpu, p, step.cnt) if p else () for p in (step.src, step.dst))
        if step.type in ("cpy", "re"):
            self._local(thread, "copy" if step.type == "cpy" else "reduce", src, dst)
        elif step.type == "s":
            self._send(thread, step, src)
        else:
            held = self._receive(thread, step, src, dst)
            if step.type in SENDS:
                self._send(thread, step, held)

    def _receive(
        self, thread: _Thread, step: ThreadblockStep, src: tuple[int, ...], dst: tuple[int, ...]
    ) -> tuple[int, ...]:
        """A receive with its additions and copies; returns the place of the result."""
        if step.type in ("r", "rcs"):
            self._land(thread, step, "copy", dst)
            return dst
        addend = (dst or src) if self._sum_at_dst else (src or dst)
        if step.type != "rrs" and addend == dst:
            self._land(thread, step, "reduce", dst)
            return dst
        # the sum replaces neither place yet, so it is made in a slot of its own
        beside = self._beside(thread.gpu, step.cnt)
        self._land(thread, step, "copy", beside)
        self._local(thread, "reduce", addend, beside)
        if step.type != "rrs":
            self._local(thread, "copy", beside, dst)
        return beside

    def _send(self, thread: _Thread, step: ThreadblockStep, reads: tuple[int, ...]) -> None:
        node = self._node()
        self._follow(node, "send", thread)
        self._read(node, thread.gpu, reads)
        self._sent[step.id] = (node, thread.gpu, reads)

    def _land(self, thread: _Thread, step: ThreadblockStep, op: Operator, writes: tuple[int, ...]) -> None:
        """The receiving half of a transfer: the same node as its send, or a local step if they are apart."""
        sender, gpu = self._sender[step.id], thread.gpu
        node, src, reads = self._sent.pop(sender)
        if sender in self._apart:
            landing = self._beside(gpu, step.cnt)
            self.moves.append(Move(node, src, gpu, "copy", reads, landing))
            self._write(node, gpu, landing, "copy")
            node, src, reads = self._node(), gpu, landing
            self._read(node, gpu, landing)
        else:
            self.wires[node] = sender
        if op == "reduce":
            self._added[node] = writes
        self._follow(node, "receive", thread)
        self._write(node, gpu, writes, op)
        self.moves.append(Move(node, src, gpu, op, reads, writes))

    def _local(self, thread: _Thread, op: Operator, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        """A step inside one GPU; a copy onto its own place moves nothing."""
        node = self._node()
        self._follow(node, "local", thread)
        if op == "copy" and reads == writes:
            return
        self._read(node, thread.gpu, reads)
        self._write(node, thread.gpu, writes, op)
        self.moves.append(Move(node, thread.gpu, thread.gpu, op, reads, writes))

    def _beside(self, gpu: int, cnt: int) -> tuple[int, ...]:
        """Reserve slots that nothing else uses."""
        first = self._first_temporary + self.temporaries[gpu]
        self.temporaries[gpu] += cnt
        return tuple(range(first, first + cnt))

    def _node(self) -> int:
        self.after.append([])
        return len(self.after) - 1

    def _edge(self, before: int, node: int, weight: int) -> None:
        if before not in (-1, node):
            self.after[before].append((node, weight))

    def _follow(self, node: int, part: Part, thread: _Thread) -> None:
        """Add the constraints of a threadblock's order, of a dependency, and of earlier ``nop`` steps."""
        for earlier, before in thread.last.items():
            if part in _SEQUENCE[earlier]:
                self._edge(before, node, _SEQUENCE[earlier][part])
        for earlier, before in thread.waits_for.items():
            # two additions to one place may share a round: their order does not matter
            shared = node in self._added and self._added.get(before) == self._added[node]
            self._edge(before, node, 0 if shared else _DEPENDENCY[earlier][part])
        for waited in thread.carried:
            for earlier, before in waited.items():
                self._edge(before, node, _DEPENDENCY[earlier][part])
        thread.last[part] = node

    def _read(self, node: int, gpu: int, slots: tuple[int, ...]) -> None:
        for slot in slots:
            held = self._held[gpu, slot]
            self._edge(self._settle(held), node, 0)
            held.readers.append(node)

    def _write(self, node: int, gpu: int, slots: tuple[int, ...], op: Operator) -> None:
        for slot in slots:
            held = self._held[gpu, slot]
            if op == "copy":
                held.gate = -1
                self._begin(held, node)
            else:
                if held.gate < 0 or held.readers:
                    held.gate = self._node()
                    self._begin(held, held.gate)
                self._edge(held.gate, node, 0)
            held.writers.append(node)

    def _begin(self, held: _Slot, first: int) -> None:
        """Put ``first`` after all earlier writers and readers of the slot; readers may share its round."""
        self._edge(self._settle(held), first, 0)
        for reader in held.readers:
            self._edge(reader, first, 0)
        held.readers = []

    def _settle(self, held: _Slot) -> int:
        """The node after which all writers so far are done."""
        if held.writers:
            held.settled = self._node()
            for writer in held.writers:
                self._edge(writer, held.settled, 1)
            held.writers = []
        return held.settled


_NAMED = ("all_to_all", "gather", "scatter")
"""Kinds whose positions have no place for a chunk that they only forward; their transfers are named by their chunk."""

_ATTEMPTS = 3
"""Attempts to find the transfers that must land in separate slots; after these, all do."""


def read_msccl(path: Path | str) -> Schedule:
    """The verified schedule in an MSCCL XML file.

    Raises ``ConfigError`` with file and line for a file that is malformed or can never finish, ``VerifyError`` with the
    file, a position and a chunk for one that does not perform the collective of its ``coll``.
    """
    return parse_msccl(read_text(Path(path), MAX_BYTES, "an MSCCL file"), str(path))


def parse_msccl(text: str, source: str) -> Schedule:
    """The schedule in the text of an MSCCL XML file; ``source`` names it in errors, as in ``read_msccl``.

    Every transfer has the earliest round that its threadblock, its dependencies and the slots that it reads and writes
    allow. Channels are not kept: they share the wire.
    """
    algo = build(parse_xml(text, source))
    sequence = order(algo)
    try:
        return _verified(algo, sequence)
    except VerifyError as error:
        raise VerifyError(f"{source}: {error}") from None


def _verified(algo: Algo, sequence: Order) -> Schedule:
    """The schedule, with the interpretation of receive-reduce steps that can be verified.

    The interpreter adds the received chunk to ``src`` of the receiver; compilers mean ``dst`` and write the sender's
    place as ``src``. Where the two differ and the first does not perform the collective, the second may.
    """
    try:
        return _schedule(algo, sequence, sum_at_dst=False)
    except VerifyError:
        if all(s.type[:2] != "rr" or s.src == s.dst for s in sequence.steps):
            raise
        try:
            return _schedule(algo, sequence, sum_at_dst=True)
        except VerifyError:
            pass
        raise


def _schedule(algo: Algo, sequence: Order, *, sum_at_dst: bool) -> Schedule:
    apart: frozenset[StepId] = frozenset()
    for attempt in count():
        moves = Moves(algo, sequence, apart, sum_at_dst)
        when, cyclic = _rounds(moves.after)
        if not cyclic:
            break
        # a cycle contains a transfer that arrives long before its receive: let it land in separate slots
        early = {moves.wires[node] for node in cyclic if node in moves.wires}
        assert early  # all other constraints follow the order in which the steps ran
        # one attempt nearly always suffices; for a file that needs many more, all transfers land separately
        apart = apart | early if attempt < _ATTEMPTS else frozenset(sequence.sender.values())
    transfers = [
        Transfer(when[move.node], move.src, move.dst, read, move.op, 0, -1 if read == write else write)
        for move in moves.moves
        for read, write in zip(move.reads, move.writes, strict=True)
    ]
    made = Schedule(
        algorithm=algo.name,
        kind=algo.kind,
        n=algo.n,
        chunks=algo.total,
        owner=algo.owner,
        transfers=_without_gaps(transfers),
        root=algo.root,
        scratch=algo.temporary + max(moves.temporaries) - algo.total,
        input=algo.input,
    )
    verify(made)
    if algo.kind in _NAMED:
        made = _named_by_chunk(made)
    made = replace(made, one_port=_one_port(made.transfers))
    verify(made)
    return made


def _rounds(after: list[list[Edge]]) -> tuple[list[int], set[int]]:
    """The earliest round of every node (the longest path), and the nodes in cycles that have none.

    ``after[u]`` are the constraints on the nodes that come after u. Nodes in a cycle of zeros share a round; a cycle
    with a one in it has no rounds, and those of all nodes are then meaningless.
    """
    from networkx import DiGraph, strongly_connected_components

    graph = DiGraph()
    graph.add_nodes_from(range(len(after)))
    graph.add_edges_from((u, v) for u, edges in enumerate(after) for v, _ in edges)
    components = list(strongly_connected_components(graph))
    component = {u: number for number, nodes in enumerate(components) for u in nodes}
    start = [0] * len(components)
    cyclic: set[int] = set()
    # the algorithm of networkx (Tarjan's) finds a component after all of its successors
    for number in reversed(range(len(components))):
        for u in components[number]:
            for v, weight in after[u]:
                if component[v] != number:
                    start[component[v]] = max(start[component[v]], start[number] + weight)
                elif weight:
                    cyclic.add(number)
    return [start[component[u]] for u in range(len(after))], {u for number in cyclic for u in components[number]}


def _named_by_chunk(schedule: Schedule) -> Schedule:
    """The same transfers in place, each named by the chunk that it carries; ``schedule`` must only copy.

    Chunks do not change on their way, so local copies and scratch are not needed. Where one chunk comes to a position
    twice in one round the slots stay as they are.
    """
    held: list[dict[int, int]] = [{} for _ in range(schedule.n)]
    for chunk, owner in enumerate(schedule.owner):
        held[schedule.root if schedule.kind == "scatter" else owner][schedule.input + chunk] = chunk
    named: list[Transfer] = []
    for _, group in groupby(schedule.transfers, key=attrgetter("round")):
        now = list(group)
        carried = [held[t.src][t.chunk] for t in now]
        for t, chunk in zip(now, carried, strict=True):
            held[t.dst][t.slot] = chunk
            if not t.local:
                named.append(Transfer(t.round, t.src, t.dst, chunk, "copy"))
    if len({(t.round, t.dst, t.chunk) for t in named}) < len(named):
        return schedule
    return replace(schedule, transfers=_without_gaps(named), scratch=0, input=0)


def _without_gaps(transfers: list[Transfer]) -> tuple[Transfer, ...]:
    number = {round_: k for k, round_ in enumerate(sorted({t.round for t in transfers}))}
    return tuple(sorted(replace(t, round=number[t.round]) for t in transfers))


def _one_port(transfers: tuple[Transfer, ...]) -> bool:
    """Whether each position sends to at most one other and receives from at most one other in every round."""
    links = {(t.round, t.src, t.dst) for t in transfers if not t.local}
    return len(links) == len({(r, src) for r, src, _ in links}) == len({(r, dst) for r, _, dst in links})
