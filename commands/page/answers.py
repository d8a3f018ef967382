"""Answers of the page's server: queries that are read within bounds, and JSON and files as bodies."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.results.plain import plain
from measure.results.results import FIGURES
from railyard.errors import ConfigError, shortened
from railyard.ownership import reached

MOST_PX = 8192
DEFAULT_PX = 1200
MOST_POINT = 10**9
MOST_S = 1e9
"""Moments are within this many seconds of the start of a point."""
LEAST_PACKED = 1 << 14
"""Bytes from which a body is compressed."""
MOST_FIGURE = 1 << 25
_LONGEST_NUMBER = 40
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class Window:
    """The window of a query: moments from ``start`` to ``end`` in seconds (None: those of the point), ``px`` wide."""

    start: float | None
    end: float | None
    px: int


def window(query: Mapping[str, str]) -> Window:
    """The window that ``query`` asks for; ``ConfigError`` for numbers that are none, out of bounds or in no order."""
    start, end = moment(query, "from"), moment(query, "to")
    if end is not None and not (start or 0.0) < end:
        raise ConfigError(f"must be before to, not {start or 0.0:g} with to {end:g}", key="from")
    return Window(start, end, whole(query, "px", DEFAULT_PX, 1, MOST_PX))


def whole(query: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """A whole number of ``query``; ``ConfigError`` for another text, and out of bounds."""
    text = query.get(key, "")
    if not text:
        return default
    if not re.fullmatch("-?[0-9]{1,12}", text) or not least <= int(text) <= most:
        raise ConfigError(f"must be a whole number from {least} to {most}, not {shortened(text)!r}", key=key)
    return int(text)


def moment(query: Mapping[str, str], key: str) -> float | None:
    """A moment of ``query`` in seconds, None if it has none; ``ConfigError`` for another text, and out of bounds."""
    text = query.get(key, "")
    if not text:
        return None
    try:
        value = float(text) if len(text) <= _LONGEST_NUMBER else math.nan
    except ValueError:
        value = math.nan
    if not abs(value) <= MOST_S:
        raise ConfigError(f"must be a number of seconds such as 1.25, not {shortened(text)!r}", key=key)
    return value


def as_json(payload: Any) -> bytes:
    """Plain data as compact JSON in ASCII; what JSON has no number for is null."""
    try:
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(plain(payload), separators=(",", ":"), allow_nan=False)
    return text.encode()


def packed(body: bytes, accepted: str) -> bytes | None:
    """``body`` as gzip, where it pays and the client takes it (its header Accept-Encoding); None otherwise."""
    if len(body) < LEAST_PACKED or "gzip" not in re.split(r"[\s,;]+", accepted.lower()):
        return None
    pack = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return pack.compress(body) + pack.flush()


def page_files(folder: Path = Path(__file__).parent / "static") -> dict[str, bytes]:
    """The files of the page, by their path in its folder; those of other types are left out."""
    found = sorted(file for file in folder.rglob("*") if file.suffix in TYPES and file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in found}


def figure(folder: Path, name: str) -> bytes | None:
    """The figure ``name`` of a results folder; None unless the folder of its figures lists such a file.

    No symbolic link is followed, so that nothing outside the folder is read.
    """
    try:
        with reached(folder.resolve() / FIGURES) as place:
            listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
            try:
                if not name.endswith(".png") or name not in os.listdir(listed):
                    return None
            finally:
                os.close(listed)
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_FIGURE:
        os.close(fd)
        return None
    with open(fd, "rb") as file:
        return file.read(MOST_FIGURE)
