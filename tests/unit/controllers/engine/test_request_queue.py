"""The request queue alone, with switches in memory and policies that want what the test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from fabric_plans import rail_plan
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.circuits.rotation import RunningRotation, Slot
from controllers.engine.actions import (
    Ack,
    Action,
    Darken,
    Note,
    Refuse,
    Registered,
    RegisterRefused,
    Rewired,
    RewireRefused,
    SlotEnds,
)
from controllers.engine.membership import Readiness
from controllers.engine.optical_state import OpticalState
from controllers.engine.request_queue import MAX_TRIES, RequestQueue
from controllers.engine.requests import GroupRequest, PendingRequest, RewireRequest, StartRequest
from controllers.engine.routing import Routing
from controllers.policies.policy import Policy, Wiring
from railyard.errors import ConfigError
from railyard.protocol import Hop
from workloads.program import Group

# Rank r has ports 2 r + 1 (lane 0) and 2 r + 2 (lane 1) of rail0.
PAIR_01, PAIR_02, PAIR_03 = Matching([(2, 3)]), Matching([(2, 5)]), Matching([(2, 7)])
PAIR_23 = Matching([(6, 7)])
DELAY_S = 0.1
SERVERS = 8


class Wants(Policy):
    """Wants the given circuits for every group, beside those of the other ports; may be told to misbehave."""

    def __init__(self, circuits: Matching) -> None:
        super().__init__(rail_plan(SERVERS))
        self.circuits = circuits
        self.on_wanted: Callable[[], None] = lambda: None
        self.on_paths: Callable[[], None] = lambda: None

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        self.on_wanted()
        return {"rail0": standing["rail0"].replaced_by(self.circuits)}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        self.on_paths()
        return super().paths(group, standing)


class Undecided(Wants):
    """Wants another circuit each time that the last one is up."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        wanted = PAIR_02 if PAIR_01.circuits <= standing["rail0"].circuits else PAIR_01
        return {"rail0": standing["rail0"].replaced_by(wanted)}


@dataclass
class World:
    """A queue, its switches, and what it wanted done."""

    optical: OpticalState = field(default_factory=lambda: OpticalState(rail_plan(SERVERS)))
    now: float = 0.0
    dark: list[Darken] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    told: list[Action] = field(default_factory=list)
    """All else, in order."""
    barriers: dict[str, Readiness] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = RequestQueue(self.optical, Routing(rail_plan(SERVERS), frozenset, self.optical.next_id))

    def rotation(self, group: str) -> RunningRotation | None:
        """The rotation of the first request of a group, if it has one."""
        return self.queue.rotation(group, 0)

    def add(self, pending: PendingRequest) -> PendingRequest:
        self.do(self.queue.add(pending, self.now))
        return pending

    def group_request(
        self,
        name: str,
        members: tuple[int, ...],
        policy: Policy,
        slots: tuple[Slot, ...] = (),
        index: int = 0,
        at: tuple[float, ...] = (),
    ) -> GroupRequest:
        """All members of a group ask for the circuits that ``policy`` wants, now or ``at`` these times."""
        readiness = self.barriers.setdefault(name, Readiness(Group(name, "dp", members)))
        complete = None
        for rank, now in zip(members, at or [self.now] * len(members), strict=True):
            self.now = now
            complete = readiness.request(rank, index, now)
        assert complete is not None
        return GroupRequest(
            what=name,
            asked=self.now,
            delay_s=DELAY_S,
            policy=policy,
            readiness=readiness,
            round=complete,
            rotation=RunningRotation(slots, 0.002) if slots else None,
        )

    def ask(
        self, name: str, members: tuple[int, ...], circuits: Matching, at: tuple[float, ...] = ()
    ) -> PendingRequest:
        return self.add(self.group_request(name, members, Wants(circuits), at=at))

    def rewire(self, ticket: str, circuits: Matching) -> PendingRequest:
        device = self.optical.switch("rail0")
        return self.add(
            RewireRequest(
                what="rewiring of rail0",
                asked=self.now,
                delay_s=DELAY_S,
                switch=device,
                matching=circuits,
                mode="update",
                ticket=ticket,
            )
        )

    def release(self, name: str, index: int = 0) -> None:
        """All members let go."""
        for rank in self.barriers[name].group.members:
            self.barriers[name].release(rank, index)
        self.do(self.queue.release(name, index, self.now))

    def tune(self, which: int = 0) -> None:
        """A reconfiguration has ended well."""
        darken = self.dark.pop(which)
        self.now += darken.delay_s
        self.do(self.queue.ended(self.optical.finish(darken.reconfiguration_id).owner, self.now))

    def tune_all(self) -> None:
        while self.dark:
            self.tune()

    def fail(self, reason: str) -> None:
        """The switch did not do the oldest reconfiguration."""
        darken = self.dark.pop(0)
        self.do(self.queue.failed(self.optical.abort(darken.reconfiguration_id).owner, reason, self.now))

    def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Darken):
                self.dark.append(action)
            elif isinstance(action, Note):
                self.notes.append(action)
            else:
                self.told.append(action)

    def acked(self) -> list[tuple[str, int]]:
        return [(action.group, action.rank) for action in self.told if isinstance(action, Ack)]

    def granted(self) -> list[str]:
        """The groups that were acknowledged, in order."""
        return list(dict.fromkeys(group for group, _ in self.acked()))

    def refused(self) -> dict[int, str]:
        """By rank: why it was refused."""
        return {action.rank: action.reason for action in self.told if isinstance(action, Refuse)}

    def waits(self) -> list[tuple[str, str]]:
        """(group, reason) of every wait that was noted."""
        return [
            (note.fields["group"], note.fields["reason"])
            for note in self.notes
            if note.kind == "refused" and not note.fields["final"]
        ]

    def up(self) -> Matching:
        return self.optical.circuits_up()["rail0"]


