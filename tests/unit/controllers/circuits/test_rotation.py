"""Rotations in the engine: slots with an end and without, who is told, who may not touch their ports, how they end."""

from __future__ import annotations

import pytest
from engine_player import Turner
from fabric_plans import rail_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.circuits import Circuit, Matching
from controllers.circuits.rotation import Cycle, RunningRotation, Slot
from controllers.engine.actions import CheckedIn, Rewired, RewireRefused
from controllers.engine.engine import Engine, rotation_of
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy, Wiring
from controllers.policies.rotor import RotorPolicy
from railyard.errors import ControlError
from railyard.protocol import Hop
from topos.plan import FabricPlan
from workloads.program import Group

FIXED = Cycle(slot_s=0.5, guard_s=0.01)
WORDS = st.sampled_from(["moved", "idle", "release", "light", "over"])


def everybody(n: int, first: int = 0, name: str = "ep") -> Group:
    return Group(name, "ep", tuple(range(first, first + n)))


def rotor(plan: FabricPlan, *groups: Group, cycle: Cycle | None = None, delay_s: float = 0.1) -> Turner:
    """Groups that rotate on rails with one port for each GPU."""
    world = Turner(Engine(plan))
    world.start(Job("job", groups, "on-demand", delay_s, cycle=cycle), RotorPolicy(plan))
    return world


def turning(n: int, cycle: Cycle | None = None) -> Turner:
    """The first slot of an all-to-all of ``n`` stands."""
    world = rotor(rail_plan(n, ports=1), everybody(n), cycle=cycle)
    world.ask("ep")
    world.settle()
    return world


class Electrician(Policy):
    """Only circuits that it is told; nothing rotates."""

    def __init__(self, plan: FabricPlan, *circuits: tuple[int, int]) -> None:
        super().__init__(plan)
        self._circuits = Matching(circuits)

    def start(self, groups: object) -> Wiring:
        return {"rail0": self._circuits}

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        return {"rail0": standing["rail0"].replaced_by(self._circuits)}


# ---- a cycle as it is asked for --------------------------------------------------------------------------------------


def test_a_cycle_is_scaled_in_time_and_in_size() -> None:
    cycle = Cycle(0.1, 0.002, simplex=True, demand=((0.0, 8.0), (2.0, 0.0)), most_slots=3)
    assert cycle.scaled(10, 0.5) == Cycle(1.0, 0.02, True, ((0.0, 4.0), (1.0, 0.0)), 3)
    assert Cycle(guard_s=0.002).scaled(10, 0.5) == Cycle(None, 0.02)


# ---- the bookkeeping -------------------------------------------------------------------------------------------------


def of_two_slots(seconds: float | None = None) -> RunningRotation:
    return RunningRotation((Slot({}, (), seconds), Slot({}, (Hop(0, 0, 1, 0),), seconds)), guard_s=0.25)


@given(
    said=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12),
    present=st.frozensets(st.integers(0, 3), min_size=1),
)
def test_a_slot_is_over_when_all_have_moved_and_somebody_waits(
    said: list[tuple[int, bool]], present: frozenset[int]
) -> None:
    turns, last = of_two_slots(), dict[int, bool]()
    for rank, idle in said:
        turns.report(rank, idle)
        last[rank] = idle
    moved = all(rank in last for rank in present)
    assert turns.over(present) == (moved and not all(last[rank] for rank in present))
    turns.advance()
    assert not turns.over(present) and turns.slot_window is None


def test_a_group_that_does_not_rotate_has_no_rotation() -> None:
    policy = RotorPolicy(rail_plan(4, ports=1))
    policy.prepare(Job("job", (), "any", cycle=FIXED))
    assert rotation_of(policy, Group("dp", "dp", (0, 1)), FIXED) is None
    made = rotation_of(policy, everybody(4), FIXED)
    assert made is not None and made.guard_s == 0.01 and len(made.slots) == 3


# ---- slots with an end -----------------------------------------------------------------------------------------------


def test_slots_of_fixed_length_follow_each_other() -> None:
    world = turning(4, FIXED)
    for number in range(5):
        (ends,) = world.ends[number:]
        slot_window = world.acks[0, "ep"][-1].slot_window
        assert slot_window is not None and ends.slot_window == slot_window and ends.switches == ("rail0",)
        assert slot_window.number == number and ends.at == slot_window.until == pytest.approx(slot_window.began + 0.5)
        assert slot_window.guard_s == 0.01
        world.over(ends)
        assert world.dark and all(world.told(rank, "ep") == list(range(number + 1)) for rank in range(4))
        world.settle()
    paths = [world.acks[0, "ep"][number].paths for number in range(6)]
    assert paths[0] == paths[3] and paths[2] == paths[5] and len(set(paths)) == 3
    assert [(s["slot"], s["index"], s["group"]) for s in world.slots()] == [(k, 0, "ep") for k in range(5)]
    assert all(slot["ended"] == pytest.approx(slot["began"] + 0.5) for slot in world.slots())
    assert world.slots()[1]["pairs"] == [[path[0], path[2]] for path in paths[1]]


