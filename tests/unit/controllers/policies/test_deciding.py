"""The deciding policy: its dynamic programming against all wirings, and the circuits of its decisions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product

import pytest
from fabric_plans import pipeline_groups, rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.engine.jobs import Job, PhaseTraffic, Plan, Traffic
from controllers.northbound.messages import Register, read_request
from controllers.policies.deciding import Choice, DecidingPolicy, PhaseOption, cheapest
from controllers.policies.policy import Wiring
from railyard.errors import ConfigError
from railyard.protocol import encode
from workloads.program import Group

SECONDS = st.integers(0, 50).map(float)
WIRINGS: tuple[Choice, ...] = ("SPLIT", "RING", "CHAIN")
RING, PAIR = pipeline_groups(2, 2)[0], pipeline_groups(2, 2)[2]


def cost(phases: list[list[PhaseOption]], shows: list[float], choices: tuple[Choice, ...]) -> float:
    """T of one sequence of wirings that follows itself."""
    before = (choices[-1], *choices)
    total = sum(dict(options)[choice] for options, choice in zip(phases, choices, strict=True))
    return total + sum(
        delay for delay, old, new in zip(shows, before[: len(choices)], choices, strict=True) if old != new
    )


@given(st.data())
def test_it_finds_the_least_of_all_wirings_of_a_step(data: st.DataObject) -> None:
    each = st.lists(st.sampled_from(WIRINGS), min_size=1, max_size=3, unique=True)
    phases = [
        [PhaseOption(wiring, data.draw(SECONDS)) for wiring in data.draw(each)]
        for _ in range(data.draw(st.integers(1, 6)))
    ]
    shows = [data.draw(SECONDS) for _ in phases]
    t, choices = cheapest(phases, shows)
    every = product(*([option.wiring for option in options] for options in phases))
    assert t == min(cost(phases, shows, one) for one in every)
    assert cost(phases, shows, choices) == t


def traffic(ring_bytes: float, chain_bytes: float, tried_s: dict[Plan, float] | None = None) -> Traffic:
    """Two stages that send to each other twice and have two rings of different sizes."""
    sizes = (("pp", chain_bytes), ("dp", ring_bytes), ("pp", chain_bytes), ("dp", 10 * ring_bytes))

    def stage(number: int) -> tuple[PhaseTraffic, ...]:
        return tuple(
            PhaseTraffic(((dimension, 0 if dimension == "pp" else number),), size)  # type: ignore[arg-type]
            for dimension, size in sizes
        )

    return Traffic((stage(0), stage(1)), tried_s or {})


def started(told: Traffic | None, delay_s: float) -> tuple[DecidingPolicy, Wiring]:
    policy, groups = DecidingPolicy(rail_plan(4, ports=4)), pipeline_groups(2, 2)
    policy.prepare(Job("job", groups, "deciding", delay_s, traffic=told))
    return policy, policy.start(groups)


def test_each_phase_decides_by_its_own_bytes() -> None:
    """At 12.5 MB/s a lane, 5 MB last 0.1 or 0.2 s and 50 MB 1 or 2 s: a change for 0.3 s is worth only the latter."""
    policy, _ = started(traffic(5e6, 1e6), 0.3)
    assert policy.choices[0] == policy.choices[1] == ("SPLIT", "SPLIT", "SPLIT", "RING")
    assert started(traffic(5e6, 1e6), 2.0)[0].choices[0] == ("SPLIT",) * 4
    assert started(traffic(5e6, 1e6), 0.0)[0].choices[0] == ("CHAIN", "RING", "CHAIN", "RING")


def test_what_hides_a_delay_counts() -> None:
    told = traffic(5e6, 1e6)
    hidden = tuple(tuple(replace(phase, window_s=0.3) for phase in stage) for stage in told.stages)
    assert started(Traffic(hidden), 0.3)[0].choices[0] == ("CHAIN", "RING", "CHAIN", "RING")


def test_the_plan_whose_step_was_shortest_is_taken() -> None:
    assert started(traffic(5e6, 1e6, {"stand": 1.0, "weigh": 2.0, "change": 3.0}), 0.0)[0].choices[0] == ("SPLIT",)
    change = started(traffic(5e6, 1e6, {"stand": 3.0, "weigh": 2.0, "change": 1.0}), 9.0)[0]
    assert change.choices[1] == ("CHAIN", "RING", "CHAIN", "RING")


def lanes(policy: DecidingPolicy, group: Group, circuits: Wiring) -> set[tuple[int, int]]:
    return {(path[1], path[3]) for path in policy.paths(group, circuits)}


def test_circuits_follow_the_decisions() -> None:
    policy, circuits = started(traffic(5e6, 1e6), 0.3)
    assert lanes(policy, RING, circuits) == {(1, 0), (3, 2)}
    assert lanes(policy, PAIR, circuits) == set()
    found = policy.wanted(PAIR, circuits)
    assert lanes(policy, PAIR, found) == {(3, 2), (2, 3)}
    assert lanes(policy, RING, found) == {(1, 0)}
    assert policy.wanted(RING, found) == found
    assert lanes(policy, RING, policy.wanted(replace(RING, turn=1), found)) == {(1, 0), (3, 2)}
    assert policy.wanted(replace(RING, turn=2), found) == found, "the first ring of the next step"


def test_both_pairs_of_lanes_join_the_two_stages() -> None:
    policy, circuits = started(traffic(5e6, 1e6), 0.0)
    everywhere = dict(policy.wanted(replace(PAIR, turn=1), circuits))
    assert lanes(policy, PAIR, everywhere) == {(1, 0), (0, 1), (3, 2), (2, 3)}
    assert lanes(policy, RING, everywhere) == set()


def test_what_never_changes_asks_for_nothing() -> None:
    policy, circuits = started(None, 0.1)
    assert not any(policy.asks(group) for group in pipeline_groups(2, 2))
    assert lanes(policy, RING, circuits) == {(1, 0)}
    assert lanes(policy, PAIR, circuits) == {(3, 2), (2, 3)}
    assert all(started(traffic(5e6, 1e6), 0.3)[0].asks(group) for group in pipeline_groups(2, 2))


def test_the_job_channel_carries_the_traffic() -> None:
    job = Job("job", pipeline_groups(2, 2), "deciding", 0.3, traffic=traffic(5e6, 1e6, {"stand": 1.0}))
    line = encode(None, "register", job=json.loads(json.dumps(asdict(job))), policy="deciding")
    request = read_request(line)
    assert isinstance(request, Register)
    assert request.job == job


def test_it_says_what_it_cannot_wire() -> None:
    with pytest.raises(ConfigError, match="traffic: must have the phases of every stage"):
        started(Traffic(traffic(1.0, 1.0).stages[:1]), 0.0)
    with pytest.raises(ConfigError, match=r"needs optical rails with 4 ports a GPU .mode deciding., not rail0"):
        DecidingPolicy(rail_plan(4)).start(pipeline_groups(2, 2))
    with pytest.raises(ConfigError, match="dimension ep on the rails; the deciding policy wires dp and pp"):
        DecidingPolicy(rail_plan(4, ports=4)).start([Group("experts", "ep", (0, 1))])
