"""MSCCL programs: threadblocks per GPU, each a sequence of steps with one peer to send to and one to receive from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.formats.msccl_xml import Element
from workloads.schedule import CollectiveKind

MAX_GPUS = 1024
MAX_CHUNKS = 1 << 21
"""Maximum number of chunks of all GPUs together, which bounds the memory of the verification."""
MAX_MOVES = 1 << 20
"""Maximum number of chunks that all steps together move."""

Buffer = Literal["i", "o", "s"]
Place = tuple[Buffer, int]
"""A buffer of a GPU (input, output, scratch) and the number of the chunk in it."""

SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rrc", "rcs", "rrs", "rrcs")
STEP_TYPES = ("s", "r", "rrc", "rcs", "rrs", "rrcs", "re", "cpy", "nop")
KINDS: dict[str, CollectiveKind] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}


@dataclass(frozen=True)
class ThreadblockStep:
    """One step of a threadblock.

    ``id`` counts over the whole program; ``waits_for`` is the id of the step that must be done before. ``src`` and
    ``dst`` are places of this GPU, None where the type does not need them. A receive-reduce adds the received chunks to
    ``src`` and, unless it is rrs, stores the sum at ``dst`` (as MSCCL's interpreter does).
    """

    id: int
    type: str
    src: Place | None
    dst: Place | None
    cnt: int
    waits_for: int | None
    element: Element


@dataclass(frozen=True)
class Threadblock:
    """A sequence of steps; ``send`` and ``recv`` are its peers or -1."""

    gpu: int
    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[ThreadblockStep, ...]


@dataclass(frozen=True)
class Algo:
    """A whole MSCCL program, as read from one file.

    ``chunks``: those of one GPU's larger buffer; ``copies`` (gpu, from, to) come before all steps.
    """

    name: str
    kind: CollectiveKind
    n: int
    chunks: int
    inplace: bool
    root: int
    blocks: tuple[Threadblock, ...]
    copies: tuple[tuple[int, Place, Place], ...]

    @property
    def part(self) -> int:
        """Chunks that belong to one GPU, where the collective splits its buffer among them."""
        return self.chunks // self.n

    def capacity(self, buffer: Buffer) -> int:
        """Chunks that the input or output of a GPU holds."""
        split = {"i": ("all_gather", "gather"), "o": ("reduce_scatter", "scatter")}
        return self.part if self.kind in split.get(buffer, ()) else self.chunks


def build(root: Element) -> Algo:
    """The program that an ``<algo>`` element describes; raises ``ConfigError`` with the line of a mistake."""
    n = root.number("ngpus", 1, MAX_GPUS)
    gpus = _gpus(root, n)
    kind = _kind(root)
    largest = max((gpu.number(b, 0, MAX_CHUNKS, 0) for gpu in gpus for b in ("i_chunks", "o_chunks")), default=0)
    chunks = root.number("nchunksperloop", 1, MAX_CHUNKS // n, largest or None)
    if not 1 <= chunks <= MAX_CHUNKS // n:
        raise root.error(f"{chunks} chunks for each of {n} gpus are more than {MAX_CHUNKS} together")
    if kind not in ("all_reduce", "broadcast", "reduce") and chunks % n:
        raise root.error(f"nchunksperloop={chunks} of <algo> must be a multiple of its {n} gpus for {kind}")
    name = root.attributes.get("name", "")
    frame = Algo(
        name=name if 0 < len(name) <= 100 and name.isprintable() else "msccl",
        kind=kind,
        n=n,
        chunks=chunks,
        inplace=root.number("inplace", 0, 1) == 1,
        root=root.number("root", 0, n - 1, -1),
        blocks=(),
        copies=(),
    )
    return _Filler(frame).fill(gpus)


def _kind(root: Element) -> CollectiveKind:
    coll = root.text("coll")
    kind = KINDS.get(coll.lower().replace("_", "").replace("-", ""))
    if kind is None:
        known = ", ".join(KINDS)
        raise root.error(f"coll={coll[:24]!a} of <algo> is not a known collective: {known}")
    return kind


def _gpus(root: Element, n: int) -> list[Element]:
    """The ``<gpu>`` elements by id, each present once."""
    gpus: dict[int, Element] = {}
    for gpu in root.children:
        which = gpu.number("id", 0, n - 1)
        if which in gpus:
            raise gpu.error(f"gpu {which} is described twice")
        gpus[which] = gpu
    for which in range(n):
        if which not in gpus:
            raise root.error(f"gpu {which} of {n} is missing")
    return [gpus[which] for which in range(n)]


class _Filler:
    """Reads threadblocks and steps into the frame of a program, and counts the chunks that they move."""

    def __init__(self, frame: Algo) -> None:
        self.frame = frame
        self.steps = 0
        self.moves = 0

    def fill(self, gpus: list[Element]) -> Algo:
        blocks: list[Threadblock] = []
        copies: list[tuple[int, Place, Place]] = []
        for which, gpu in enumerate(gpus):
            sizes = self._sizes(gpu)
            copies += [(which, *self._copy(child, sizes)) for child in gpu.children if child.tag == "copy"]
            blocks += self._blocks(which, gpu, sizes)
        found = Algo(**{**vars(self.frame), "blocks": tuple(blocks), "copies": tuple(copies)})
        return found if found.root >= 0 else Algo(**{**vars(found), "root": _likely_root(found)})

    def _sizes(self, gpu: Element) -> dict[Buffer, int]:
        """Chunks of each buffer, as declared for the GPU, but no more than the collective has."""
        full = {b: self.frame.capacity(b) for b in ("i", "o")}
        sizes: dict[Buffer, int] = {"s": gpu.number("s_chunks", 0, MAX_CHUNKS, 0)}
        for buffer in ("i", "o"):
            declared = gpu.number(f"{buffer}_chunks", 0, MAX_CHUNKS, full[buffer])
            # in place, input and output are one buffer, and files declare only the one that their steps name
            sizes[buffer] = min(full[buffer], declared) if not self.frame.inplace else full[buffer]
        return sizes

    def _copy(self, element: Element, sizes: dict[Buffer, int]) -> tuple[Place, Place]:
        """A ``<copy>`` of older writers: an input chunk that also belongs into the output."""
        self._count(element, 1)
        i_off = element.number("i_off", 0, sizes["i"] - 1)
        return ("i", i_off), ("o", element.number("o_off", 0, sizes["o"] - 1))

    def _blocks(self, which: int, gpu: Element, sizes: dict[Buffer, int]) -> list[Threadblock]:
        elements: dict[int, Element] = {}
        for tb in gpu.children:
            if tb.tag != "tb":
                continue
            if (number := tb.number("id", 0, MAX_CHUNKS)) in elements:
                raise tb.error(f"threadblock {number} of gpu {which} is described twice")
            elements[number] = tb
        ids: dict[int, dict[int, int]] = {}
        for number, tb in elements.items():
            ids[number] = self._number_steps(tb)
        return [self._block(which, number, tb, sizes, ids) for number, tb in elements.items()]

    def _number_steps(self, tb: Element) -> dict[int, int]:
        """Ids for the steps of a threadblock, by their ``s``."""
        names: dict[int, int] = {}
        for position, step in enumerate(tb.children):
            name = step.number("s", 0, MAX_CHUNKS, position)
            if name in names:
                raise step.error(f"step {name} of this threadblock is described twice")
            names[name] = position
        ids = {name: self.steps + rank for rank, name in enumerate(sorted(names))}
        self.steps += len(names)
        return ids

    def _block(
        self, which: int, number: int, tb: Element, sizes: dict[Buffer, int], ids: dict[int, dict[int, int]]
    ) -> Threadblock:
        peers = {name: tb.number(name, -1, self.frame.n - 1) for name in ("send", "recv")}
        for name, peer in peers.items():
            if peer == which:
                raise tb.error(f"threadblock {number} of gpu {which} has that gpu itself as its peer ({name})")
        steps = []
        for position, element in enumerate(tb.children):
            step = self._step(element, ids[number][element.number("s", 0, MAX_CHUNKS, position)], sizes, ids)
            for name, types in (("send", SENDS), ("recv", RECEIVES)):
                if step.type in types and peers[name] < 0:
                    raise element.error(f'a step of type {step.type} needs a peer: {name}="..." of its <tb>')
            steps.append(step)
        steps.sort(key=lambda step: step.id)
        chan = tb.number("chan", 0, MAX_CHUNKS, 0)
        return Threadblock(which, number, peers["send"], peers["recv"], chan, tuple(steps))

    def _step(
        self, element: Element, id_: int, sizes: dict[Buffer, int], ids: dict[int, dict[int, int]]
    ) -> ThreadblockStep:
        kind = element.text("type")
        if kind not in STEP_TYPES:
            raise element.error(f"step type {kind[:12]!a} must be one of {', '.join(STEP_TYPES)}")
        block, name = element.number("depid", -1, MAX_CHUNKS, -1), element.number("deps", -1, MAX_CHUNKS, -1)
        waits_for = None
        if block >= 0:
            if name not in ids.get(block, {}):
                raise element.error(f"waits for step {name} of threadblock {block}, which this gpu does not have")
            waits_for = ids[block][name]
        if kind == "nop":
            return ThreadblockStep(id_, kind, None, None, 0, waits_for, element)
        cnt = element.number("cnt", 1, self.frame.chunks + sizes["s"], 1)
        self._count(element, cnt)
        src = dst = None
        if kind in ("s", "re", "cpy"):
            src = self._place(element, "src", cnt, sizes)
        if kind in ("r", "rcs", "rrc", "rrcs", "re", "cpy"):
            dst = self._place(element, "dst", cnt, sizes)
        if kind in ("rrc", "rrs", "rrcs"):
            # compilers write the sender's place as src here, so it need not be one of this gpu
            src = self._place(element, "src", cnt, sizes, needed=kind == "rrs")
        if kind == "rrs":
            dst = self._place(element, "dst", cnt, sizes, needed=False)
        return ThreadblockStep(id_, kind, src, dst, cnt, waits_for, element)

    def _place(
        self, element: Element, side: str, cnt: int, sizes: dict[Buffer, int], needed: bool = True
    ) -> Place | None:
        """The place that ``srcbuf`` and ``srcoff`` (or dst) name, with all ``cnt`` chunks inside the buffer."""
        buffer = element.attributes.get(f"{side}buf", "")
        text = element.attributes.get(f"{side}off", "")
        offset = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
        for known in sizes:
            if buffer == known and 0 <= offset <= sizes[known] - cnt:
                return known, offset
        if not needed:
            return None
        element.text(f"{side}buf"), element.number(f"{side}off", 0, MAX_CHUNKS)
        if buffer not in sizes:
            raise element.error(f"{side}buf must be i, o or s, not {buffer[:12]!a}")
        size = next(sizes[known] for known in sizes if known == buffer)
        raise element.error(f"{side}off={offset} with cnt={cnt} lies outside buffer {buffer}, which has {size} chunks")

    def _count(self, element: Element, moves: int) -> None:
        self.moves += moves
        if self.moves > MAX_MOVES:
            raise element.error(f"the steps move more than {MAX_MOVES} chunks, the most that are read")


def _likely_root(algo: Algo) -> int:
    """The root of a file that does not name it: the one GPU that never receives (or never sends), else 0."""
    types = RECEIVES if algo.kind in ("broadcast", "scatter") else SENDS
    busy = {block.gpu for block in algo.blocks for step in block.steps if step.type in types}
    idle = [gpu for gpu in range(algo.n) if gpu not in busy]
    return idle[0] if len(idle) == 1 else 0
