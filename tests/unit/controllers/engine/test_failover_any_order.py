"""Failures in any order, on several jobs, with switches that refuse: nothing is torn and nobody is forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rack_player import RackPlayer, rack, ranks, rented

from controllers.circuits.torus_routes import path
from controllers.policies.lumion import LumionPolicy
from controllers.policies.torus import TorusPolicy
from railyard.errors import ControlError

PHOTONIC = rack(spare_servers=2)
ELECTRICAL = rack(fabric="electrical-torus", torus="4x4", reserve="4x1@0,2/4x1@0,3")


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_circuits(data: st.DataObject) -> None:
    """``RackPlayer`` checks each action: no port in two reconfigurations, one job's circuits only, growing numbers."""
    here = RackPlayer.on(PHOTONIC, LumionPolicy, rented(PHOTONIC, "A"), rented(PHOTONIC, "B"))
    for _ in range(data.draw(st.integers(0, 20))):
        moves = ["fail", "restart", *("light",) * (2 * bool(here.dark)), *("refuse",) * bool(here.dark)]
        move = data.draw(st.sampled_from(moves))
        if move == "fail":
            here.fail(data.draw(st.integers(0, PHOTONIC.ranks - 1)))
        elif move == "restart":
            restart(here, data.draw(st.sampled_from("AB")))
        else:
            which = data.draw(st.integers(0, len(here.dark) - 1))
            here.light(which) if move == "light" else here.refuse(which)
    here.settle()
    everybody_has_ended(here)
    for name, job in here.engine.jobs.items():
        if here.engine.registry.job(name).state == "running":
            ring = job.groups[0].members
            lit = here.goes()
            assert all(lit[rank, 1] == (ring[(i + 1) % len(ring)], 0) for i, rank in enumerate(ring))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_routes(data: st.DataObject) -> None:
    here = RackPlayer.on(ELECTRICAL, TorusPolicy, rented(ELECTRICAL, "A"), rented(ELECTRICAL, "B"))
    for _ in range(data.draw(st.integers(0, 12))):
        if bool(here.rerouting) and data.draw(st.booleans()):
            here.route(data.draw(st.integers(0, len(here.rerouting) - 1)))
        else:
            here.fail(data.draw(st.integers(0, ELECTRICAL.ranks - 1)))
    here.settle()
    everybody_has_ended(here)
    assert here.tables == here.engine.routing.held
    switch = {s.name: s.ports[0].rank for s in ELECTRICAL.network("rail")}
    for name, job in here.engine.jobs.items():
        if here.engine.registry.job(name).state == "running":
            for rank in job.groups[0].members:
                for peer in job.groups[0].members:
                    crossed = {switch[hop] for hop, _ in path(ELECTRICAL, here.tables, rank, peer)}
                    assert not crossed & here.engine.registry.dead


def restart(here: RackPlayer, job: str) -> None:
    try:
        here.do(here.engine.restart(job, here.now))
    except ControlError:
        assert here.engine.registry.job(job).state == "stranded"


def everybody_has_ended(here: RackPlayer) -> None:
    """Every failed member was replaced, or its job is stranded; the timeline says the same."""
    for name, membership in here.engine.registry.jobs.items():
        assert membership.state != "replacing"
        alive = not here.engine.registry.dead & ranks(membership.job)
        assert alive if membership.state == "running" else here.kinds(name)[-1] in ("stranded", "failed")
        ended = [
            n.fields["number"] for n in here.notes if n.kind in ("replaced", "stranded") and n.fields["job"] == name
        ]
        # a change that a switch refused ends stranded under the number it had
        assert ended == list(range(1, membership.number + 1))
        news = here.engine.changes_since(name, 0)
        assert (news is None) == (membership.number == 0)
        if news is not None:
            assert set(news["dead"]) <= here.engine.registry.dead and news["number"] == membership.number
    used = [rank for job in here.engine.jobs.values() for rank in ranks(job)]
    assert len(used) == len(set(used)), "nobody is in two jobs"
