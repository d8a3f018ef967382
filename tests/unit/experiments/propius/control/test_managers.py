from __future__ import annotations

from edge.jobs import BEST, edge_job, open_job
from hypothesis import given
from hypothesis import strategies as st

from experiments.propius.control.managers import (
    MOST_OFFERS,
    SILENT_S,
    STORE_S,
    TEMPORARY_STORE_S,
    ClientManager,
    JobManager,
    LoadBalancer,
)
from experiments.propius.control.policies import Scheduler, load_edge_policy
from experiments.propius.data.jobs import BASIC, HIGH, HIGHEST, MIDDLE, Attributes

LOW = Attributes(1, 1, 1, 1)


def manager(policy: str = "fifo", number: int = 0, managers: int = 1) -> ClientManager:
    return ClientManager(number, managers, load_edge_policy(policy))


VALUES = st.builds(Attributes, *[st.integers(0, 14).map(float)] * 4).map(lambda a: a._replace(fp16_mem=a[2] * 100))
JOBS = st.lists(st.tuples(st.sampled_from([BASIC, MIDDLE, HIGH, HIGHEST]), st.integers(1, 9), st.booleans()))


@given(st.sampled_from(["fifo", "random", "random-client", "srsf", "irs", "irs-tiers"]), JOBS, st.lists(VALUES))
def test_offers_are_open_jobs_whose_bounds_the_client_meets_each_once_and_at_most_20(
    policy: str, kinds: list[tuple[Attributes, int, bool]], clients: list[Attributes]
) -> None:
    kinds = kinds * 3
    jobs = [open_job(number, demand, bounds, open=is_open) for number, (bounds, demand, is_open) in enumerate(kinds)]
    tested = manager(policy)
    tested.update(jobs, Scheduler(load_edge_policy(policy)).plan(jobs, [clients], 0.0), 0.0)
    for attributes in clients:
        found = [offer.job for offer in tested.check_in(None, attributes, 1.0).offers]
        fitting = {job.number for job in jobs if job.open and attributes.meets(job.job.bounds)}
        assert len(set(found)) == len(found) <= MOST_OFFERS
        assert set(found) <= fitting
        if policy != "irs-tiers":
            assert len(found) == min(MOST_OFFERS, len(fitting))


def test_a_new_update_changes_the_offers_of_clients_known_before() -> None:
    tested = manager()
    tested.update([open_job(0)], None, 0.0)
    client, offers = tested.check_in(None, BEST, 0.0)
    assert [offer.job for offer in offers] == [0]
    tested.update([open_job(1, bounds=HIGH)], None, 1.0)
    assert [offer.job for offer in tested.check_in(client, BEST, 1.0).offers] == [1]
    assert tested.check_in(client, BASIC, 2.0).offers == (), "it has told other attributes"


def test_a_client_not_heard_for_the_stores_time_is_forgotten() -> None:
    tested = manager()
    first = tested.check_in(None, BEST, 0.0).client
    tested.check_in(None, BASIC, 500.0)
    assert sorted(tested.known(STORE_S)) == [BASIC, BEST]
    assert tested.known(STORE_S + 1) == (BASIC,)
    tested.check_in(first, BEST, STORE_S + 2)
    assert sorted(tested.known(STORE_S + 400)) == [BASIC, BEST]


def test_known_clients_are_the_same_object_until_one_comes_goes_or_changes() -> None:
    tested = manager()
    client = tested.check_in(None, BEST, 0.0).client
    before = tested.known(1.0)
    tested.check_in(client, BEST, 2.0)
    assert tested.known(3.0) is before
    tested.check_in(client, BASIC, 4.0)
    assert tested.known(5.0) == (BASIC,)


def test_ids_carry_the_manager_and_are_kept() -> None:
    balancer = LoadBalancer(3)
    managers = [manager(number=number, managers=3) for number in range(3)]
    chosen = [balancer.manager_of(None) for _ in range(7)]
    assert chosen == [0, 1, 2, 0, 1, 2, 0]
    ids = [managers[number].check_in(None, BEST, 0.0).client for number in chosen]
    assert len(set(ids)) == 7
    assert [balancer.manager_of(client) for client in ids] == chosen
    assert managers[1].check_in(ids[1], BEST, 1.0).client == ids[1]
    assert managers[2].check_in(ids[1], BEST, 1.0).client != ids[1], "another manager does not take over the id"


def test_a_manager_started_again_offers_nothing_before_an_update_and_gives_no_old_id() -> None:
    before = manager()
    before.update([open_job(0)], None, 0.0)
    known = before.check_in(None, BEST, 0.0).client
    restarted = ClientManager(0, 1, load_edge_policy("fifo"), first_id=1_000_000)
    assert restarted.check_in(known, BEST, 1.0) == (known, ())
    assert restarted.check_in(None, BEST, 1.0).client == 1_000_000
    restarted.update([open_job(0)], None, 2.0)
    assert [offer.job for offer in restarted.check_in(known, BEST, 2.0).offers] == [0]
    assert len(restarted.known(3.0)) == 2


def test_in_batches_a_client_waits_for_the_next_refresh_and_again_after_the_temporary_stores_time() -> None:
    tested = manager("irs-strict")
    jobs = [open_job(0)]
    tested.update(jobs, load_edge_policy("irs-strict").plan(jobs, [BEST], 0.0), 0.0)
    client = tested.check_in(None, BEST, 1.0).client
    assert tested.check_in(client, BEST, 2.9).offers == ()
    assert tested.check_in(client, BEST, 3.0).offers
    assert tested.check_in(client, BEST, 1.0 + TEMPORARY_STORE_S).offers == ()


def test_random_selection_draws_blindly_and_leaves_out_what_the_client_may_not_serve() -> None:
    tested = manager("random-selection")
    tested.update([open_job(0, open=False), open_job(1, bounds=HIGHEST)], None, 0.0)
    client = tested.check_in(None, BASIC, 0.0).client
    answers = [tuple(offer.job for offer in tested.check_in(client, BASIC, 0.0).offers) for _ in range(200)]
    assert set(answers) == {(0,), ()}, "the closed job, or nothing where the draw fell on the other"
    assert 60 <= answers.count(()) <= 140
    tested.update([], None, 1.0)
    assert tested.check_in(client, BASIC, 1.0).offers == ()


def test_the_authors_scheduler_sees_the_clients_of_the_first_manager_only() -> None:
    jobs = [open_job(0), open_job(1, bounds=HIGHEST)]
    parts = ([LOW, BASIC], [BEST, BEST])
    policy = load_edge_policy("irs")
    assert Scheduler(policy, "first").plan(jobs, parts, 0.0)["owner"] == {"0": 0}
    assert set(Scheduler(policy, "all").plan(jobs, parts, 0.0)["owner"]) == {"0", "0.1"}


def test_the_scheduler_passes_the_same_clients_as_the_same_object() -> None:
    seen: list[object] = []
    policy = load_edge_policy("fifo")
    policy.plan = lambda jobs, clients, now: seen.append(clients)  # type: ignore[method-assign]
    scheduler = Scheduler(policy)
    parts = [(BEST,), (LOW,)]
    for clients in (parts, list(parts), [*parts[:1], (LOW, LOW)]):
        scheduler.plan([], clients, 0.0)
    assert seen[0] is seen[1] and seen[2] == [BEST, LOW, LOW]


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
    manager.prune(SILENT_S)
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
