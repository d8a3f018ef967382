"""A chip fails on an optical rack: who stands in, where light goes afterwards, and what everybody is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from rack_player import RackPlayer, rack, rented, ring

from controllers.circuits.circuits import Matching
from controllers.circuits.torus_routes import path
from controllers.engine.actions import RegisterRefused
from controllers.engine.engine import Engine
from controllers.engine.jobs import Detection, Job
from controllers.policies.lumion import LumionPolicy
from controllers.policies.policy import ClusterState, Policy, Wiring
from controllers.policies.torus import MigratePolicy, TorusPolicy
from railyard.errors import ConfigError, ControlError
from topos.plan import FabricPlan
from topos.torus import Torus
from workloads.program import Group

PLAN = rack()
# tenant A is chips 0, 1, 2, 3 (ring order), tenant B 4, 5, 6, 7; spares are 8 and 9
A = ring(*PLAN.rack.tenant("A").ranks) if PLAN.rack else {}
B = ring(*PLAN.rack.tenant("B").ranks) if PLAN.rack else {}


def world(*tenants: str, delay_s: float = 0.015, detection: Detection | None = None) -> RackPlayer:
    jobs = [rented(PLAN, tenant, delay_s, detection) for tenant in tenants or ("A", "B")]
    return RackPlayer.on(PLAN, LumionPolicy, *jobs)


def ring_of(world: RackPlayer, job: str) -> tuple[int, ...]:
    return world.engine.jobs[job].groups[0].members


def test_a_spare_takes_the_position_of_the_dead_and_one_reconfiguration_does_it() -> None:
    here = world()
    here.now = 5.0
    first, dead, *rest = ring_of(here, "A")
    here.fail(dead)
    (darken,) = here.dark
    assert darken.delay_s == 0.015
    assert here.goes() == {k: v for k, v in (A | B).items() if dead not in (k[0], v[0])}, "others never blink"
    here.settle()
    assert ring_of(here, "A") == (first, 8, *rest)
    assert here.goes() == ring(first, 8, *rest) | B
    assert len(here.notes) == len([*here.kinds(), *(n for n in here.notes if n.kind == "reconfigure")])
    note = here.note("replaced")
    assert (note.t, note.end) == (5.0, 5.015)
    assert note.fields | {"ports": 0} == {
        "job": "A",
        "number": 1,
        "dead": [dead],
        "replacements": [[dead, 8]],
        "ports": 0,
        "kept": 6,
    }
    assert len(note.fields["ports"]) == 6 and here.changed == ["A"]
    assert here.note("failed").fields == {"job": "A", "rank": dead, "cause": "test", "heard": None}
    before = len(here.notes)
    here.fail(dead)
    assert len(here.notes) == before and not here.dark, "a second report of the same death changes nothing"


def test_a_member_whose_ports_are_dark_but_who_is_not_given_up_yet_does_not_hold_up_the_splice() -> None:
    here = world("A")
    ports = [port.number for port in PLAN.rail_of(2).ports if port.rank == 2]
    for port in ports:
        here.do(here.engine.port_failed("rack0", port, here.now))
    here.settle()
    here.fail(1)
    here.settle()
    assert "stranded" not in here.kinds() and ring_of(here, "A") == (0, 8, 2, 3)
    assert here.goes() == {k: v for k, v in ring(0, 8, 2, 3).items() if 2 not in (k[0], v[0])}
    here.fail(2)
    here.settle()
    assert here.goes() == ring(0, 8, 9, 3)


def test_a_spare_that_nobody_uses_is_only_noted_and_not_chosen_later() -> None:
    here = world()
    here.fail(8)
    assert not here.dark and here.kinds() == ["failed"] and here.note("failed").fields["job"] == ""
    here.fail(0)
    here.settle()
    assert 9 in ring_of(here, "A")


def test_a_spare_with_a_broken_port_is_not_chosen() -> None:
    here = world()
    (switch,) = PLAN.network("rail")
    here.do(here.engine.port_failed("rack0", switch.port(8, 2).number, 0.0))
    here.fail(0)
    here.settle()
    assert 9 in ring_of(here, "A")


def test_whoever_watches_is_told_when_the_light_is_on_and_not_before() -> None:
    here = world()
    assert here.engine.changes_since("A", 0) is None
    here.fail(2)
    assert here.engine.changes_since("A", 0) is None
    here.settle()
    assert here.engine.changes_since("A", 0) == {
        "number": 1,
        "state": "replaced",
        "dead": [2],
        "replacements": [(2, 8)],
        "members": {"A": ring_of(here, "A")},
        "reason": "",
    }
    assert here.engine.changes_since("A", 1) is None and here.engine.changes_since("B", 0) is None


def test_no_spare_left_is_a_clear_state_and_the_circuits_stay() -> None:
    here = world()
    for rank in (0, 4):
        here.fail(rank)
    here.settle()
    lit = here.goes()
    here.fail(5)
    here.settle()
    assert here.goes() == lit
    news = here.engine.changes_since("B", 1)
    assert news is not None and (news["number"], news["state"], news["dead"]) == (2, "stranded", [4, 5])
    assert news["replacements"] == [] and news["members"]["B"] == ring_of(here, "B")
    assert news["reason"] == ("rank 5 has failed and cannot be replaced: of the spares 8 is in job A, 9 is in job B")
    assert here.note("stranded").fields["reason"] == news["reason"]
    with pytest.raises(ControlError, match="job B cannot restart: rank 5 has failed and cannot be replaced"):
        here.engine.restart("B", 9.0)
    with pytest.raises(ControlError, match="job B is stranded"):
        here.engine.check_in(4, "B", 9.0)
    here.fail(6)
    news = here.engine.changes_since("B", 2)
    assert news is not None and (news["number"], news["state"], news["dead"]) == (3, "stranded", [4, 5, 6])


def test_a_second_failure_during_the_splice_waits_its_turn() -> None:
    here = world()
    here.fail(0)
    here.fail(2)
    assert len(here.dark) == 1, "the first splice is finished first"
    here.light(0)
    assert len(here.dark) == 1 and here.engine.changes_since("A", 0) is None, "watchers see the newest membership"
    here.light(0)
    members = tuple({0: 8, 2: 9}.get(rank, rank) for rank in rented(PLAN).groups[0].members)
    assert ring_of(here, "A") == members and here.goes() == ring(*members) | B
    changes = [n.fields for n in here.notes if n.kind == "replaced"]
    assert [(c["number"], c["replacements"], c["dead"]) for c in changes] == [(1, [[0, 8]], [0]), (2, [[2, 9]], [0, 2])]
    news = here.engine.changes_since("A", 0)
    assert news is not None and (news["number"], news["replacements"]) == (2, [(0, 8), (2, 9)])
    news = here.engine.changes_since("A", 1)
    assert news is not None and news["replacements"] == [(2, 9)]


def test_the_spare_just_chosen_may_die_as_well() -> None:
    here = world()
    here.fail(1)
    here.fail(8)
    here.settle()
    members = tuple(9 if rank == 1 else rank for rank in rented(PLAN).groups[0].members)
    assert here.goes() == ring(*members) | B
    news = here.engine.changes_since("A", 0)
    assert news is not None and (news["dead"], news["replacements"]) == ([1, 8], [(1, 9)])


def test_a_switch_that_refuses_the_splice_strands_the_job_and_gives_the_spare_back() -> None:
    here = world()
    here.fail(0)
    here.refuse(0)
    here.settle()
    news = here.engine.changes_since("A", 0)
    assert news is not None and (news["state"], news["reason"]) == ("stranded", "rack0 refused it")
    assert here.goes() == A | B and here.engine.registry.free() == (8, 9)


# ---- lives ---------------------------------------------------------------------------------------------------------


def check_in_all(here: RackPlayer, job: str) -> None:
    for rank in ring_of(here, job):
        here.do(here.engine.check_in(rank, job, here.now))


def test_a_life_ends_with_a_failure_and_the_next_begins_with_a_restart() -> None:
    here = world()
    check_in_all(here, "A")
    here.fail(1)
    here.settle()
    with pytest.raises(ControlError, match="rank 1 of job A has failed; the job must restart"):
        here.engine.check_in(0, "A", here.now)
    here.do(here.engine.restart("A", here.now))
    here.others.clear()
    check_in_all(here, "A")
    assert {told.rank for told in here.told} == {0, 8, 2, 3}
    ends = {(a, al): (b, bl) for a, al, b, bl in here.told[0].paths}
    assert ends.items() <= here.goes().items() and len(ends) == 4


def test_a_restart_during_the_splice_does_not_let_anybody_in_before_it_stands() -> None:
    here = world()
    here.fail(1)
    here.do(here.engine.restart("A", here.now))
    with pytest.raises(ControlError, match="rank 1 of job A has failed"):
        here.engine.check_in(0, "A", here.now)
    here.settle()
    here.do(here.engine.restart("A", here.now))
    check_in_all(here, "A")
    assert len(here.told) == 4


def test_whoever_waits_for_the_dead_to_check_in_is_told() -> None:
    here = world()
    here.do(here.engine.check_in(0, "A", 0.0))
    here.fail(1)
    (refused,) = here.refused
    assert (refused.rank, refused.reason) == (0, "rank 1 has failed")


class Asking(LumionPolicy):
    """Its groups ask before each phase."""

    def asks(self, group: Group) -> bool:
        """Always."""
        return True


def test_a_group_under_way_that_asks_is_refused_and_what_it_holds_does_not_keep_the_splice_waiting() -> None:
    two = Job("A", (Group("one", "dp", (0, 1)), Group("two", "dp", (2, 3))), "test", 0.01)
    here = RackPlayer.on(PLAN, Asking, two)
    for rank in (2, 3):
        here.do(here.engine.request(rank, "two", 0, 0.0))
    here.do(here.engine.request(0, "one", 0, 0.0))
    here.fail(1)
    assert [(r.rank, r.reason) for r in here.refused] == [(0, "rank 1 has failed")]
    here.settle()
    assert here.kinds() == ["failed", "replaced"]
    assert here.engine.release(2, "two", 0, here.now) == [], "a late farewell is no error"
    with pytest.raises(ControlError, match="the job must restart"):
        here.engine.request(2, "two", 1, here.now)


def test_a_job_whose_chip_dies_before_it_stands_is_refused() -> None:
    here = RackPlayer(Engine(PLAN))
    here.do(here.engine.register(rented(PLAN), LumionPolicy(PLAN), 0.0))
    here.fail(0)
    assert RegisterRefused("A", "rank 0 failed before the circuits of job A were up") in here.others
    assert not here.engine.jobs
    here.settle()


def test_finish_during_the_splice_leaves_nothing_behind() -> None:
    here = world()
    here.fail(0)
    here.do(here.engine.finish("A", 0.0))
    here.settle()
    assert "replaced" not in here.kinds() and here.engine.registry.free() == (8, 9)
    again = replace(rented(PLAN), groups=(Group("A", "dp", (8, 1, 2, 3)),))
    here.do(here.engine.register(again, LumionPolicy(PLAN), 0.0))
    here.settle()
    assert here.goes() == ring(8, 1, 2, 3) | B


def test_after_a_controller_restart_the_dead_are_reported_before_or_after() -> None:
    now = replace(rented(PLAN), groups=(Group("A", "dp", (0, 8, 2, 3)),))
    for first in (True, False):
        here = RackPlayer(Engine(PLAN))
        if first:
            here.fail(1)
        here.do(here.engine.register(now, LumionPolicy(PLAN), 0.0))
        here.settle()
        if not first:
            here.fail(1)
        assert here.goes() == ring(0, 8, 2, 3) and here.engine.changes_since("A", 0) is None
    with pytest.raises(ConfigError, match="group B has rank 1, which has failed"):
        here.engine.register(Job("B", (Group("B", "dp", (1, 9)),), "x"), LumionPolicy(PLAN), 0.0)


# ---- what counts as a failure --------------------------------------------------------------------------------------


def test_a_port_that_is_down_is_a_failure_only_where_the_job_says_so() -> None:
    (switch,) = PLAN.network("rail")
    port = switch.port(1, 1).number
    here = world()
    here.do(here.engine.port_failed("rack0", port, 0.0))
    here.settle()
    assert not here.kinds() and (1, 1) not in here.goes()
    here = world(detection=Detection(port=True))
    here.do(here.engine.port_failed("rack0", port, 0.0))
    assert len(here.dark) == 1, "the splice takes its circuits off, and nothing else does"
    assert here.note("failed").fields["cause"] == f"port {port} of rack0 is down"
    for lane in (0, 2):
        here.do(here.engine.port_failed("rack0", switch.port(1, lane).number, 0.0))
    assert len(here.dark) == 1
    here.settle()
    assert here.goes() == ring(0, 8, 2, 3) | B


def test_the_end_of_an_agent_s_connection_is_a_failure_only_where_the_job_says_so() -> None:
    here = world()
    here.do(here.engine.gone(1, 0.0))
    assert not here.kinds()
    here = world(detection=Detection(exit=True))
    here.do(here.engine.gone(1, 0.0))
    here.do(here.engine.gone(2, 0.0))
    here.settle()
    assert here.kinds() == ["failed", "replaced"], "once the life is over all agents end"
    here.do(here.engine.restart("A", 0.0))
    here.do(here.engine.gone(2, 0.0))
    here.settle()
    assert here.kinds() == ["failed", "replaced"] * 2


def test_an_agent_that_ends_before_its_first_heartbeat_can_never_be_silent_so_its_end_counts() -> None:
    here = world(detection=Detection(heartbeat_s=0.1))
    here.engine.alive("A", 0, 0.0)
    here.do(here.engine.gone(0, 0.0))
    assert not here.kinds()
    here.do(here.engine.gone(1, 0.0))
    assert here.note("failed").fields["cause"] == "its agent's connection ended before its first heartbeat"


def test_silence_is_a_failure_from_the_first_sign_of_life_on() -> None:
    here = world(detection=Detection(heartbeat_s=0.1, misses=3))
    engine = here.engine
    assert engine.liveness.next_check() is None
    engine.alive("A", 0, 1.0)
    engine.alive("A", 1, 1.0)
    engine.alive("A", 0, 1.2)
    assert engine.liveness.next_check() == pytest.approx(1.3)
    here.now = 1.3
    here.do(engine.check_heartbeats(1.3))
    note = here.note("failed")
    assert note.fields == {
        "job": "A",
        "rank": 1,
        "cause": "its agent missed 3 heartbeats of 0.1 s",
        "heard": 1.0,
    }
    here.settle()
    here.do(engine.check_heartbeats(1.4))
    assert here.kinds() == ["failed", "replaced"]
    engine.restart("A", 1.45)
    assert engine.liveness.next_check() is None, "nobody is watched before its first sign of life"
    engine.alive("A", 1, 1.5)
    assert engine.liveness.next_check() is None, "nor is who is not in the job"


def test_a_job_without_heartbeats_or_that_has_finished_is_not_watched() -> None:
    here = world()
    here.engine.alive("A", 0, 0.0)
    assert here.engine.liveness.next_check() is None
    here = world(detection=Detection(heartbeat_s=0.1))
    here.engine.alive("A", 0, 0.0)
    here.do(here.engine.finish("A", 0.0))
    assert here.engine.liveness.next_check() is None


# ---- policies that go wrong ----------------------------------------------------------------------------------------


def chooses(chosen: Mapping[int, int]) -> type[LumionPolicy]:
    """A policy that has these replacements, whatever is free."""
    return type("Chooses", (LumionPolicy,), {"replace": lambda self, groups, dead, free: chosen})


class Raises(LumionPolicy):
    def replace(self, groups: Sequence[Group], dead: int, free: Sequence[int]) -> Mapping[int, int]:
        raise ZeroDivisionError("oops")


class BadWiring(chooses({0: 8})):  # type: ignore[misc]
    def start(self, groups: Sequence[Group]) -> Wiring:
        spliced = any(8 in group.members for group in groups)
        return {"rack0": Matching([(1, 4), (2, 999)])} if spliced else super().start(groups)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (chooses({}), "of the spares 8 does not suit the policy, 9 has failed"),
        (chooses({0: 9}), "the policy of job A chose rank 9 as a replacement, which has failed too"),
        (chooses({0: 4}), "the policy of job A chose rank 4, which is in job B"),
        (chooses({1: 8}), "the policy of job A chose no replacement for rank 0"),
        (chooses({0: 1}), "the policy of job A put a rank into group A twice"),
        (chooses({0: 77}), "there is no rank 77"),
        (Raises, "the policy failed with ZeroDivisionError: oops"),
        (BadWiring, "port 999 is not on rack0"),
    ],
)
def test_a_policy_that_goes_wrong_strands_its_job_and_says_why(policy: type[Policy], reason: str) -> None:
    here = RackPlayer.on(PLAN, policy, rented(PLAN, "A"), rented(PLAN, "B"))
    here.fail(9)
    here.fail(0)
    here.settle()
    news = here.engine.changes_since("A", 0)
    assert news is not None and news["state"] == "stranded" and reason in news["reason"]
    assert news["members"]["A"] == rented(PLAN).groups[0].members and here.goes() == A | B


def test_a_policy_is_told_what_is_there_beside_its_job() -> None:
    told: list[tuple[str, ClusterState]] = []

    class Curious(LumionPolicy):
        def see(self, standing: ClusterState) -> None:
            told.append(("see", standing))

        def start(self, groups: Sequence[Group]) -> Wiring:
            told.append((groups[0].name, told[-1][1]))
            return super().start(groups)

    here = RackPlayer.on(PLAN, Curious, rented(PLAN, "A"), rented(PLAN, "B"))
    assert [who for who, _ in told] == ["see", "A", "see", "B"]
    assert told[0][1] == ClusterState()
    beside = told[2][1]
    assert beside.ranks == {0, 1, 2, 3} and len(beside.circuits) == 4 and not beside.dead
    assert beside.policies == (here.engine.registry.job("A").policy,)
    here.fail(9)
    here.fail(1)
    assert [who for who, _ in told[4:]] == ["see", "A"]
    beside = told[-1][1]
    assert beside.ranks == {4, 5, 6, 7} and len(beside.circuits) == 4 and beside.dead == {1, 9}
    here.fail(5)
    assert told[-1][1].ranks == {0, 1, 2, 3, 8}, "all who are or were in the other job"
    assert len(told[-1][1].circuits) == 6, "2 that stay, 2 that come, and 2 that are back if that fails"


# ---- routes round failed chips -------------------------------------------------------------------------------------


TORUS = rack(fabric="electrical-torus", torus="4x4", reserve="2x2@2,2")
RACKS = rack(fabric="migrate", torus="4x2")


def chips_on_the_way(plan: FabricPlan, here: RackPlayer, a: int, b: int) -> list[int]:
    rank = {s.name: s.ports[0].rank for s in plan.network("rail")}
    return [rank[name] for name, _ in path(plan, here.tables, a, b)]


def test_the_spare_gets_in_once_every_switch_holds_the_new_routes() -> None:
    here = RackPlayer.on(TORUS, TorusPolicy, rented(TORUS, "A", 0.0), rented(TORUS, "B", 0.0))
    members = here.engine.jobs["A"].groups[0].members
    here.now = 3.0
    here.fail(members[1])
    (action,) = here.rerouting
    assert action.delay_s == 0.0 and not here.changed
    here.settle()
    news = here.engine.changes_since("A", 0)
    assert news is not None and news["state"] == "replaced" and here.changed == ["A"]
    ((dead, new),) = news["replacements"]
    assert TORUS.rack is not None and dead == members[1] and new in TORUS.rack.spares
    for rank in (members[0], members[2]):
        assert members[1] not in chips_on_the_way(TORUS, here, rank, new)
    with pytest.raises(ControlError, match="no route"):
        path(TORUS, here.tables, members[0], members[1])


def test_packets_of_others_are_led_round_a_dead_chip_that_is_in_no_job() -> None:
    here = RackPlayer.on(TORUS, TorusPolicy, rented(TORUS, "A", 0.0))
    assert TORUS.rack is not None
    spare = TORUS.rack.spares[0]
    beside = [chips_on_the_way(TORUS, here, a, b) for a in range(16) for b in range(16) if spare not in (a, b)]
    assert any(spare in way[1:] for way in beside)
    here.fail(spare)
    here.settle()
    after = [chips_on_the_way(TORUS, here, a, b) for a in range(16) for b in range(16) if spare not in (a, b)]
    assert not any(spare in way for way in after) and here.kinds() == ["failed"]


def test_a_second_rack_has_no_routes_before_a_job_has_moved_there_and_the_delay_is_over() -> None:
    here = RackPlayer.on(RACKS, MigratePolicy, rented(RACKS, "A", 10.0), rented(RACKS, "B", 10.0))
    members = here.engine.jobs["A"].groups[0].members
    with pytest.raises(ControlError, match="no route"):
        path(RACKS, here.tables, 8, 9)
    here.fail(members[1])
    assert [action.delay_s for action in here.rerouting] == [10.0, 0.0]
    here.route(1)
    assert members[1] not in {c for a in (4, 5, 6, 7) for c in chips_on_the_way(RACKS, here, a, 4)}
    with pytest.raises(ControlError, match="no route"):
        path(RACKS, here.tables, 8, 9)
    assert here.engine.changes_since("A", 0) is None
    here.route(0)
    news = here.engine.changes_since("A", 0)
    assert news is not None and news["members"]["A"] == tuple(rank + 8 for rank in members)
    assert chips_on_the_way(RACKS, here, 8, 9)
    note = here.note("replaced")
    assert note.end is not None and note.end - note.t == 10.0


def test_a_job_that_is_registered_in_the_second_rack_gets_its_routes_first() -> None:
    job = rented(RACKS)
    moved = replace(job, groups=(replace(job.groups[0], members=tuple(r + 8 for r in job.groups[0].members)),))
    here = RackPlayer.on(RACKS, MigratePolicy, moved)
    assert chips_on_the_way(RACKS, here, 8, 9)


def test_failures_of_members_that_have_moved_away_change_nothing() -> None:
    here = RackPlayer.on(RACKS, MigratePolicy, rented(RACKS, "A", 10.0))
    first, second, *_ = here.engine.jobs["A"].groups[0].members
    here.fail(first)
    here.fail(second)
    here.settle()
    assert here.kinds() == ["failed", "failed", "replaced"]
    here.fail(first + 8)
    assert here.kinds()[-1] == "stranded", "there is no third rack"


def test_a_switch_that_does_not_take_its_routes_strands_the_job() -> None:
    here = RackPlayer.on(TORUS, TorusPolicy, rented(TORUS, "A", 0.0))
    here.fail(here.engine.jobs["A"].groups[0].members[0])
    action = here.rerouting.pop()
    here.engine.routes_due(action.reconfiguration_id)
    here.do(here.engine.failed(action.reconfiguration_id, "n3 did not answer", 0.0))
    news = here.engine.changes_since("A", 0)
    assert news is not None and (news["state"], news["reason"]) == ("stranded", "n3 did not answer")


def test_a_job_whose_members_cannot_reach_each_other_is_stranded_though_all_of_them_live() -> None:
    geometry = Torus((4, 4, 1), (2, 1, 1))
    alone, other = geometry.chip((0, 0, 0)), geometry.chip((2, 2, 0))
    job = Job("A", (Group("A", "dp", (other, alone)),), "test")
    here = RackPlayer.on(TORUS, TorusPolicy, job)
    *first, last = [geometry.neighbour(alone, direction) for direction in geometry.directions]
    for rank in first:
        here.fail(rank)
        here.settle()
    assert here.engine.registry.job("A").state == "running" and here.engine.changes_since("A", 0) is None
    here.fail(last)
    here.settle()
    news = here.engine.changes_since("A", 0)
    assert news is not None and (news["state"], news["dead"]) == ("stranded", [])
    assert news["reason"] == (
        f"rank {alone} and rank {other} cannot reach each other: every route leads through failed chips"
    )


def test_an_unplugged_spare_is_not_chosen() -> None:
    here = RackPlayer.on(TORUS, TorusPolicy, rented(TORUS, "A", 0.0))
    assert TORUS.rack is not None
    *unplugged, last = TORUS.rack.spares
    for rank in unplugged:
        here.do(here.engine.carrier_changed(f"n{rank}", 1, rank, False, 0.0))
    here.fail(0)
    here.settle()
    news = here.engine.changes_since("A", 0)
    assert news is not None and news["replacements"] == [(0, last)]


# ---- a whole server ------------------------------------------------------------------------------------------------


def beating(*beats: tuple[int, float]) -> RackPlayer:
    here = world("A", detection=Detection(0.25, 3))
    for rank, t in beats:
        here.engine.alive("A", rank, t)
    return here


def test_the_chips_of_a_dead_server_are_replaced_by_one_change_when_the_first_is_noticed() -> None:
    here = beating((0, 1.0), (1, 1.2), (2, 1.1), (3, 1.7))
    here.now = 1.75
    here.do(here.engine.check_heartbeats(here.now))
    assert [note.fields["rank"] for note in here.notes if note.kind == "failed"] == [0, 1]
    assert len(here.dark) == 1, "chip 2 is as silent as chip 1, and of another server"
    here.settle()
    assert ring_of(here, "A") == (8, 9, 2, 3)
    assert here.goes() == ring(8, 9, 2, 3)
    assert here.changed == ["A"] and here.note("replaced").fields["dead"] == [0, 1]


def test_a_chip_whose_heartbeats_come_outlives_the_one_beside_it() -> None:
    here = beating((0, 1.0), (1, 1.3), (2, 1.7), (3, 1.7))
    here.now = 1.75
    here.do(here.engine.check_heartbeats(here.now))
    here.settle()
    assert ring_of(here, "A") == (8, 1, 2, 3)
