from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from checkout import ROOT
from edge.jobs import BEST, client, edge_job, open_job
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.managers import ClientManager
from experiments.propius.control.policies import (
    EDGE_POLICIES,
    EdgePolicy,
    OpenJob,
    Scheduler,
    cells_of,
    jobs_before,
    load_edge_policy,
    owners,
    partition,
    random_selection_timers,
    rehearse,
    scarcest_first,
    shares,
)
from experiments.propius.data.clients import AskForJobs, Device, DeviceTimers, Offer, Pause, stratified
from experiments.propius.data.jobs import BASIC, FIVE_JOBS, HIGHEST, MIDDLE, Attributes, scaled_jobs
from railyard.errors import ConfigError

LOW = Attributes(3, 2, 400, 4)


def numbers(policy: EdgePolicy, jobs: Sequence[OpenJob], plan: Any = None, client: Attributes = BEST) -> list[int]:
    return [job.number for job in policy.order(client, jobs, plan)]


@pytest.mark.parametrize("name", EDGE_POLICIES)
def test_each_policy_says_its_name_and_orders_jobs_that_it_was_given(name: str) -> None:
    policy = load_edge_policy(name, 3)
    jobs = [open_job(0), open_job(1, 5, MIDDLE), open_job(2, 1, HIGHEST)]
    plan = json.loads(json.dumps(policy.plan(jobs, [BEST, LOW], 0.0)))
    found = numbers(policy, jobs, plan)
    assert policy.name == name
    assert found and set(found) <= {0, 1, 2} and len(set(found)) == len(found)


def test_fifo_puts_the_job_that_registered_first_first() -> None:
    jobs = [open_job(0, registered_s=9.0), open_job(1, registered_s=3.0), open_job(2, registered_s=3.0)]
    assert numbers(load_edge_policy("fifo"), jobs) == [1, 2, 0]


def test_srsf_puts_the_smallest_round_first_and_equals_by_arrival() -> None:
    jobs = [open_job(0, 7), open_job(1, 3, registered_s=9.0), open_job(2, 3, registered_s=1.0)]
    assert numbers(load_edge_policy("srsf"), jobs) == [2, 1, 0]


def test_random_draws_once_for_each_job_and_all_managers_agree() -> None:
    jobs = [open_job(number) for number in range(6)]
    one, other = load_edge_policy("random", 5), load_edge_policy("random", 5, manager=1)
    assert numbers(one, jobs) == numbers(other, jobs[::-1])
    assert len({tuple(numbers(load_edge_policy("random", seed), jobs)) for seed in range(8)}) > 1


def test_random_client_draws_at_each_check_in() -> None:
    policy, jobs = load_edge_policy("random-client", 5), [open_job(number) for number in range(6)]
    assert len({tuple(numbers(policy, jobs)) for _ in range(8)}) > 1
    managers = [load_edge_policy("random-client", 5, manager) for manager in range(3)]
    assert len({tuple(numbers(manager, jobs) * 3) for manager in managers}) == 3


def test_irs_keeps_scarce_clients_for_the_job_that_can_use_no_others() -> None:
    jobs = [open_job(0, 2, BASIC), open_job(1, 9, HIGHEST)]
    policy = load_edge_policy("irs")
    plan = policy.plan(jobs, [LOW, LOW, LOW, BEST], 0.0)
    assert numbers(policy, jobs, plan) == [1, 0]
    assert numbers(policy, jobs[:1], plan) == [0], "and gives it to another if that has no open round"
    assert numbers(load_edge_policy("irs-strict"), jobs, plan) == [1]


def test_irs_score_is_the_place_in_a_group_over_the_share_of_clients_that_meet_its_bounds() -> None:
    jobs = [open_job(0, 5, BASIC), open_job(1, 2, BASIC), open_job(2, 3, BASIC), open_job(3, 9, HIGHEST)]
    policy = load_edge_policy("irs-score")
    plan = policy.plan(jobs, [LOW, LOW, BEST, BEST], 0.0)
    assert plan == {"1": 3.0, "2": 2.0, "3": 1 / 0.5, "0": 1.0}
    assert numbers(policy, jobs, plan) == [1, 2, 3, 0]
    assert numbers(policy, [open_job(4, 1), *jobs], plan)[-1] == 4, "a job that came after the plan"
    assert set(policy.plan(jobs, [], 0.0).values()) == {0.0}


