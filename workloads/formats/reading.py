"""Result of a reader: the program, and notes for the user on how the file was interpreted."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.program import Program


@dataclass(frozen=True)
class Reading:
    """A file read as a program; ``format`` names its format, ``notes`` are sentences about its interpretation."""

    format: str
    program: Program
    notes: tuple[str, ...] = ()
