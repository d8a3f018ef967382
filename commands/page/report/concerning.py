"""The claims of this project about the experiment of a run: judged by the run itself where it is the claim's run.

A run is that of a claim if its settings are those of the claim's command. Its claims are then judged by its own rows.
All others are shown with the numbers that were measured last for the documents, which this run did not give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from commands.claims.claim import DOCS, Claim, Judged, MeasuredRun, judge, read_catalog
from commands.claims.kept import Kept, read_kept
from commands.claims.pages import cells, day, version
from experiments.experiment import Experiment
from experiments.report import Recorded
from experiments.settings import validated
from railyard.errors import ConfigError

_NOT_MEASURED = ("rest", "rest_token_file", "pcap", "wait_quiet_s", "attempts", "give_up")
"""Settings that do not change what is measured."""
_COLUMNS = ("claim", "number", "compared with", "tolerance", "verdict", "evidence")


def concerning(kind: type[Experiment[Any]], recorded: Recorded, docs: Path = DOCS) -> dict[str, Any] | None:
    """The claims about an experiment as a table of the report, with ``title`` and ``notes``.

    None if there are none, or no catalog that can be read: Railyard is installed without the documents, or is another
    user's.
    """
    try:
        catalog = read_catalog(docs)
    except ConfigError:
        return None
    runs = [run for run in catalog.runs.values() if run.words[1] == kind.name]
    kept, _ = read_kept(docs / "measured", [run.name for run in runs])
    rows: list[dict[str, Any]] = []
    for run in runs:
        mine = run.name in kept and is_of(kind, recorded, run, kept[run.name])
        claims = [claim for claim in catalog.claims.values() if claim.run == run.name]
        shown = _judged(claims, run, recorded, kept.get(run.name), mine=mine)
        rows += [_row(judged, evidence) for judged, evidence in shown]
    if not rows:
        return None
    here = sum(row["here"] for row in rows)
    said = (
        "Those with the evidence 'this run' are judged by the rows above."
        if here
        else "This run is not the run of any of them: its settings are others. It neither supports nor refutes them."
    )
    return {
        "title": "Claims of the project about this experiment",
        "columns": [{"name": name, "left": True} for name in _COLUMNS],
        "rows": rows,
        "notes": [said, "Evidence 'documents': the number that was measured last for the documents, not by this run."],
    }


def is_of(kind: type[Experiment[Any]], recorded: Recorded, run: MeasuredRun, kept: Kept) -> bool:
    """Whether a run has all the settings of the claim's ``run``, as those of ``kept`` say."""
    if recorded.predicted != (run.verb == "predict"):
        return False
    return _settings(kind, recorded.manifest.get("experiment")) == _settings(kind, kept.settings) is not None


def _settings(kind: type[Experiment[Any]], given: Any) -> Mapping[str, Any] | None:
    """The settings that decide what is measured, with the defaults of keys that an earlier version did not have."""
    if not isinstance(given, Mapping):
        return None
    try:
        found = validated(kind.Settings, {key: value for key, value in given.items() if key != "experiment"})
    except ConfigError:
        return None
    return {key: value for key, value in found.model_dump(mode="json").items() if key not in _NOT_MEASURED}


def _judged(
    claims: Sequence[Claim], run: MeasuredRun, recorded: Recorded, kept: Kept | None, *, mine: bool
) -> Iterator[tuple[Judged, str]]:
    """The ``claims`` of ``run``, each with where its number comes from."""
    rows: Sequence[Mapping[str, Any]] | None = recorded.rows if mine else None if kept is None else kept.rows
    evidence = "this run" if mine else "-" if kept is None else f"documents: {day(kept)}, {version(kept)}"
    for claim in claims:
        yield replace(judge(claim, rows), predicted=run.verb == "predict"), evidence


def _row(judged: Judged, evidence: str) -> dict[str, Any]:
    claim = judged.claim
    said = [each.replace("**", "") for each in cells(judged)]
    return {
        "cells": [f"{claim.name}: {claim.says}", *said, evidence],
        "here": evidence == "this run",
        "faithful": False if judged.verdict == "not faithful" else None,
        "points": [],
    }