def test_irs_orders_a_group_by_demand_and_knows_jobs_that_came_after_the_plan() -> None:
    policy = load_edge_policy("irs")
    jobs = [open_job(0, 5), open_job(1, 2), open_job(2, 2, registered_s=0.5)]
    plan = policy.plan(jobs, [BEST], 0.0)
    assert numbers(policy, [*jobs, open_job(3, 1, MIDDLE)], plan) == [2, 1, 0, 3]


def test_irs_weighs_open_jobs_and_the_authors_irs_all_registered_ones() -> None:
    jobs = [*(open_job(number, 4, BASIC, open=False) for number in range(4)), open_job(4, 9, HIGHEST)]
    clients = [LOW, LOW, BEST, BEST]
    assert load_edge_policy("irs").plan(jobs, clients, 0.0)["owner"]["0.1"] == 1
    assert load_edge_policy("irs-strict").plan(jobs, clients, 0.0)["owner"]["0.1"] == 0


def test_tiers_keep_the_first_job_for_clients_of_one_speed_where_waiting_is_cheap() -> None:
    policy = load_edge_policy("irs-tiers", 1)
    clients = [BEST._replace(speed_ms=float(speed)) for speed in (10, 20, 100, 110, 900, 1000)]
    cheap = [open_job(0, 2, registered_s=0.0, scheduling_s=1.0, requested_s=400.0), open_job(1, 5)]
    chosen = [tuple(policy.plan(cheap, clients, 500.0)["tier"].get("0", ())) for _ in range(40)]
    assert set(chosen) == {(), (0, 10.0, 20.0), (0, 100.0, 110.0)}, "the slowest tier gains nothing"
    plan = {**policy.plan(cheap, clients, 500.0), "tier": {"0": [0, 10.0, 20.0]}}
    assert numbers(policy, cheap, plan, clients[1]) == [0, 1]
    assert numbers(policy, cheap, plan, clients[2]) == [1]


@pytest.mark.parametrize(("scheduling_s", "requested_s", "now"), [(250.0, 400.0, 500.0), (10.0, 20.0, 5000.0)])
def test_tiers_are_not_used_where_waiting_is_dear_and_waiting_in_the_open_round_is_no_response_time(
    scheduling_s: float, requested_s: float, now: float
) -> None:
    policy = load_edge_policy("irs-tiers", 1)
    clients = [BEST._replace(speed_ms=float(speed)) for speed in (10, 20, 100, 110, 900, 1000)]
    dear = [open_job(0, 2, registered_s=0.0, scheduling_s=scheduling_s, requested_s=requested_s)]
    assert all(policy.plan(dear, clients, now)["tier"] == {} for _ in range(20))


def test_the_worked_example_puts_the_job_that_is_furthest_behind_first() -> None:
    policy = load_edge_policy(f"{ROOT / 'docs' / 'examples' / 'my_edge_policy.py'}:FurthestBehind")
    early, late = open_job(0), open_job(1)
    assert numbers(policy, [early, late]) == [0, 1]
    served = OpenJob(0, early.job, 0.0, 1, 2, 0, served=2)
    assert numbers(policy, [served, late]) == [1, 0]


@given(st.integers(24, 128), st.integers(0, 1000))
def test_quotas_are_kept_until_all_are_full_and_each_client_serves_what_it_may(count: int, seed: int) -> None:
    jobs = {job.name: job for job in scaled_jobs(FIVE_JOBS, 1 / 32)}
    clients = {each.number: each for each in stratified(count, 4, seed)}
    chosen = partition(list(clients.values()), list(jobs.values()), seed)
    sizes = Counter(chosen.values())
    for number, name in chosen.items():
        assert clients[number].attributes.meets(jobs[name].bounds)
        assert clients[number].private_size >= jobs[name].private_bound
    full = {name for name, job in jobs.items() if sizes[name] >= job.selected}
    for name, job in jobs.items():
        over = sizes[name] > job.selected
        others = [other for other in jobs.values() if _nested(other.bounds, job.bounds)]
        assert not over or all(other.name in full for other in others if other.private_bound <= job.private_bound)
    idle = set(clients) - set(chosen)
    basic = jobs["job-1"]
    assert all(
        not clients[number].attributes.meets(basic.bounds) or clients[number].private_size < basic.private_bound
        for number in idle
    )


