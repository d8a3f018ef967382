"""The engine under the Opus policy: the barrier, holding, refusing, and whatever may go wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_player import Player
from fabric_plans import job, pipeline_groups, rail_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.circuits.circuits import Matching
from controllers.engine.actions import CheckedIn, Registered, RegisterRefused, Rewired, RewireRefused
from controllers.engine.engine import Engine
from controllers.engine.jobs import Detection, Job
from controllers.policies.opus import OpusPolicy
from controllers.policies.policy import Policy, Wiring
from railyard.errors import CircuitError, ConfigError, ControlError
from railyard.protocol import Hop
from workloads.program import Group

# dp 2 x pp 2 on one rail: stage 0 is ranks 0 and 1 (ports 1 to 4), stage 1 ranks 2 and 3 (ports 5 to 8)
RINGS = Matching([(2, 3), (1, 4), (6, 7), (5, 8)])
CHAIN = Matching([(2, 5), (4, 7)])


def player(dp: int = 2, pp: int = 2, delay_s: float = 0.1) -> Player:
    plan = rail_plan(dp * pp)
    found = Player(Engine(plan))
    found.start(job(dp, pp, delay_s), OpusPolicy(plan))
    return found


def standing(world: Player) -> Matching:
    return world.engine.optical.circuits_up()["rail0"]


def test_a_job_starts_in_its_rings_without_delay() -> None:
    plan = rail_plan(4)
    engine = Engine(plan)
    (darken,) = engine.register(job(2, 2, 0.5), OpusPolicy(plan), 0.0)
    assert (darken.delay_s, darken.after) == (0.0, RINGS)  # type: ignore[union-attr]
    assert Registered("job") in engine.reconfigured(1, 0.0)


def test_a_request_for_what_stands_costs_nothing() -> None:
    world = player()
    world.ask("dp-s0-r0", 0)
    assert world.granted("dp-s0-r0") and not world.dark


def test_the_barrier_waits_for_the_last_member() -> None:
    world = player()
    world.ask("pp-s0-d0-r0", 0, (0,))
    assert not world.dark
    world.now = 3.0
    world.ask("pp-s0-d0-r0", 0, (2,))
    assert world.dark[0].after == CHAIN and world.dark[0].delay_s == 0.1
    assert not world.granted("pp-s0-d0-r0")
    world.settle()
    assert world.granted("pp-s0-d0-r0") and standing(world) == CHAIN
    note = next(n for n in world.notes if n.kind == "reconfigure" and n.fields["group"] == "pp-s0-d0-r0")
    assert (note.t, note.end, note.fields["asked"]) == (3.0, 3.1, 3.0)


def test_nothing_in_flight_is_torn_down() -> None:
    world = player()
    world.ask("dp-s1-r0", 0)
    world.ask("pp-s0-d0-r0", 0)
    assert not world.dark
    assert [n.fields["group"] for n in world.notes if n.kind == "refused"] == ["pp-s0-d0-r0"]
    world.release("dp-s1-r0", 0, (2,))
    assert not world.dark
    world.release("dp-s1-r0", 0, (3,))
    world.settle()
    assert world.granted("pp-s0-d0-r0")


def test_stages_may_diverge() -> None:
    world = player(dp=2, pp=3)
    for pair in ("pp-s0-d0-r0", "pp-s1-d0-r0"):
        world.ask(pair, 0)
        world.settle()
        world.release(pair, 0)
    world.ask("dp-s0-r0", 0)
    assert world.dark[0].ports == {1, 2, 3, 4, 5, 7}
    assert {(6, 9), (8, 11)} <= {c.ports for c in standing(world)}
    world.ask("pp-s1-d0-r0", 1)
    assert world.granted("pp-s1-d0-r0", 1)
    world.settle()
    assert world.granted("dp-s0-r0")


def test_an_index_that_repeats_and_a_release_before_the_ack_are_refused() -> None:
    world = player()
    world.ask("dp-s0-r0", 0, (0,))
    with pytest.raises(ControlError, match="its next request must be 1"):
        world.engine.request(0, "dp-s0-r0", 0, 0.0)
    with pytest.raises(ControlError, match="for which it holds no ack"):
        world.engine.release(0, "dp-s0-r0", 0, 0.0)


def test_scale_up_groups_are_told_once_and_bypass() -> None:
    plan = rail_plan(2)
    engine = Engine(plan)
    engine.register(Job("job", (Group("tp", "tp", (0, 1), "scale-up"),), "on-demand"), OpusPolicy(plan), 0.0)
    assert engine.check_in(0, "tp", 0.0) == []
    assert engine.check_in(1, "tp", 0.0) == [CheckedIn(r, "tp", "scale-up", False, ()) for r in (0, 1)]


def test_a_member_that_has_left_is_named_to_those_who_wait() -> None:
    world = player()
    world.ask("dp-s0-r0", 0, (0,))
    world.do(world.engine.gone(1, 0.0))
    world.ask("dp-s1-r0", 0)
    assert [(r.rank, r.reason) for r in world.refused] == [(0, "rank 1 of the group has left")]
    assert world.granted("dp-s1-r0")


def test_a_switch_that_fails_refuses_and_gets_its_circuits_again() -> None:
    world = player()
    world.ask("pp-s0-d0-r0", 0)
    world.refuse(reason="rail0 is gone")
    assert {(r.rank, r.reason) for r in world.refused} == {(0, "rail0 is gone"), (2, "rail0 is gone")}
    world.settle()
    assert standing(world) == RINGS
    world.ask("pp-s0-d1-r0", 0)
    world.settle()
    assert world.granted("pp-s0-d1-r0")


def test_a_broken_port_refuses_who_needs_it_and_comes_back() -> None:
    world = player()
    world.do(world.engine.port_failed("rail0", 2, 0.0))
    world.settle()
    assert standing(world) == Matching([(1, 4), (6, 7), (5, 8)])
    world.ask("pp-s0-d0-r0", 0)
    assert "port 2 of rail0 has failed" in world.refused[0].reason
    world.do(world.engine.port_restored("rail0", 2, 0.0))
    assert world.dark[0].delay_s == 0.1
    world.settle()
    assert standing(world) == RINGS


def test_where_failures_are_detected_who_needs_a_broken_port_waits_for_the_spare_server() -> None:
    plan = replace(rail_plan(5), spare_servers=1)
    world = Player(Engine(plan))
    world.start(replace(job(2, 2, 0.1), detection=Detection(0.25)), OpusPolicy(plan))
    world.do(world.engine.port_failed("rail0", 2, 0.0))
    world.settle()
    world.ask("pp-s0-d0-r0", 0)
    assert not world.refused and not world.granted("pp-s0-d0-r0")
    world.do(world.engine.chip_failed(0, "silent", 1.0))
    assert {(refused.rank, refused.lost) for refused in world.refused} == {(0, True), (2, True)}
    world.settle()
    assert standing(world) == Matching([(3, 10), (4, 9), (6, 7), (5, 8)])  # rank 4 is in the place of rank 0


def test_a_request_waits_for_a_repaired_circuit_that_is_still_tuning() -> None:
    world = player()
    world.do(world.engine.port_failed("rail0", 2, 0.0))
    world.settle()
    world.do(world.engine.port_restored("rail0", 2, 0.0))
    world.ask("pp-s0-d0-r0", 0)
    assert len(world.dark) == 1 and not world.refused
    world.settle()
    assert world.granted("pp-s0-d0-r0")


def test_finish_forgets_the_job_and_keeps_the_circuits() -> None:
    world = player()
    world.ask("dp-s0-r0", 0)
    world.ask("dp-s1-r0", 0, (2,))
    world.do(world.engine.finish("job", 0.0))
    world.held.clear()
    assert [(r.rank, r.group) for r in world.refused] == [(2, "dp-s1-r0")]
    assert standing(world) == RINGS
    with pytest.raises(ControlError, match="job job is not registered"):
        world.engine.finish("job", 0.0)
    world.start(job(2, 2), OpusPolicy(world.engine.plan))
    world.ask("pp-s0-d0-r0", 0)
    world.settle()
    assert world.granted("pp-s0-d0-r0")


def test_finish_in_the_dark_frees_the_ports_once_they_are_lit() -> None:
    world = player()
    world.ask("pp-s0-d0-r0", 0)
    world.do(world.engine.finish("job", 0.0))
    world.settle()
    world.do(world.engine.rewire("rail0", RINGS, "overwrite", 0.0, ticket="mine"))
    world.settle()
    assert standing(world) == RINGS


def test_two_jobs_share_a_rail() -> None:
    plan = rail_plan(6)
    world = Player(Engine(plan))
    world.start(job(2, 2, 0.1), OpusPolicy(plan))
    other = (Group("other", "dp", (4, 5)),)
    world.start(Job("second", other, "on-demand"), OpusPolicy(plan))
    world.ask("other", 0)
    world.ask("pp-s0-d0-r0", 0)
    world.settle()
    assert world.granted("pp-s0-d0-r0")
    assert standing(world) == Matching([*CHAIN, (10, 11), (9, 12)])


def test_a_group_name_is_used_once() -> None:
    world = player()
    with pytest.raises(ControlError, match="group dp-s0-r0 is already registered"):
        world.engine.register(Job("two", pipeline_groups(2, 1), "x"), OpusPolicy(world.engine.plan), 0.0)
    assert list(world.engine.jobs) == ["job"]


def test_a_rewiring_waits_for_dark_ports_and_refuses_ports_in_use() -> None:
    world = player()
    world.ask("dp-s0-r0", 0)
    (refused,) = world.engine.rewire("rail0", Matching([(1, 8)]), "update", 0.0, ticket=1)
    assert isinstance(refused, RewireRefused) and refused.ticket == 1
    assert "dp-s0-r0 has traffic on the ports of rail0 that would go dark" in refused.reason
    (darken,) = world.engine.rewire("rail0", Matching([(5, 6)]), "update", 0.0, delay_s=0.2, ticket=2)
    assert darken.delay_s == 0.2  # type: ignore[union-attr]
    waits = world.engine.rewire("rail0", Matching([(5, 7)]), "update", 0.0, ticket=3)
    assert [type(a).__name__ for a in waits] == ["Note"]
    actions = world.engine.reconfigured(darken.reconfiguration_id, 1.0)  # type: ignore[union-attr]
    assert Rewired(2) in actions


class Restless(Policy):
    """Never content."""

    slot_window = 0

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """Something else each time."""
        self.slot_window += 1
        return {"rail0": Matching([(1, 2 + self.slot_window % 2)])}


class Broken(Policy):
    """Raises."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        """Not possible."""
        raise ZeroDivisionError("oops")


class Lost(Restless):
    """Has circuits, and fails when it is asked for paths over them."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        return {"rail0": Matching([(2, 3)])}

    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        raise ValueError("lost the map")


