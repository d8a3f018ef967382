"""Writes a Schedule as MSCCL XML for MSCCL's tools and runtime.

Every GPU has one threadblock per peer, direction and channel, and one for local steps. The dependencies of one
threadblock on another are written as ``depid`` and ``deps`` (where a step has several, ``nop`` steps before it carry
the others). Attributes and their limits are those that Azure/msccl-executor-nccl reads: it takes at most 256 steps in a
threadblock, 32 channels and 71 chunks in a step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from xml.sax.saxutils import quoteattr

from railyard.errors import ConfigError
from workloads.collectives.verify import verify
from workloads.formats.msccl_algo import KINDS, WHOLE, Algo, Buffer, Place
from workloads.schedule import Schedule, Transfer

COLLS = {kind: coll for coll, kind in KINDS.items()}
"""The ``coll`` of every kind, as MSCCL's runtime spells it."""
_CHANNELS = 32
_MOST_CHUNKS = 71

Block = tuple[int, int, int]
"""(peer to send to or -1, peer to receive from or -1, channel)."""
_LOCAL: Block = (-1, -1, 0)
Mark = tuple[Block, int]
"""A step of a threadblock of the same GPU."""


class _Layout:
    """Places for the slots that a schedule uses; slots without a place in the user's buffers get scratch.

    A schedule that works in place stays so, except for an all-to-all: MSCCL's in-place all-to-all has one buffer for
    both, and the global chunks of a Schedule never share a place. ``frame`` is the program without its threadblocks.
    """

    def __init__(self, schedule: Schedule):
        chunks, kind = schedule.chunks, schedule.kind
        self.frame = Algo(
            name=schedule.algorithm,
            kind=kind,
            n=schedule.n,
            chunks=chunks // schedule.n if kind == "all_to_all" else chunks,
            inplace=schedule.input == 0 and kind != "all_to_all",
            root=schedule.root,
        )
        order = _by_owner(schedule)
        self._places = [self._user_places(schedule, order, position) for position in range(schedule.n)]
        self._scratch = [0] * schedule.n

    def _user_places(self, schedule: Schedule, order: list[int], position: int) -> dict[int, Place]:
        """Places in the input and output of ``position``, by slot; buffers hold the chunks in ``order``."""
        frame, kind = self.frame, schedule.kind
        places: dict[int, Place] = {}
        # in place, a slot has two names, of which the first is taken
        output_first = frame.inplace and kind in ("broadcast", "all_gather", "gather")
        buffers: tuple[Buffer, ...] = ("o", "i") if output_first else ("i", "o")
        for buffer in buffers:
            if position != schedule.root and (kind, buffer) in (("scatter", "i"), ("gather", "o")):
                continue
            first, ours = (frame.input, schedule.input) if buffer == "i" else (0, 0)
            for offset, slot in enumerate(frame.slots(position, (buffer, 0), frame.capacity(buffer))):
                places.setdefault(ours + order[slot - first], (buffer, offset))
        return places

    def buffers(self, position: int) -> dict[str, int]:
        """Chunks of each buffer of a position, by attribute; scratch as far as it is used."""
        capacity = self.frame.capacity
        return {"i_chunks": capacity("i"), "o_chunks": capacity("o"), "s_chunks": self._scratch[position]}

    def place(self, position: int, slot: int) -> Place:
        """Place of ``slot`` of ``position``, in scratch if it has no other."""
        places = self._places[position]
        if slot not in places:
            places[slot] = "s", self._scratch[position]
            self._scratch[position] += 1
        return places[slot]


