"""Our table against a real log of RCCL's tests (32 ranks, all-gather), and both against how tools read them."""

from __future__ import annotations

import re
from dataclasses import fields

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

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_GROUP = rf"\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+({_NUMBER}|N/A)"
_ROW = re.compile(rf"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+([a-z]\w*)\s+(-?\d+){_GROUP}({_GROUP})$")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")


def read_rows(text: str) -> list[TableRow]:
    """The rows in the layout of nccl-tests, each with a second group of columns that is equal to the first."""
    found = []
    for row in filter(None, map(_ROW.match, text.splitlines())):
        wrong = None if row[9] == "N/A" else round(float(row[9]))
        head = (int(row[1]), int(row[2]), row[3], row[4], int(row[5]))
        assert row[11].split() == [row[6], row[7], row[8], row[9]]
        found.append(TableRow(*head, float(row[6]), float(row[7]), float(row[8]), wrong))
    return found


def test_our_header_is_that_of_the_real_log() -> None:
    theirs = [line.split(":", 1)[1] for line in REAL_LOG.read_text().splitlines()[1002:1005]]
    ours = format_table([table_row("all_gather", 32, 512, 1e-4)], iterations=1, warmup=0).splitlines()
    at = ours.index(theirs[0])
    assert ours[at : at + 3] == theirs


def test_a_line_stands_in_the_columns_of_the_real_log() -> None:
    theirs = REAL_LOG.read_text().splitlines()[1654].split(":", 1)[1]
    row = TableRow(1 << 30, 8_388_608, "float", "none", -1, 127776, 8.40, 8.14, 0)
    ours = format_table([row], iterations=1, warmup=0).splitlines()[-4]
    group = "   127776    8.40    8.14      0"
    assert ours == f"  1073741824       8388608     float    none      -1{group}{group}" and theirs.startswith(
        ours[:82]
    )


@given(st.lists(rows, min_size=1, max_size=5))
def test_what_is_printed_reads_back(printed: list[TableRow]) -> None:
    text = format_table(printed, iterations=20, warmup=5)
    for before, after in zip(printed, read_rows(text), strict=True):
        for field in fields(TableRow):
            old, new = getattr(before, field.name), getattr(after, field.name)
            if isinstance(old, float):
                assert new == pytest.approx(old, rel=0.005, abs=1e-5)
            else:
                assert new == old
    (average,) = filter(None, map(_AVERAGE.match, text.splitlines()))
    assert float(average[1]) == pytest.approx(sum(r.busbw_gb_s for r in printed) / len(printed), rel=1e-4)


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
