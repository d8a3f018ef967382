"""Reader of logs in the layout of nccl-tests, to compare our table with real logs and with how tools read it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from experiments.collective.nccl_table import TableRow

_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:)?")
_NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+([a-z]\w*)\s+(-?\d+)(?!\.)")
_GROUP = re.compile(rf"\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER})\s+({_NUMBER}|N/A)(?![\d.])")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")
_WRONG = re.compile(r"# Out of bounds values\s*:\s*(\d+)")


@dataclass(frozen=True)
class NcclLog:
    """Contents of a log of nccl-tests.

    ``rows`` hold the first group of columns (out of place, where there are two groups), ``in_place`` the second.
    ``cut`` are the line numbers (from 1) of rows that the output of another process cut in two: a complete group of
    such a row is in ``rows`` or ``in_place``, an incomplete one is left out.
    """

    rows: tuple[TableRow, ...]
    in_place: tuple[TableRow, ...] = ()
    cut: tuple[int, ...] = ()
    average_busbw_gb_s: float | None = None
    out_of_bounds: int | None = None


def parse_nccl_log(text: str) -> NcclLog:
    """Read all rows and totals in the layout of nccl-tests from a log; other lines are skipped."""
    rows, in_place, cut = list[TableRow](), list[TableRow](), list[int]()
    average: float | None = None
    wrong: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line[_PREFIX.match(line).end() :]  # type: ignore[union-attr]  # the pattern matches the empty string
        head = _ROW.match(line)
        if head is not None:
            first, second, whole = _groups(head, line)
            rows += first
            in_place += second
            cut += [] if whole else [number]
        elif found := _AVERAGE.match(line):
            average = float(found[1])
        elif found := _WRONG.match(line):
            wrong = int(found[1])
    return NcclLog(tuple(rows), tuple(in_place), tuple(cut), average, wrong)


def _groups(head: re.Match[str], line: str) -> tuple[list[TableRow], list[TableRow], bool]:
    """The complete groups of a row (first, second), and whether the row is complete: one group alone is."""
    first = _GROUP.match(line, head.end())
    if first is None:
        return [], [], False
    second = _GROUP.match(line, first.end())
    nothing_else = not line[first.end() :].strip()
    found = [_read(head, second)] if second else []
    return [_read(head, first)], found, second is not None or nothing_else


def _read(head: re.Match[str], group: re.Match[str]) -> TableRow:
    wrong = None if group[4] == "N/A" else round(float(group[4]))
    return TableRow(
        int(head[1]),
        int(head[2]),
        head[3],
        head[4],
        int(head[5]),
        float(group[1]),
        float(group[2]),
        float(group[3]),
        wrong,
    )
