"""The worked examples of the documentation do what they say."""

from __future__ import annotations

from checkout import ROOT
from engine_player import Player
from fabric_plans import job, rail_plan
from rack_player import RackPlayer, rack, rented

from controllers.circuits.circuits import Matching
from controllers.engine.engine import Engine
from controllers.policies.catalog import load_policy

EXAMPLES = ROOT / "docs" / "examples"


def test_the_policy_moves_only_what_was_asked_for() -> None:
    plan = rail_plan(4)
    world = Player(Engine(plan))
    world.start(job(2, 2, 0.1), load_policy(f"{EXAMPLES / 'my_policy.py'}:PairByPair", plan))
    assert world.engine.optical.circuits_up()["rail0"] == Matching([(2, 3), (1, 4), (6, 7), (5, 8)])
    world.ask("pp-s0-d0-r0", 0)
    (darken,) = world.dark
    assert darken.ports & darken.after.ports == {2, 5}
    world.settle()
    assert world.granted("pp-s0-d0-r0")
    world.release("pp-s0-d0-r0", 0)
    world.ask("dp-s0-r0", 0)
    world.settle()
    assert world.granted("dp-s0-r0")


def test_the_spare_with_the_highest_number_stands_in_and_one_is_kept() -> None:
    plan = rack()
    world = RackPlayer.on(plan, type(load_policy(f"{EXAMPLES / 'my_spares.py'}:FarthestSpare", plan)), rented(plan))
    assert plan.rack is not None and plan.rack.spares == (8, 9)
    world.fail(1)
    world.settle()
    assert world.engine.jobs["A"].groups[0].members == (0, 9, 2, 3)
    world.fail(2)
    assert "stranded" in world.kinds()
