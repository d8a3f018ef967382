"""The file of ``--json``, or standard output in its place."""

from __future__ import annotations

from pathlib import Path

from railyard.errors import ConfigError
from railyard.ownership import naming, open_text


def write_json(place: str, text: str) -> None:
    """Write JSON to a file that belongs to the user who called sudo, or to standard output (``-``)."""
    if place == "-":
        print(text)
        return
    try:
        with naming(place), open_text(place, "w", links=True) as out:
            out.write(text + "\n")
    except OSError as error:
        raise ConfigError(f"{place} cannot be written ({error.strerror}); name another file", key="--json") from None


def check_json(place: str | None) -> None:
    """Raise ``ConfigError`` for an experiment file, and where no file can be written, before anything starts."""
    if place is None or place == "-":
        return
    if not place or Path(place).is_dir():
        raise ConfigError("must name a file; without one the rows are written to standard output", key="--json")
    if place.endswith((".yaml", ".yml")):
        raise ConfigError(f"{place} is an experiment file; name another file for the rows", key="--json")
    if not Path(place).parent.is_dir():
        raise ConfigError(f"{Path(place).parent} is not a folder; make it first", key="--json")
