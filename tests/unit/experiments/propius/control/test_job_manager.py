from __future__ import annotations

from edge.jobs import edge_job
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.managers import SILENT_S, JobManager


def opened(demand: int = 2) -> tuple[JobManager, int]:
    manager = JobManager()
    number = manager.register(edge_job(demand=demand), 0.0)
    assert manager.request(number, 0, demand, 0.0)
    return manager, number


STEPS = st.one_of(
    st.tuples(st.just("accept"), st.integers(0, 2), st.integers(0, 8)),
    st.tuples(st.just("request"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("end"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("finish"), st.integers(0, 2), st.just(0)),
)


@given(st.lists(STEPS, max_size=60))
def test_no_round_has_more_clients_than_it_asked_for_or_one_twice(steps: list[tuple[str, int, int]]) -> None:
    manager = JobManager()
    numbers = [manager.register(edge_job(), 0.0) for _ in range(3)]
    demand = dict.fromkeys(numbers, 0)
    taken: dict[int, list[int]] = {number: [] for number in numbers}
    ended = set(numbers)
    for now, (what, number, value) in enumerate(steps):
        if what == "accept":
            binding = manager.accept(number, value, float(now))
            may = number not in ended and value not in taken[number] and len(taken[number]) < demand[number]
            assert (binding is not None) == may
            if binding:
                taken[number].append(binding.client)
        elif what == "request":
            if manager.request(number, now, value, float(now)):
                demand[number], taken[number] = value, []
                ended.discard(number)
        elif what == "end":
            count = manager.end_request(number, float(now))
            assert count is None or count == len(taken[number])
            ended.add(number)
        else:
            manager.finish(number, float(now))
            ended.add(number)
        for job in manager.jobs():
            assert job.bound == len(taken[job.number]) <= max(1, job.demand)
            assert job.open == (job.number not in ended and job.bound < job.demand)


def test_an_accept_after_the_end_of_the_request_is_refused() -> None:
    manager, number = opened()
    assert manager.accept(number, 7, 1.0) is not None
    assert manager.end_request(number, 2.0) == 1
    assert manager.accept(number, 8, 3.0) is None
    assert not any(job.open for job in manager.jobs())


def test_an_attempt_binds_its_clients_anew_and_tells_its_number() -> None:
    manager, number = opened(1)
    first = manager.accept(number, 7, 1.0)
    manager.request(number, 0, 1, 2.0, attempt=1)
    again = manager.accept(number, 7, 3.0)
    assert first is not None and again is not None
    assert (first.attempt, again.attempt) == (0, 1)


def test_a_silent_job_is_forgotten_and_one_that_spoke_is_not() -> None:
    manager, number = opened()
    other = manager.register(edge_job("b"), 0.0)
    manager.heard(number, 100.0)
    assert manager.prune(SILENT_S) == [other]
    assert [job.number for job in manager.jobs()] == [number]
    assert manager.request(other, 0, 1, SILENT_S) is False
    assert manager.end_request(other, SILENT_S) is None and manager.bound(other) is None
    assert manager.finish(other, SILENT_S) is False


def test_the_version_tells_when_offers_change_and_not_each_binding() -> None:
    manager, number = opened(2)
    before = manager.version
    manager.accept(number, 1, 1.0)
    assert manager.version == before
    manager.accept(number, 2, 2.0)
    assert manager.version > before


def test_time_in_which_rounds_were_open_is_counted() -> None:
    manager, number = opened(1)
    manager.accept(number, 1, 4.0)
    manager.request(number, 1, 1, 10.0)
    manager.end_request(number, 13.0)
    (job,) = manager.jobs()
    assert job.scheduling_s == 7.0 and job.served == 1


def test_a_manager_started_again_knows_nothing_and_reuses_no_number() -> None:
    restarted = JobManager(first=5)
    assert restarted.accept(0, 1, 0.0) is None
    assert restarted.register(edge_job(), 0.0) == 5
