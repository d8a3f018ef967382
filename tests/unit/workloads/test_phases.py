from __future__ import annotations

from training_steps import changed_recipe, groups_of, phase_changes

from workloads.catalog import load_workload, make_workload
from workloads.phases import all_phases, phases
from workloads.program import Collective, Compute, Group, Program, Recv, Send


def test_llama_phases_of_stage_0() -> None:
    program = load_workload("llama3-8b-16").program
    found = phases(program, 0)
    assert [p.dimension for p in found] == ["dp", "pp", "dp", "pp", "dp", "pp", "dp"]
    assert [len(p.operations) for p in found] == [17, 1, 17, 2, 17, 1, 18]
    assert [groups_of(program, 0, p) for p in found[:2]] == [("dp.t0.s0",), ("pp.t0.d0.s0",)]


def test_scale_up_and_front_end_make_no_phase() -> None:
    groups = {
        "tp": Group("tp", "tp", (0, 1), "scale-up"),
        "dp": Group("dp", "dp", (0, 1)),
        "world": Group("world", "world", (0, 1), "front-end"),
    }
    ops = tuple(Collective(i, g, "all_reduce", g, 8) for i, g in enumerate(["dp", "tp", "world", "dp"]))
    (phase,) = phases(Program("x", (ops, ops), groups), 0)
    assert phase.operations == (0, 3)


def test_a_phase_ends_where_it_ends_for_a_peer() -> None:
    """Rank 1 needs its ring between receiving and sending back, so rank 0 has to let go of the pair."""
    groups = {"pp": Group("pp", "pp", (0, 1)), "dp": Group("dp", "dp", (1, 2))}
    ring = Collective(1, "ring", "all_reduce", "dp", 8)
    program = Program(
        "x",
        (
            (Send(0, "out", "pp", 1, 8), Recv(1, "back", "pp", 1, 8)),
            (Recv(0, "in", "pp", 0, 8), ring, Send(2, "answer", "pp", 0, 8)),
            (Collective(0, "ring", "all_reduce", "dp", 8),),
        ),
        groups,
    )
    assert [p.operations for p in phases(program, 0)] == [(0,), (1,)]
    assert phase_changes(program, 0) == 0
    assert phase_changes(program, 1) == 2


def test_crossing_messages_stay_in_one_phase() -> None:
    groups = {"pp": Group("pp", "pp", (0, 1))}
    ops = [(Send(0, "a", "pp", peer, 8), Recv(1, "b", "pp", peer, 8)) for peer in (1, 0)]
    assert [len(found) for found in all_phases(Program("x", tuple(ops), groups))] == [1, 1]


SMALL = {
    "model": {"hidden": 64, "sequence": 64, "heads": 4},
    "parallelism": {"dp": 2},
    "batch": {},
    "compute": {"forward_ms": 1},
    "fabric": {"gpus_per_server": 1},
}


def test_all_members_agree_on_the_number_of_rounds() -> None:
    for pp in (2, 3, 4):
        for microbatches in (1, 2, 5):
            sizes = {"layers": pp, "pp": pp, "local_batch": microbatches, "microbatch": 1}
            program = make_workload(changed_recipe(SMALL, **sizes)).program
            found = all_phases(program)
            for group in program.groups.values():
                rounds = {
                    sum(group.name in groups_of(program, member, phase) for phase in found[member])
                    for member in group.members
                }
                assert len(rounds) == 1, (pp, microbatches, group.name)


def test_an_empty_rank_has_no_phase() -> None:
    program = Program("x", ((Compute(0, "c", 1.0),),), {})
    assert phases(program, 0) == ()
    assert phase_changes(program, 0) == 0
