"""The small fixed header before every message between two agents; a wrong one is a misdelivered message.

28 bytes, network order: magic, kind, flags (1 = point to point), group number, step, sequence, transfer, length.
``sequence`` counts the collectives of a group in a step, or the sends of a pair from one member to the other;
``transfer`` is the position of the transfer in its schedule. So both sides name a message without speaking first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from railyard.errors import VerifyError

_LAYOUT = struct.Struct("!IBBHIIIQ")
HEADER_BYTES = _LAYOUT.size
MAGIC = 0x52594131

Kind = Literal["data", "ready"]
_KINDS: tuple[Kind, ...] = ("data", "ready")


@dataclass(frozen=True)
class Flow:
    """What a message belongs to: one operation, named alike on all ranks that take part."""

    step: int
    group: int
    sequence: int
    point_to_point: bool = False


@dataclass(frozen=True)
class Header:
    """``data`` carries ``length`` bytes of ``transfer``.

    ``ready`` says that the receiver has posted ``flow`` and takes, by this path, everything up to the round that stands
    in the place of ``transfer``, not before the time (monotonic microseconds) that stands in the place of ``length``.
    """

    kind: Kind
    flow: Flow
    transfer: int = 0
    length: int = 0

    @property
    def payload_bytes(self) -> int:
        """How many bytes follow."""
        return self.length if self.kind == "data" else 0

    def pack(self) -> bytes:
        """The bytes on the wire."""
        flow = self.flow
        kind = _KINDS.index(self.kind)
        flags = int(flow.point_to_point)
        return _LAYOUT.pack(MAGIC, kind, flags, flow.group, flow.step, flow.sequence, self.transfer, self.length)

    @staticmethod
    def unpack(data: bytes | bytearray | memoryview) -> Header:
        """The header in ``data``; ``VerifyError`` if these are not the bytes of one."""
        magic, kind, flags, group, step, sequence, transfer, length = _LAYOUT.unpack(data)
        if magic != MAGIC or kind >= len(_KINDS) or flags > 1:
            raise VerifyError(f"a message must begin with magic {MAGIC:#x}, not with {bytes(data[:8]).hex()}")
        return Header(_KINDS[kind], Flow(step, group, sequence, bool(flags)), transfer, length)
