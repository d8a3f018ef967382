"""The moves of an MSCCL program and their order constraints.

Nodes stand for transfers, local copies and additions (and for joints between them). A transfer reads the place of its
send and writes the place of its receive, in one round. Constraints come from the order of a threadblock, from
dependencies between threadblocks, and from the slots: read after write, write after read, write after write.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from workloads.formats.msccl_algo import SENDS, Algo, StepId, ThreadblockStep
from workloads.formats.msccl_order import Order

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
        """The parts of a step one after another."""
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
