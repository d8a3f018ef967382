"""Sizes of buffers in text: as a person types them (``4096``, ``4K``, ``1.5M``), and as they are printed.

Typed K, M and G are powers of 1024, as in nccl-tests. Printed sizes are in bytes, or in kB, MB and GB of 1000s and KiB,
MiB and GiB of 1024s.
"""

from __future__ import annotations

import re

from railyard.errors import ConfigError
from railyard.validation import shown

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)
LARGEST = 1 << 44
_DECIMAL_UNITS = {1: "B", 10**3: "kB", 10**6: "MB", 10**9: "GB", 10**12: "TB"}
_BINARY_UNITS = {1: "B", 1 << 10: "KiB", 1 << 20: "MiB", 1 << 30: "GiB", 1 << 40: "TiB"}


def parse_size(text: str, key: str = "sizes") -> int:
    """The size that ``text`` gives, in bytes; ``ConfigError`` naming ``key`` unless it is from 1 byte to 16 TiB.

    >>> parse_size("4K"), parse_size("1.5M"), parse_size("100")
    (4096, 1572864, 100)
    """
    match = _SIZE.fullmatch(text.strip())
    size = round(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if not 1 <= size <= LARGEST:
        raise ConfigError(f"must be a size of at least 1 byte such as 4096, 4K or 1M, not {shown(text)}", key=key)
    return size


def read_sizes(values: object) -> tuple[int, ...]:
    """Sizes in bytes for a validator of settings, of a list or of one size.

    ``ValueError`` with the message of ``parse_size`` for a bad one.
    """
    listed = values if isinstance(values, (list, tuple)) else [values]
    try:
        return tuple(parse_size(size if isinstance(size, str) else shown(size)) for size in listed)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("sizes: ")) from None


def in_words(size: int) -> str:
    """A size in tables and lines, to the byte: ``4,096 bytes``."""
    return f"{size:,} byte{'' if size == 1 else 's'}"


def size_in_words(size: int) -> str:
    """A size where there is no room for all digits, as at the axis of a figure.

    >>> [size_in_words(size) for size in (4096, 7_000_000, 2_264_320, 100)]
    ['4 KiB', '7 MB', '2.26 MB', '100 B']
    """
    thousands, binary = (
        max((unit for unit in units if 0.9995 * unit <= size), default=1) for units in (_DECIMAL_UNITS, _BINARY_UNITS)
    )
    if size * 100 % thousands and size * 2 % binary == 0:
        return f"{size / binary:g} {_BINARY_UNITS[binary]}"
    return f"{size / thousands:.3g} {_DECIMAL_UNITS[thousands]}"
