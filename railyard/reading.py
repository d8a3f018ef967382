"""Files that people write, read up to a bound: a file that is larger, or endless, is refused before it fills memory.

And files that others write meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from railyard.errors import ConfigError

PIECE_BYTES = 1 << 20
"""Bytes that are read at once; no line of ours is longer."""


def open_at_once(path: str, flags: int) -> int:
    """Open a file without a wait: a named pipe that nobody writes to is empty, where ``open`` would wait for ever."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(fd, True)
    return fd


def read_bytes(path: Path, most: int, what: str, *, pipes: bool = True) -> bytes:
    """The content of a file of at most ``most`` bytes; raises ``ConfigError`` that tells the user to name ``what``.

    Without ``pipes``, what is no regular file is refused too, so that nothing is waited for.
    """
    data = bytearray()
    try:
        with open(path, "rb", opener=open_at_once) as file:
            if not pipes and not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"is no regular file; {what} is one", source=str(path))
            while len(data) <= most and (piece := file.read(min(PIECE_BYTES, most + 1 - len(data)))):
                data += piece
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read ({reason}); name {what}", source=str(path)) from None
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
        raise ConfigError(f"is larger than {size}; {what} is smaller", source=str(path))
    return bytes(data)


def files_below(folder: Path, suffix: str = "") -> Iterator[Path]:
    """The files in a folder and in its subfolders, some of which may be removed meanwhile; none if there is no folder.

    Only those whose names end with ``suffix``. ``Path.rglob`` raises an error when a subfolder is removed while it
    looks.
    """
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if name.endswith(suffix))


def read_text(path: Path, most: int, what: str) -> str:
    """The text of a file, like ``read_bytes``; raises ``ConfigError`` with the line that is not UTF-8."""
    data = read_bytes(path, most, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"is not UTF-8 text; {what} is", source=f"{path}:{line}") from None


class Tail:
    """The complete lines of a file that were not read yet; a last line without its end is left until it has one."""

    def __init__(self, fd: int) -> None:
        self._fd, self.offset = fd, 0

    @staticmethod
    def of(path: Path) -> Tail:
        return Tail(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def lines(self, *, last: bool = False, most: int | None = None) -> list[bytes]:
        """The next complete lines, of up to ``most`` bytes together (``PIECE_BYTES``); none if there are none.

        ``last``: nobody writes the file any more, so that a line without an end is one too.
        """
        size = self.size
        self.offset = min(self.offset, size)  # a write that failed may have been taken back
        data = os.pread(self._fd, min(size - self.offset, most or PIECE_BYTES), self.offset)
        whole = last and self.offset + len(data) == size
        data = data if whole else data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        return data.splitlines(keepends=True)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
