"""What the readers share: their result, and how they take in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from railyard.errors import ConfigError
from workloads.program import Program

MOST_MESSAGE_BYTES = 1 << 50
"""Largest size of one message or collective that a file may have."""


@dataclass(frozen=True)
class Reading:
    """A file read as a program; ``format`` names its format, ``notes`` are sentences about its interpretation."""

    format: str
    program: Program
    notes: tuple[str, ...] = ()


def read_bytes(path: Path, most: int, what: str) -> bytes:
    """The content of a file of at most ``most`` bytes; raises ``ConfigError`` that tells the user to name ``what``."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read ({reason}); name {what}", source=str(path)) from None
    if len(data) > most:
        raise ConfigError(f"is larger than {most >> 20} MiB; {what} is smaller", source=str(path))
    return data


def read_text(path: Path, most: int, what: str) -> str:
    """The text of a file, like ``read_bytes``; raises ``ConfigError`` with the line that is not UTF-8."""
    data = read_bytes(path, most, what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"is not UTF-8 text; {what} is", source=f"{path}:{line}") from None
