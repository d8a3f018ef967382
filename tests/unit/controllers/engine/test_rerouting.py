"""A chip fails on an electrical torus: packets are led round it, and a job may move to another rack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rack_player import RackPlayer, rack, rented

from controllers.circuits.torus_routes import path
from controllers.engine.jobs import Job
from controllers.policies.torus import MigratePolicy, TorusPolicy
from railyard.errors import ControlError
from topos.plan import FabricPlan
from topos.torus import Torus
from workloads.program import Group

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
