"""Reads the elements of an MSCCL file as a program, within bounds on its size."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from railyard.errors import ConfigError
from workloads.formats.msccl_algo import (
    KINDS,
    RECEIVES,
    SENDS,
    WHOLE,
    Algo,
    Buffer,
    Place,
    StepId,
    Threadblock,
    ThreadblockStep,
)
from workloads.formats.msccl_xml import Element
from workloads.schedule import CollectiveKind

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
    found = replace(frame, blocks=tuple(blocks), copies=tuple(copies))
    return found if found.root >= 0 else replace(found, root=_likely_root(found))


def _kind(root: Element) -> CollectiveKind:
    coll = root.text("coll")
    kind = KINDS.get(coll.lower().replace("_", "").replace("-", ""))
    if kind is None:
        known = ", ".join(KINDS)
        raise root.error(f"coll={coll[:24]!a} of <algo> is not a known collective: {known}")
    return kind


def _numbered(elements: Iterable[Element], attribute: str, most: int, what: str) -> dict[int, Element]:
    """Elements by their number; raises ``ConfigError`` for a number that appears twice, ``what`` naming it."""
    found: dict[int, Element] = {}
    for position, element in enumerate(elements):
        number = element.number(attribute, 0, most, position if attribute == "s" else None)
        if number in found:
            raise element.error(f"{what.format(number)} is described twice")
        found[number] = element
    return found


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
    """The threadblocks of one GPU."""
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
