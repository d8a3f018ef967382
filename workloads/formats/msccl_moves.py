"""The moves of an MSCCL program and their order constraints.

Nodes stand for transfers, local copies and additions (and for joints between them). A transfer reads the place of its
send and writes the place of its receive, in one round. Constraints come from the order of a threadblock, from
dependencies between threadblocks, and from the slots: read after write, write after read, write after write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from workloads.formats.msccl_order import Order
from workloads.formats.msccl_program import RECEIVES, SENDS, Threadblock, ThreadblockStep
from workloads.formats.msccl_rounds import Edge
from workloads.formats.msccl_slots import Slots

Part = Literal["send", "receive", "local", "joint"]

# Least distance in rounds of a part from an earlier part of its threadblock. A send or a local step starts after the
# receives before it; a connection carries one transfer at a time. Data that arrives before its receive step waits where
# it lands, so sends do not hold back a receive: only the slots do.
_SEQUENCE: dict[tuple[Part, Part], int] = {
    ("send", "send"): 1,
    ("send", "local"): 0,
    ("receive", "send"): 1,
    ("receive", "receive"): 1,
    ("receive", "local"): 1,
    ("local", "send"): 1,
    ("local", "local"): 1,
    ("joint", "send"): 0,
    ("joint", "receive"): 0,
    ("joint", "local"): 0,
    ("joint", "joint"): 0,
}
# The same for a part that a dependency names, which does hold back a receive.
_DEPENDENCY: dict[tuple[Part, Part], int] = {
    **_SEQUENCE,
    ("send", "receive"): 0,
    ("local", "receive"): 0,
    ("send", "joint"): 1,
    ("receive", "joint"): 1,
    ("local", "joint"): 1,
}


@dataclass(frozen=True)
class Move:
    """The move of one node: the chunks at ``reads`` of ``src`` go to ``writes`` of ``dst``."""

    node: int
    src: int
    dst: int
    op: Literal["copy", "reduce"]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass
class _Slot:
    """Latest writers and readers of a slot; ``gate``: a node before the additions that write it in any order."""

    settled: int = -1
    writers: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)
    gate: int = -1


class Moves:
    """The moves of a program and their constraints, gathered in the order in which its steps can run.

    ``apart``: sends whose chunks land in slots of their own, from where a local step takes them; needed where a
    transfer in one piece would form a cycle. ``sum_at_dst``: a receive-reduce adds to its ``dst``, not to its ``src``.
    """

    def __init__(self, slots: Slots, order: Order, apart: frozenset[int] = frozenset(), sum_at_dst: bool = False):
        self.after: list[list[Edge]] = []
        self.moves: list[Move] = []
        self.wires: dict[int, int] = {}
        """By node that is a transfer in one piece: the id of its send."""
        self.temporaries = [0] * slots.algo.n
        self._slots = slots
        self._first_temporary = slots.temporary
        self._apart = apart
        self._sum_at_dst = sum_at_dst
        self._sender = order.sender
        self._held: dict[tuple[int, int], _Slot] = {}
        self._sent: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        self._last: dict[tuple[int, int], dict[Part, int]] = {}
        self._added: dict[int, tuple[int, ...]] = {}
        self._awaited = {step.waits_for for _, step in order.steps}
        self._carried: dict[tuple[int, int], list[dict[Part, int]]] = {}
        self._gather(order)

    def _gather(self, order: Order) -> None:
        algo = self._slots.algo
        for gpu, source, target in algo.copies:
            self._local(None, gpu, "copy", self._slots.of(gpu, source, 1), self._slots.of(gpu, target, 1))
        seen: dict[int, dict[Part, int]] = {}
        for block, step in order.steps:
            self._step(block, step, seen.get(-1 if step.waits_for is None else step.waits_for, {}))
            if step.id in self._awaited:
                seen[step.id] = dict(self._last[block.gpu, block.id])
        if algo.kind == "all_to_all" and algo.inplace:
            for gpu in range(algo.n):
                results = tuple(self._slots.result(gpu, c) for c in range(algo.chunks))
                self._local(None, gpu, "copy", self._slots.of(gpu, ("o", 0), algo.chunks), results)

    def _step(self, block: Threadblock, step: ThreadblockStep, waits_for: dict[Part, int]) -> None:
        """The parts of a step one after another; the first has the dependency of the step."""
        gpu, type_ = block.gpu, step.type
        last = self._last.setdefault((gpu, block.id), {})
        where = {side: self._slots.of(gpu, p, step.cnt) for side, p in (("src", step.src), ("dst", step.dst)) if p}
        if type_ == "nop":
            self._carried.setdefault((gpu, block.id), []).append(waits_for)
            if step.id in self._awaited:
                self._follow(self._node(), "joint", last, waits_for)
        elif type_ in ("cpy", "re"):
            op: Literal["copy", "reduce"] = "copy" if type_ == "cpy" else "reduce"
            carried = self._carried.pop((gpu, block.id), ())
            self._local(last, gpu, op, where["src"], where["dst"], waits_for, carried)
        elif type_ == "s":
            self._send(block, step, where["src"], waits_for)
        if type_ not in RECEIVES:
            return
        held = self._receive(block, step, where, waits_for)
        if type_ in SENDS:
            self._send(block, step, held, {})

    def _receive(
        self, block: Threadblock, step: ThreadblockStep, where: dict[str, tuple[int, ...]], waits_for: dict[Part, int]
    ) -> tuple[int, ...]:
        """A receive with its additions and copies; returns the place of the result."""
        last, gpu = self._last[block.gpu, block.id], block.gpu
        sides = ("dst", "src") if self._sum_at_dst else ("src", "dst")
        addend = next((where[side] for side in sides if side in where), ())
        if step.type in ("r", "rcs") or (step.type != "rrs" and addend == where["dst"]):
            self._land(block, step, "copy" if step.type in ("r", "rcs") else "reduce", where["dst"], waits_for)
            return where["dst"]
        # the sum replaces neither place yet, so it is made in a slot of its own
        beside = self._beside(gpu, step.cnt)
        self._land(block, step, "copy", beside, waits_for)
        self._local(last, gpu, "reduce", addend, beside)
        if step.type != "rrs":
            self._local(last, gpu, "copy", beside, where["dst"])
        return beside

    def _send(
        self, block: Threadblock, step: ThreadblockStep, reads: tuple[int, ...], waits_for: dict[Part, int]
    ) -> None:
        node = self._node()
        carried = self._carried.pop((block.gpu, block.id), ())
        self._follow(node, "send", self._last[block.gpu, block.id], waits_for, carried)
        for slot in reads:
            self._read(node, block.gpu, slot)
        self._sent[step.id] = (node, block.gpu, reads)

    def _land(
        self,
        block: Threadblock,
        step: ThreadblockStep,
        op: Literal["copy", "reduce"],
        writes: tuple[int, ...],
        waits_for: dict[Part, int],
    ) -> None:
        """The receiving half of a transfer: the same node as its send, or a local step if they are apart."""
        sender = self._sender[step.id]
        node, src, reads = self._sent.pop(sender)
        last, gpu = self._last[block.gpu, block.id], block.gpu
        if sender in self._apart:
            landing = self._beside(gpu, step.cnt)
            self.moves.append(Move(node, src, gpu, "copy", reads, landing))
            for slot in landing:
                self._write(node, gpu, slot, "copy")
            node, src, reads = self._node(), gpu, landing
            for slot in landing:
                self._read(node, gpu, slot)
        else:
            self.wires[node] = sender
        if op == "reduce":
            self._added[node] = writes
        self._follow(node, "receive", last, waits_for, self._carried.pop((gpu, block.id), ()))
        for slot in writes:
            self._write(node, gpu, slot, op)
        self.moves.append(Move(node, src, gpu, op, reads, writes))

    def _local(
        self,
        last: dict[Part, int] | None,
        gpu: int,
        op: Literal["copy", "reduce"],
        reads: tuple[int, ...],
        writes: tuple[int, ...],
        waits_for: dict[Part, int] | None = None,
        carried: Iterable[dict[Part, int]] = (),
    ) -> None:
        """A step inside one GPU; a copy onto its own place moves nothing."""
        node = self._node()
        self._follow(node, "local", {} if last is None else last, waits_for or {}, carried)
        if op == "copy" and reads == writes:
            return
        for slot in reads:
            self._read(node, gpu, slot)
        for slot in writes:
            self._write(node, gpu, slot, op)
        self.moves.append(Move(node, gpu, gpu, op, reads, writes))

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

    def _follow(
        self,
        node: int,
        part: Part,
        last: dict[Part, int],
        waits_for: dict[Part, int],
        carried: Iterable[dict[Part, int]] = (),
    ) -> None:
        """Add the constraints of a threadblock's order, of a dependency, and of earlier ``nop`` steps."""
        for earlier, before in last.items():
            if (earlier, part) in _SEQUENCE:
                self._edge(before, node, _SEQUENCE[earlier, part])
        for earlier, before in waits_for.items():
            if (earlier, part) in _DEPENDENCY:
                # two additions to one place may share a round: their order does not matter
                shared = node in self._added and self._added.get(before) == self._added[node]
                self._edge(before, node, 0 if shared else _DEPENDENCY[earlier, part])
        for waited in carried:
            for earlier, before in waited.items():
                if (earlier, part) in _DEPENDENCY:
                    self._edge(before, node, _DEPENDENCY[earlier, part])
        last[part] = node

    def _read(self, node: int, gpu: int, slot: int) -> None:
        held = self._held.setdefault((gpu, slot), _Slot())
        self._edge(self._settle(held), node, 0)
        held.readers.append(node)

    def _write(self, node: int, gpu: int, slot: int, op: Literal["copy", "reduce"]) -> None:
        held = self._held.setdefault((gpu, slot), _Slot())
        first = node
        if op == "reduce":
            if held.gate < 0 or held.readers:
                held.gate = self._node()
                self._begin(held, held.gate)
            self._edge(held.gate, node, 0)
        else:
            held.gate = -1
            self._begin(held, first)
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
