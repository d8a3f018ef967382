"""The worked examples of the documentation do what they say."""

from __future__ import annotations

from pathlib import Path

from engine_player import Player
from fabric_plans import job, rail_plan

from controllers.catalog import load_policy
from controllers.circuits import Matching
from controllers.engine import Engine

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def test_the_policy_moves_only_what_was_asked_for() -> None:
    plan = rail_plan(4)
    world = Player(Engine(plan))
    world.start(job(2, 2, 0.1), load_policy(f"{EXAMPLES / 'my_policy.py'}:PairByPair", plan))
    assert world.engine.fabric.light()["rail0"] == Matching([(2, 3), (1, 4), (6, 7), (5, 8)])
    world.ask("pp-s0-d0-r0", 0)
    (darken,) = world.dark
    assert darken.ports & darken.after.ports == {2, 5}
    world.light_all()
    assert world.granted("pp-s0-d0-r0")
    world.release("pp-s0-d0-r0", 0)
    world.ask("dp-s0-r0", 0)
    world.light_all()
    assert world.granted("dp-s0-r0")
