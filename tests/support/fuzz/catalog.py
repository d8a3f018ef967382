"""All targets of the fuzzing."""

from __future__ import annotations

from types import ModuleType

from fuzz.target import Target
from fuzz.targets import control, fabrics, formats, kernel, results, served, settings, wires

ROOMS: dict[str, ModuleType] = {
    "formats": formats,
    "fabrics": fabrics,
    "settings": settings,
    "control": control,
    "served": served,
    "wires": wires,
    "kernel": kernel,
    "results": results,
}
"""The modules with targets, by what they read."""


def targets() -> list[Target]:
    """Every target."""
    return [each for room in ROOMS.values() for each in room.targets()]
