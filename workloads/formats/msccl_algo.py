"""MSCCL programs: threadblocks per GPU, each a sequence of steps with one peer to send to and one to receive from.

The XML is read into elements with line numbers; no DOCTYPE, no entities, no unbounded input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal
from xml.parsers import expat

from railyard.errors import ConfigError
from workloads.schedule import CollectiveKind

MAX_BYTES = 16 << 20
"""Larger files are rejected unread: a step is some 140 bytes, so this is a hundred thousand of them."""
MAX_ELEMENTS = 1 << 17

_DEPTH = {"algo": 0, "gpu": 1, "tb": 2, "copy": 2, "step": 3}
"""Nesting depth of the elements that are read; all others are skipped with their content."""
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Element:
    """A start tag with its child elements; ``place`` is ``file:line``."""

    tag: str
    attributes: dict[str, str]
    place: str
    children: list[Element] = field(default_factory=list)

    def text(self, name: str) -> str:
        value = self.attributes.get(name)
        if value is None:
            raise self.error(f"<{self.tag}> needs an attribute {name}")
        return value

    def number(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """An integer attribute from ``least`` to ``most``; ``default``, if any, where it is absent."""
        if default is not None and name not in self.attributes:
            return default
        value = self.text(name)
        if not _NUMBER.fullmatch(value):
            raise self.error(f'{name}="{_short(value)}" of <{self.tag}> must be an integer from {least} to {most}')
        if not least <= int(value) <= most:
            raise self.error(f"{name}={value} of <{self.tag}> must lie between {least} and {most}")
        return int(value)

    def error(self, message: str) -> ConfigError:
        return ConfigError(message, source=self.place)


def parse_xml(text: str, source: str) -> Element:
    """The ``<algo>`` element of ``text``; raises ``ConfigError`` with file and line for an invalid file."""
    builder = _Builder(source)
    try:
        builder.parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ConfigError(f"is not well-formed XML: {reason}", source=f"{source}:{error.lineno}") from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise ConfigError("holds a character that XML cannot have", source=f"{source}:{line}") from None
    if builder.root is None:
        raise ConfigError("needs an <algo> element", source=source)
    return builder.root


class _Builder:
    """Builds the tree of the elements that are read, from the events of expat."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Element | None = None
        self._open: list[Element | None] = []
        self._elements = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        place = f"{self.source}:{self.parser.CurrentLineNumber}"
        depth, self._elements = len(self._open), self._elements + 1
        if self._elements > MAX_ELEMENTS:
            raise ConfigError(f"more than {MAX_ELEMENTS} elements, the most that are read", source=place)
        if depth == 0 and tag != "algo":
            raise ConfigError(f"an MSCCL file is one <algo>, not <{_short(tag)}>", source=place)
        parent = self._open[-1] if self._open else None
        if tag not in _DEPTH or (depth > 0 and parent is None):
            self._open.append(None)
            return
        if _DEPTH[tag] != depth:
            raise ConfigError(f"<{tag}> is in the wrong place; the nesting is algo > gpu > tb > step", source=place)
        element = Element(tag, attributes, place)
        if parent is None:
            self.root = element
        else:
            parent.children.append(element)
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _doctype(self, *_: object) -> None:
        raise ConfigError(
            "an MSCCL file has no DOCTYPE and no entities", source=f"{self.source}:{self.parser.CurrentLineNumber}"
        )


def _short(text: str) -> str:
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= 24 else shown[:21] + "..."


Buffer = Literal["i", "o", "s"]
Place = tuple[Buffer, int]
"""A buffer of a GPU (input, output, scratch) and the number of the chunk in it."""
StepId = tuple[int, int, int]
"""(gpu, threadblock, step)."""

SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rrc", "rcs", "rrs", "rrcs")
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
WHOLE = ("all_reduce", "broadcast", "reduce")
"""Kinds that do not split their buffer among the GPUs."""


