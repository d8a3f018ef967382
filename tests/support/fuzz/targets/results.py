"""What a run has left: manifest, rows and events of a results folder."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutation import mutated_tree
from fuzz.target import Target
from measure.results.folder import MANIFEST
from measure.results.results import EVENTS, SUMMARY, Results
from railyard.timeline import Event

_MANIFEST: dict[str, Any] = {"railyard_results": 1, "experiment": {"experiment": "collective"}, "seed": 1}
_ROWS: list[Any] = [{"experiment": "collective", "algorithm": "ring", "n": 8, "size_bytes": 1024, "faithful": True}]
_EVENTS = (
    Event(1.0, "run", "point", 2.0, {"point": 0, "mode": "native"}),
    Event(1.5, "agent", "step", 1.9, {"rank": 0, "step": 1}),
)


def _folder(manifest: bytes, rows: bytes, events: bytes, folder: Path) -> None:
    for name, data in ((MANIFEST, manifest), (SUMMARY, rows), (EVENTS, events)):
        (folder / name).write_bytes(data)
    results = Results.open(folder)
    results.rows()
    results.events()
    _ = results.experiment


def _parts() -> tuple[bytes, bytes, bytes]:
    events = "".join(event.to_line() + "\n" for event in _EVENTS)
    return json.dumps(_MANIFEST).encode(), json.dumps(_ROWS).encode(), events.encode()


def _manifest(data: bytes, folder: Path) -> None:
    _folder(data, *_parts()[1:], folder)


def _rows(data: bytes, folder: Path) -> None:
    manifest, _, events = _parts()
    _folder(manifest, data, events, folder)


def _events(data: bytes, folder: Path) -> None:
    _folder(*_parts()[:2], data, folder)


def _own_manifest(chance: Random) -> bytes:
    return json.dumps(mutated_tree(chance, _MANIFEST)).encode()


def _own_rows(chance: Random) -> bytes:
    return json.dumps(mutated_tree(chance, _ROWS)).encode()


def _own_events(chance: Random) -> bytes:
    lines = [json.dumps(mutated_tree(chance, json.loads(event.to_line()))) for event in _EVENTS]
    return "".join(line + "\n" for line in lines).encode()


def targets() -> list[Target]:
    """The targets of this module."""
    manifest, rows, events = _parts()
    return [
        Target("manifest", _manifest, [manifest], make=_own_manifest, weight=0.5),
        Target("rows", _rows, [rows], make=_own_rows, weight=0.5),
        Target("events", _events, [events], make=_own_events),
    ]
