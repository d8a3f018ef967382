"""All targets of the fuzzing."""

from __future__ import annotations

from types import ModuleType

from fuzz.target import Target
from fuzz.targets import control, formats, kernel, results, settings, wires

ROOMS: dict[str, ModuleType] = {
    "formats": formats,
    "settings": settings,
    "control": control,
    "wires": wires,
    "kernel": kernel,
    "results": results,
}
"""The modules with targets, by what they read."""


def targets() -> list[Target]:
    """Every target."""
    return [each for room in ROOMS.values() for each in room.targets()]
