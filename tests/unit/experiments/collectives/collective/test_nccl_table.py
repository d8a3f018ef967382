"""Our table against a real log of RCCL's tests (32 ranks, all-gather), and both against how tools read them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

import pytest
from checkout import CASES
from hypothesis import given
from hypothesis import strategies as st

from experiments.collectives.collective.nccl_table import TableRow, format_table, table_row

REAL_LOG = CASES / "te-ccl" / "rccl_32_ranks.log"
KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")

rows = st.builds(
    table_row,
    st.sampled_from(KINDS),
    st.integers(2, 64),
    st.integers(1, 1 << 34),
    st.floats(1e-6, 1e3),
    st.none() | st.integers(0, 10_000),
    st.integers(0, 63),
)

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


@pytest.fixture(scope="module")
def real() -> NcclLog:
    return parse_nccl_log(REAL_LOG.read_text())


def test_a_real_log_gives_all_rows_but_the_one_that_was_cut(real: NcclLog) -> None:
    assert len(real.rows) == 27, "28 sizes, of which the first row was cut before its time"
    assert len(real.in_place) == 26, "the row of 8192 bytes was cut between its two groups"
    assert real.cut == (1036, 1080)
    assert real.rows[-1] == TableRow(1 << 30, 8_388_608, "float", "none", -1, 127776, 8.40, 8.14, 0)
    assert real.in_place[-1].time_us == 63096


def test_the_real_bus_bandwidths_follow_the_factor_of_an_all_gather(real: NcclLog) -> None:
    for row in real.rows + real.in_place:
        assert row.busbw_gb_s == pytest.approx(row.algbw_gb_s * 31 / 32, abs=0.01)
        assert row.algbw_gb_s == pytest.approx(row.size_bytes / row.time_us / 1e3, abs=0.006)
        assert row.count == row.size_bytes // 4 // 32


def test_the_real_average_is_that_of_both_groups(real: NcclLog) -> None:
    everything = [row.busbw_gb_s for row in real.rows + real.in_place]
    assert real.average_busbw_gb_s == pytest.approx(sum(everything) / (2 * 28), abs=0.001)
    assert real.out_of_bounds == 0


def test_our_header_is_that_of_the_real_log(real: NcclLog) -> None:
    theirs = [line.split(":", 1)[1] for line in REAL_LOG.read_text().splitlines()[1002:1005]]
    ours = format_table([table_row("all_gather", 32, 512, 1e-4)], iterations=1, warmup=0).splitlines()
    at = ours.index(theirs[0])
    assert ours[at : at + 3] == theirs


def test_a_line_stands_in_the_columns_of_the_real_log(real: NcclLog) -> None:
    theirs = REAL_LOG.read_text().splitlines()[1654].split(":", 1)[1]
    row = real.rows[-1]
    ours = format_table([row], iterations=1, warmup=0, groups="one").splitlines()[-4]
    assert theirs.startswith("  1073741824       8388608     float    none      -1   127776    8.40    8.14      0")
    assert ours == "  1073741824       8388608     float    none      -1   127776    8.40    8.14      0"


@given(st.lists(rows, min_size=1, max_size=5), st.sampled_from(["both", "one"]))
def test_what_is_printed_reads_back(printed: list[TableRow], groups: str) -> None:
    text = format_table(printed, iterations=20, warmup=5, groups=groups)  # type: ignore[arg-type]
    log = parse_nccl_log(text)
    assert log.cut == ()
    assert log.in_place == (log.rows if groups == "both" else ())
    assert len(log.rows) == len(printed)
    for before, after in zip(printed, log.rows, strict=True):
        for field in fields(TableRow):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if isinstance(old, float):
                assert new == pytest.approx(old, rel=0.005, abs=1e-5)
            else:
                assert new == old
    assert log.average_busbw_gb_s == pytest.approx(sum(r.busbw_gb_s for r in printed) / len(printed), rel=1e-4)


def test_a_reader_that_wants_both_groups_in_numbers_finds_them() -> None:
    """The pattern that published readers use: five columns, then twice three numbers and a count or N/A."""
    number = r"(\d+\.?\d*)"
    pattern = (
        rf"^\s*(\d+)\s+(\d+)\s+(float)\s+(sum|none)\s+(-?\d+)(?:\s+{number}\s+{number}\s+{number}\s+(\d+|N/A)){{2}}$"
    )
    slow = [table_row("all_reduce", 8, 16 << 20, 40.0), table_row("broadcast", 8, 4, 2e-4, 0)]
    lines = format_table(slow, iterations=20, warmup=5).splitlines()
    found = [match for line in lines if (match := re.match(pattern, line))]
    assert [int(match[1]) for match in found] == [16 << 20, 4]


def test_a_reader_that_finds_columns_by_their_names_finds_them() -> None:
    text = format_table([table_row("all_reduce", 4, 1 << 20, 0.25, 0)], iterations=20, warmup=5, groups="one")
    names = next(line for line in text.splitlines() if "busbw" in line)[1:].split()
    row = next(line for line in text.splitlines() if re.match(r"\s*\d", line)).split()
    assert float(row[names.index("busbw")]) == pytest.approx((1 << 20) / 0.25 / 1e9 * 1.5, abs=1e-5)
    assert names == ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]


@pytest.mark.parametrize(
    ("kind", "count", "redop", "root", "factor"),
    [
        ("all_reduce", 1024, "sum", -1, 1.75),
        ("reduce", 1024, "sum", 3, 1.0),
        ("broadcast", 1024, "none", 3, 1.0),
        ("all_gather", 128, "none", -1, 0.875),
        ("reduce_scatter", 128, "sum", -1, 0.875),
        ("all_to_all", 128, "none", -1, 0.875),
        ("gather", 128, "none", 3, 0.875),
        ("scatter", 128, "none", 3, 0.875),
        ("send_recv", 1024, "none", -1, 1.0),
    ],
)
def test_each_kind_as_nccl_tests_counts_it(kind: str, count: int, redop: str, root: int, factor: float) -> None:
    row = table_row(kind, 8, 4096, 0.001, root=3)
    assert (row.count, row.redop, row.root) == (count, redop, root)
    assert row.busbw_gb_s == pytest.approx(4096 / 0.001 / 1e9 * factor)


@pytest.mark.parametrize(
    ("sizes", "step"),
    [([4, 16, 64], "4(factor)"), ([4, 8, 12], "4(bytes)"), ([4, 5, 99], "0(bytes)"), ([4], "0(bytes)")],
)
def test_the_opening_line_says_how_sizes_grow(sizes: list[int], step: str) -> None:
    text = format_table([table_row("all_reduce", 4, s, 1.0) for s in sizes], iterations=20, warmup=5)
    opening = text.splitlines()[0]
    assert f"minBytes 4 maxBytes {max(sizes)} step: {step} warmup iters: 5 iters: 20" in opening
    assert "validation: 0" in opening and "# Out of bounds values : N/A (not verified)" in text


def test_wrong_elements_are_a_failure() -> None:
    text = format_table([table_row("all_reduce", 4, 64, 1.0, wrong=2)], iterations=1, warmup=0)
    assert "# Out of bounds values : 2 FAILED" in text
    assert parse_nccl_log(text).out_of_bounds == 2
