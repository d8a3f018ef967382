"""Buffer sizes in text: ``4096``, ``4K``, ``1M``, ``1.5G``. K, M and G are powers of 1024, as in nccl-tests."""

from __future__ import annotations

import re

from railyard.errors import ConfigError
from railyard.validation import shown

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)
LARGEST = 1 << 44


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
    """``size`` in bytes as text, in the largest unit that divides it.

    >>> in_words(4096), in_words(1 << 20), in_words(1000)
    ('4K', '1M', '1000')
    """
    for unit in ("G", "M", "K"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)


def size_in_words(size: int) -> str:
    """A size in bytes as text: ``4 KiB``, ``1.5 MiB`` or, for round decimal numbers, ``7 MB``."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor and size % (factor / 100) == 0:
            return f"{size / factor:g} {unit}"
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g} {unit}"
    return f"{size} B"
