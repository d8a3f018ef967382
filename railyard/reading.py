"""Files that people write, read up to a bound: a file that is larger, or endless, is refused before it fills memory.

And the files of a folder that changes meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from railyard.errors import ConfigError

_PIECE_BYTES = 1 << 20


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
            while len(data) <= most and (piece := file.read(min(_PIECE_BYTES, most + 1 - len(data)))):
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


def line_count(path: Path) -> int:
    """Number of lines in a file, which another process may have begun; 0 for a terminal or a pipe."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def read_text(path: Path, most: int, what: str) -> str:
    """The text of a file, like ``read_bytes``; raises ``ConfigError`` with the line that is not UTF-8."""
    data = read_bytes(path, most, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"is not UTF-8 text; {what} is", source=f"{path}:{line}") from None


def lines_after(path: Path, offset: int) -> tuple[list[str], int]:
    """The complete lines of a text file from byte ``offset`` on, and the offset after them; none without the file."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            complete, newline, _ = file.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], offset
    lines = [f"{line}\n" for line in complete.decode(errors="replace").split("\n")] if newline else []
    return lines, offset + len(complete + newline)
