"""The tensors of a user's script in the slots of a schedule: where their bytes lie, and how they are reduced. Pure.

A buffer consists of 4-byte words whatever its tensors are. No border of a chunk cuts an element: parts are padded to
whole words, and to pairs of words for elements of 8 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from railyard.errors import ConfigError
from railyard.validation import Whole
from workloads.rank.exchange import ELEMENT_BYTES, Bounds
from workloads.schedule import CollectiveKind, Schedule

Floats = npt.NDArray[np.float32]
Reduce = Literal["sum", "avg", "min", "max", "product"]
DType = Literal["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"]
_PARTED = ("all_gather", "reduce_scatter", "gather", "scatter")
"""Kinds whose chunks belong to the part of their owner."""
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

    @property
    def words(self) -> int:
        return self.bounds[-1][1]


@dataclass(frozen=True)
class ScriptCall:
    """What a script asks for with one communication.

    ``bytes`` as in ``workloads.program``. ``sent`` and ``received`` are the bytes to and from each position in an
    all-to-all (none: equal parts of ``bytes``). Layouts are torch's: parts follow each other in the group's order.
    """

    kind: CollectiveKind | Literal["send", "recv"]
    bytes: Whole
    dtype: DType = "uint8"
    reduce: Reduce = "sum"
    sent: Annotated[tuple[Whole, ...], Field(max_length=4096)] = ()
    received: Annotated[tuple[Whole, ...], Field(max_length=4096)] = ()

    @property
    def _grain(self) -> int:
        """Words that no border of a chunk may cut."""
        return 2 if self.dtype in ("float64", "int64") else 1

    def layout(self, schedule: Schedule | None, me: int) -> Layout:
        """The layout at position ``me`` of ``schedule`` (None: a send or receive).

        Raises ``ConfigError`` for an all-to-all that is uneven, or of another group, and that cannot be laid out.
        """
        if schedule is None:
            whole = (Piece(0, 0, self.bytes),)
            words = self._grains(self.bytes) * self._grain
            return Layout(
                self.bytes, ((0, words),), whole if self.kind == "send" else (), whole if self.kind == "recv" else ()
            )
        bounds = tuple((start * self._grain, end * self._grain) for start, end in self._bounds(schedule, me))
        return Layout(
            self.bytes,
            bounds,
            self._pieces(schedule, me, bounds[schedule.input :], out=False),
            self._pieces(schedule, me, bounds, out=True),
        )

    def _grains(self, size: int) -> int:
        return -(-size // (ELEMENT_BYTES * self._grain))

    def _part(self, schedule: Schedule, chunk: int, *, out: bool) -> tuple[int, int]:
        """The part of the tensor to which ``chunk`` belongs, and its bytes."""
        if schedule.kind == "all_to_all":
            peer = schedule.starts_at(chunk) if out else schedule.ends_at(chunk)
            assert peer is not None
            sizes = self.received if out else self.sent
            return peer, sizes[peer] if sizes else self.bytes // schedule.n
        if schedule.kind in _PARTED:
            return schedule.owner[chunk], self.bytes // schedule.n
        return 0, self.bytes

    def _bounds(self, schedule: Schedule, me: int) -> Sequence[tuple[int, int]]:
        """Bounds of all slots, in grains."""
        if schedule.kind == "all_to_all":
            return tuple(pairwise(accumulate(self._pair_sizes(schedule, me), initial=0)))
        size = self._grains(self._part(schedule, 0, out=True)[1])
        if schedule.kind not in _PARTED:
            return schedule.chunk_bounds(size)
        shares = Counter(schedule.owner)
        if not schedule.weights:
            return schedule.chunk_bounds(schedule.chunks * max(-(-size // share) for share in shares.values()))
        weight = Counter[int]()
        for owner, more in zip(schedule.owner, schedule.weights, strict=True):
            weight[owner] += more
        whole = sum(schedule.weights)  # each chunk is off by less than one grain
        return schedule.chunk_bounds(max(-(-(size + shares[p]) * whole // weight[p]) for p in shares))

    def _pair_sizes(self, schedule: Schedule, me: int) -> list[int]:
        """Grains of each slot of an all-to-all.

        Where chunks go straight to their position a rank needs to know those of its own parts alone, which it does.
        """
        n, sizes = schedule.n, {*self.sent, *self.received} or {self.bytes // schedule.n}
        if {len(self.sent), len(self.received)} - {0, n}:
            raise ConfigError(f"an all-to-all over {n} ranks needs {n} sizes, not {len(self.sent)}", key="sent")
        pieces = schedule.chunks // n**2
        if schedule.forwards:
            if len(sizes) > 1:
                raise ConfigError(
                    f"an uneven all-to-all needs an algorithm that sends straight to each rank, such as direct; "
                    f"{schedule.algorithm} forwards",
                    key="algorithm",
                )
            return [-(-self._grains(*sizes) // pieces)] * schedule.slots
        grains = [0] * schedule.slots
        for chunk in range(schedule.chunks):
            for out, here in ((False, schedule.starts_at(chunk)), (True, schedule.ends_at(chunk))):
                if here == me:
                    base, extra = divmod(self._grains(self._part(schedule, chunk, out=out)[1]), pieces)
                    grains[chunk] = base + (chunk % pieces < extra)
        return grains

    def _pieces(
        self, schedule: Schedule, me: int, bounds: Sequence[tuple[int, int]], *, out: bool
    ) -> tuple[Piece, ...]:
        """The pieces of the input (or ``out``: the result) of position ``me``; its first chunk is at ``bounds[0]``."""
        parts: dict[int, tuple[int, list[int]]] = {}
        for chunk in range(schedule.chunks):
            if (schedule.ends_at(chunk) if out else schedule.starts_at(chunk)) in (None, me):
                part, size = self._part(schedule, chunk, out=out)
                parts.setdefault(part, (size, []))[1].append(chunk)
        pieces: list[Piece] = []
        offset = 0
        for _, (left, chunks) in sorted(parts.items()):
            for chunk in chunks:
                start, end = (ELEMENT_BYTES * bound for bound in bounds[chunk])
                size = min(left, end - start)
                if pieces and pieces[-1].start + pieces[-1].bytes == start:
                    pieces[-1] = pieces[-1]._replace(bytes=pieces[-1].bytes + size)
                elif size:
                    pieces.append(Piece(offset, start, size))
                offset, left = offset + size, left - size
            assert not left, "the slots of a part hold all of it"
        return tuple(pieces)

    # -- values ------------------------------------------------------------------------------------

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
        if self.reduce != "avg":
            return
        with np.errstate(all="ignore"):
            if self.dtype == "bfloat16":
                _narrow(_wide(words) / np.float32(n), words)
            elif self.dtype.startswith("float"):
                words.view(self.dtype)[:] /= n
            else:
                words.view(self.dtype)[:] //= n


def _wide(words: Floats) -> Floats:
    """The float32 of the bfloat16 in ``words``."""
    return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _narrow(wide: Floats, into: Floats) -> None:
    """Write ``wide`` into words as bfloat16, rounded to nearest even."""
    bits = wide.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    into.view(np.uint16)[:] = np.where(np.isnan(wide), (bits >> 16) | 0x40, rounded)
