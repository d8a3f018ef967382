from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.policies import cells_of, jobs_before, owners, scarcest_first, shares
from experiments.propius.data.jobs import Attributes

VALUES = st.builds(Attributes, *[st.integers(0, 3).map(float)] * 4)


@given(
    st.lists(VALUES, min_size=1, max_size=5, unique=True),
    st.lists(VALUES, max_size=40),
    st.lists(st.lists(st.integers(1, 50), max_size=4), min_size=5, max_size=5),
)
def test_each_client_that_meets_any_bounds_has_one_owner_whose_bounds_it_meets(
    bounds: list[Attributes], clients: list[Attributes], demands: list[list[int]]
) -> None:
    cells = cells_of(clients, bounds)
    assert sum(cells.values()) == len(clients)
    owner = owners(cells, demands[: len(bounds)])
    assert set(owner) == {cell for cell in cells if cell}
    assert all(group in cell for cell, group in owner.items())


@given(st.lists(VALUES, min_size=1, max_size=5, unique=True), st.lists(VALUES, max_size=40))
def test_without_demand_the_scarcest_group_owns_what_it_can_use(
    bounds: list[Attributes], clients: list[Attributes]
) -> None:
    cells = cells_of(clients, bounds)
    scarce = scarcest_first(shares(cells, len(bounds)))
    owner = owners(cells, [[]] * len(bounds))
    assert all(owner[cell] == min(cell, key=scarce.index) for cell in owner)


NESTED = Counter({(): 25, (0,): 25, (0, 1): 25, (0, 1, 2): 25})
"""Of 100 clients 75 meet the bounds of group 0, 50 those of group 1, and 25 those of group 2."""


def test_a_group_with_as_many_jobs_as_room_takes_nothing_from_scarcer_groups() -> None:
    assert owners(NESTED, [[10], [10], [10]]) == {(0,): 0, (0, 1): 1, (0, 1, 2): 2}


def test_a_crowded_abundant_group_takes_the_next_scarcer_groups_clients_and_stops_where_it_does_not_pay() -> None:
    # Groups 0 and 1 have regions of one quarter each: m = 2 jobs of group 0 count more than 1 job of group 1.
    # Group 2 has three jobs, which weigh more than the 2, so its clients stay its own.
    assert owners(NESTED, [[10, 10, 10], [20], [20, 20, 20]]) == {(0,): 0, (0, 1): 0, (0, 1, 2): 2}


def test_jobs_are_counted_until_the_others_are_served() -> None:
    assert jobs_before([10, 10, 10], 0.5, [10], 0.25) == 3  # turns end at 20, 40, 60; the others are served at 40
    assert jobs_before([10, 10, 10], 0.5, [9], 0.25) == 2  # the others are served at 36
    assert jobs_before([], 0.5, [9], 0.25) == 0
    assert jobs_before([1, 1], 0.5, [9], 0.0) == 2