def _nested(low: Attributes, high: Attributes) -> bool:
    return high.meets(low)


def test_a_client_walks_from_the_last_job_to_the_first() -> None:
    jobs = [edge_job("first", 1), edge_job("last", 2, HIGHEST)]
    clients = [client(number) for number in range(3)]
    assert sorted(partition(clients, jobs, 1).values()) == ["first", "last", "last"]
    assert partition([client(0, BASIC)], jobs, 1) == {0: "first"}
    assert partition([client(0, Attributes(0, 0, 0, 0))], jobs, 1) == {}


def test_an_assigned_client_declines_other_jobs() -> None:
    device = Device(client(attributes=BEST), DeviceTimers(), 1, assigned="mine")
    assert device.offered([Offer(0, 0.0, "other")]) == (Pause(2.0),)


def test_without_a_control_plane_a_client_pauses_20_s_if_not_eligible_and_3_s_if_refused() -> None:
    device = Device(client(private_size=10.0), random_selection_timers(DeviceTimers()), 1)
    for _ in range(8):
        assert device.offered([]) == (Pause(20.0),)
        assert device.refused() == (Pause(3.0),)
        assert device.woke() == (AskForJobs(),)
    assert device.offered([Offer(0, 11.0)]) == (Pause(20.0),)


Order = Callable[[Sequence[OpenJob]], Sequence[OpenJob]]


def policy_that(order: Order, made: Any = None) -> EdgePolicy:
    class Wrong(EdgePolicy):
        def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> Any:
            return made

        def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
            return order(jobs)

    return Wrong()


FORBIDDEN = open_job(1, bounds=HIGHEST)

WRONG: list[tuple[Order, str]] = [
    (lambda jobs: [*jobs, *jobs], "policies: Wrong offers job job-0 twice to one client, which would bind it twice"),
    (lambda jobs: [FORBIDDEN], "policies: Wrong offers job job-1 to a client whose attributes do not meet"),
    (lambda jobs: [open_job(2)], "policies: Wrong offers job job-2 to a client though the job takes no clients now"),
]


@pytest.mark.parametrize(("order", "sentence"), WRONG)
def test_a_policy_that_offers_what_it_may_not_is_refused_at_the_check_in(order: Order, sentence: str) -> None:
    manager = ClientManager(0, 1, policy_that(order))
    manager.update([open_job(0), FORBIDDEN, open_job(2, open=False)], None, 0.0)
    with pytest.raises(ConfigError, match=sentence):
        manager.check_in(None, BASIC, 0.0)


def test_a_rehearsal_refuses_a_policy_before_the_run() -> None:
    with pytest.raises(ConfigError, match="would bind it twice; order each job once"):
        rehearse(policy_that(lambda jobs: [*jobs, *jobs]), [edge_job()], [BEST])
    with pytest.raises(ConfigError, match=r"Wrong failed in line \d+ of test_policies\.py: IndexError: list index"):
        rehearse(policy_that(lambda jobs: [jobs[7]]), [edge_job()], [BEST])
    rehearse(policy_that(lambda jobs: jobs), [edge_job()], [BEST])


def test_a_policy_that_would_plan_without_a_pause_is_refused() -> None:
    policy = policy_that(lambda jobs: jobs)
    type(policy).refresh_s = 0.0
    with pytest.raises(ConfigError, match=r"policies: the refresh_s of Wrong is 0\.0; make it above 0"):
        rehearse(policy, [edge_job()], [BEST])


@pytest.mark.parametrize("plan", [{1, 2}, float("nan"), open_job(0), {(1, 2): 3}])
def test_a_plan_is_plain_json_data(plan: Any) -> None:
    with pytest.raises(ConfigError, match="policies: the plan of Wrong is not plain JSON data"):
        Scheduler(policy_that(lambda jobs: jobs, plan)).plan([], [], 0.0)


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
