"""The numbers that were measured last: one small file a run, with the rows, and where they come from.

A file is ``NAME.json`` in folder ``measured`` of the documents, or in one that somebody sends to be compared. It holds
the columns of ``summary.csv``, the value of every repeat, and the fields that the catalog names; of the machine its
processors and its kernel, and no name of the machine, of its user, of a folder or of another process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from commands.claims.claim import MeasuredRun
from experiments.registry import ENTRIES, find
from measure.metrics.load import without_names
from measure.results.manifest import commits_since
from measure.results.plain import plain
from measure.results.results import Results
from measure.results.row import ResultRow, Row, columns, defaults_of, kind_of
from railyard.checkout import ROOT
from railyard.errors import ConfigError, shortened
from railyard.ownership import replace_file
from railyard.reading import read_bytes
from railyard.validation import shown
from railyard.verdict import NOT_FAITHFUL

MARK, FORMAT = "railyard_measured", 1
MEASURED = "measured"
"""The folder of the documents."""
_DIGITS = 6
"""Digits of a number that are kept."""
_MOST_BYTES = 4 << 20
_LONGEST_LINE = 400
_SHOWN = "command", "began", "version", "cpu", "cores"
"""Keys of the origin of which a person is told."""


@dataclass(frozen=True)
class Kept:
    """The rows of a run, the settings of its experiment, and ``origin``: when, by which version, on which machine."""

    origin: Mapping[str, Any]
    settings: Mapping[str, Any]
    rows: Sequence[Row]


def kept_from(run: MeasuredRun, results: Results, manifest: Mapping[str, Any], rows: Sequence[Row]) -> Kept:
    """The part of a results folder that is kept, from its ``manifest`` and its ``rows``."""
    kinds = find(results.experiment).rows
    kept = [_without_large(row, kind_of(row, kinds) or kinds[0], run.keep) for row in rows]
    return Kept(_origin(run, manifest), manifest["experiment"], kept)


def _origin(run: MeasuredRun, manifest: Mapping[str, Any]) -> dict[str, Any]:
    versions, machine = manifest["versions"], manifest["machine"]
    calibration = manifest.get("calibration") or {}
    return {
        "command": run.command,
        "began": manifest["written"],
        "ended": manifest["ended_at"],
        "version": versions["railyard"],
        "commit": (manifest.get("git") or {}).get("commit"),
        "changed": (manifest.get("git") or {}).get("changed"),
        "cpu": machine["cpu"],
        "cores": versions["machine"].rpartition(", ")[2],
        "kernel": versions["kernel"].partition("-")[0],
        "datapath": manifest.get("datapath") or None,
        "load_before": machine["load_before"],
        "steal": machine["steal"],
        "calibrated": calibration.get("measured_at"),
        "scale": manifest["scale"],
    }


def _without_large(row: Row, kind: type[ResultRow], keep: Sequence[str]) -> dict[str, Any]:
    names = [name for name in (*columns(kind), "samples", *keep) if name != "experiment"]
    values = {name: _short(row[name]) for name in names if row.get(name) is not None and row[name] != {}}
    return {"kind": kind.__name__, **values}


def _short(value: Any) -> Any:
    """Plain data with numbers of few digits, and verdicts that name no process."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, str):
        return without_names(value)
    return [_short(item) for item in value] if isinstance(value, (list, tuple)) else value


def older_by(run: MeasuredRun, kept: Kept) -> int | None:
    """How many commits changed the code that makes the numbers since they were measured; None where git cannot say."""
    commit = kept.origin.get("commit")
    return commits_since(ROOT, str(commit), run.code) if commit else None


# ---- files -----------------------------------------------------------------------------------------------------------


def as_text(name: str, kept: Kept) -> str:
    """The text of the file of run ``name``: JSON with a line for each row."""
    head = {MARK: FORMAT, "name": name, "origin": kept.origin, "settings": kept.settings}
    rows = ",\n".join(f"  {json.dumps(plain(row), ensure_ascii=False)}" for row in kept.rows)
    return f'{json.dumps(plain(head), indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def from_text(text: str | bytes, name: str) -> Kept:
    """The content of a kept file; rows have all fields of their type. ``ValueError`` with a phrase if it is none.

    Fields that the row's type has in this version and had not in that of the file have their default.
    """
    try:
        data = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError("is cut short or no JSON") from None
    if not isinstance(data, dict) or MARK not in data:
        raise ValueError("holds no measured rows")
    if data[MARK] != FORMAT:
        raise ValueError(f"has format {shown(data[MARK])}, and this version reads {FORMAT}")
    if data.get("name") != name:
        raise ValueError(f"is of {shown(data.get('name'))}")
    try:
        settings, origin = dict(data["settings"]), dict(data["origin"])
        if settings["experiment"] not in (entry.name for entry in ENTRIES):  # another might name code to load
            raise KeyError(shown(settings["experiment"]))
        kinds = {kind.__name__: kind for kind in find(settings["experiment"]).rows}
        rows = [
            {**defaults_of(kinds[row["kind"]]), **row, "experiment": settings["experiment"]} for row in data["rows"]
        ]
        missing = [key for key in _SHOWN if not _is_line(origin.get(key))]
    except (LookupError, TypeError, ValueError, ConfigError) as error:
        what = f"{type(error).__name__}: {shortened(str(error))}"
        raise ValueError(f"holds what this version does not know ({what})") from None
    if missing or not _is_line(origin.get("commit") or "0"):
        raise ValueError(f"does not say its {[*missing, 'commit'][0]}")
    for number, row in enumerate(rows):
        faithful, failed = row.get("faithful"), str(row.get("verdict")).startswith(NOT_FAITHFUL)
        if not isinstance(faithful, (bool, NoneType)) or (failed and faithful is not False):
            raise ValueError(f"has a row {number} whose key faithful is not what its verdict says")
    return Kept(origin, settings, rows)


def _is_line(value: object) -> bool:
    """Whether a value is text that a terminal can be given."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _LONGEST_LINE


def _no_number(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def read_kept(folder: Path, names: Sequence[str]) -> tuple[dict[str, Kept], list[str]]:
    """The kept numbers of the runs ``names``, by name, and a sentence for each file that cannot be read."""
    kept, unreadable = {}, []
    for name in names:
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        try:
            kept[name] = from_text(read_bytes(path, _MOST_BYTES, "a file of measured rows", pipes=False), name)
        except ConfigError as error:
            unreadable.append(f"{error}; its claims are shown as not measured")
        except ValueError as error:
            unreadable.append(f"{path} {error}; its claims are shown as not measured, measure them again")
    return kept, unreadable


def write_file(path: Path, content: bytes) -> bool:
    """Write a file of the documents: it has its old content or the new one; returns whether that is another."""
    if path.is_file() and path.read_bytes() == content:
        return False
    replace_file(path, content, links=True)
    return True
