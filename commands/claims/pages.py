"""Blocks of the documents that are made from kept numbers, between markers; the rest of a page is written by hand.

A block begins with a comment that says what it holds, and ends with ``<!-- end -->``:

- ``<!-- measured NAME -->``: the tables of run NAME, as its report makes them, and where they come from;
- ``<!-- measured NAME | COLUMN | ... -->``: the same with these columns, of the tables that have all of them (the
  first one of a name: ``± %`` is half of the 95 % interval of the main number);
- ``<!-- findings NAME -->``: the findings of its report;
- ``<!-- claims -->``, ``<!-- claims SYSTEM -->``: the claims with their verdicts; ``<!-- runs -->``: the runs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from commands.claims.claim import Judged, MeasuredRun, has_failed
from commands.claims.kept import Kept
from experiments.registry import find
from experiments.report import Column, Table
from measure.metrics.estimate import Estimate
from measure.results.row import Row
from railyard.errors import ConfigError
from railyard.scale import Scale, scale_in_words

BLOCK = re.compile(r"<!-- (measured|findings|claims|runs)\b([^>]*?) ?-->\n.*?<!-- end -->", re.DOTALL)
PREDICTED = ", predicted"
"""Said behind a number that was not measured."""
_COMMIT = 8
"""Digits of a commit that are shown."""
_WIDTH = 120
_TABLE_WIDTH = 84
"""Columns of a terminal whose tables fit, as Markdown, into a page."""


class Pages:
    """Makes the blocks of pages from the runs of the catalog, what is kept of them, and the judged claims."""

    def __init__(self, runs: Mapping[str, MeasuredRun], kept: Mapping[str, Kept], judged: Sequence[Judged]) -> None:
        self._runs = runs
        self._kept = kept
        self._judged = judged

    def rewritten(self, text: str, page: str) -> str:
        """A page with its blocks made anew; ``ConfigError`` with the name of the page for a marker that is wrong."""

        def made(found: re.Match[str]) -> str:
            name, *columns = (part.strip() for part in " ".join(found[2].split()).split("|"))
            lines = self._block(found[1], name, columns, page)
            marker, _, _ = found[0].partition("-->")
            return "\n".join([f"{marker}-->", "", *lines, "", "<!-- end -->"])

        return BLOCK.sub(made, text)

    def _block(self, what: str, name: str, columns: Sequence[str], page: str) -> list[str]:
        if what == "claims":
            return list(claims_lines([each for each in self._judged if name in ("", each.claim.system)]))
        if what == "runs":
            return list(run_lines(self._runs.values(), self._kept))
        if name not in self._runs:
            raise ConfigError(f"{name!r} is no run of the catalog; those are {', '.join(self._runs)}", source=page)
        run, kept = self._runs[name], self._kept.get(name)
        if kept is None:
            return wrapped(f"Not measured yet: `{run.command}`.")
        try:
            return list(finding_lines(kept) if what == "findings" else table_blocks(kept, columns, page))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"the report of {name} does not fit what is kept ({type(error).__name__}: {error}); measure it again",
                source=page,
            ) from error


def page_of(runs: Mapping[str, MeasuredRun], kept: Mapping[str, Kept], judged: Sequence[Judged]) -> str:
    """A page of what is kept: claims with their verdicts, and runs with their machine."""
    claims = claims_lines([each for each in judged if each.claim.run in kept])
    return "\n".join(["# Claims", "", *claims, "", *run_lines([runs[name] for name in kept], kept), ""])


# ---- tables and findings of a run ------------------------------------------------------------------------------------


def table_blocks(kept: Kept, columns: Sequence[str], page: str) -> Iterator[str]:
    """The tables of the report of a run, or those that have all of ``columns``, and a sentence on their origin."""
    tables = list(find(kept.settings["experiment"]).report().tables(kept.rows))
    shown = [(table, _chosen(table, columns)) for table in tables]
    if not any(found for _, found in shown):
        known = " / ".join(" | ".join(map(_name, table.columns)) for table in tables)
        raise ConfigError(f"no table has the columns {' | '.join(columns)}; there are {known}", source=page)
    several = sum(bool(found) for _, found in shown) > 1
    for table, found in shown:
        if found:
            yield from ([*wrapped(f"**{' '.join(table.title.split())}**"), ""] if several else [])
            yield from markdown_table(
                [_name(each) for each in found], [[_cell(c, r) for c in found] for r in table.rows]
            )
            yield ""
    yield from wrapped(origin_sentence(kept))


def _chosen(table: Table, names: Sequence[str]) -> list[Column]:
    """The columns of a table with these names in their order, none if one is missing; without names those that fit."""
    if not names:
        return list(table.shown(_TABLE_WIDTH))
    of_name = {_name(column): column for column in reversed(table.columns)}
    return [of_name[name] for name in names] if set(names) <= of_name.keys() else []


def _name(column: Column) -> str:
    return column.name.replace("-\n", "").replace("\n", " ")


def _cell(column: Column, row: Row) -> str:
    return str(column.cell(row)).replace("|", "\\|").replace("*", "\\*")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(cells)} |" for cells in rows)


def finding_lines(kept: Kept) -> Iterator[str]:
    for each in find(kept.settings["experiment"]).report().findings(kept.rows, kept.settings):
        yield from _item(str(each))


def origin_sentence(kept: Kept) -> str:
    """Where the rows of a run come from: command, day, version, machine, repeats, scale and verdict."""
    origin = kept.origin
    said = [f"`{origin['command']}`, {day(kept)}, {version(kept)}"]
    packets = [row for row in kept.rows if row.get("faithful") is not None]
    if packets:
        said += [f"{machine(kept)}, datapath {origin['datapath']}", _repeats(packets)]
        scale = Scale(**origin["scale"])
        said += [f"scaled by {scale_in_words(scale)}"] if scale != Scale(1.0, 1.0) else []
        bad = sum(has_failed(row) for row in packets)
        said += [f"**NOT FAITHFUL: {bad} of {len(packets)} points**" if bad else f"all {len(packets)} points faithful"]
    return "; ".join(said) + "."


def _repeats(rows: Sequence[Row]) -> str:
    counts = sorted({row.get("repeats") or 1 for row in rows})
    return f"n = {' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))}"


def day(kept: Kept) -> str:
    """The day on which a run began, as 2026-01-31."""
    return str(kept.origin["began"])[: len("2026-01-31")]


def version(kept: Kept) -> str:
    """The version of Railyard of a run: number, commit, and whether tracked files differed from that."""
    commit, changed = kept.origin.get("commit"), kept.origin.get("changed")
    exact = f" ({str(commit)[:_COMMIT]}{', **changed**' if changed else ''})" if commit else ""
    return f"Railyard {kept.origin['version']}{exact}"


def machine(kept: Kept) -> str:
    return f"{kept.origin['cpu']}, {kept.origin['cores']}"


# ---- claims ----------------------------------------------------------------------------------------------------------


def claims_lines(judged: Sequence[Judged]) -> Iterator[str]:
    """A table of claims, and below it what each says and how it is measured."""
    heads = ("claim", "here", "compared with", "tolerance", "verdict")
    yield from markdown_table(heads, ([f"`{each.claim.name}`", *cells(each)] for each in judged))
    yield ""
    for each in judged:
        claim = each.claim
        note = f" {claim.note}" if claim.note else ""
        does = "does not" if each.verdict == "does not hold" else "is not expected to"
        note += f" It {does} hold: {claim.why}" if claim.why else ""
        compared = f"`{claim.source}`, {claim.kind}" if claim.of else claim.source
        yield from _item(f"`{claim.name}`: {claim.says}.{note} (Compared with: {compared}; run `{claim.run}`.)")


def cells(each: Judged) -> list[str]:
    """The number of a claim, what it is compared with, the tolerance and the verdict, in words."""
    claim, said = each.claim, PREDICTED if each.predicted else ""
    return [
        "-" if each.number is None else f"{in_words(each.number, claim.form, claim.unit)}{said}",
        "-" if each.expected is None else f"{_range(each.expected, claim.form)} ({claim.kind})",
        str(claim.tolerance),
        each.verdict if each.verdict in ("holds", "not measured") else f"**{each.verdict}**",
    ]


def in_words(number: Estimate, form: str, unit: str) -> str:
    """A number with its unit, and with interval and n if there are several values."""
    said = median_in_words(number, form, unit)
    interval = interval_in_words(number, form)
    return f"{said} ({interval}, n = {number.n})" if interval else said


def median_in_words(number: Estimate, form: str, unit: str) -> str:
    return f"{number.median:{form}}{'' if unit in ('', 'x') else ' '}{unit}"


def interval_in_words(number: Estimate, form: str) -> str:
    """The 95 % interval of a number, empty for a single value."""
    return "" if number.low is None or number.high is None else f"{number.low:{form}} to {number.high:{form}}"


def _range(expected: tuple[float, float], form: str) -> str:
    return " to ".join(dict.fromkeys(f"{end:{form}}" for end in expected))


def run_lines(runs: Iterable[MeasuredRun], kept: Mapping[str, Kept]) -> Iterator[str]:
    """A table of the runs, and below it the command of each and where its numbers come from."""
    heads = ("run", "minutes", "root", "last run", "version", "machine")
    lines = []
    for run in runs:
        found = kept.get(run.name)
        last = ["not yet", "", ""]
        if found is not None:
            last = [day(found), version(found).removeprefix("Railyard "), machine(found)]
        lines.append([f"`{run.name}`", f"{run.minutes:g}", "yes" if run.root else "no", *last])
    yield from markdown_table(heads, lines)
    yield ""
    for run in runs:
        yield from _item(f"`{run.name}`: `{run.command}`")


def _item(text: str) -> list[str]:
    return wrapped(text, first="- ", then="  ")


def wrapped(text: str, first: str = "", then: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )


def pages_of(docs: Path) -> Iterator[Path]:
    """The pages of a folder of documents that have blocks."""
    for path in sorted(docs.glob("*.md")):
        if BLOCK.search(path.read_text(encoding="utf-8")):
            yield path
