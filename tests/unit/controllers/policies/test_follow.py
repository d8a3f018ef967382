"""Policy follow: a circuit for whoever asks."""

from __future__ import annotations

import pytest
from engine_player import Player
from fabric_plans import rail_plan

from controllers.circuits.circuits import Circuit, Matching
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.follow import FollowPolicy
from railyard.errors import ConfigError
from workloads.collectives.catalog import schedule
from workloads.collectives.circuits import circuit_groups
from workloads.program import Group


def circuit(name: str, a: tuple[int, int], b: tuple[int, int]) -> Group:
    return Group(name, "dp", (a[0], b[0]), lanes=(a[1], b[1]), parent="all")


ALL = Group("all", "dp", (0, 1, 2, 3))
FIRST, SECOND = circuit("01", (0, 0), (1, 0)), circuit("02", (0, 0), (2, 0))


def test_the_first_circuits_stand_from_the_start() -> None:
    policy = FollowPolicy(rail_plan(4))
    other = circuit("23", (2, 0), (3, 0))
    assert policy.start([ALL, FIRST, SECOND, other]) == {"rail0": Matching([(1, 3), (5, 7)])}
    assert not policy.asks(ALL) and policy.asks(FIRST)
    assert policy.paths(ALL, policy.start([ALL, FIRST])) == ()


def test_a_circuit_is_taken_from_whoever_had_its_ports() -> None:
    policy = FollowPolicy(rail_plan(4))
    policy.start([ALL, FIRST, SECOND])
    standing = {"rail0": Matching([(1, 3), (5, 7), (2, 8)])}
    assert policy.wanted(SECOND, standing) == {"rail0": Matching([(1, 5), (2, 8)])}
    assert policy.paths(SECOND, {"rail0": Matching([(1, 5)])}) == ((0, 0, 2, 0),)
    assert policy.paths(SECOND, standing) == ()


def test_groups_without_circuits_of_their_own_get_rings_and_pairs() -> None:
    policy = FollowPolicy(rail_plan(4))
    pair = Group("pp", "pp", (0, 1))
    policy.start([ALL, pair])
    assert policy.asks(ALL) and policy.asks(pair)
    ring = Matching([(2, 3), (4, 5), (6, 7), (1, 8)])
    assert policy.wanted(ALL, {}) == {"rail0": ring}
    assert policy.wanted(pair, {"rail0": Matching([(2, 5)])}) == {"rail0": Matching([(2, 3)])}


def test_packet_switches_have_paths_and_no_circuits() -> None:
    policy = FollowPolicy(rail_plan(4, kind="electrical"))
    assert policy.start([ALL, FIRST]) == {}
    assert policy.wanted(FIRST, {}) == {}
    assert policy.paths(FIRST, {}) == ((0, 0, 1, 0),)


def test_what_does_not_fit_is_refused_at_registration() -> None:
    with pytest.raises(ConfigError, match="group 01 has members on rails 0, 1"):
        FollowPolicy(rail_plan(2, gpus=2)).start([FIRST])
    with pytest.raises(ConfigError, match="group far uses port 2 of a GPU; this fabric has 2"):
        FollowPolicy(rail_plan(2)).start([circuit("far", (0, 2), (1, 0))])


def test_several_rails() -> None:
    policy = FollowPolicy(rail_plan(2, gpus=2))
    near, far = circuit("near", (0, 0), (2, 0)), circuit("far", (1, 0), (3, 0))
    assert policy.start([near, far]) == {"rail0": Matching([(1, 3)]), "rail1": Matching([(1, 3)])}


def test_a_circuit_in_use_is_not_torn_down() -> None:
    plan = rail_plan(4)
    groups = (ALL, *circuit_groups(ALL, schedule("all_reduce", 4, "recursive-doubling")).values())
    world = Player(Engine(plan))
    world.start(Job("job", groups, "on-demand", 0.01), FollowPolicy(plan))
    lit = world.standing()
    assert lit == Matching([(1, 3), (5, 7)])
    world.ask("all/0.0-1.0")
    world.ask("all/2.0-3.0")
    world.ask("all/0.0-2.0")
    assert not world.granted("all/0.0-2.0"), "both its ports carry somebody's traffic"
    world.release("all/0.0-1.0")
    assert world.standing() == lit, "0-1 is free, 2-3 is not"
    world.release("all/2.0-3.0")
    assert Circuit(1, 5) in world.engine.optical.target()["rail0"]