class Nowhere(Lost):
    def paths(self, group: Group, standing: Wiring) -> tuple[Hop, ...]:
        return ()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Restless, "never settles"),
        (Broken, "the policy failed with ZeroDivisionError: oops"),
        (Lost, "the policy failed with ValueError: lost the map"),
        (Nowhere, "the policy gave group ring no path"),
    ],
)
def test_a_bad_policy_is_refused_and_named(policy: type[Policy], reason: str) -> None:
    plan = rail_plan(2)
    world = Player(Engine(plan))
    world.start(Job("job", (Group("ring", "dp", (0, 1)),), "x"), policy(plan))
    world.ask("ring", 0)
    world.settle()
    assert len(world.refused) == 2 and reason in world.refused[0].reason


class Pairs(Policy):
    """A circuit from the same port of rank 0 to the other member of each group."""

    def wanted(self, group: Group, standing: Wiring) -> Wiring:
        return {"rail0": standing["rail0"].replaced_by(Matching([(2, 2 * group.members[1] + 1)]))}


@given(st.permutations(range(1, 8)), st.integers(1, 3))
def test_requests_for_one_port_are_granted_in_the_order_in_which_they_came(peers: list[int], releases: int) -> None:
    plan = rail_plan(8)
    world = Player(Engine(plan))
    groups = tuple(Group(f"to-{peer}", "pp", (0, peer)) for peer in range(1, 8))
    world.start(Job("job", groups, "x", 0.1), Pairs(plan))
    for peer in peers:
        world.ask(f"to-{peer}", 0)
        world.settle()
    for peer in peers[:releases]:
        assert list(world.held) == [(f"to-{peer}", 0)]
        world.release(f"to-{peer}", 0)
        world.settle()
    assert list(world.held) == [(f"to-{peers[releases]}", 0)]


