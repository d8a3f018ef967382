"""Groups with several GPUs in each server: which network carries which part, and that the parts make the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.training.levels import Levels, levels_of, spread

BOTH = Levels("in", "rail", gpus=4)


def test_one_network_is_one_leg() -> None:
    assert Levels(along="rail").legs("all_gather", 100) == (("rail", "all_gather", 100),)
    assert Levels("in", gpus=4).legs("all_to_all", 100) == (("in", "all_to_all", 100),)
    assert Levels().legs("all_reduce", 100) == ()
    assert not Levels() and Levels(along="rail") and Levels("in")


def test_a_rail_carries_the_part_of_one_gpu() -> None:
    assert BOTH.legs("all_gather", 100) == (("rail", "all_gather", 25), ("in", "all_gather", 100))
    assert BOTH.legs("reduce_scatter", 100) == (("in", "reduce_scatter", 100), ("rail", "reduce_scatter", 25))
    assert BOTH.legs("all_reduce", 101) == (
        ("in", "reduce_scatter", 101),
        ("rail", "all_reduce", 26),
        ("in", "all_gather", 101),
    )


def test_a_number_is_summed_whole_at_both_levels() -> None:
    assert BOTH.legs("all_reduce", 4) == (("in", "all_reduce", 4), ("rail", "all_reduce", 4))
    assert BOTH.legs("all_reduce", 16)[0] == ("in", "reduce_scatter", 16)


def test_an_all_to_all_comes_back_the_other_way() -> None:
    there = BOTH.legs("all_to_all", 100)
    assert there == (("in", "all_to_all", 100), ("rail", "all_to_all", 100))
    assert BOTH.legs("all_to_all", 100, back=True) == there[::-1]


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(ValueError, match="broadcast cannot be divided"):
        BOTH.legs("broadcast", 100)


@given(gpus=st.integers(2, 4), servers=st.integers(2, 4))
def test_every_rank_is_in_one_group_of_its_server_and_one_of_its_rail(gpus: int, servers: int) -> None:
    parts = spread("g", "ep", range(gpus * servers), 3, gpus)
    found = {part.name: part for part in parts}
    assert len(found) == gpus + servers
    for rank in range(gpus * servers):
        at = levels_of(rank, parts, found)
        assert found[at.inside].domain == "scale-up" and found[at.along].domain == "scale-out"
        assert found[at.inside].members == tuple(r for r in range(gpus * servers) if r // gpus == rank // gpus)
        assert found[at.along].members == tuple(r for r in range(gpus * servers) if r % gpus == rank % gpus)
        assert (at.gpus, found[at.along].stage) == (gpus, 3)


@given(gpus=st.integers(2, 4), servers=st.integers(2, 4))
def test_two_levels_bring_every_token_to_its_rank(gpus: int, servers: int) -> None:
    """Dispatch by hand: where a chunk (from, to) is after the server's all-to-all, and after the rail's."""
    n = gpus * servers
    at = np.repeat(np.arange(n)[:, None], n, axis=1)  # where chunk (i, j) is: with i
    to = np.arange(n)[None, :]
    inside = at // gpus * gpus + to % gpus  # the GPU of this server on the rail of j
    along = to // gpus * gpus + inside % gpus
    assert (along == np.repeat(to, n, axis=0)).all()
    for j in range(n):  # what waits on one GPU for the rail: as many chunks as a rank sends in all
        assert (inside == j).sum() == n
