"""The table of nccl-tests, written in its layout for tools that read it.

Layout after NVIDIA nccl-tests (``src/common.cu``, ``src/util.cu``): one line a size, with size, count, type, redop and
root, then time, algbw, busbw and #wrong out of place and once more in place. 1 GB = 1e9 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from railyard.errors import ConfigError
from workloads.schedule import bus_factor

ELEMENT_BYTES = 4
_SHARED_OUT = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose count column is one rank's share of the buffer, in elements."""
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})
_HEAD = "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}"
_BODY = " {:>8} {:>7} {:>7}  {:>5}"
_REPEATED = "# on the wire in place is the same as out of place: measured once, printed in both groups"


@dataclass(frozen=True)
class TableRow:
    """One row of the table: size in bytes, ``count`` in elements, time in microseconds, bandwidths in GB/s.

    ``root`` is -1 and ``redop`` ``none`` where the operation has none. ``wrong`` is None without verification.
    """

    size_bytes: int
    count: int
    type: str
    redop: str
    root: int
    time_us: float
    algbw_gb_s: float
    busbw_gb_s: float
    wrong: int | None


def table_row(
    kind: str, members: int, size_bytes: int, time_s: float, wrong: int | None = None, root: int = 0
) -> TableRow:
    """The row of one float32 collective over ``members`` ranks.

    ``size_bytes`` is as in ``Collective.bytes``; ``time_s`` is in real seconds, and a ``ConfigError`` unless above 0.
    """
    if not time_s > 0:
        raise ConfigError(f"a {kind} must take more than 0 s, not {time_s:g} s", key="time_s")
    algbw = size_bytes / time_s / 1e9
    return TableRow(
        size_bytes=size_bytes,
        count=size_bytes // ELEMENT_BYTES // (members if kind in _SHARED_OUT else 1),
        type="float",
        redop="sum" if kind in _REDUCING else "none",
        root=root if kind in _ROOTED else -1,
        time_us=time_s * 1e6,
        algbw_gb_s=algbw,
        busbw_gb_s=algbw * bus_factor(kind, members),
        wrong=wrong,
    )


def format_table(
    rows: Sequence[TableRow],
    *,
    iterations: int,
    warmup: int,
    devices: Sequence[str] = (),
) -> str:
    """The whole output of one program of nccl-tests for ``rows``, as text that ends with a line break.

    ``devices`` describes each rank, in order. The second group of columns, for tools that find columns by number,
    repeats the measurement, and a line says so.
    """
    lines = [_opening(rows, iterations, warmup), "#", "# Using devices"]
    lines += [f"#  Rank {rank:2d} Group  0 on {device}" for rank, device in enumerate(devices)]
    lines += ["#", _REPEATED, *_titles()]
    lines += [_line(row) for row in rows]
    lines += [*_closing(rows), "#", ""]
    return "\n".join(lines)


def _opening(rows: Sequence[TableRow], iterations: int, warmup: int) -> str:
    sizes = [row.size_bytes for row in rows] or [0]
    checked = int(any(row.wrong is not None for row in rows))
    return (
        f"# nThread 1 nGpus 1 minBytes {min(sizes)} maxBytes {max(sizes)} step: {_step(sizes)} "
        f"warmup iters: {warmup} iters: {iterations} agg iters: 1 validation: {checked} graph: 0"
    )


def _step(sizes: Sequence[int]) -> str:
    """The step between sizes in the notation of nccl-tests; ``0(bytes)`` for sizes without a constant step."""
    pairs = list(pairwise(sizes))
    factors = {b / a for a, b in pairs if a}
    if len(factors) == 1 and min(factors) > 1:
        return f"{min(factors):g}(factor)"
    steps = {b - a for a, b in pairs}
    return f"{steps.pop() if len(steps) == 1 else 0}(bytes)"


def _titles() -> list[str]:
    """The three header lines of the table: groups, column names, units."""
    above = "#" + " " * 62 + "out-of-place" + " " * 23 + "in-place" + " " * 10
    names = (
        _HEAD.format("size", "count", "type", "redop", "root")
        + _BODY.format("time", "algbw", "busbw", "#wrong").replace("  #wrong", " #wrong") * 2
    )
    units = _HEAD.format("(B)", "(elements)", "", "", "") + _BODY.format("(us)", "(GB/s)", "(GB/s)", "") * 2
    return [above, "#" + names[1:], "#" + units[1:]]


def _line(row: TableRow) -> str:
    wrong = "N/A" if row.wrong is None else f"{row.wrong:g}"
    body = _BODY.format(_fit(row.time_us, 7), _fit(row.algbw_gb_s, 6), _fit(row.busbw_gb_s, 6), wrong)
    head = _HEAD.format(row.size_bytes, row.count, row.type, row.redop, row.root)
    return head + body * 2


def _fit(value: float, width: int) -> str:
    """``value`` with two decimals as in nccl-tests, fewer where ``width`` is too small, more for values below 1.

    Emulated bandwidths are often thousandths of a GB/s, which two decimals would round to 0.00 or 0.01. Exponents are
    avoided because many parsers of the table do not accept them.
    """
    if 0 < value < 1:
        return f"{value:.{width - 1}f}"
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            break
    return text


def _closing(rows: Sequence[TableRow]) -> list[str]:
    checked = [row.wrong for row in rows if row.wrong is not None]
    wrong = sum(checked)
    verdict = f"{wrong} {'FAILED' if wrong else 'OK'}" if checked else "N/A (not verified)"
    average = sum(row.busbw_gb_s for row in rows) / len(rows) if rows else 0.0
    return [f"# Out of bounds values : {verdict}", f"# Avg bus bandwidth    : {average:g} "]
