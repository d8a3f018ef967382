"""The live controller when circuits take turns, with a switch in memory: messages in, light and answers out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from core_world import World
from fabric_plans import rail_plan

from controllers.circuits.rotation import Cycle
from controllers.engine.actions import Action, SlotEnds
from controllers.engine.jobs import Job
from controllers.openflow.core import ControllerCore
from controllers.openflow.datapaths import Datapath
from railyard.protocol import SlotWindow, encode
from workloads.program import Group

EP = Group("ep", "ep", (0, 1, 2, 3))
DELAY_S = 0.01


class Agent:
    """One connection that speaks for one rank."""

    trusted = True

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank
        self.answers: list[dict[str, Any]] = []

    def answer(self, request_id: object, answer: bytes) -> None:
        self.answers.append({"id": request_id, **json.loads(answer)})

    def say(self, number: int, op: str, **fields: Any) -> None:
        said = {"rank": self.rank, "group": "ep", **({} if op == "checkin" else {"index": 0}), **fields}
        self.world.core.handle(encode(number, op, **said), self)

    def told(self) -> list[int]:
        """The slots that came, all as answers to request 1."""
        return [
            answer["slot_window"][0] for answer in list(self.answers) if answer["id"] == 1 and "slot_window" in answer
        ]


def rotating(cycle: Cycle | None, delay_s: float = DELAY_S) -> tuple[World, list[Agent]]:
    """Four agents that have asked for the circuits of an all-to-all."""
    world = World(rail_plan(4, ports=1))
    world.join()
    world.until(world.ready.is_set)
    register(world, cycle, delay_s)
    agents = [Agent(world, rank) for rank in EP.members]
    for agent in agents:
        agent.say(0, "checkin")
    for agent in agents:
        agent.say(1, "request")
    return world, agents


def register(world: World, cycle: Cycle | None, delay_s: float) -> None:
    job = Job("j", (EP,), "on-demand", delay_s, cycle=cycle or Cycle())
    world.ask("r", op="register", policy="rotor", job=job)
    assert world.wait("r") == {"ok": True}


def light(world: World) -> set[tuple[int, int]]:
    """Which port of the switch reaches which with what is meant for it, by its flows."""
    table, ports = world.switches[0x10000], world.core.plan.switches[0].ports
    ways = {(port, table.goes_to(port, far.mac)) for port in range(1, 5) for far in ports}
    return {(port, out) for port, out in ways if out is not None}


def test_slots_come_as_long_as_somebody_has_something() -> None:
    world, agents = rotating(None)
    for number in range(4):
        slots = list(range(number + 1))
        world.until(lambda slots=slots: all(agent.told() == slots for agent in agents))  # type: ignore[misc]
        (paths,) = [answer["paths"] for answer in agents[0].answers if answer.get("slot_window", [None])[0] == number]
        assert light(world) == {pair for a, _, b, _ in paths for pair in ((a + 1, b + 1), (b + 1, a + 1))}
        for agent in agents:
            agent.say(10 + number, "moved", slot=number, idle=number == 3)
    assert light(world), "the last slot stands until all let go"
    for agent in agents:
        agent.say(20, "release")
    assert all(agent.answers[-1] == {"id": 20, "ok": True} for agent in agents)
    assert all(agent.told() == [0, 1, 2, 3] for agent in agents)
    assert not world.core._operations.pending_replies.waiting
    assert [e["slot"] for e in world.events if e.kind == "slot"] == [0, 1, 2, 3]


def test_slots_with_an_end_come_by_themselves_until_all_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    # no slot ends before its time, however long orders took before
    monkeypatch.setattr(Datapath, "trip_s", lambda self, step: 0.0)
    world, agents = rotating(Cycle(slot_s=0.03), DELAY_S)
    world.until(lambda: all(len(agent.told()) >= 4 for agent in agents))
    for agent in agents:
        agent.say(2, "release")
    told = [agent.told() for agent in agents]
    assert all(numbers == list(range(len(numbers))) for numbers in told)
    turns = [a["slot_window"] for a in agents[0].answers if "slot_window" in a]
    assert all(until_ - began == pytest.approx(0.03) for _, began, until_, _ in turns)
    darks = [event.seconds for event in world.events if event.kind == "reconfigure" and event["group"] == "ep"]
    assert len(darks) >= len(turns) and min(darks) >= DELAY_S - 1e-9
    assert all(later[1] - earlier[2] >= 0.009 for earlier, later in pairwise(turns)), "the delay"


def test_agents_hear_at_check_in_that_circuits_will_take_turns() -> None:
    world, agents = rotating(None)
    world.until(lambda: all(agent.told() for agent in agents))
    assert [agent.answers[0]["rotates"] for agent in agents] == [True] * 4


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"slot": -1}, "slot: must be at least 0, not -1"),
        ({}, "slot: is missing; operation moved needs it"),
        ({"slot": 0, "idle": 1}, "idle: must be true or false, not 1"),
        ({"slot": 0, "rank": 7}, "rank 7 is not a member of group ep"),
    ],
)
def test_wrong_words_are_named(wrong: dict[str, Any], reason: str) -> None:
    world, agents = rotating(None)
    world.until(lambda: all(agent.told() for agent in agents))
    agents[0].say(9, "moved", **wrong)
    assert agents[0].answers[-1]["error"].startswith(reason)


def test_what_an_old_life_lets_go_of_does_not_concern_the_new_one() -> None:
    world, old = rotating(None)
    world.until(lambda: all(agent.told() for agent in old))
    world.ask("again", op="restart", job="j")
    assert world.wait("again")["ok"]
    new = [Agent(world, rank) for rank in EP.members]
    for agent in new:
        agent.say(0, "checkin")
    for agent in new[1:]:
        agent.say(1, "request")
    for agent in old:
        agent.say(2, "release")
        assert agent.answers[-1] == {"id": 2, "ok": True}
    new[0].say(1, "request")
    world.until(lambda: all(agent.told() == [0] for agent in new))


# ---- the end of a slot -----------------------------------------------------------------------------------------------


def test_the_order_to_go_dark_is_given_so_much_earlier_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ControllerCore(rail_plan(4, 2), lambda event: None, clock=lambda: 5.0)
    planned: list[float] = []

    def later(moment: float, decide: Callable[[float], Iterable[Action]]) -> None:
        planned.append(moment)

    monkeypatch.setattr(core, "later", later)
    for number, trips in enumerate(([0.002, 0.004, 0.003], [0.001])):
        core.datapaths.connect(core.plan.switches[number], lambda data: True).trips["darken"] = trips
    for switches in (("rail0",), ("rail1",), ("rail0", "rail1"), ("elsewhere",)):
        core._execute([SlotEnds("ep", 0, SlotWindow(0, 5.0, 6.0), 6.0, switches)], 5.0)
    assert planned == pytest.approx([5.997, 5.999, 5.997, 6.0]), "the median of each, and the slowest of several"
