"""Tokens of experts by a distribution that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from railyard.errors import ConfigError
from workloads.pytorch.experts import Experts, read_experts


@pytest.mark.parametrize(
    ("text", "counts"),
    [("uniform", [4, 3, 3]), ("zipf:0", [4, 3, 3]), ("zipf:1", [5, 3, 2]), ("zipf:100", [10, 0, 0])],
)
def test_counts_of_all_tokens_are_as_near_to_the_distribution_as_whole_ones_can_be(
    text: str, counts: list[int]
) -> None:
    assert read_experts(text).counts(10, 3, rank=0) == counts


def test_a_file_has_a_line_for_all_ranks_or_for_each(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("1 0\n\n1, 3\n")
    experts = read_experts(str(path))
    assert [experts.counts(8, 2, rank) for rank in (0, 1, 7)] == [[8, 0], [2, 6], [2, 6]]
    assert experts.counts(8, 0, 0) == [8, 0]  # a script that does not say how many experts it has
    with pytest.raises(ConfigError, match="has 2 experts, the script 3"):
        experts.counts(8, 3, 0)


@pytest.mark.parametrize("content", ["", "1 -1\n", "0 0\n", "1 two\n", "inf 1\n", "nan 1\n"])
def test_a_file_without_weights_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text(content)
    with pytest.raises(ConfigError, match="--experts: "):
        read_experts(str(path))


def test_no_tokens_are_no_tokens() -> None:
    assert Experts(exponent=1.0).counts(0, 2, 0) == [0, 0]