def test_a_job_that_cannot_start_is_forgotten() -> None:
    class Far(Policy):
        def start(self, groups: object) -> Wiring:
            return {"rail0": Matching([(1, 99)])}

    plan = rail_plan(2)
    engine = Engine(plan)
    with pytest.raises(CircuitError, match="port 99"):
        engine.register(Job("job", (Group("ring", "dp", (0, 1)),), "x"), Far(plan), 0.0)
    assert not engine.jobs
    actions = engine.register(Job("job", (Group("ring", "dp", (0, 1)),), "x"), OpusPolicy(plan), 0.0)
    assert RegisterRefused("job", "no") in [
        RegisterRefused("job", "no") if isinstance(a, RegisterRefused) else a
        for a in engine.failed(actions[0].reconfiguration_id, "no", 0.0)  # type: ignore[union-attr]
    ]
    assert not engine.jobs


@pytest.mark.parametrize("members", [(), (0, 0), (0, 9)])
def test_a_group_with_impossible_members_is_named(members: tuple[int, ...]) -> None:
    plan = rail_plan(2)
    with pytest.raises(ConfigError, match="group ring"):
        Engine(plan).register(Job("job", (Group("ring", "dp", members),), "x"), OpusPolicy(plan), 0.0)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_any_order_of_events_is_safe_and_everybody_is_served(data: st.DataObject, dp: int, pp: int) -> None:
    """Members ask, release and switches finish in any order: ``Player`` checks that nothing held is torn and that no

    port is in two reconfigurations; in the end, when all members release, every complete request has been granted.
    """
    world = player(dp, pp, 0.1)
    asked: dict[tuple[int, str], int] = {}
    turns: list[tuple[str, int]] = []
    for _ in range(data.draw(st.integers(0, 60))):
        can_release = [(g, k, r) for (g, k), ranks in world.held.items() for r in ranks]
        can_ask = [(g.name, r) for g in world.groups.values() for r in g.members]
        moves = [*("ask",) * bool(can_ask), *("release",) * bool(can_release), *("light",) * bool(world.dark)]
        if not moves:
            break
        move = data.draw(st.sampled_from(moves))
        if move == "ask":
            group, rank = data.draw(st.sampled_from(can_ask))
            index = asked.get((rank, group), 0)
            before = group, index - 1
            if before in world.held or world.waiting.get(before):
                continue
            asked[rank, group] = index + 1
            turns.append((group, index))
            world.ask(group, index, (rank,))
        elif move == "release":
            group, index, rank = data.draw(st.sampled_from(can_release))
            world.release(group, index, (rank,))
        else:
            world.light(data.draw(st.integers(0, len(world.dark) - 1)))
    while world.dark or world.held:
        world.settle()
        for (group, index), ranks in list(world.held.items()):
            world.release(group, index, tuple(ranks))
    complete = [(g, k) for g, k in set(turns) if all(asked.get((r, g), 0) > k for r in world.groups[g].members)]
    assert not [key for key in complete if world.waiting.get(key)]
    assert not world.refused
