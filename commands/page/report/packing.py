"""The data of a report as base64 of gzip-compressed JSON, made piece by piece: what a piece adds is known at once."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any

from measure.results.plain import plain

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 6
_TRIPLES = 3


class Packing:
    """A stream of JSON text that is compressed as it comes; a piece that is too large can be taken back."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._pieces: list[bytes] = []

    def add(self, content: str) -> None:
        """Append text."""
        self._pieces.append(self._packer.compress(content.encode()))

    def add_within(self, content: str, most: int) -> bool:
        """Append text if it takes at most ``most`` bytes, compressed; returns whether it was appended."""
        packer = self._packer.copy()
        packed = packer.compress(content.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
        if len(packed) > most:
            return False
        self._packer = packer
        self._pieces.append(packed)
        return True

    @property
    def size(self) -> int:
        """Bytes so far, compressed; text that is still in the compressor is not counted."""
        return sum(map(len, self._pieces))

    def base64(self) -> Iterator[bytes]:
        """The whole stream, ended, in base64."""
        self._pieces.append(self._packer.flush())
        left = b""
        for piece in self._pieces:
            left += piece
            whole = len(left) - len(left) % _TRIPLES
            yield base64.b64encode(left[:whole])
            left = left[whole:]
        yield base64.b64encode(left)


def as_json(value: Any) -> str:
    """Compact JSON in ASCII; None in place of infinity and NaN, which JSON has not."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(plain(value), separators=(",", ":"))
