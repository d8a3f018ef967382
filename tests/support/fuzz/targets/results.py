"""What a run has left: manifest, rows and events of a results folder."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from experiments.experiment import Experiment
from experiments.redraw import read_folder
from experiments.registry import find
from experiments.report import show
from experiments.settings import validated
from fuzz.mutation import mutated_tree
from fuzz.target import Target
from measure.results.folder import MANIFEST
from measure.results.results import EVENTS, SUMMARY, Results
from measure.results.trace import trace_json
from railyard.errors import ConfigError
from railyard.timeline import Event

_NEXT = b"--next file--"
"""Between the manifest, the rows and the events of a folder in one input."""
REPORTED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What ``railyard plot`` reports as a folder that it does not understand."""
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


def _plot(data: bytes, folder: Path) -> None:
    """The trace and the tables of a folder whose manifest, rows and events are three parts of ``data``."""
    parts = (*data.split(_NEXT), b"", b"")
    _folder(parts[0] or b"{}", parts[1] or b"[]", parts[2], folder)
    recorded = read_folder(Results.open(folder))
    kind = find(Results.open(folder).experiment)
    settings = recorded.manifest["experiment"]
    if kind.packets:
        trace_json(recorded.events, recorded.scale)
    with redirect_stdout(StringIO()):
        show(kind.report(), recorded.rows, settings, packets=kind.packets, notes=recorded.notes)


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


def _rows_of(kind: type[Experiment[Any]]) -> list[Any]:
    """The predicted rows of a small experiment, as its folder has them."""
    settings = validated(kind.Settings, {"ranks": 4, "sizes": [1024]})
    return [row.to_json() for row in kind(settings).predict()]


def _own_folder(whole: tuple[Any, Any, Any], chance: Random) -> bytes:
    manifest, rows, events = whole
    place = chance.randrange(3)
    manifest = mutated_tree(chance, manifest) if place == 0 else manifest
    rows = mutated_tree(chance, rows) if place == 1 else rows
    lines = mutated_tree(chance, events) if place == 2 else events
    text = "".join(json.dumps(line) + "\n" for line in (lines if isinstance(lines, list) else [lines]))
    return _NEXT.join((json.dumps(manifest).encode(), json.dumps(rows).encode(), text.encode()))


def targets() -> list[Target]:
    """The targets of this module."""
    manifest, rows, events = _parts()
    full = {**_MANIFEST, "scale": {"rate": 1.0, "time": 1.0}}
    whole = full, _rows_of(find("collective")), [json.loads(event.to_line()) for event in _EVENTS]
    seed = _NEXT.join((json.dumps(whole[0]).encode(), json.dumps(whole[1]).encode(), events))
    return [
        Target("plot", _plot, [seed], (ConfigError, *REPORTED), [_NEXT], partial(_own_folder, whole), weight=0.5),
        Target("manifest", _manifest, [manifest], make=_own_manifest, weight=0.5),
        Target("rows", _rows, [rows], make=_own_rows, weight=0.5),
        Target("events", _events, [events], make=_own_events),
    ]