def _by_owner(schedule: Schedule) -> list[int]:
    """The chunks in the order of a buffer: where the kind splits it, each position's chunks are adjacent."""
    if schedule.kind in (*WHOLE, "all_to_all"):
        return list(range(schedule.chunks))
    if Counter(schedule.owner) != dict.fromkeys(range(schedule.n), schedule.chunks // schedule.n):
        raise ConfigError(
            f"{schedule.algorithm} {schedule.kind} cannot be MSCCL XML: every position must own as many chunks as any "
            "other"
        )
    return sorted(range(schedule.chunks), key=lambda chunk: schedule.owner[chunk])


@dataclass
class _Step:
    type: str
    src: Place
    dst: Place
    cnt: int = 1
    waits_for: Mark | None = None
    awaited: bool = False


@dataclass
class _Held:
    """The step that wrote a place last, and the steps that have read it since."""

    writer: Mark | None = None
    readers: list[Mark] = field(default_factory=list)


@dataclass(order=True)
class _Run:
    """Transfers of one round between two positions whose chunks are adjacent at both ends."""

    src: int
    dst: int
    op: str
    source: Place
    target: Place
    cnt: int = 1
    channel: int = 0

    def goes_on_with(self, other: _Run) -> bool:
        ends = [(place[0], place[1] + self.cnt) for place in (self.source, self.target)]
        same = (self.src, self.dst, self.op, *ends) == (other.src, other.dst, other.op, other.source, other.target)
        return same and self.cnt < _MOST_CHUNKS


class _Gpu:
    """The threadblocks of one GPU under construction."""

    def __init__(self) -> None:
        self.blocks: dict[Block, list[_Step]] = defaultdict(list)
        self._held: dict[Place, _Held] = defaultdict(_Held)
        self._waited: dict[tuple[Block, Block], int] = {}

    def add(
        self, block: Block, step: _Step, reads: Place | None, writes: Place | None, after: Collection[Mark] = ()
    ) -> Mark:
        """Append a step that reads and writes ``cnt`` chunks at those places, after all conflicting steps."""
        waits = set(after)
        read, written = (
            [self._held[place[0], place[1] + k] for k in range(step.cnt)] if place else [] for place in (reads, writes)
        )
        waits.update(held.writer for held in (*read, *written) if held.writer is not None)
        waits.update(reader for held in written for reader in held.readers)
        added = [held.writer for held in written if held.writer is not None] if step.type == "rrc" else []
        mark = self._append(block, step, waits, added[0] if added else None, after)
        for held in written:
            held.writer, held.readers = mark, []
        for held in read:
            held.readers.append(mark)
        return mark

    def _append(self, block: Block, step: _Step, waits: set[Mark], added: Mark | None, after: Collection[Mark]) -> Mark:
        """Append a step, preceded by a ``nop`` for each dependency but the last.

        Readers assume that an addition that waits for another to the same place (``added``) may share its round, unless
        a ``nop`` is between: so that dependency is the last, and a ``nop`` is added where it also holds a port.
        """
        steps = self.blocks[block]
        latest: dict[Block, int] = {}
        for other, index in waits:
            if other != block and index > self._waited.get((block, other), -1):
                latest[other] = max(index, latest.get(other, -1))
        marks = sorted(latest.items(), key=lambda mark: (mark == added, mark))
        if marks and marks[-1] == added and added in after:
            marks.append(added)
        for other, index in marks:
            self._waited[block, other] = index
            self.blocks[other][index].awaited = True
        steps += [_Step("nop", ("i", 0), ("i", 0), 0, mark) for mark in marks[:-1]]
        step.waits_for = marks[-1] if marks else None
        steps.append(step)
        return block, len(steps) - 1


def write_msccl(schedule: Schedule) -> str:
    """The MSCCL XML of ``schedule``, for NCCL's protocol Simple.

    ``parse_msccl`` reads it back as a schedule with the same transfers; lanes, stragglers and the scale-up network have
    no place in the format. Where the schedule is ``one_port``, dependencies keep the rounds of a GPU apart.

    Raises ``VerifyError`` for a schedule that does not perform its collective, ``ConfigError`` for one that the format
    cannot express.
    """
    verify(schedule)
    layout = _Layout(schedule)
    gpus = [_Gpu() for _ in range(schedule.n)]
    if schedule.kind == "all_to_all" and schedule.input == 0:
        _keep_own(layout, gpus)
    # the transfers of the last round that used a port: a transfer waits for them where there is one port
    busy: dict[tuple[str, int], list[Mark]] = defaultdict(list)
    for _, group in groupby(sorted(schedule.transfers), key=attrgetter("round")):
        transfers = list(group)
        runs = _runs(layout, [t for t in transfers if not t.local])
        used: dict[tuple[str, int], list[Mark]] = defaultdict(list)
        for run in runs:
            step, port = _Step("s", run.source, run.target, run.cnt), ("send", run.src)
            used[port].append(gpus[run.src].add((run.dst, -1, run.channel), step, run.source, None, busy[port]))
        for t in _in_order(schedule, [t for t in transfers if t.local]):
            source, target = layout.place(t.src, t.chunk), layout.place(t.src, t.slot)
            step = _Step("re" if t.op == "reduce" else "cpy", source, target)
            gpus[t.src].add(_LOCAL, step, source, target)
        for run in runs:
            # the interpreter adds to src, so a receive-reduce names its own place twice
            reduces, port = run.op == "reduce", ("receive", run.dst)
            step = _Step("rrc" if reduces else "r", run.target if reduces else run.source, run.target, run.cnt)
            used[port].append(gpus[run.dst].add((-1, run.src, run.channel), step, None, run.target, busy[port]))
        if schedule.one_port:
            busy.update(used)
    return _xml(layout, gpus)


def _keep_own(layout: _Layout, gpus: list[_Gpu]) -> None:
    """Copy the chunks that a position of an all-to-all sends to itself from its input to its output."""
    part = layout.frame.part
    for position, gpu in enumerate(gpus):
        for offset in range(position * part, (position + 1) * part):
            gpu.add(_LOCAL, _Step("cpy", ("i", offset), ("o", offset)), ("i", offset), ("o", offset))


def _runs(layout: _Layout, transfers: list[Transfer]) -> list[_Run]:
    """The transfers of one round, adjacent ones combined; runs between the same positions get different channels."""
    runs: list[_Run] = []
    used: Counter[tuple[int, int]] = Counter()
    for run in sorted(
        _Run(t.src, t.dst, t.op, layout.place(t.src, t.chunk), layout.place(t.dst, t.slot)) for t in transfers
    ):
        if runs and runs[-1].goes_on_with(run):
            runs[-1].cnt += 1
        else:
            run.channel = used[run.src, run.dst] % _CHANNELS
            used[run.src, run.dst] += 1
            runs.append(run)
    return runs


def _in_order(schedule: Schedule, local: list[Transfer]) -> list[Transfer]:
    """The local steps of one round in an order in which each still reads the state at its start."""
    left, ordered = list(local), []
    while left:
        reads = {(t.src, t.chunk): 0 for t in left}
        for t in left:
            reads[t.src, t.chunk] += 1
        free = [t for t in left if reads.get((t.src, t.slot), 0) == (t.slot == t.chunk)]
        if not free:
            raise ConfigError(
                f"{schedule.algorithm} {schedule.kind} cannot be MSCCL XML: in round {left[0].round} position "
                f"{left[0].src} exchanges chunks with itself, which needs a round more"
            )
        ordered.append(free[0])
        left.remove(free[0])
    return ordered


def _xml(layout: _Layout, gpus: list[_Gpu]) -> str:
    made = layout.frame
    channels = [block[2] for gpu in gpus for block in gpu.blocks]
    root = {"root": made.root} if made.kind in ("broadcast", "reduce", "gather", "scatter") else {}
    algo: dict[str, str | int] = {
        "name": made.name if made.name.isprintable() else made.kind,
        "proto": "Simple",
        "nchannels": 1 + max(channels, default=0),
        "nchunksperloop": layout.frame.chunks,
        "ngpus": made.n,
        "coll": COLLS[made.kind],
        "inplace": int(layout.frame.inplace),
        "outofplace": int(not layout.frame.inplace),
        "minBytes": 0,
        "maxBytes": (1 << 63) - 1,
        **root,
    }
    lines = [f"<algo{_attributes(algo)}>"]
    for position, gpu in enumerate(gpus):
        lines.append(f"  <gpu{_attributes({'id': position, **layout.buffers(position)})}>")
        numbers = {block: number for number, block in enumerate(sorted(gpu.blocks))}
        for block, number in numbers.items():
            send, recv, chan = block
            lines.append(f"    <tb{_attributes({'id': number, 'send': send, 'recv': recv, 'chan': chan})}>")
            for index, step in enumerate(gpu.blocks[block]):
                lines.append(f"      <step{_step(index, step, numbers)}/>")
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return "\n".join([*lines, "</algo>", ""])


def _step(index: int, step: _Step, numbers: dict[Block, int]) -> str:
    depid, deps = (numbers[step.waits_for[0]], step.waits_for[1]) if step.waits_for else (-1, -1)
    return _attributes(
        {
            "s": index,
            "type": step.type,
            "srcbuf": step.src[0],
            "srcoff": step.src[1],
            "dstbuf": step.dst[0],
            "dstoff": step.dst[1],
            "cnt": step.cnt,
            "depid": depid,
            "deps": deps,
            "hasdep": int(step.awaited),
        }
    )


def _attributes(values: Mapping[str, str | int]) -> str:
    return "".join(f" {name}={quoteattr(str(value))}" for name, value in values.items())
