from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railyard.size import in_words, parse_size, size_in_words


@pytest.mark.parametrize(
    ("text", "size"), [("4", 4), ("4096", 4096), ("4K", 4096), ("4kB", 4096), ("1MiB", 1 << 20), ("1.5M", 3 << 19)]
)
def test_sizes_are_read_as_nccl_tests_read_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(1, 1 << 40))
def test_a_printed_size_is_to_the_byte(size: int) -> None:
    number, unit = in_words(size).split()
    assert int(number.replace(",", "")) == size and unit == ("byte" if size == 1 else "bytes")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (625_000, "625 kB"),
        (1_116_536, "1.12 MB"),
        (2_264_320, "2.26 MB"),
        (9_057_280, "9.06 MB"),
        (3 << 19, "1.5 MiB"),
        (999_999, "1 MB"),
    ],
)
def test_a_short_size_is_decimal_unless_it_is_a_round_binary_one(size: int, text: str) -> None:
    assert size_in_words(size) == text
