"""What a reader hands back: the program, and what a person should know about how the file was read."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.program import Program


@dataclass(frozen=True)
class Reading:
    """A file as a program. ``format`` names what it was; ``notes`` are sentences about what was read into it."""

    format: str
    program: Program
    notes: tuple[str, ...] = ()
