from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from checkout import ROOT
from edge.jobs import BEST, open_job

from experiments.propius.control.policies import EDGE_POLICIES, EdgePolicy, OpenJob, load_edge_policy
from experiments.propius.data.jobs import BASIC, HIGHEST, MIDDLE, Attributes

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


def test_tiers_are_not_used_where_waiting_is_dear() -> None:
    policy = load_edge_policy("irs-tiers", 1)
    clients = [BEST._replace(speed_ms=float(speed)) for speed in (10, 20, 100, 110, 900, 1000)]
    dear = [open_job(0, 2, registered_s=0.0, scheduling_s=250.0, requested_s=400.0)]
    assert all(policy.plan(dear, clients, 500.0)["tier"] == {} for _ in range(20))


def test_waiting_in_the_open_round_is_no_response_time() -> None:
    policy = load_edge_policy("irs-tiers", 1)
    clients = [BEST._replace(speed_ms=float(speed)) for speed in (10, 20, 100, 110, 900, 1000)]
    waits = [open_job(0, 2, registered_s=0.0, scheduling_s=10.0, requested_s=20.0)]
    assert all(policy.plan(waits, clients, 5000.0)["tier"] == {} for _ in range(20))


def test_the_worked_example_puts_the_job_that_is_furthest_behind_first() -> None:
    policy = load_edge_policy(f"{ROOT / 'docs' / 'examples' / 'my_edge_policy.py'}:FurthestBehind")
    early, late = open_job(0), open_job(1)
    assert numbers(policy, [early, late]) == [0, 1]
    served = OpenJob(0, early.job, 0.0, 1, 2, 0, served=2)
    assert numbers(policy, [served, late]) == [1, 0]