@dataclass(frozen=True)
class ThreadblockStep:
    """One step of a threadblock.

    ``waits_for`` is the step that must be done before. ``src`` and ``dst`` are places of this GPU, None where the type
    does not need them. A receive-reduce adds the received chunks to ``src`` and, unless it is rrs, stores the sum at
    ``dst`` (as MSCCL's interpreter does).
    """

    id: StepId
    type: str
    src: Place | None
    dst: Place | None
    cnt: int
    waits_for: StepId | None
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

    Its chunks have the slots of a Schedule: results from 0, inputs from ``input``, then scratch. A part that belongs to
    one GPU (the input of an all-gather, the output of a reduce-scatter) is that part of the whole result. An all-to-all
    has global chunks: offset j x k + m of the input of GPU i is chunk (i x n + j) x k + m, and so is offset i x k + m
    of the output of GPU j.
    """

    name: str
    kind: CollectiveKind
    n: int
    chunks: int
    inplace: bool
    root: int
    blocks: tuple[Threadblock, ...] = ()
    copies: tuple[tuple[int, Place, Place], ...] = ()

    @property
    def part(self) -> int:
        """Chunks that belong to one GPU, where the collective splits its buffer among them."""
        return self.chunks // self.n

    def capacity(self, buffer: Buffer) -> int:
        """Chunks that the input or output of a GPU holds."""
        split = {"i": ("all_gather", "gather"), "o": ("reduce_scatter", "scatter")}
        return self.part if self.kind in split.get(buffer, ()) else self.chunks

    @property
    def total(self) -> int:
        """Number of chunks of the collective, and of slots for its results."""
        return self.chunks * (self.n if self.kind == "all_to_all" else 1)

    @property
    def input(self) -> int:
        """Slot of the first input chunk. The inputs of an all-to-all are always separate, even where it is in place."""
        return self.total if self.kind == "all_to_all" or not self.inplace else 0

    @property
    def scratch(self) -> int:
        """Slot of the first chunk of scratch."""
        return self.input + self.total

    @property
    def temporary(self) -> int:
        """The first slot that no step names."""
        steps = (step for block in self.blocks for step in block.steps)
        places = ((place, step.cnt) for step in steps for place in (step.src, step.dst) if place)
        return self.scratch + max((place[1] + cnt for place, cnt in places if place[0] == "s"), default=0)

    @property
    def owner(self) -> tuple[int, ...]:
        """Owner (position) of each chunk, in order; where the kind fixes none, chunks are split as on a ring."""
        total = self.total
        if self.kind in WHOLE:
            return tuple(c * self.n // total for c in range(total))
        return tuple(c // (total // self.n) for c in range(total))

    def slots(self, gpu: int, place: Place, cnt: int) -> tuple[int, ...]:
        buffer, offset = place
        if buffer == "s":
            start = self.scratch
        elif self.kind == "all_to_all":
            if buffer == "o" and not self.inplace:
                return tuple(self.result(gpu, c) for c in range(offset, offset + cnt))
            start = self.input + gpu * self.chunks
        else:
            split = self.capacity(buffer) != self.chunks
            start = (self.input if buffer == "i" else 0) + (gpu * self.part if split else 0)
        return tuple(range(start + offset, start + offset + cnt))

    def result(self, gpu: int, offset: int) -> int:
        source, rest = divmod(offset, self.part)
        return (source * self.n + gpu) * self.part + rest


MAX_GPUS = 256
MAX_CHUNKS = 1 << 16
"""Maximum number of chunks of all GPUs together, which bounds the memory of the verification."""
MAX_MOVES = 1 << 16
"""Maximum number of chunks that all steps together move."""
_NEEDED: dict[str, tuple[str, ...]] = {
    "s": ("src",),
    "r": ("dst",),
    "rrc": ("dst",),
    "rcs": ("dst",),
    "rrs": ("src",),
    "rrcs": ("dst",),
    "re": ("src", "dst"),
    "cpy": ("src", "dst"),
    "nop": (),
}
"""The places that a step of each type must name."""
_OPTIONAL = {"rrc": "src", "rrcs": "src", "rrs": "dst"}
"""Places that are used if they are some of this GPU: compilers write the sender's place as src of a receive-reduce."""