def test_only_the_first_slot_is_an_ack_for_the_timeline() -> None:
    world = turning(4, FIXED)
    for number in range(3):
        world.over(world.ends[number])
        world.settle()
    assert sum(note.kind == "ack" for note in world.notes) == 1
    dark = [n for n in world.notes if n.kind == "reconfigure" and n.fields["group"] == "ep"]
    assert [n.fields["asked"] for n in dark[1:]] == [ends.at for ends in world.ends[:3]], "asked when the slot ended"


def test_a_call_for_a_slot_that_is_over_is_ignored() -> None:
    world = turning(4, FIXED)
    first = world.ends[0]
    world.over(first)
    world.over(first)
    assert len(world.dark) == 1, "in the dark"
    world.settle()
    world.over(first)
    assert not world.dark and world.told(0, "ep") == [0, 1], "in the next slot"
    world.release("ep")
    world.over(world.ends[1])
    assert not world.dark, "after the end"


def test_a_word_that_all_is_sent_does_not_shorten_a_slot_with_an_end() -> None:
    world = turning(4, FIXED)
    world.moved("ep")
    assert not world.dark and world.told(0, "ep") == [0]


def test_a_pair_keeps_its_circuit_from_slot_to_slot() -> None:
    world = turning(2, FIXED)
    world.over(world.ends[0])
    assert world.told(0, "ep") == [0, 1] and not world.dark
    assert world.ends[1].at == pytest.approx(world.now + 0.5)


# ---- slots that end when all have sent -------------------------------------------------------------------------------


def test_the_next_slot_comes_when_the_last_has_sent() -> None:
    world = turning(4)
    world.moved("ep", 0, 1, 3)
    assert not world.dark
    world.now += 2.0
    world.moved("ep", 2)
    world.settle()
    assert [world.told(rank, "ep") for rank in range(4)] == [[0, 1]] * 4
    assert not world.ends, "nothing ends by itself"
    (slot,) = world.slots()
    assert slot["ended"] - slot["began"] == pytest.approx(2.0)


def test_words_of_another_slot_count_for_nothing() -> None:
    world = turning(4)
    world.moved("ep", slot=1)
    assert not world.dark
    world.moved("ep")
    world.moved("ep", slot=1)
    assert len(world.dark) == 1, "in the dark nobody can have sent anything"
    world.settle()
    world.moved("ep", slot=0)
    assert world.told(0, "ep") == [0, 1] and not world.dark


def test_when_nobody_has_anything_the_slot_stands_until_somebody_has() -> None:
    world = turning(4)
    world.moved("ep", idle=True)
    assert not world.dark
    world.moved("ep", 2, idle=False)
    world.settle()
    assert world.told(0, "ep") == [0, 1]
    world.moved("ep", 0, 1, 3, idle=True)
    world.moved("ep", 2, idle=False)
    world.settle()
    assert world.told(0, "ep") == [0, 1, 2], "one with something is enough"


def test_words_of_strangers_are_refused() -> None:
    world = turning(4)
    with pytest.raises(ControlError, match="rank 9 is not a member of group ep"):
        world.engine.moved(9, "ep", 0, 0, False, world.now)
    with pytest.raises(ControlError, match="no job has registered a group nobody"):
        world.engine.moved(0, "nobody", 0, 0, False, world.now)


def test_words_of_a_group_that_does_not_rotate_mean_nothing() -> None:
    plan = rail_plan(4)
    world = Turner(Engine(plan))
    world.start(Job("job", (Group("dp", "dp", (0, 1, 2, 3)),), "on-demand", 0.1), RotorPolicy(plan))
    assert world.engine.moved(0, "dp", 0, 0, False, 0.0) == []
    world.ask("dp")
    assert world.engine.moved(0, "dp", 0, 0, False, 0.0) == []


# ---- letting go ------------------------------------------------------------------------------------------------------


def test_who_has_let_go_is_left_out() -> None:
    world = turning(4)
    world.release("ep", ranks=(1,))
    world.moved("ep", 0, 2)
    assert not world.dark
    world.moved("ep", 3)
    world.settle()
    assert [world.told(rank, "ep") for rank in range(4)] == [[0, 1], [0], [0, 1], [0, 1]]


def test_who_lets_go_in_the_dark_is_not_told() -> None:
    world = turning(4)
    world.moved("ep")
    world.release("ep", ranks=(2,))
    world.settle()
    assert [world.told(rank, "ep") for rank in range(4)] == [[0, 1], [0, 1], [0], [0, 1]]


