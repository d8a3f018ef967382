"""A job that outlives its controller: another engine takes the circuits as they are, and hears what ranks hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from engine_player import Player
from fabric_plans import job, rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.engine.actions import Ack, Refuse, Registered
from controllers.engine.engine import Engine
from controllers.policies.opus import OpusPolicy
from railyard.errors import ControlError

JOB, PLAN = job(2, 2, 0.1), rail_plan(4)
RING, PAIR, OTHER_PAIR = "dp-s0-r0", "pp-s0-d0-r0", "pp-s0-d1-r0"
RANKS = (0, 1, 2, 3)


@dataclass
class Outliving(Player):
    """Agents that keep what they have while there is no controller."""

    had: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last request that was acknowledged, by rank and group."""

    def acked(self, ack: Ack) -> None:
        super().acked(ack)
        self.had[ack.rank, ack.group] = ack.index

    def lose_controller(self) -> None:
        """Another engine with the circuits of the switches, which knows the job and nothing of its ranks."""
        before, self.engine = self.engine.optical, Engine(PLAN)
        for name, switch in before.switches.items():
            dark = [c for c in switch.target if switch.dark.intersection(c.ports)]
            self.engine.optical.switches[name].take_over(switch.up, dark)
        self.dark.clear()
        self.do(self.engine.register(JOB, OpusPolicy(PLAN), self.now, resumes=True))
        assert self.others.pop() == Registered("job")

    def let_go(self, group: str, index: int, rank: int) -> None:
        """Release while nobody hears of it."""
        self.held[group, index].discard(rank)
        if not self.held[group, index]:
            del self.held[group, index]

    def lose_ack(self, group: str, index: int, rank: int) -> None:
        """The acknowledgement was lost with the controller: the rank still waits for it."""
        self.let_go(group, index, rank)
        self.waiting[group, index].add(rank)
        self.had[rank, group] = index - 1
        if not index:
            del self.had[rank, group]

    def back(self, *ranks: int) -> None:
        """Ranks say what they have, and ask again for what they had asked for."""
        for rank in ranks:
            acknowledged = {group: index for (who, group), index in self.had.items() if who == rank}
            held = [key for key, holders in self.held.items() if rank in holders]
            self.do(self.engine.resume("job", rank, acknowledged, held, self.now))
            for (group, index), waiting in list(self.waiting.items()):
                if rank in waiting:
                    self.do(self.engine.request(rank, group, index, self.now))


def outliving() -> Outliving:
    world = Outliving(Engine(PLAN))
    world.start(JOB, OpusPolicy(PLAN))
    return world


def test_nothing_is_rewired_under_a_grant_that_a_rank_holds() -> None:
    world = outliving()
    world.ask(RING)
    world.ask(PAIR)
    world.lose_controller()
    world.back(*RANKS)
    assert not world.dark and not world.granted(PAIR)
    world.release(RING, 0, (0,))
    assert not world.dark
    world.release(RING, 0, (1,))
    world.settle()
    assert world.granted(PAIR)


def test_nothing_is_served_before_all_ranks_are_back() -> None:
    world = outliving()
    world.ask(PAIR)
    world.settle()
    world.lose_controller()
    world.back(0, 2, 3)
    world.release(PAIR)
    world.ask(RING, 0, (0,))
    assert not world.dark
    world.waiting[RING, 0].add(1)
    world.back(1)
    assert world.dark
    world.settle()
    assert world.granted(RING)


def test_what_was_released_without_a_controller_is_free() -> None:
    world = outliving()
    world.ask(RING)
    world.ask(PAIR)
    world.held.clear()
    world.lose_controller()
    world.back(*RANKS)
    world.settle()
    assert world.granted(PAIR)


