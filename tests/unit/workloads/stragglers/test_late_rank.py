"""A late rank in words: ``RANK:SECONDS`` or ``RANK:CAUSE``."""

from __future__ import annotations

import pytest

from railyard.errors import ConfigError
from workloads.stragglers.injection import Fixed, parse_late_rank


def test_seconds_and_causes() -> None:
    assert parse_late_rank("3:0.5").rank == 3 and parse_late_rank("3:0.5").injection.gaps == Fixed(0.5)
    assert parse_late_rank("12:300ms").injection.gaps == Fixed(0.3)
    slow = parse_late_rank("0:slow-link:0.5+fixed:0.1").injection
    assert (slow.link_share, slow.gaps) == (0.5, Fixed(0.1))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.5", "must be RANK:SECONDS or RANK:CAUSE, such as 3:0.5 or 3:slow-link:0.5, not '0.5'"),
        ("-1:0.5", "must be RANK:SECONDS or RANK:CAUSE"),
        ("3:", "must be RANK:SECONDS or RANK:CAUSE"),
        ("9999999:1", "must be RANK:SECONDS or RANK:CAUSE"),
        ("3:-1", "must be a time of 0 or more"),
        ("3:fast:2", "unknown injection 'fast:2'; known: "),
        ("3:slow-link:2", "must be a number from 0.001 to 1, not '2'"),
    ],
)
def test_what_is_no_late_rank(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_late_rank(text)
    assert refused.value.key == "late" and sentence in refused.value.message