@pytest.fixture
def world() -> World:
    return World()


# ---- one request -----------------------------------------------------------------------------------------------------


def test_every_member_is_acknowledged_when_the_circuits_are_up_and_not_before(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    (darken,) = world.dark
    assert (darken.before, darken.after, darken.ports, darken.delay_s) == (Matching(), PAIR_01, {2, 3}, DELAY_S)
    assert world.told == [] and world.up() == Matching()
    world.tune()
    assert world.told == [Ack(0, "a", 0, (Hop(0, 1, 1, 0),)), Ack(1, "a", 0, (Hop(0, 1, 1, 0),))]
    assert world.up() == PAIR_01


def test_what_is_up_already_is_granted_without_a_reconfiguration(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.tune()
    world.release("a")
    world.told.clear()
    world.add(world.group_request("a", (0, 1), Wants(PAIR_01), index=1))
    assert world.told == [Ack(rank, "a", 1, (Hop(0, 1, 1, 0),)) for rank in (0, 1)] and not world.dark


def test_the_ack_is_noted_once_with_the_times_of_the_first_and_the_last_request(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01, at=(3.0, 5.0))
    world.tune()
    (note,) = (note for note in world.notes if note.kind == "ack")
    assert note.t == 5.0 + DELAY_S
    assert note.fields == {"group": "a", "index": 0, "ranks": [0, 1], "asked": 3.0, "ready": 5.0}


def test_a_group_of_one_needs_no_path(world: World) -> None:
    world.ask("alone", (3,), Matching())
    assert world.told == [Ack(3, "alone", 0, ())]


def test_two_groups_that_want_one_circuit_both_wait_until_it_is_up(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.ask("also", (1, 0), PAIR_01)
    assert len(world.dark) == 1 and world.told == []
    world.tune()
    assert world.granted() == ["a", "also"] and not world.dark


# ---- ports in use ----------------------------------------------------------------------------------------------------


def test_a_request_waits_while_its_ports_carry_traffic_and_says_so_once(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.tune()
    world.ask("b", (0, 2), PAIR_02)
    world.do(world.queue.advance(world.now))
    assert world.granted() == ["a"] and not world.dark and world.up() == PAIR_01
    assert world.waits() == [("b", "a has traffic on the ports of rail0 that would go dark")]
    world.release("a")
    assert world.dark[0].after == PAIR_02 and "b" not in world.granted()
    world.tune()
    assert world.granted() == ["a", "b"]


def test_a_request_waits_while_its_ports_are_tuning_for_another(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.ask("b", (0, 2), PAIR_02)
    assert len(world.dark) == 1 and world.waits() == [("b", "ports of rail0 are still tuning")]
    world.tune()
    assert world.granted() == ["a"] and not world.dark, "its ports carry traffic now"


def test_requests_for_other_ports_are_tuned_at_the_same_time(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.ask("c", (2, 3), PAIR_23)
    assert [darken.ports for darken in world.dark] == [{2, 3}, {6, 7}]
    world.tune(1)
    assert world.granted() == ["c"]
    world.tune()
    assert world.granted() == ["c", "a"]


def test_the_oldest_of_those_that_wait_for_a_port_gets_it(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.tune()
    world.ask("b", (0, 2), PAIR_02)
    world.ask("d", (0, 3), PAIR_03)
    world.release("a")
    world.tune_all()
    assert world.granted() == ["a", "b"]
    world.release("b")
    world.tune_all()
    assert world.granted() == ["a", "b", "d"]


def test_a_request_that_can_be_granted_passes_an_older_one_that_waits_for_other_ports(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.tune()
    world.ask("b", (0, 2), PAIR_02)
    world.ask("c", (2, 3), PAIR_23)
    world.tune()
    assert world.granted() == ["a", "c"]


@given(st.permutations(range(1, 8)), st.integers(1, 3))
def test_requests_for_one_port_are_granted_in_the_order_in_which_they_came(peers: list[int], releases: int) -> None:
    """Rank 0 has one port for all of them; port 2 r + 1 belongs to rank r."""
    world = World()
    for peer in peers:
        world.ask(f"to-{peer}", (0, peer), Matching([(2, 2 * peer + 1)]))
        world.tune_all()
    for peer in peers[:releases]:
        world.release(f"to-{peer}")
        world.tune_all()
    assert world.granted() == [f"to-{peer}" for peer in peers[: releases + 1]]


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_a_rewiring_by_hand_is_done_when_the_switch_is_tuned(world: World) -> None:
    world.rewire("ticket", PAIR_23)
    assert world.told == []
    world.tune()
    assert world.told == [Rewired("ticket")] and world.up() == PAIR_23


def test_a_rewiring_by_hand_does_not_wait_for_traffic_to_end(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.tune()
    world.told.clear()
    world.rewire("ticket", PAIR_02)
    reason = (
        "the rewiring of rail0 was refused: a has traffic on the ports of rail0 that would go dark; "
        "ask again when that traffic has ended, such as between two phases"
    )
    assert world.told == [RewireRefused("ticket", reason)] and world.up() == PAIR_01
    world.release("a")
    assert not world.dark, "it was refused for good"


def test_a_rewiring_by_hand_waits_for_ports_that_are_tuning(world: World) -> None:
    world.rewire("first", PAIR_01)
    world.rewire("second", PAIR_02)
    assert world.told == []
    world.tune_all()
    assert world.told == [Rewired("first"), Rewired("second")] and world.up() == PAIR_02


def test_the_same_rewiring_twice_is_one_reconfiguration_and_both_wait_for_it(world: World) -> None:
    world.rewire("first", PAIR_01)
    world.rewire("second", PAIR_01)
    assert len(world.dark) == 1 and world.told == []
    world.tune()
    assert world.told == [Rewired("first"), Rewired("second")]


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_policy_that_never_settles_is_refused_after_a_bounded_number_of_reconfigurations(world: World) -> None:
    world.add(world.group_request("a", (0, 1), Undecided(PAIR_01)))
    tuned = 0
    while world.dark:
        assert tuned < MAX_TRIES
        world.tune()
        tuned += 1
    reason = f"the policy changed the circuits {MAX_TRIES} times for a and never settles"
    assert tuned == MAX_TRIES and world.refused() == {0: reason, 1: reason} and world.acked() == []


def raising(error: Exception) -> Callable[[], None]:
    def misbehave() -> None:
        raise error

    return misbehave


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("rail9"), "the policy failed with KeyError: 'rail9'"),
        (ConfigError("has no room", key="policy"), "policy: has no room"),
    ],
)
def test_an_error_of_a_policy_is_the_reason_of_the_refusal(world: World, error: Exception, reason: str) -> None:
    policy = Wants(PAIR_01)
    policy.on_wanted = raising(error)
    world.add(world.group_request("a", (0, 1), policy))
    assert world.refused() == {0: reason, 1: reason} and not world.dark
    (note,) = world.notes
    assert note.fields == {"group": "a", "index": 0, "reason": reason, "final": True}


def test_an_error_while_paths_are_told_refuses_and_frees_the_ports(world: World) -> None:
    policy = Wants(PAIR_01)
    policy.on_paths = raising(ValueError("lost the map"))
    world.add(world.group_request("a", (0, 1), policy))
    world.tune()
    assert set(world.refused().values()) == {"the policy failed with ValueError: lost the map"}
    world.ask("b", (0, 2), PAIR_02)
    assert world.dark[0].after == PAIR_02


def test_a_policy_that_gives_no_path_is_refused(world: World) -> None:
    world.ask("a", (0, 1), PAIR_23)
    world.tune()
    assert world.refused() == dict.fromkeys((0, 1), "the policy gave group a no path")


def test_a_broken_port_refuses_what_needs_it(world: World) -> None:
    world.optical.switch("rail0").fail(2)
    world.ask("a", (0, 1), PAIR_01)
    assert world.refused() == dict.fromkeys(
        (0, 1), "port 2 of rail0 has failed; the circuit it should hold cannot be set up"
    )


def test_a_reconfiguration_that_was_not_done_refuses_its_owner_and_the_next_begins(world: World) -> None:
    world.ask("a", (0, 1), PAIR_01)
    world.ask("b", (0, 2), PAIR_02)
    world.fail("rail0 refused it")
    assert world.refused() == dict.fromkeys((0, 1), "rail0 refused it")
    assert world.dark[0].before == Matching() and world.dark[0].after == PAIR_02
    world.tune()
    assert world.granted() == ["b"]


def test_a_round_that_is_refused_in_the_dark_keeps_its_ports_until_they_are_up(world: World) -> None:
    request = world.group_request("a", (0, 1), Wants(PAIR_01))
    world.add(request)
    world.do(world.queue.refuse_round(request.readiness, request.round, "rank 1 has left", lost=True))
    assert world.told == [Refuse(rank, "a", 0, "rank 1 has left", True) for rank in (0, 1)]
    world.ask("b", (0, 2), PAIR_02)
    assert len(world.dark) == 1
    world.tune()
    assert world.dark[0].after == PAIR_02 and world.acked() == []


def test_a_round_that_was_acknowledged_is_refused_without_a_word_and_frees_its_ports(world: World) -> None:
    request = world.group_request("a", (0, 1), Wants(PAIR_01))
    world.add(request)
    world.tune()
    world.told.clear()
    assert world.queue.refuse_round(request.readiness, request.round, "job j was finished") == []
    world.ask("b", (0, 2), PAIR_02)
    assert world.dark[0].after == PAIR_02


# ---- the start of a job ----------------------------------------------------------------------------------------------


def start_request(world: World, forgotten: list[str]) -> StartRequest:
    def given_up(reason: str, now: float) -> list[Action]:
        forgotten.append("j")
        return [RegisterRefused("j", reason)]

    return StartRequest(
        what="start of j",
        asked=world.now,
        delay_s=0.0,
        job="j",
        wiring={"rail0": PAIR_01},
        kept=lambda: {"rail0": frozenset({6, 7})},
        done=lambda now: [Registered("j")],
        given_up=given_up,
    )


def test_a_job_is_registered_when_its_circuits_are_up_beside_those_of_others(world: World) -> None:
    world.rewire("theirs", PAIR_23)
    world.rewire("nobody's", Matching([(1, 4)]))
    world.tune_all()
    world.told.clear()
    forgotten: list[str] = []
    world.add(start_request(world, forgotten))
    assert world.told == []
    world.tune()
    assert world.told == [Registered("j")] and forgotten == []
    assert world.up() == Matching([(2, 3), (6, 7)])


def test_a_start_that_still_waits_can_be_refused_and_one_that_is_over_cannot(world: World) -> None:
    forgotten: list[str] = []
    world.add(start_request(world, forgotten))
    assert world.queue.refuse_start("another", "no", world.now) == []
    assert world.queue.refuse_start("j", "it was finished", world.now) == [RegisterRefused("j", "it was finished")]
    assert forgotten == ["j"]
    world.tune()
    assert world.told == [] and world.queue.refuse_start("j", "it was finished", world.now) == []


# ---- rotations -------------------------------------------------------------------------------------------------------


def slots(seconds: float | None = None) -> tuple[Slot, ...]:
    """Rank 0 talks to rank 1, then to rank 2."""
    return (
        Slot({"rail0": Matching([(1, 3)])}, (Hop(0, 0, 1, 0),), seconds),
        Slot({"rail0": Matching([(1, 5)])}, (Hop(0, 0, 2, 0),), seconds),
    )


def rotate(world: World, seconds: float | None = None) -> None:
    world.add(world.group_request("ep", (0, 1, 2), Wants(Matching()), slots(seconds)))
    world.tune()


def test_each_slot_is_acknowledged_to_all_members_when_its_circuits_are_up(world: World) -> None:
    rotate(world)
    world.do(world.queue.end_slot("ep", 0, world.now))
    assert world.dark[0].ports == {1, 3, 5} and world.dark[0].quiet
    world.tune()
    found = [(a.rank, a.paths, a.slot_window.number) for a in world.told if isinstance(a, Ack) and a.slot_window]
    assert found == [(rank, slot.paths, number) for number, slot in enumerate(slots()) for rank in (0, 1, 2)]
    assert [note.kind for note in world.notes] == ["ack", "slot"], "one ack for the whole rotation"
    assert world.notes[1].fields == {"group": "ep", "index": 0, "slot": 0, "pairs": [[0, 1]]}


def test_a_slot_with_an_end_says_when_it_ends(world: World) -> None:
    rotate(world, seconds=0.05)
    (ends,) = (action for action in world.told if isinstance(action, SlotEnds))
    assert ends.slot_window.began == DELAY_S and ends.at == pytest.approx(DELAY_S + 0.05)
    assert (ends.group, ends.index, ends.switches) == ("ep", 0, ("rail0",))


def test_the_ports_of_all_slots_belong_to_the_rotation_until_its_release(world: World) -> None:
    rotate(world)
    world.ask("b", (2, 3), Matching([(5, 7)]))
    assert not world.dark and world.waits() == [("b", "ep has traffic on the ports of rail0 that would go dark")]
    world.release("ep")
    assert world.dark[0].ports == {5, 7} and world.up() == Matching([(1, 3)])


def test_a_rotation_is_known_from_its_request_to_its_release(world: World) -> None:
    assert world.rotation("ep") is None
    rotate(world)
    running = world.rotation("ep")
    assert running is not None and running.number == 0
    world.ask("a", (2, 3), PAIR_23)
    assert world.rotation("a") is None, "its circuits stay"
    world.release("ep")
    assert world.rotation("ep") is None


@pytest.mark.parametrize(("port", "refused"), [(3, True), (5, False)])
def test_a_port_that_fails_ends_the_rotation_whose_slot_uses_it(world: World, port: int, refused: bool) -> None:
    rotate(world)
    world.do(world.queue.port_failed("rail0", port, world.now))
    assert set(world.refused()) == ({0, 1, 2} if refused else set())
    assert all(f"port {port} of rail0" in reason for reason in world.refused().values())
    assert (world.rotation("ep") is None) == refused