@pytest.mark.parametrize("cycle", [None, FIXED])
@pytest.mark.parametrize("dark", [False, True])
def test_when_all_have_let_go_it_is_over(cycle: Cycle | None, dark: bool) -> None:
    world = turning(4, cycle)
    if dark:
        world.over(world.ends[0]) if cycle else world.moved("ep")
    world.release("ep")
    world.settle()
    assert [world.told(rank, "ep") for rank in range(4)] == [[0]] * 4
    assert len(world.slots()) == 1
    world.do(world.engine.rewire("rail0", Matching([(1, 2)]), "update", world.now, ticket="mine"))
    world.settle()
    assert Rewired("mine") in world.others, "the ports are free"


def test_the_next_request_begins_with_the_first_slot() -> None:
    world = turning(4)
    world.moved("ep")
    world.settle()
    world.release("ep")
    world.ask("ep", 1)
    world.settle()
    assert world.told(0, "ep") == [0, 1, 0]
    assert world.acks[0, "ep"][0].paths == world.acks[0, "ep"][2].paths
    world.moved("ep", index=0)
    assert not world.dark, "the first rotation is over"
    world.moved("ep", index=1)
    assert world.dark


def test_a_job_that_is_finished_tells_all_who_hold_a_slot() -> None:
    world = turning(4, FIXED)
    world.release("ep", ranks=(3,))
    world.do(world.engine.finish("job", world.now))
    assert [(r.rank, r.index, r.reason) for r in world.refused] == [(k, 0, "job job was finished") for k in range(3)]
    world.over(world.ends[0])
    assert not world.dark


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_switch_that_fails_in_mid_rotation_tells_everybody() -> None:
    world = turning(4)
    world.release("ep", ranks=(0,))
    world.moved("ep", 1, 2, 3)
    world.do(world.engine.failed(world.dark.pop().reconfiguration_id, "rail0 refused it", world.now))
    assert [(r.rank, r.group, r.index, r.reason) for r in world.refused] == [
        (rank, "ep", 0, "rail0 refused it") for rank in (1, 2, 3)
    ]
    world.do(world.engine.rewire("rail0", Matching([(1, 2)]), "update", world.now, ticket="mine"))
    world.settle()
    assert Rewired("mine") in world.others


@pytest.mark.parametrize("cycle", [None, FIXED])
def test_a_port_that_dies_ends_the_rotation_when_its_turn_comes(cycle: Cycle | None) -> None:
    world = turning(5, cycle)
    (idle,) = set(range(1, 6)) - world.standing().ports
    world.do(world.engine.port_failed("rail0", idle, world.now))
    assert not world.refused and not world.dark, "nobody needs it in this slot"
    world.over(world.ends[0]) if cycle else world.moved("ep")
    said = f"port {idle} of rail0 has failed; the circuit it should hold cannot be set up"
    assert [(r.rank, r.reason) for r in world.refused] == [(rank, said) for rank in range(5)]
    final = [note for note in world.notes if note.kind == "refused"]
    assert [note.fields["final"] for note in final] == [True]


@pytest.mark.parametrize("cycle", [None, FIXED])
def test_a_port_that_dies_in_its_slot_ends_the_rotation_at_once(cycle: Cycle | None) -> None:
    world = turning(5, cycle)
    used = min(world.standing().ports)
    world.do(world.engine.port_failed("rail0", used, world.now))
    said = f"port {used} of rail0 has failed during a slot that uses it"
    assert [(r.rank, r.reason) for r in world.refused] == [(rank, said) for rank in range(5)]
    world.moved("ep")
    assert len(world.refused) == 5, "once"


def test_a_policy_that_fails_when_asked_for_slots_is_refused_before_anything_changes() -> None:
    class Broken(RotorPolicy):
        def rotation(self, group: Group) -> tuple[Slot, ...]:
            slot = super().rotation(group)[0]
            return (slot, Slot({"rail0": Matching([(1, 99)])}, slot.paths))

    plan = rail_plan(4, ports=1)
    world = Turner(Engine(plan))
    world.start(Job("job", (everybody(4),), "on-demand"), Broken(plan))
    world.ask("ep")
    world.settle()
    world.moved("ep")
    assert len(world.refused) == 4 and "port 99 is not on rail0" in world.refused[0].reason


# ---- beside others ---------------------------------------------------------------------------------------------------


def test_members_hear_at_check_in_that_circuits_will_take_turns() -> None:
    plan = rail_plan(4)
    engine = Engine(plan)
    groups = (everybody(4), Group("dp", "dp", (0, 1, 2, 3)))
    engine.register(Job("job", groups, "on-demand"), RotorPolicy(plan), 0.0)
    for group, rotates in (("ep", True), ("dp", False)):
        (*_, last) = [engine.check_in(rank, group, 0.0) for rank in range(4)]
        assert last == [CheckedIn(rank, group, "scale-out", True, (), rotates) for rank in range(4)]


