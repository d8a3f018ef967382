from __future__ import annotations

import pytest

from commands.bench.bringup import _faster
from commands.bench.links import share_of_line, spread


def test_share_counts_headers_of_the_mtu_in_use() -> None:
    assert share_of_line([100 * 8948 / 9014], 100.0) == pytest.approx([1.0])
    assert share_of_line([100 * 1448 / 1514], 100.0, 1500) == pytest.approx([1.0])


def test_spread() -> None:
    assert spread([99.0, 100.0, 101.0]) == pytest.approx(0.02)


def test_limit_of_bring_up_is_for_the_ratio() -> None:
    assert _faster("x", 2.0, 20.0, 10.0).ok is True
    assert _faster("x", 2.1, 20.0, 10.0).ok is False
    assert _faster("x", 2.0, None, 10.0).ok is None
