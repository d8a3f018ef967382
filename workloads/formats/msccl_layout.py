"""Mapping of the slots of a Schedule to the buffers of an MSCCL program."""

from __future__ import annotations

from railyard.errors import ConfigError
from workloads.formats.msccl_program import KINDS, Place
from workloads.schedule import Schedule

COLLS = {kind: coll for coll, kind in KINDS.items()}
"""The ``coll`` of every kind, as MSCCL's runtime spells it."""
_WHOLE = ("all_reduce", "broadcast", "reduce")
"""Kinds that do not split their buffer among the positions."""


class BufferLayout:
    """Places for the slots that a program uses; slots without a place in the user's buffers get scratch.

    A schedule that works in place stays so, except for an all-to-all: MSCCL's in-place all-to-all has one buffer for
    both, and the global chunks of a Schedule never share a place.
    """

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.inplace = schedule.input == 0 and schedule.kind != "all_to_all"
        n, chunks, kind = schedule.n, schedule.chunks, schedule.kind
        self.nchunksperloop = chunks // n if kind == "all_to_all" else chunks
        self.part = self.nchunksperloop // n
        self._offset = list(range(chunks)) if kind in (*_WHOLE, "all_to_all") else self._by_owner()
        self._scratch: list[dict[int, int]] = [{} for _ in range(n)]

    def _by_owner(self) -> list[int]:
        """The offset of every chunk with each position's chunks adjacent, as MSCCL requires."""
        owned: list[list[int]] = [[] for _ in range(self.schedule.n)]
        for chunk, owner in enumerate(self.schedule.owner):
            owned[owner].append(chunk)
        if any(len(chunks) != self.part for chunks in owned):
            raise ConfigError(
                f"{self.schedule.algorithm} {self.schedule.kind} cannot be MSCCL XML: every position must own as many "
                f"chunks as any other"
            )
        offsets = [0] * self.schedule.chunks
        for offset, chunk in enumerate(chunk for chunks in owned for chunk in chunks):
            offsets[chunk] = offset
        return offsets

    def buffers(self, position: int) -> dict[str, int]:
        """Chunks of each buffer of a position, by attribute; scratch as far as it is used."""
        whole, part, kind = self.nchunksperloop, self.part, self.schedule.kind
        return {
            "i_chunks": part if kind in ("all_gather", "gather") else whole,
            "o_chunks": part if kind in ("reduce_scatter", "scatter") else whole,
            "s_chunks": len(self._scratch[position]),
        }

    def place(self, position: int, slot: int) -> Place:
        """Place of ``slot`` of ``position``, in scratch if it has no other."""
        home = self._home(position, slot)
        if home is not None:
            return home
        return "s", self._scratch[position].setdefault(slot, len(self._scratch[position]))

    def _home(self, position: int, slot: int) -> Place | None:
        """The place in the user's buffers, if ``slot`` has one at ``position``."""
        made = self.schedule
        holds_input = slot < made.chunks if made.input == 0 else made.input <= slot < made.input + made.chunks
        holds_result = slot < made.chunks
        chunk = slot if holds_result else slot - made.input
        if made.kind == "all_to_all":
            return self._exchanged(position, chunk, holds_input, holds_result)
        if not (holds_input or holds_result):
            return None
        at, own = self._offset[chunk], made.owner[chunk] == position
        mine, root = at - position * self.part, made.root == position
        takes: dict[str, Place | None] = {
            "all_reduce": ("i", at),
            "broadcast": ("o" if self.inplace else "i", at),
            "reduce": ("i", at),
            "reduce_scatter": ("i", at),
            "all_gather": ("i", mine) if own else None,
            "gather": ("i", mine) if own else None,
            "scatter": ("i", at) if root else None,
        }
        gives: dict[str, Place | None] = {
            "reduce_scatter": ("o", mine) if own else None,
            "scatter": ("o", mine) if own else None,
            "gather": ("o", at) if root else None,
        }
        result = gives.get(made.kind, ("o", at)) if holds_result else None
        if self.inplace and made.kind in ("all_gather", "gather"):
            return result or takes[made.kind]
        return (takes[made.kind] if holds_input else None) or result

    def _exchanged(self, position: int, chunk: int, holds_input: bool, holds_result: bool) -> Place | None:
        """Place of a chunk of an all-to-all: in the input at its source, in the output at its target."""
        pair, rest = divmod(chunk, self.part)
        source, target = divmod(pair, self.schedule.n)
        if holds_input and source == position:
            return "i", target * self.part + rest
        if holds_result and target == position:
            return "o", source * self.part + rest
        return None
