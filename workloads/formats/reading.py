"""What the readers share: their result, and the largest message."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.program import Program

MOST_MESSAGE_BYTES = 1 << 50
"""Largest size of one message or collective that a file may have."""


@dataclass(frozen=True)
class Reading:
    """A file read as a program; ``format`` names its format, ``notes`` are sentences about its interpretation."""

    format: str
    program: Program
    notes: tuple[str, ...] = ()
