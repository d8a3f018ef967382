"""The files of a results folder as they grow: new lines of each, and where the points begin in a finished one.

Everything is opened for reading only, below the folder, and without following links. Files may be cut, shrink, vanish
or be replaced at any time, and may hold anything: nothing here raises an error for that.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PIECE = 1 << 20
_LONGEST_LINE = 1 << 20
"""A longer line is none of ours: it is passed over, and counts as one that cannot be read."""
_MOST_FILES = 4096
_DEEPEST = 3
MOST_POINTS = 10_000
"""Points of a file that are known one by one; further ones are counted."""
_LONGEST_HEAD = 1 << 16
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BEGIN = b'{"t":'


def open_below(root: int, path: str) -> int | None:
    """A descriptor of the file at ``path`` below the folder ``root``, to be closed; None if there is no plain file."""
    place = root
    *parents, name = path.split("/")
    try:
        for parent in parents:
            below = os.open(parent, _FLAGS | os.O_DIRECTORY, dir_fd=place)
            if place != root:
                os.close(place)
            place = below
        fd = os.open(name, _FLAGS, dir_fd=place)
    except OSError:
        return None
    finally:
        if place != root:
            os.close(place)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def names_below(root: int, folder: str, suffix: str = ".jsonl", deepest: int = _DEEPEST) -> list[str]:
    """The paths of files below ``folder``, which is below ``root``, with names that end with ``suffix``.

    ``deepest``: how many folders lie between, 0 for the files in ``folder`` itself.
    """
    found: list[str] = []

    def look(place: int, path: str, depth: int) -> None:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                below = f"{path}/{entry.name}"
                if len(found) >= _MOST_FILES:
                    return
                if entry.is_file(follow_symlinks=False) and entry.name.endswith(suffix):
                    found.append(below)
                elif depth < deepest and entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):
                        inner = os.open(entry.name, _FLAGS | os.O_DIRECTORY, dir_fd=place)
                        try:
                            look(inner, below, depth + 1)
                        finally:
                            os.close(inner)

    place = root
    try:
        for name in folder.split("/"):
            below = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=place)
            if place != root:
                os.close(place)
            place = below
        look(place, folder, 0)
    except OSError:
        return []
    finally:
        if place != root:
            os.close(place)
    return sorted(found)


class Tail:
    """The complete lines of a file that were not read yet; a last line without its end is left until it has one."""

    def __init__(self, fd: int, offset: int = 0, stop: int | None = None) -> None:
        self._fd, self.offset, self.stop = fd, offset, stop
        self._skipping = False
        self.unreadable = 0
        """Lines that are too long."""

    @property
    def size(self) -> int:
        """Bytes of the file up to where it is read."""
        found = os.fstat(self._fd).st_size
        return found if self.stop is None else min(found, self.stop)

    @property
    def inode(self) -> tuple[int, int]:
        """Which file this is."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino

    def lines(self, most: int = _PIECE, *, last: bool = False) -> list[bytes]:
        """The next complete lines, of about ``most`` bytes; empty if there are none, or only a part of a long one.

        ``last``: nobody writes the file any more, so that a line without an end is one too.
        """
        size = self.size
        if size < self.offset:  # it shrank: what was read is no longer there, and what comes is new
            self.offset, self._skipping = size, False
        if size == self.offset:
            return []
        data = os.pread(self._fd, min(size - self.offset, max(most, _LONGEST_LINE)), self.offset)
        end = data.rfind(b"\n") + 1
        if not end:
            whole = last and self.offset + len(data) >= size
            if len(data) < _LONGEST_LINE and not whole:
                return []
            end = len(data)
            if not whole or self._skipping:
                self.unreadable += not self._skipping
                self.offset, self._skipping = self.offset + end, not whole
                return []
        self.offset += end
        lines = data[:end].splitlines(keepends=True) if b"\r" not in data else _split(data[:end])
        if self._skipping:
            del lines[:1]
            self._skipping = False
        return lines

    @property
    def ended(self) -> bool:
        """Whether all complete lines were read, as far as is known without reading."""
        return self.offset >= self.size

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _split(data: bytes) -> list[bytes]:
    """The lines of ``data``, which end with a line feed alone."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] if data.endswith(b"\n") else data.split(b"\n")


@dataclass
class Block:
    """A part of a file of events: from a line ``head`` at byte ``start`` up to byte ``stop``."""

    head: dict[str, Any]
    start: int
    stop: int


@dataclass
class Blocks:
    """Where the points of a file begin: at lines whose source is ``run`` and whose kind is ``kind``.

    Nothing else of the file is parsed. ``found`` has the block of each point, by its number.
    """

    kind: str
    found: dict[int, Block] = field(default_factory=dict)
    scanned: int = 0
    unreadable: int = 0
    left_out: int = 0
    """Points beyond the first ``MOST_POINTS``."""
    _last: Block | None = None

    def scan(self, fd: int, most: int, *, last: bool = False) -> bool:
        """Look at up to ``most`` further bytes of the file; whether there were some. ``last`` as in ``Tail.lines``."""
        tail = Tail(fd, self.scanned)
        if tail.size < self.scanned:
            self._forget(tail.size)
            return True
        before, pattern = self.scanned, f'"source":"run","kind":"{self.kind}"'.encode()
        while self.scanned - before < most:
            data = os.pread(fd, _PIECE, self.scanned)
            end = data.rfind(b"\n") + 1
            if not end:
                end = len(data) if len(data) == _PIECE or (last and data) else 0
                self.unreadable += bool(end)
            if not end:
                break
            self._look(data[:end], pattern)
            self.scanned += end
            if self._last is not None:
                self._last.stop = self.scanned
        return self.scanned > before

    def _look(self, data: bytes, pattern: bytes) -> None:
        place = data.find(pattern)
        while place >= 0:
            start = data.rfind(b"\n", 0, place) + 1
            stop = data.find(b"\n", place)
            self._take(data[start : stop if stop >= 0 else len(data)], self.scanned + start)
            place = data.find(pattern, stop) if stop >= 0 else -1
        whole = data.startswith(_BEGIN) and data.endswith(b"}\n")
        if not whole or data.count(b"}\n" + _BEGIN) != data.count(b"\n") - 1:
            self.unreadable += sum(1 for line in data.split(b"\n")[:-1] if not looks_whole(line))

    def _take(self, line: bytes, start: int) -> None:
        if len(self.found) >= MOST_POINTS:
            if self._last is not None:
                self._last.stop, self._last = start, None
            self.left_out += 1
            return
        with suppress(ValueError, KeyError, TypeError, RecursionError, OverflowError):
            if len(line) > _LONGEST_HEAD:
                return
            head = json.loads(line)
            number = head["point"]
            known = (head["source"], head["kind"]) == ("run", self.kind)
            times = head["t"], head["t"] if head.get("end") is None else head["end"]
            sane = all(type(t) in (int, float) for t in times) and 0 <= times[0] <= times[1] < 1e12
            if known and sane and type(number) is int and 0 <= number < 1 << 31:
                if self._last is not None:
                    self._last.stop = start
                self._last = self.found[number] = Block(head, start, start)

    def _forget(self, size: int) -> None:
        """The file shrank: forget the points that are no longer there, and look at the last of the others again."""
        self.found = {number: block for number, block in self.found.items() if block.stop <= size}
        self.left_out = 0
        self.scanned = max((block.stop for block in self.found.values()), default=0)
        self._last = max(self.found.values(), key=lambda block: block.stop, default=None)


def looks_whole(line: bytes) -> bool:
    """Whether a line, without its end, begins and ends as our events do."""
    return line.startswith(_BEGIN) and line.endswith(b"}")


class LiveFiles:
    """Files below the folder ``root`` that processes write to, and their new lines."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._tails: dict[str, Tail] = {}
        self.unreadable = 0
        self.behind = False
        """Whether there were more new lines than ``lines`` gave the last time."""

    def lines(self, paths: list[str], most: int = _PIECE) -> Iterator[bytes]:
        """The new complete lines of ``paths``, paths from ``root``, of about ``most`` bytes together."""
        self.behind = False
        for path in paths:
            tail = self._tail(path)
            while tail is not None and most > 0 and (found := tail.lines(min(most, _PIECE))):
                most -= sum(map(len, found))
                yield from found
            self.behind = self.behind or (tail is not None and most <= 0 and not tail.ended)

    def _tail(self, path: str) -> Tail | None:
        tail = self._tails.get(path)
        try:
            found = os.stat(path, dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return None
        if tail is not None and tail.inode != (found.st_dev, found.st_ino):
            self._drop(path)
            tail = None
        if tail is None and (fd := open_below(self._root, path)) is not None:
            tail = self._tails[path] = Tail(fd)
        return tail

    def _drop(self, path: str) -> None:
        tail = self._tails.pop(path)
        self.unreadable += tail.unreadable
        tail.close()

    def close(self) -> None:
        """Close all files."""
        for path in list(self._tails):
            self._drop(path)


@dataclass
class Stamp:
    """Whether a file is the same as before: its inode, size and time of change."""

    path: Path
    _seen: tuple[int, int, int] = (0, 0, 0)

    def changed(self) -> bool:
        """Whether the file changed since the last call, or came, or went."""
        try:
            found = os.stat(self.path)
            now = (found.st_ino, found.st_size, found.st_mtime_ns)
        except OSError:
            now = (0, 0, 0)
        changed, self._seen = now != self._seen, now
        return changed
