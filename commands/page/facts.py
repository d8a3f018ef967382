"""What a manifest says about how a run was made, in words: for the report, and for what differs between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments.options import in_words

_SECRET = ("rest_token_file",)
"""Settings that say nothing about what was measured."""
_ENDURING = ("cpu", "clock_source")
"""Facts about a machine that do not change from one run to the next."""


class Fact(NamedTuple):
    """A fact about a run; ``group`` is setting, scale, run, machine or version."""

    group: str
    key: str
    value: str


def facts(manifest: Mapping[str, Any]) -> Iterator[Fact]:
    """What decides what a run measures, settings first; a key without a value has an empty text."""
    for key, value in _flat(_table(manifest, "experiment")):
        if key not in _SECRET:
            yield Fact("setting", key, in_words(value))
    for key, value in _flat(_table(manifest, "scale")):
        yield Fact("scale", key, in_words(value))
    for key in ("datapath", "link_delay", "predicted"):
        yield Fact("run", key, in_words(manifest.get(key)))
    git = _table(manifest, "git")
    yield Fact("run", "commit", f"{git.get('commit') or ''}{' (changed)' if git.get('changed') else ''}")
    for key in _ENDURING:
        yield Fact("machine", key, in_words(_table(manifest, "machine").get(key)))
    yield Fact("machine", "calibrated", in_words(_table(manifest, "calibration").get("measured_at")))
    for key, value in _table(manifest, "versions").items():
        yield Fact("version", str(key), str(value))


def occasion(manifest: Mapping[str, Any]) -> Iterator[Fact]:
    """The facts of this one run: its command and its files, when it was, and what else the machine did."""
    for key in ("command", "written", "ended_at", "ended"):
        yield Fact("run", key, in_words(manifest.get(key)))
    inputs = manifest.get("inputs")
    for each in inputs if isinstance(inputs, list) else ():
        if isinstance(each, Mapping):
            about = f"{each.get('bytes')} bytes, SHA-256 {each.get('sha256')}"
            yield Fact("run", f"input {each.get('file')}", about)
    machine = _table(manifest, "machine")
    yield Fact("machine", "load_before", in_words(machine.get("load_before")))
    yield Fact("machine", "steal", in_words(machine.get("steal")))


def _table(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = manifest.get(key)
    return found if isinstance(found, Mapping) else {}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