def test_circuits_of_another_job_on_the_switch_stay() -> None:
    plan = rail_plan(8, ports=1)
    world = Turner(Engine(plan))
    wires = Electrician(plan, (5, 7), (6, 8))
    world.start(Job("other", (Group("theirs", "dp", (4, 5, 6, 7)),), "on-demand"), wires)
    world.ask("theirs")
    world.start(Job("job", (everybody(4),), "on-demand", 0.1), RotorPolicy(plan))
    world.ask("ep")
    for _ in range(4):
        world.settle()
        assert {Circuit(5, 7), Circuit(6, 8)} <= world.standing().circuits
        world.moved("ep")
        assert {Circuit(5, 7), Circuit(6, 8)} <= world.standing().circuits, "in the dark too"
    assert {port for _, port in world.blinked} == {1, 2, 3, 4}


def test_two_groups_rotate_on_one_switch_each_at_its_own_pace() -> None:
    first, second = everybody(4), everybody(4, first=4, name="other")
    world = rotor(rail_plan(8, ports=1), first, second)
    for name in ("ep", "other"):
        world.ask(name)
        world.settle()
    before = world.standing()
    for _ in range(2):
        world.moved("ep")
        assert all(port <= 4 for darken in world.dark for port in darken.ports)
        world.settle()
    assert (world.told(0, "ep"), world.told(4, "other")) == ([0, 1, 2], [0])
    assert {c for c in world.standing() if c.a > 4} == {c for c in before if c.a > 4}
    world.moved("ep")
    world.moved("other")
    assert len(world.dark) == 2, "both may be dark at once"
    world.settle()
    assert (world.told(0, "ep"), world.told(4, "other")) == ([0, 1, 2, 3], [0, 1])


def test_another_group_of_its_members_waits_until_all_have_let_go() -> None:
    plan = rail_plan(4)
    world = Turner(Engine(plan))
    world.start(Job("job", (everybody(4), Group("dp", "dp", (0, 1, 2, 3))), "on-demand", 0.1), RotorPolicy(plan))
    world.ask("ep")
    world.settle()
    world.release("ep", ranks=(0, 1, 2))
    world.ask("dp")
    world.moved("ep", 3)
    world.settle()
    assert not world.acks.get((0, "dp")) and world.told(3, "ep") == [0, 1]
    world.release("ep", ranks=(3,))
    world.settle()
    assert len(world.acks[0, "dp"]) == 1


@pytest.mark.parametrize("n", [4, 5])
def test_a_rotation_is_not_rewired_by_hand(n: int) -> None:
    world = rotor(rail_plan(n + 1, ports=1), everybody(n))
    world.ask("ep")
    world.settle()
    for port in range(1, n + 1):
        world.do(world.engine.rewire("rail0", Matching([(port, n + 1)]), "update", world.now, ticket=port))
        assert isinstance(world.others.pop(), RewireRefused), f"port {port} is the rotation's, in this slot or not"
    assert not world.dark
    world.moved("ep")
    here = world.dark[0].after
    wanted = Matching([next((a, b) for a in range(1, n) for b in range(a + 1, n + 1) if here.peer(a) != b)])
    world.do(world.engine.rewire("rail0", wanted, "update", world.now, ticket="in the dark"))
    world.settle()
    (refused,) = world.others
    assert isinstance(refused, RewireRefused) and refused.ticket == "in the dark"
    assert "ep has traffic on the ports of rail0 that would go dark" in refused.reason
    assert world.told(0, "ep") == [0, 1]


@settings(deadline=None)
@given(
    n=st.integers(2, 7),
    fixed=st.booleans(),
    script=st.lists(st.tuples(WORDS, st.integers(0, 6)), max_size=60),
)
def test_in_any_order_nobody_misses_a_slot_and_all_can_end(n: int, fixed: bool, script: list[tuple[str, int]]) -> None:
    world = turning(n, FIXED if fixed else None)
    gone: set[int] = set()
    for what, rank in script:
        rank %= n
        if what == "light":
            world.settle()
        elif what == "over" and world.ends:
            world.over(world.ends[-1])
        elif what == "release" and rank not in gone and len(gone) < n - 1:
            gone.add(rank)
            world.release("ep", ranks=(rank,))
        elif what in ("moved", "idle") and rank not in gone:
            world.moved("ep", rank, idle=what == "idle")
        for left in set(range(n)) - gone:
            assert world.told(left, "ep") == list(range(len(world.told(left, "ep"))))
        assert len({len(world.told(left, "ep")) for left in set(range(n)) - gone}) == 1
    world.release("ep", ranks=tuple(set(range(n)) - gone))
    world.settle()
    assert not world.refused and not world.dark
    world.ask("ep", 1)
    world.settle()
    assert world.told(0, "ep")[-1] == 0
