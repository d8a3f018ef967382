"""The policy layer in virtual time: what holds for every policy, network and seed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.propius.control.policies import EDGE_POLICIES
from experiments.propius.data.clients import DeviceTimers, drawn, stratified
from experiments.propius.data.jobs import FIVE_JOBS, TEN_JOBS, scaled_jobs
from experiments.propius.model.authors import authors_run, faster_by_rank, ten_jobs
from experiments.propius.model.plane import Network
from experiments.propius.model.simulation import VirtualOutcome, VirtualRun, simulate

TREE = Network("tree", access_round_trip_s=0.02, trunk_round_trip_s=0.04)
JOBS = scaled_jobs(FIVE_JOBS, 1 / 32, rounds=3)


def small(
    policy: str = "irs", network: Network = TREE, clients: int = 48, seed: int = 1, managers: int = 1
) -> VirtualRun:
    return VirtualRun(
        JOBS, stratified(clients, 4, seed), policy, seed, managers=managers, network=network, until_s=20_000
    )


def check_conservation(run: VirtualRun, outcome: VirtualOutcome) -> None:
    """No round has more clients than it asked for, none twice; each binding ends in one way; nobody works at once."""
    bound: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    asked: dict[tuple[int, int], int] = {}
    bindings, ends = Counter[int](), Counter[int]()
    free: dict[int, float] = defaultdict(float)
    for event in sorted(outcome.events, key=lambda event: event.t if event.end is None else event.end):
        of = (event.get("job"), event.get("round"))
        if event.kind == "request":
            asked[of] = event["demand"]
            bound[of] = Counter()
        elif event.kind == "bound":
            bound[of][event["client"]] += 1
            bindings[event["client"]] += 1
            assert bound[of].total() <= asked[of]
            assert bound[of][event["client"]] == 1
            job = run.jobs[event["job"]]
            assert run.clients[event["client"]].attributes.meets(job.bounds)
            assert run.clients[event["client"]].private_size >= job.private_bound
        elif event.kind in ("get", "train", "push"):
            assert event.t >= free[event["client"]] - 1e-6
            free[event["client"]] = event.end or inf
            ends[event["client"]] += event.kind == "push"
        elif event.kind == "gone":
            ends[event["client"]] += 1
    for client, number in bindings.items():
        assert number - 1 <= ends[client] <= number, "all but the last binding have ended, each once"
    utilisation = outcome.metrics.utilisation
    assert utilisation is not None and 0 < utilisation <= 1


def count(outcome: VirtualOutcome, kind: str) -> int:
    return sum(event.kind == kind for event in outcome.events)


@pytest.mark.parametrize("policy", EDGE_POLICIES)
def test_every_policy_finishes_what_can_be_finished(policy: str) -> None:
    run = small(policy)
    outcome = simulate(run, keep_events=True)
    check_conservation(run, outcome)
    assert outcome.metrics.unfinished == ()
    assert count(outcome, "round") == 15
    counts = outcome.metrics.updates
    assert (counts.lost, counts.twice) == (0, 0)
    assert count(outcome, "bound") >= sum(3 * job.demand for job in JOBS)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["fifo", "random-client", "irs", "static"]),
    st.sampled_from([TREE, Network()]),
    st.integers(20, 60),
    st.integers(0, 1000),
    st.integers(1, 3),
)
def test_bindings_are_conserved(policy: str, network: Network, clients: int, seed: int, managers: int) -> None:
    run = replace(small(policy, network, clients, seed, managers), until_s=3000)
    outcome = simulate(run, keep_events=True)
    if count(outcome, "bound"):
        check_conservation(run, outcome)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again = (simulate(small("random-client"), keep_events=True) for _ in range(2))
    assert first == again
    assert simulate(small("random-client", seed=2)).metrics != first.metrics


def test_a_job_that_nobody_can_serve_starves_and_the_others_finish() -> None:
    run = small(clients=30)  # 39.5 % of 30 clients, less those with too little data, are fewer than the 12 demanded
    outcome = simulate(run)
    assert outcome.metrics.unfinished == (4,)
    assert outcome.metrics.jct_s is not None
    assert [job.jct_s is None for job in outcome.metrics.jobs] == [False] * 4 + [True]
    assert outcome.metrics.repeated > 10


def test_a_leaf_fetches_each_model_once() -> None:
    gets = [event for event in simulate(small(), keep_events=True).events if event.kind == "get"]
    fetched = {(event["job"], event["round"], event["client"] % 4) for event in gets if not event["hit"]}
    assert len(fetched) <= 4 * 15 and any(event["hit"] for event in gets)


def test_the_flat_server_starts_a_round_when_its_clients_are_bound() -> None:
    outcome = simulate(small(network=Network()), keep_events=True)
    scheduled: dict[tuple[int, int], float] = {}
    for event in outcome.events:
        if event.kind == "scheduled":
            scheduled[event["job"], event["round"]] = event.t
    assert all(e.t >= scheduled[e["job"], e["round"]] - 1e-6 for e in outcome.events if e.kind == "get")


def test_the_authors_run_at_a_small_size() -> None:
    jobs = scaled_jobs(TEN_JOBS, 0.1, rounds=2)
    outcome = simulate(authors_run("irs", 1000, 3, jobs=jobs), keep_events=True)
    assert outcome.metrics.unfinished == () and count(outcome, "round") == 20
    assert outcome.metrics.response_s is not None and 60 < outcome.metrics.response_s < 300


def test_devices_of_high_rank_are_faster_and_the_speeds_stay_the_same() -> None:
    clients = drawn(2000, 1)
    dealt = faster_by_rank(clients, 0.55, 1)
    assert sorted(c.speed_ms for c in dealt) == sorted(c.speed_ms for c in clients)
    assert all(c.attributes.speed_ms == c.speed_ms for c in dealt)
    halved = faster_by_rank(clients, 0.55, 1, 0.5)
    assert [c.speed_ms for c in halved] == [c.speed_ms / 2 for c in faster_by_rank(clients, 0.55, 1)]
    dealt.sort(key=lambda client: client.attributes)
    low, high = dealt[:500], dealt[-500:]
    assert sum(c.speed_ms for c in low) > 1.5 * sum(c.speed_ms for c in high)


def test_clients_that_rest_begin_each_step_of_their_work_so_much_later() -> None:
    run = replace(small(), timers=DeviceTimers(rest_s=9.0))
    outcome = simulate(run, keep_events=True)
    check_conservation(run, outcome)
    ends: dict[int, float] = {}
    for event in sorted(outcome.events, key=lambda event: event.t):
        if event.kind in ("train", "push"):
            assert event.t >= ends[event["client"]] + 9 - 1e-6
        if event.kind in ("get", "train"):
            ends[event["client"]] = event.end or inf


def test_the_authors_runs_of_10_000_clients_have_two_demands_the_other_way_round() -> None:
    scarce, plentiful = ten_jobs(6_000), ten_jobs(10_000)
    assert [(job.demand, job.scheduling_s) for job in plentiful[:5:4]] == [(50, 100.0), (200, 400.0)]
    assert sorted(job.demand for job in scarce) == sorted(job.demand for job in plentiful)
    assert scarce[1:4] == plentiful[1:4] and scarce[5:] == plentiful[5:]


def test_the_share_of_clients_that_are_on_is_fitted_for_each_population() -> None:
    assert [len(authors_run("fifo", clients, 1).clients) for clients in (6_000, 10_000)] == [1500, 2200]
    assert len(authors_run("fifo", 6_000, 1, online_share=0.1).clients) == 600
