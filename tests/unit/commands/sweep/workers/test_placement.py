from __future__ import annotations

import pytest

from commands.sweep.spec import SweepPoint
from commands.sweep.workers.placement import Dispatch, assign

MODES = ("electrical", "on-demand")


def point(delay: int, mode: str, repeat: int) -> SweepPoint:
    swept = {"delay": delay, "mode": mode}
    return SweepPoint(f"{delay}-{mode}-{repeat}", "rails", {}, repeat, f"{delay}-{repeat}", swept)


def sweep(delays: int = 4, repeats: int = 3) -> list[SweepPoint]:
    return [point(delay, mode, repeat) for repeat in range(repeats) for delay in range(delays) for mode in MODES]


def run(dispatch: Dispatch, machines: list[str]) -> dict[str, list[SweepPoint]]:
    """Every machine takes a point in turn, until none is left."""
    ran: dict[str, list[SweepPoint]] = {machine: [] for machine in machines}
    while True:
        given = [(machine, found) for machine in machines if (found := dispatch.next(machine)) is not None]
        if not given:
            return ran
        for machine, found in given:
            ran[machine].append(found)


def taken(dispatch: Dispatch, machine: str) -> SweepPoint:
    """The point that a machine is given."""
    point = dispatch.next(machine)
    assert point is not None
    return point


@pytest.mark.parametrize("machines", [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d", "e"]])
def test_each_point_goes_to_one_machine_and_a_comparison_stays_together(machines: list[str]) -> None:
    plan = assign(sweep(), machines)
    where = {each.name: machine for machine, queue in plan.items() for piece in queue for each in piece.points}
    assert sorted(where) == sorted(each.name for each in sweep())
    for delay in range(4):
        for repeat in range(3):
            assert len({where[point(delay, mode, repeat).name] for mode in MODES}) == 1


def test_repeats_go_to_different_machines_and_all_machines_get_as_much() -> None:
    plan = assign(sweep(), ["a", "b", "c"])
    for delay in range(4):
        for mode in MODES:
            repeats = {point(delay, mode, repeat).name for repeat in range(3)}
            ran_on = [m for m, queue in plan.items() if repeats & {p.name for piece in queue for p in piece.points}]
            assert sorted(ran_on) == ["a", "b", "c"]
    assert [sum(len(piece.points) for piece in queue) for queue in plan.values()] == [8, 8, 8]


def test_more_repeats_than_machines_are_spread_evenly() -> None:
    plan = assign(sweep(delays=1, repeats=5), ["a", "b"])
    assert sorted(len(queue) for queue in plan.values()) == [2, 3]


def test_the_points_of_a_comparison_are_run_one_after_another_on_their_machine() -> None:
    ran = run(Dispatch(assign(sweep(), ["a", "b"])), ["a", "b"])
    for mine in ran.values():
        comparisons = [each.comparison for each in mine]
        assert all(comparisons[place] == comparisons[place + 1] for place in range(0, len(comparisons), 2))


def test_a_machine_with_nothing_left_takes_over_what_another_has_not_begun() -> None:
    dispatch = Dispatch(assign(sweep(), ["slow", "fast"]))
    first = taken(dispatch, "slow")
    ran = run(dispatch, ["fast"])["fast"]
    last = taken(dispatch, "slow")
    assert last.comparison == first.comparison
    assert len(ran) == 22 and dispatch.next("slow") is None and dispatch.left == 0


def test_a_point_that_was_not_faithful_goes_to_a_machine_that_has_not_run_it() -> None:
    dispatch = Dispatch(assign([point(0, "electrical", 0)], ["a", "b", "c"]))
    first = taken(dispatch, "a")
    dispatch.again(first, ["a"])
    assert dispatch.next("a") is None
    assert dispatch.next("b") == first
    dispatch.again(first, ["a", "b"])
    assert [dispatch.next(machine) for machine in ("a", "b", "c")] == [None, None, first]
    dispatch.again(first, ["a", "b", "c"])
    assert [dispatch.next(machine) for machine in ("a", "b", "c")].count(first) == 1


def test_the_points_of_a_lost_machine_go_to_the_others() -> None:
    dispatch = Dispatch(assign(sweep(), ["a", "b", "c"]))
    running = taken(dispatch, "a")
    dispatch.lost("a", [running])
    ran = run(dispatch, ["b", "c"])
    assert sorted(each.name for mine in ran.values() for each in mine) == sorted(each.name for each in sweep())
    both = {each.comparison for each in ran["b"]} & {each.comparison for each in ran["c"]}
    assert both == set()


def test_what_is_left_when_the_last_machine_is_lost_is_counted() -> None:
    dispatch = Dispatch(assign(sweep(delays=1, repeats=1), ["a"]))
    running = taken(dispatch, "a")
    dispatch.lost("a", [running])
    assert (dispatch.left, list(dispatch.machines)) == (2, ["a"])


@pytest.mark.parametrize("lost", ["", "b"])
def test_a_point_that_no_other_machine_could_take_is_run_again_where_it_was(lost: str) -> None:
    dispatch = Dispatch(assign([point(0, "electrical", 0)], ["a", *lost]))
    first = taken(dispatch, "a")
    dispatch.again(first, ["a"])
    for machine in lost:
        dispatch.lost(machine)
    assert dispatch.next("a") == first
