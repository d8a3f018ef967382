"""The tensors of a user's script in the slots of a schedule: where their bytes lie, and how they are reduced. Pure.

A buffer consists of 4-byte words whatever its tensors are. No border of a chunk cuts an element: parts are padded to
whole words, and to pairs of words for elements of 8 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from railyard.errors import ConfigError
from railyard.validation import Whole
from workloads.rank.exchange import ELEMENT_BYTES, Bounds
from workloads.schedule import ADDING, CollectiveKind, Schedule

Floats = npt.NDArray[np.float32]
Reduce = Literal["sum", "avg", "min", "max", "product"]
DType = Literal["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"]
_Part = tuple[int, int]
"""A part of a tensor: (its position, 0), or (from, to) in an all-to-all."""
MOST_BYTES = 2_000_000_000
"""Linux reads and writes somewhat more at once (read(2))."""
_PARTED = ("all_gather", "reduce_scatter", "gather", "scatter")
"""Kinds whose chunks belong to the part of their owner."""
_ROOTED_PARTS = ("gather", "scatter")
"""Those in which only the root has all parts, so that the others know the size of one."""
_FUNCTIONS: dict[Reduce, Callable[..., Any]] = {
    "sum": np.add,
    "avg": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


class Piece(NamedTuple):
    """``bytes`` at ``offset`` of the script's memory, which are those from byte ``start`` of the buffer on."""

    offset: int
    start: int
    bytes: int


class Layout(NamedTuple):
    """``bounds`` are those of the slots, in words: ``Schedule.chunk_bounds`` for the tensors of a call of ``bytes``."""

    bytes: int
    bounds: Bounds
    input: tuple[Piece, ...]
    output: tuple[Piece, ...]
    passing: frozenset[int] = frozenset()
    """Chunks of which only the message tells the size: they pass through this position, in an uneven all-to-all."""

    @property
    def words(self) -> int:
        return self.bounds[-1][1]

    @property
    def whole(self) -> bool:
        """Whether input and result are both all of the slots, as they are, and not nothing."""
        return self.input == self.output == ((0, 0, ELEMENT_BYTES * self.words),) and self.words > 0


