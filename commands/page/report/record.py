"""The record of runs as plain HTML: all that a report says, readable without JavaScript, since files outlive browsers.

Beside tables and verdicts it has the facts of the manifest, and the claims of this project about the experiment. A run
is that of a claim if its settings are those of the claim's command: its claims are then judged by its own rows, all
others are shown with the numbers that were measured last for the documents. Every text of a run is escaped, and no
element of the record loads anything.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from commands.claims.claim import DOCS, Claim, Judged, MeasuredRun, judge, read_catalog
from commands.claims.kept import Kept, read_kept
from commands.claims.pages import cells, day, version
from experiments.experiment import Experiment
from experiments.options import in_words
from experiments.report import WIDTH, Recorded, Table
from experiments.settings import recorded_settings
from railyard.errors import ConfigError

# ---- facts -----------------------------------------------------------------------------------------------------------


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
    """Facts that decide what a run measures, settings first; a key without a value has an empty text."""
    for key, value in _flat(manifest["experiment"]):
        if key not in _SECRET:
            yield Fact("setting", key, in_words(value))
    for key, value in _flat(manifest["scale"]):
        yield Fact("scale", key, in_words(value))
    for key in ("datapath", "link_delay", "predicted"):
        yield Fact("run", key, in_words(manifest.get(key)))
    git = manifest.get("git") or {}
    yield Fact("run", "commit", f"{git.get('commit') or ''}{' (changed)' if git.get('changed') else ''}")
    for key in _ENDURING:
        yield Fact("machine", key, in_words(manifest.get("machine", {}).get(key)))
    yield Fact("machine", "calibrated", in_words((manifest.get("calibration") or {}).get("measured_at")))
    for key, value in manifest["versions"].items():
        yield Fact("version", key, value)


def occasion(manifest: Mapping[str, Any]) -> Iterator[Fact]:
    """The facts of this one run: its command and its files, when it was, and what else the machine did."""
    for key in ("command", "written", "ended_at", "ended"):
        yield Fact("run", key, in_words(manifest.get(key)))
    for file in manifest.get("inputs", ()):
        yield Fact("run", f"input {file['file']}", f"{file['bytes']} bytes, SHA-256 {file['sha256']}")
    machine = manifest.get("machine", {})
    yield Fact("machine", "load_before", in_words(machine.get("load_before")))
    yield Fact("machine", "steal", in_words(machine.get("steal")))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


# ---- claims ----------------------------------------------------------------------------------------------------------


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
        rows += [_claim_row(judged, evidence) for judged, evidence in shown]
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
    return _settings(kind, recorded.manifest["experiment"]) == _settings(kind, kept.settings) is not None


def _settings(kind: type[Experiment[Any]], given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings that decide what is measured; None for those of another version."""
    try:
        found = recorded_settings(kind.Settings, given)
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


def _claim_row(judged: Judged, evidence: str) -> dict[str, Any]:
    claim = judged.claim
    said = [each.replace("**", "") for each in cells(judged)]
    return {
        "cells": [f"{claim.name}: {claim.says}", *said, evidence],
        "here": evidence == "this run",
        "faithful": False if judged.verdict == "not faithful" else None,
        "points": [],
    }


# ---- HTML ------------------------------------------------------------------------------------------------------------