def build(root: Element) -> Algo:
    """The program that an ``<algo>`` element describes; raises ``ConfigError`` with the line of a mistake."""
    n = root.number("ngpus", 1, MAX_GPUS)
    gpus = _numbered(root.children, "id", n - 1, "gpu {}")
    for which in range(n):
        if which not in gpus:
            raise root.error(f"gpu {which} of {n} is missing")
    kind = _kind(root)
    largest = max(gpu.number(b, 0, MAX_CHUNKS, 0) for gpu in gpus.values() for b in ("i_chunks", "o_chunks"))
    chunks = root.number("nchunksperloop", 1, MAX_CHUNKS // n, largest or None)
    if not 1 <= chunks <= MAX_CHUNKS // n:
        raise root.error(f"{chunks} chunks for each of {n} gpus are more than {MAX_CHUNKS} together")
    if kind not in WHOLE and chunks % n:
        raise root.error(f"nchunksperloop={chunks} of <algo> must be a multiple of its {n} gpus for {kind}")
    name = root.attributes.get("name", "")
    name = name if 0 < len(name) <= 100 and name.isprintable() else "msccl"
    inplace, root_gpu = root.number("inplace", 0, 1) == 1, root.number("root", 0, n - 1, -1)
    frame = Algo(name, kind, n, chunks, inplace, root_gpu)
    blocks: list[Threadblock] = []
    copies: list[tuple[int, Place, Place]] = []
    moves = 0
    for which in range(n):
        sizes = _sizes(frame, gpus[which])
        copies += [(which, *_copy(child, sizes)) for child in gpus[which].children if child.tag == "copy"]
        added = _blocks(frame, which, gpus[which], sizes)
        for step in (step for block in added for step in block.steps):
            moves += step.cnt
            if moves + len(copies) > MAX_MOVES:
                raise step.element.error(f"the steps move more than {MAX_MOVES} chunks, the most that are read")
        blocks += added
    program = replace(frame, blocks=tuple(blocks), copies=tuple(copies))
    return program if program.root >= 0 else replace(program, root=_likely_root(program))


def _kind(root: Element) -> CollectiveKind:
    coll = root.text("coll")
    kind = KINDS.get(coll.lower().replace("_", "").replace("-", ""))
    if kind is None:
        known = ", ".join(KINDS)
        raise root.error(f"coll={coll[:24]!a} of <algo> is not a known collective: {known}")
    return kind


def _numbered(elements: Iterable[Element], attribute: str, most: int, what: str) -> dict[int, Element]:
    """Elements by their number; raises ``ConfigError`` for a number that appears twice, ``what`` naming it."""
    numbered: dict[int, Element] = {}
    for position, element in enumerate(elements):
        number = element.number(attribute, 0, most, position if attribute == "s" else None)
        if number in numbered:
            raise element.error(f"{what.format(number)} is described twice")
        numbered[number] = element
    return numbered


def _sizes(frame: Algo, gpu: Element) -> dict[Buffer, int]:
    """Chunks of each buffer, as declared for the GPU, but no more than the collective has."""
    sizes: dict[Buffer, int] = {"s": gpu.number("s_chunks", 0, MAX_CHUNKS, 0)}
    buffers: tuple[Buffer, ...] = ("i", "o")
    for buffer in buffers:
        full = frame.capacity(buffer)
        declared = gpu.number(f"{buffer}_chunks", 0, MAX_CHUNKS, full)
        # in place, input and output are one buffer, and files declare only the one that their steps name
        sizes[buffer] = full if frame.inplace else min(full, declared)
    return sizes


def _copy(element: Element, sizes: dict[Buffer, int]) -> tuple[Place, Place]:
    """A ``<copy>`` of older writers: an input chunk that also belongs into the output."""
    i_off = element.number("i_off", 0, sizes["i"] - 1)
    return ("i", i_off), ("o", element.number("o_off", 0, sizes["o"] - 1))


def _blocks(frame: Algo, which: int, gpu: Element, sizes: dict[Buffer, int]) -> list[Threadblock]:
    threadblocks = (child for child in gpu.children if child.tag == "tb")
    blocks: list[Threadblock] = []
    for number, tb in _numbered(threadblocks, "id", MAX_CHUNKS, f"threadblock {{}} of gpu {which}").items():
        peers = {name: tb.number(name, -1, frame.n - 1) for name in ("send", "recv")}
        for name, peer in peers.items():
            if peer == which:
                raise tb.error(f"threadblock {number} of gpu {which} has that gpu itself as its peer ({name})")
        elements = _numbered(tb.children, "s", MAX_CHUNKS, "step {} of this threadblock")
        most = frame.chunks + sizes["s"]
        steps = tuple(_step((which, number, s), element, most, sizes) for s, element in sorted(elements.items()))
        for step in steps:
            for name, types in (("send", SENDS), ("recv", RECEIVES)):
                if step.type in types and peers[name] < 0:
                    raise step.element.error(f'a step of type {step.type} needs a peer: {name}="..." of its <tb>')
        chan = tb.number("chan", 0, MAX_CHUNKS, 0)
        blocks.append(Threadblock(which, number, peers["send"], peers["recv"], chan, steps))
    known = {step.id for block in blocks for step in block.steps}
    for step in (step for block in blocks for step in block.steps):
        if step.waits_for is not None and step.waits_for not in known:
            _, block_id, s = step.waits_for
            raise step.element.error(f"waits for step {s} of threadblock {block_id}, which this gpu does not have")
    return blocks


def _step(id_: StepId, element: Element, most: int, sizes: dict[Buffer, int]) -> ThreadblockStep:
    """One step, of at most ``most`` chunks."""
    kind = element.text("type")
    if kind not in _NEEDED:
        raise element.error(f"step type {kind[:12]!a} must be one of {', '.join(_NEEDED)}")
    block, name = element.number("depid", -1, MAX_CHUNKS, -1), element.number("deps", -1, MAX_CHUNKS, -1)
    cnt = 0 if kind == "nop" else element.number("cnt", 1, most, 1)
    places = {side: _place(element, side, cnt, sizes) for side in _NEEDED[kind]}
    if kind in _OPTIONAL:
        with suppress(ConfigError):
            places[_OPTIONAL[kind]] = _place(element, _OPTIONAL[kind], cnt, sizes)
    waits_for = (id_[0], block, name) if block >= 0 else None
    return ThreadblockStep(id_, kind, places.get("src"), places.get("dst"), cnt, waits_for, element)


def _place(element: Element, side: str, cnt: int, sizes: dict[Buffer, int]) -> Place:
    """The place that ``srcbuf`` and ``srcoff`` (or dst) name, with all ``cnt`` chunks inside the buffer."""
    named, offset = element.text(f"{side}buf"), element.number(f"{side}off", 0, MAX_CHUNKS)
    for buffer, size in sizes.items():
        if named == buffer:
            if offset + cnt <= size:
                return buffer, offset
            raise element.error(
                f"{side}off={offset} with cnt={cnt} lies outside buffer {named}, which has {size} chunks"
            )
    raise element.error(f"{side}buf must be i, o or s, not {named[:12]!a}")


def _likely_root(algo: Algo) -> int:
    """The root of a file that does not name it: the one GPU that never receives (or never sends), else 0."""
    types = RECEIVES if algo.kind in ("broadcast", "scatter") else SENDS
    busy = {block.gpu for block in algo.blocks for step in block.steps if step.type in types}
    idle = [gpu for gpu in range(algo.n) if gpu not in busy]
    return idle[0] if len(idle) == 1 else 0