@dataclass(frozen=True)
class ScriptCall:
    """A communication as a script asks for it.

    ``bytes`` as in ``workloads.program``, but of a gather or scatter those of one part. ``sent`` and ``received`` are
    the bytes to and from each position in an all-to-all (none: equal parts of ``bytes``). Layouts are torch's: parts
    follow each other in the group's order.
    """

    kind: CollectiveKind | Literal["send", "recv"]
    bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)]
    dtype: DType = "uint8"
    reduce: Reduce = "sum"
    sent: Annotated[tuple[Whole, ...], Field(max_length=4096)] = ()
    received: Annotated[tuple[Whole, ...], Field(max_length=4096)] = ()

    @property
    def _grain(self) -> int:
        """Words that no border of a chunk may cut."""
        return 2 if self.dtype in ("float64", "int64") else 1

    def _grains(self, size: int) -> int:
        return -(-size // (ELEMENT_BYTES * self._grain))

    def layout(self, schedule: Schedule | None, me: int) -> Layout:
        """The layout at position ``me`` of ``schedule`` (None: a send or receive).

        Raises ``ConfigError`` for an all-to-all with the sizes of another group, or an uneven one that moves slots.
        """
        if schedule is None:
            whole, end = (Piece(0, 0, self.bytes),) if self.bytes else (), self._grains(self.bytes) * self._grain
            pieces = (whole, ()) if self.kind == "send" else ((), whole)
            return Layout(self.bytes, ((0, end),), *pieces)
        chunks = range(schedule.chunks)
        parts = [self._part(schedule, chunk, me) for chunk in chunks]
        bounds = tuple((start * self._grain, end * self._grain) for start, end in self._bounds(schedule, parts))
        first = [chunk for chunk in chunks if schedule.starts_at(chunk) in (None, me)]
        last = [chunk for chunk in chunks if schedule.ends_at(chunk) in (None, me)]
        return Layout(
            self.bytes * (schedule.n if self.kind in _ROOTED_PARTS else 1),
            bounds,
            _pieces(parts, first, bounds[schedule.input :]),
            _pieces(parts, last, bounds),
            frozenset(chunks).difference(first, last) if self.sent and not schedule.moves else frozenset(),
        )

    def _part(self, schedule: Schedule, chunk: int, me: int) -> tuple[_Part, int]:
        """The part to which ``chunk`` belongs, and its bytes (0 where it passes through)."""
        n, source = schedule.n, schedule.starts_at(chunk) or 0
        if schedule.kind in _PARTED:
            return (schedule.owner[chunk], 0), self.bytes // (1 if self.kind in _ROOTED_PARTS else n)
        if schedule.kind != "all_to_all":
            return (0, 0), self.bytes
        target = schedule.ends_at(chunk) or 0
        if self.sent and ({len(self.sent), len(self.received)} != {n} or (schedule.moves and len({*self.sent}) > 1)):
            reason = "that are equal, as its algorithm moves chunks" if schedule.moves else f"not {len(self.sent)}"
            raise ConfigError(f"an all-to-all over {n} ranks needs {n} sizes, {reason}", key="sent")
        if not self.sent or schedule.moves:
            return (source, target), self.bytes // n
        size = self.sent[target] if source == me else self.received[source] if target == me else 0
        return (source, target), size

    def _bounds(self, schedule: Schedule, parts: Sequence[tuple[_Part, int]]) -> Iterable[tuple[int, int]]:
        """Bounds of all slots, in grains."""
        grains = {part: self._grains(size) for part, size in parts}
        if schedule.kind == "all_to_all":
            pieces = schedule.chunks // schedule.n**2
            sizes = [(grains[part] + pieces - 1 - number % pieces) // pieces for number, (part, _) in enumerate(parts)]
            return pairwise(accumulate([max(sizes)] * schedule.slots if schedule.moves else sizes, initial=0))
        if schedule.kind not in _PARTED:
            return schedule.chunk_bounds(grains[0, 0])
        share = Counter(part for part, _ in parts)
        if not schedule.weights:
            return schedule.chunk_bounds(schedule.chunks * max(-(-grains[part] // share[part]) for part in share))
        weight = Counter[_Part]()
        for (part, _), more in zip(parts, schedule.weights, strict=True):
            weight[part] += more
        whole = sum(schedule.weights)  # each chunk is off by less than one grain
        return schedule.chunk_bounds(max(-(-(grains[p] + share[p]) * whole // weight[p]) for p in share))

    def add(self, into: Floats, values: Floats) -> None:
        """Reduce ``values`` into the words ``into``, in place."""
        function = _FUNCTIONS[self.reduce]
        with np.errstate(all="ignore"):
            if self.dtype == "bfloat16":
                _narrow(function(_wide(into), _wide(values)), into)
            else:
                own = into.view(self.dtype)
                function(own, values.view(self.dtype), out=own)

    def finish(self, words: Floats, n: int) -> None:
        """Turn the sums of ``n`` positions into their average, where that is asked for."""
        if self.reduce != "avg" or self.kind not in ADDING:
            return
        with np.errstate(all="ignore"):
            if self.dtype == "bfloat16":
                _narrow(_wide(words) / np.float32(n), words)
            elif self.dtype.startswith("float"):
                words.view(self.dtype)[:] /= n
            else:
                words.view(self.dtype)[:] //= n


def _pieces(parts: Sequence[tuple[_Part, int]], chunks: Iterable[int], bounds: Bounds) -> tuple[Piece, ...]:
    """The parts of ``chunks``, one after another, in the slots of these chunks."""
    pieces: list[Piece] = []
    left: dict[_Part, int] = {}
    offset = 0
    for (part, size), chunk in sorted((parts[chunk], chunk) for chunk in chunks):
        start, end = (ELEMENT_BYTES * bound for bound in bounds[chunk])
        taken = min(left.setdefault(part, size), end - start)
        if pieces and pieces[-1].start + pieces[-1].bytes == start:
            pieces[-1] = pieces[-1]._replace(bytes=pieces[-1].bytes + taken)
        elif taken:
            pieces.append(Piece(offset, start, taken))
        offset, left[part] = offset + taken, left[part] - taken
    assert not any(left.values()), "the slots of a part hold all of it"
    return tuple(pieces)


def _wide(words: Floats) -> Floats:
    """The float32 of the bfloat16 in ``words``."""
    return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _narrow(wide: Floats, into: Floats) -> None:
    """Write ``wide`` into words as bfloat16, rounded to nearest even."""
    bits = wide.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    into.view(np.uint16)[:] = np.where(np.isnan(wide), (bits >> 16) | 0x40, rounded)
