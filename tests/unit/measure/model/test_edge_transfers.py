"""Formulas of edge transfers, and the link that flows share, against values by hand."""

from __future__ import annotations

from functools import partial

import pytest

from experiments.propius.model.formulas import root_bytes, transfer_s
from experiments.propius.model.plane import Clock, SharedLink
from railyard.scale import goodput_share

MODEL = 9.25e6
SHARE = goodput_share(9000)


def test_a_transfer_takes_its_bits_at_the_goodput_and_one_round_trip() -> None:
    assert transfer_s(1.25e6, 10, 0.1) == pytest.approx(1 / SHARE + 0.1)


@pytest.mark.parametrize(
    ("topology", "mode", "least", "most"),
    [("star", "fixed", 48, 48), ("star", "authors", 48, 48), ("tree", "fixed", 4, 4), ("tree", "authors", 4, 48)],
)
def test_bytes_on_the_root_link(topology: str, mode: str, least: int, most: int) -> None:
    assert root_bytes([12] * 4, MODEL, topology, mode) == (least * MODEL, most * MODEL)  # type: ignore[arg-type]


def test_a_region_without_clients_fetches_nothing() -> None:
    assert root_bytes([3, 0], MODEL, "tree", "fixed") == (MODEL, MODEL)


def ended(rate: float | None, sends: list[tuple[float, float, float]]) -> list[float]:
    """When transfers of (start, bytes, most bit/s) end."""
    clock = Clock()
    link = SharedLink(clock, rate)
    ends = [0.0] * len(sends)
    for number, (start, size, most) in enumerate(sends):
        clock.at(start, link.send, size, most, partial(lambda n: ends.__setitem__(n, clock.now), number))
    while clock.next_s < float("inf"):
        clock.step()
    assert link.bytes == sum(size for _, size, _ in sends)
    return ends


def test_a_link_is_shared_fairly_and_slow_flows_leave_the_rest_to_the_others() -> None:
    assert ended(8e6, [(0, 1e6, 1e9), (0, 1e6, 1e9)]) == pytest.approx([2, 2])
    assert ended(8e6, [(0, 1e6, 2e6), (0, 3e6, 1e9)]) == pytest.approx([4, 4])
    assert ended(8e6, [(0, 1e6, 1e9), (0.5, 1e6, 1e9)]) == pytest.approx([1.5, 2])
    assert ended(None, [(0, 1e6, 8e6), (0, 1e6, 4e6)]) == pytest.approx([1, 2])
