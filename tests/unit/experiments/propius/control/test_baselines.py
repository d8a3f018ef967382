from __future__ import annotations

from collections import Counter

from edge.jobs import BEST, client, edge_job
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.policies import partition, random_selection_timers
from experiments.propius.data.clients import AskForJobs, Device, DeviceTimers, Nack, Offer, Pause, stratified
from experiments.propius.data.jobs import BASIC, FIVE_JOBS, HIGHEST, Attributes, scaled_jobs


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
    assert device.offered([Offer(0, 0.0, "other")], 0.0) == (Nack((0,)), Pause(2.0))


def test_without_a_control_plane_a_client_pauses_20_s_if_not_eligible_and_3_s_if_refused() -> None:
    device = Device(client(private_size=10.0), random_selection_timers(DeviceTimers()), 1)
    for _ in range(8):
        assert device.offered([], 0.0) == (Pause(20.0),)
        assert device.refused(0.0) == (Pause(3.0),)
        assert device.woke(0.0) == (AskForJobs(),)
    assert device.offered([Offer(0, 11.0)], 0.0) == (Nack((0,)), Pause(20.0))