@pytest.mark.parametrize("unheard", [(0,), (1,), (0, 1)])
def test_who_has_not_heard_of_his_grant_is_told_again(unheard: tuple[int, ...]) -> None:
    world = outliving()
    world.ask(RING)
    for rank in unheard:
        world.lose_ack(RING, 0, rank)
    world.lose_controller()
    world.back(*RANKS)
    assert world.held[RING, 0] == {0, 1} and not world.dark
    world.ask(PAIR)
    assert not world.dark
    world.release(RING)
    world.settle()
    assert world.granted(PAIR)
    world.release(PAIR)
    world.ask(RING, 1)
    world.settle()
    assert world.granted(RING, 1)


def test_who_has_released_before_the_others_have_heard_does_not_ask_again() -> None:
    world = outliving()
    world.ask(RING)
    world.lose_ack(RING, 0, 1)
    del world.held[RING, 0]
    world.lose_controller()
    world.back(*RANKS)
    assert world.held[RING, 0] == {1}
    world.release(RING, 0, (1,))
    world.ask(PAIR)
    world.settle()
    assert world.granted(PAIR)


def test_circuits_that_were_dark_are_dark_again_for_the_whole_delay() -> None:
    world = outliving()
    world.ask(PAIR)
    (before,) = world.dark
    world.lose_controller()
    (again,) = world.dark
    assert (again.after, again.delay_s) == (before.after, 0.1)
    world.back(*RANKS)
    assert world.waiting[PAIR, 0] == {0, 2}
    world.settle()
    assert world.granted(PAIR) and world.standing() == Matching([(2, 5), (4, 7)])


def test_who_is_not_waited_for_cannot_come_back() -> None:
    world = outliving()
    with pytest.raises(ControlError, match="does not wait for what rank 0 holds"):
        world.back(0)
    world.lose_controller()
    world.back(0)
    with pytest.raises(ControlError, match="does not wait for what rank 0 holds"):
        world.back(0)


def test_what_was_held_back_and_is_wrong_is_refused_when_all_are_back() -> None:
    world = outliving()
    world.lose_controller()
    world.back(0, 1, 2)
    assert world.engine.request(0, RING, 7, 0.0) == world.engine.release(0, RING, 3, 0.0) == []
    world.back(3)
    refused: list[Any] = [(r.rank, r.group, r.index) for r in world.refused if isinstance(r, Refuse)]
    assert refused == [(0, RING, 7), (0, RING, 3)]


@given(st.data())
def test_whenever_the_controller_ends_all_get_what_they_ask_for(data: st.DataObject) -> None:
    world = outliving()
    done = dict.fromkeys(((rank, group.name) for group in JOB.groups for rank in group.members), 0)
    absent: list[int] = []

    def turn(rank: int, group: str) -> None:
        """Ask, or release what is held."""
        index = done[rank, group]
        if rank in world.held.get((group, index), ()):
            done[rank, group] += 1
            if rank in absent:
                world.let_go(group, index, rank)
            else:
                world.release(group, index, (rank,))
        elif rank not in world.waiting.get((group, index), ()):
            if rank in absent:
                world.waiting.setdefault((group, index), set()).add(rank)
            else:
                world.ask(group, index, (rank,))

    for _ in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["turn", "turn", "turn", "turn", "light", "lose", "back"]))
        if what == "turn":
            turn(*data.draw(st.sampled_from(sorted(done))))
        elif what == "light" and world.dark:
            world.light(data.draw(st.integers(0, len(world.dark) - 1)))
        elif what == "lose" and not absent:
            for (group, index), ranks in list(world.held.items()):
                for rank in sorted(ranks) if data.draw(st.booleans()) else ():
                    if data.draw(st.booleans()):
                        world.lose_ack(group, index, rank)
            world.lose_controller()
            absent = list(data.draw(st.permutations(RANKS)))
        elif what == "back" and absent:
            world.back(absent.pop())
    while absent:
        world.back(absent.pop())
    for _ in range(8):
        for key in sorted(done):
            turn(*key)
        world.settle()
    assert not world.refused and min(done.values()) >= 1