_NOT_TEXT = re.compile("[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Code points that HTML does not have: halves of surrogate pairs, and control characters."""


@dataclass(frozen=True)
class Recounted:
    """A run of a report: its overview, facts of its manifest, claims about its experiment, and figures as PNG."""

    overview: Mapping[str, Any]
    facts: Sequence[Fact] = ()
    claims: Mapping[str, Any] | None = None
    figures: Mapping[str, bytes] = field(default_factory=dict)


def text(value: object) -> str:
    """A value as text of HTML, also for the value of an attribute in double quotes."""
    return html.escape(_NOT_TEXT.sub("\ufffd", str(value)))


def record(runs: Sequence[Recounted], comparison: Mapping[str, Any] | None) -> Iterator[str]:
    """The record of one run, or of two and their comparison; before it the claims, which the page does not show."""
    claims = next((run.claims for run in runs if run.claims is not None), None) if comparison is None else None
    if claims is not None:
        yield f'<section id="claims" class="panel">\n<h2>{text(claims["title"])}</h2>\n'
        yield from _paragraphs(claims["notes"])
        yield from _table("", _heads(claims), [row["cells"] for row in claims["rows"]])
        yield "</section>\n"
    yield '<details id="record" class="panel" open>\n'
    yield "<summary>Record: all tables, figures and facts, readable without scripts</summary>\n"
    if comparison is not None:
        yield from _compared(comparison)
    for number, run in enumerate(runs):
        yield from _run(run, number)
    yield "</details>\n"


def tables(of_report: Iterable[Table]) -> Iterator[str]:
    """Tables of a report as HTML, with the columns that a terminal shows, for a notebook."""
    for table in of_report:
        columns = table.shown(WIDTH)
        heads = [(column.name, column.left) for column in columns]
        yield from _table(table.title, heads, [[column.cell(row) for column in columns] for row in table.rows])


def _run(run: Recounted, number: int) -> Iterator[str]:
    found = run.overview
    yield f"<h2>{text(run.overview['name'])}</h2>\n"
    yield f"<p>Railyard experiment {text(found.get('experiment', ''))}: <code>{text(found.get('command') or '')}</code>"
    yield f", {text(found.get('written') or 'date unknown')}</p>\n"
    for stamp in found.get("stamps", ()):
        yield f'<p class="stamp"><strong>{text(stamp["kind"])}</strong> {text(stamp["says"])}</p>\n'
    yield from _paragraphs(found.get("notes", ()))
    if unreadable := found.get("unreadable"):
        yield f"<p>Lines of the events that could not be read and are left out: {text(unreadable)}.</p>\n"
    for each in found.get("tables", ()):
        yield from _table(each["title"], _heads(each), [row["cells"] for row in each["rows"]])
    yield from _section("Findings", found.get("findings", ()))
    yield from _verdicts(found.get("verdicts", ()))
    yield from _section("Calibration and scale", [*found.get("calibrated", ()), found.get("scale", {}).get("says", "")])
    for name, image in run.figures.items():
        yield f'<figure><figcaption>{text(name)}</figcaption><img data-run="{number}" data-file="{text(name)}" '
        yield f'alt="Figure {text(name)}" src="data:image/png;base64,{base64.b64encode(image).decode()}"></figure>\n'
    yield from _table("Facts about the run", [("", True), ("fact", True), ("value", True)], run.facts)


def _verdicts(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield "<h3>Verdict</h3>\n<ul>\n"
    for each in found:
        repeat = f", repeat {each['repeat']} of {each['repeats']}" if each.get("repeat") else ""
        yield f"<li>{text(each['title'] + repeat)}: {text(each['verdict'])}"
        failed = (check["says"] for check in each.get("checks", ()) if not check["ok"])
        yield from (f"<br>{text(says)}" for says in failed if says not in each["verdict"])
        yield "</li>\n"
    yield "</ul>\n"


def _compared(comparison: Mapping[str, Any]) -> Iterator[str]:
    a, b = comparison["names"]
    yield f"<h2>Comparison: A is {text(a)}, B is {text(b)}</h2>\n"
    yield from _paragraphs(comparison["notes"])
    heads = [("", True), ("fact", True), ("A", True), ("B", True)]
    rows = [[each["group"], each["key"], *each["values"]] for each in comparison["differs"]]
    yield from _table("What differs between the runs", heads, rows)
    for each in comparison["tables"]:
        yield from _table(each["title"], _heads(each), [row["cells"] for row in each["rows"]])
    yield from _paragraphs(comparison["remarks"])
    yield from _section(
        "Points of one run alone", [f"{'AB'[each['run']]}: {each['title']}" for each in comparison["unmatched"]]
    )


def _heads(table: Mapping[str, Any]) -> list[tuple[str, bool]]:
    return [(column["name"], column["left"]) for column in table["columns"]]


def _section(title: str, lines: Iterable[object]) -> Iterator[str]:
    found = [line for line in lines if line]
    if found:
        yield f"<h3>{text(title)}</h3>\n<ul>\n"
        yield from (f"<li>{text(line)}</li>\n" for line in found)
        yield "</ul>\n"


def _paragraphs(lines: Iterable[object]) -> Iterator[str]:
    yield from (f"<p>{text(line)}</p>\n" for line in lines)


def _table(title: str, heads: Sequence[tuple[str, bool]], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """A table; ``heads`` has the name of each column, and whether its cells stand on the left."""
    found = list(rows)
    if not found:
        return
    sides = ["" if left else ' class="number"' for _, left in heads]
    yield '<div class="wide"><table>\n'
    yield f"<caption>{text(title)}</caption>\n" if title else ""
    yield f"<tr>{''.join(f'<th{side}>{text(name)}</th>' for (name, _), side in zip(heads, sides, strict=True))}</tr>\n"
    for row in found:
        yield f"<tr>{''.join(f'<td{side}>{text(cell)}</td>' for cell, side in zip(row, sides, strict=False))}</tr>\n"
    yield "</table></div>\n"
