"""The header before every message between two agents; it names the operation, so a misdelivered message is recognised.

28 bytes, network order: magic, kind, flags (1 = point to point), group number, step, sequence (``Flow``), transfer,
length. ``transfer`` is the position of the transfer in its schedule. Both ends compute these numbers from the program
alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from railyard.errors import VerifyError
from workloads.rank.flows import Flow

_LAYOUT = struct.Struct("!IBBHIIIQ")
HEADER_BYTES = _LAYOUT.size
MAGIC = 0x52594131

Kind = Literal["data", "ready", "told"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


class Header(NamedTuple):
    """Header of a ``data`` message (``length`` payload bytes of ``transfer``) or of a message without payload.

    A ``ready`` message says that the receiver has posted ``flow`` and takes, on this path, everything up to the round
    given in the field ``transfer``, from the time given in the field ``length`` (monotonic microseconds) on. A ``told``
    message has a number in ``transfer`` and in ``length`` the number of its word (``workloads.rank.roll_call``).
    """

    kind: Kind
    flow: Flow
    transfer: int = 0
    length: int = 0

    @property
    def payload_bytes(self) -> int:
        return self.length if self.kind == "data" else 0

    def pack(self) -> bytes:
        flow = self.flow
        kind = _KINDS.index(self.kind)
        flags = int(flow.point_to_point)
        return _LAYOUT.pack(MAGIC, kind, flags, flow.group, flow.step, flow.sequence, self.transfer, self.length)

    @staticmethod
    def unpack(data: bytes | bytearray | memoryview) -> Header:
        """Decode a header; raises ``VerifyError`` if the magic, kind or flags are invalid."""
        magic, kind, flags, group, step, sequence, transfer, length = _LAYOUT.unpack(data)
        if magic != MAGIC or kind >= len(_KINDS) or flags > 1:
            raise VerifyError(f"a message must begin with magic {MAGIC:#x}, not with {bytes(data[:8]).hex()}")
        return Header(_KINDS[kind], Flow(step, group, sequence, bool(flags)), transfer, length)


@dataclass
class Outgoing:
    """A message to be sent; ``token`` is returned to the inbox when the kernel has taken its last byte.

    ``hold``: wait for the tokens that the bucket of the port has accumulated (``workloads.agent.transport.pacing``); in
    a slot only the first message does.
    """

    head: bytes
    payload: memoryview
    token: object = None
    hold: bool = False
    in_turn: bool = False
    """Wait until the messages before it on its connection have almost left, so that a receiver credit overtakes it."""
    since: float | None = None
    """Monotonic time at which the emulated system would have begun to send it, if that is known; else it became
    possible by what this machine received, and it may be late."""
    notice: bool = True
    """Whether the kernel should give notice when the peer has acknowledged it: every notice wakes this process."""
    sent: int = 0

    @property
    def size(self) -> int:
        return len(self.head) + len(self.payload)
