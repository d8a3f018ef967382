"""The record of runs as plain HTML: all that a report says, readable without JavaScript, since files outlive browsers.

Every text of a run is escaped, and no element of the record loads anything.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from commands.page.facts import Fact

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


def _run(run: Recounted, number: int) -> Iterator[str]:
    found = run.overview
    yield f"<h2>{text(found.get('name', ''))}</h2>\n"
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
        failed = [check["says"] for check in each.get("checks", ()) if not check["ok"]]
        yield from (f"<br>{text(says)}" for says in failed)
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
