"""Every algorithm and kind of the catalog on real hosts with one port each, and circuits that follow a schedule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.collectives.straggler.experiment import StragglerSettings
from experiments.job_group import JobGroup
from experiments.job_point import Fabric, JobPoint
from experiments.point_run import PointRun
from experiments.session import Session
from experiments.settings import PacketSettings, validated
from railyard.errors import ConfigError
from railyard.point_folder import numbers_in, point_folder
from railyard.scale import Scale
from railyard.timeline import Event
from topos.plan import FabricPlan
from topos.rails import RailTopo
from workloads.agent.launcher import AgentLauncher
from workloads.check import check
from workloads.collectives.catalog import ALGORITHMS, schedule
from workloads.collectives.circuits import circuit_uses, follow_circuits
from workloads.program import Collective, Compute, Group, Operation, Program, Recv, Send
from workloads.schedule import Schedule
from workloads.stragglers.injection import parse_injection

pytestmark = pytest.mark.root

RANKS = 8
EAGER = "stragglar-eager"
SIZES = (4, 1000, 100_001)
WORLD = {"world": Group("world", "world", tuple(range(RANKS)))}
PATIENCE_S = 120
VERIFIED = PacketSettings(verify=True)


@pytest.fixture(scope="module")
def electrical() -> Iterator[Session]:
    with Session(VERIFIED, RailTopo(servers=RANKS, gpus=1, ports=1, fabric="electrical", rate_mbps=50)) as session:
        yield session


@pytest.fixture(scope="module")
def ocs() -> Iterator[Session]:
    """Eight GPUs with two ports each on an optical switch under our controller."""
    settings = VERIFIED.model_copy(update={"controller": "ryu"})
    with Session(settings, RailTopo(servers=RANKS, gpus=1, ports=2, rate_mbps=50, fabric="ocs")) as session:
        yield session


def run(
    session: Session,
    launcher: AgentLauncher,
    program: Program,
    steps: int = 1,
    *,
    name: str = "job",
    delay_s: float | None = None,
) -> list[Event]:
    """All ranks of ``program`` to their end, with a delay over circuits that follow it; the events."""
    check(program)
    mode, policy = ("native", "static") if delay_s is None else ("on-demand", "follow")
    job = JobPoint(name, Fabric("", "", RailTopo), program, mode, policy, steps, steps, delay_s or 0.0)
    number = len(numbers_in(session.data))
    folder = point_folder(session.data, number)
    point = PointRun(session, launcher, folder, Scale(1.0), number)
    JobGroup(point, [job]).play(PATIENCE_S)
    return point.events()


def catalog() -> Iterator[tuple[str, Schedule]]:
    """Everything the catalog can do for eight ranks, but for what is decided while it runs."""
    for name, algorithm in ALGORITHMS.items():
        for kind in algorithm.kinds if name != EAGER else ():
            try:
                yield name, schedule(kind, RANKS, name)
            except ConfigError:
                continue


def collectives(plans: dict[str, Schedule], sizes: tuple[int, ...]) -> Program:
    """One collective after another, of every schedule and size, on all ranks."""
    operations = tuple(
        Collective(number, f"{name} {size}", plan.kind, "world", size, (), name)
        for number, (name, plan, size) in enumerate((n, p, s) for n, p in plans.items() for s in sizes)
    )
    return Program("collectives", (operations,) * RANKS, WORLD, plans)


@pytest.mark.beside
def test_every_algorithm_and_kind_with_every_size(electrical: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    plans = {f"{name} {plan.kind}": plan for name, plan in catalog()}
    assert len(plans) > 20
    program = collectives(plans, SIZES)
    events = run(electrical, launcher, program)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == len(plans) * len(SIZES) * RANKS
    assert all(e["wrong"] == 0 for e in verified)
    check_transfers(program, events)


def check_transfers(program: Program, events: list[Event]) -> None:
    """Each transfer of each schedule is on the timeline once, with its bytes, at the rank that received it."""
    seen = Counter((e["op"], e["transfer"], e["peer"], e["rank"]) for e in events if e.kind == "transfer")
    wanted: Counter[tuple[int, int, int, int]] = Counter()
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for op in program.operations[0]:
        assert isinstance(op, Collective)
        plan = program.schedules[op.algorithm]
        bounds = plan.chunk_bounds(-(-op.bytes // 4))
        for number, t in enumerate(plan.transfers):
            if not t.local:
                wanted[op.id, number, t.src, t.dst] += 1
                sent[op.id, t.src] += 4 * (bounds[t.chunk][1] - bounds[t.chunk][0])
    assert seen == wanted
    for e in events:
        if e.kind == "communicate":
            assert e["payload_bytes"] == sent[e["op"], e["rank"]]
            assert e["posted"] <= e.t + 1e-6


@pytest.mark.beside
def test_in_lock_step_nobody_begins_a_round_before_the_one_before_is_over(
    electrical: Session, launcher: AgentLauncher, tmp_path: Path
) -> None:
    plans = {name: replace(schedule("all_reduce", RANKS, name), lockstep=True) for name in ("ring", "stragglar")}
    plans["ring"] = replace(plans["ring"], pause_s=0.02)
    program = collectives(plans, (400_000,))
    pauses = {op.id: plans[op.algorithm].pause_s for op in program.operations[0] if isinstance(op, Collective)}
    events = run(electrical, launcher, program)
    assert all(e["wrong"] == 0 for e in events if e.kind == "verified")
    got: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for e in events:
        if e.kind == "transfer":
            got[e["op"], e["rank"]].append(e)
    for mine in got.values():
        mine.sort(key=lambda e: e["round"])
        for before, after in pairwise(mine):
            if before["round"] < after["round"]:
                assert before.end is not None and before.end + pauses[after["op"]] <= after.t


@pytest.mark.beside
def test_eager_members_find_out_who_is_late(launcher: AgentLauncher) -> None:
    """Nobody, the first rank and the last one are late, in some steps long enough for the whole first phase."""
    topo = RailTopo(servers=RANKS, gpus=1, ports=1, fabric="electrical", rate_mbps=50, front_end=True)
    plan, late = schedule("all_reduce", RANKS, EAGER), {0: (0.0, 0.1, 0.0, 1.0), RANKS - 1: (0.0, 0.0, 0.1, 0.0)}
    operations = tuple(
        (
            Compute(0, "late", 0.01, (), late.get(rank, ())),
            Collective(1, "eager", "all_reduce", "world", 1_000_001, (0,), EAGER),
        )
        for rank in range(RANKS)
    )
    with Session(VERIFIED, topo) as session:
        events = run(session, launcher, Program("late", operations, WORLD, {EAGER: plan}), steps=4)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 4 * RANKS and all(e["wrong"] == 0 for e in verified)
    early, *_, whole = [e["begun"] for e in sorted(events, key=lambda e: e.t) if e.kind == "roll_call"]
    assert early < whole == plan.pieces
    before = {e["rank"] for e in events if e.kind == "transfer" and e["step"] == 3 and e["round"] < RANKS - 2}
    assert before == set(range(1, RANKS)), "in the last step rank 0 is late, which nobody was told"


@pytest.mark.timed
def test_a_straggler_is_served_one_peer_after_another(
    electrical: Session, launcher: AgentLauncher, tmp_path: Path
) -> None:
    """Without turns at its port all would send to the straggler at once and the first round would end with the last."""
    plan = schedule("all_reduce", RANKS, "stragglar")
    ring = schedule("all_reduce", RANKS, "ring")
    late, size = 0.5, 1_400_000
    times = {}
    for name, each in (("stragglar", plan), ("ring", ring)):
        operations = tuple(
            (
                Compute(0, "late", late if rank == RANKS - 1 else 0.0),
                Collective(1, name, "all_reduce", "world", size, (0,), name),
            )
            for rank in range(RANKS)
        )
        folder = tmp_path / name
        folder.mkdir()
        program = Program("straggler", operations, WORLD, {name: each})
        events = run(electrical, launcher, program, steps=2)
        mine = [e for e in events if e.kind == "communicate" and e["step"] == 1]
        times[name] = max(e.end or e.t for e in mine) - max(e["posted"] for e in mine)
    assert times["ring"] / times["stragglar"] == pytest.approx(1.361, rel=0.06)


@pytest.mark.beside
def test_a_late_rank_of_one_group_holds_up_its_own_group_and_then_the_reduction_across(launcher: AgentLauncher) -> None:
    settings = validated(StragglerSettings, {"studies": ["groups"], "ranks": [4], "sizes": ["64K"]})
    late = next(trial for trial in settings.trials() if trial.schedule.algorithm == "stragglar")
    trial = replace(late, injection=parse_injection("fixed:0.5"), then=(schedule("all_reduce", 4, "ring"),))
    with Session(VERIFIED, trial.fabric.topology(Scale(1.0))) as session:
        events = run(session, launcher, trial.program(Scale(1.0), 2, 1), steps=2)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 2 * RANKS * 4 and all(e["wrong"] == 0 for e in verified)
    own, other = (trial.times(events, 1, [name]).time_s for name in ("tp0", "tp1"))
    assert other < 0.4 < 0.5 < own < trial.times(events, 1).time_s


@pytest.mark.beside
def test_an_eager_ring_of_sends(electrical: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    """All send first and receive afterwards, some much later: only buffered sends come to an end."""
    groups = {f"p{r}": Group(f"p{r}", "world", (r, (r + 1) % RANKS)) for r in range(RANKS)}

    def of(rank: int) -> tuple[Operation, ...]:
        to, back = (rank + 1) % RANKS, (rank - 1) % RANKS
        here: list[Operation] = [Send(0, "s0", f"p{rank}", to, 300_001), Send(1, "s1", f"p{rank}", to, 5, (0,))]
        here.append(Compute(2, "c", 0.1 if rank % 2 else 0.0, (1,)))
        here += [Recv(3, "r0", f"p{back}", back, 300_001, (2,)), Recv(4, "r1", f"p{back}", back, 5, (3,))]
        return tuple(here)

    program = Program("eager", tuple(of(rank) for rank in range(RANKS)), groups, eager=True)
    with pytest.raises(ConfigError, match="never starts"):
        check(replace(program, eager=False))
    events = run(electrical, launcher, program, steps=4)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 4 * 2 * RANKS and all(e["wrong"] == 0 for e in verified)
    got = Counter((e["rank"], e["step"], e["op"], e["peer"], e["bytes"]) for e in events if e.kind == "transfer")
    assert got == Counter(
        (rank, step, op, (rank - 1) % RANKS, size)
        for rank in range(RANKS)
        for step in range(4)
        for op, size in ((3, 300_004), (4, 8))
    )


@pytest.mark.beside
def test_a_hierarchical_all_reduce_uses_both_networks(launcher: AgentLauncher, tmp_path: Path) -> None:
    topo = RailTopo(servers=4, gpus=2, ports=1, fabric="electrical", rate_mbps=50, scale_up=True, scale_up_mbps=200)
    plan = schedule("all_reduce", RANKS, "hierarchical", gpus_per_server=2)
    assert any(t.scale_up for t in plan.transfers) and not all(t.scale_up for t in plan.transfers)
    program = collectives({"hierarchical": plan}, SIZES)
    with Session(VERIFIED, topo) as session:
        events = run(session, launcher, program, steps=2)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 2 * len(SIZES) * RANKS and all(e["wrong"] == 0 for e in verified)
    check_transfers(program, [e for e in events if e.get("step") == 0])


def circuit_program(names: tuple[str, ...], size: int, *, ahead: bool = False) -> Program:
    plans = {name: replace(schedule("all_reduce", RANKS, name), provisioned=ahead, lockstep=ahead) for name in names}
    program = collectives(plans, (size,))
    rails = {"world": replace(WORLD["world"], dimension="dp")}
    return follow_circuits(replace(program, groups=rails))


def reconfigured(events: list[Event]) -> list[Event]:
    return [e for e in events if e.source == "controller" and e.kind == "reconfigure"]


@pytest.mark.timed(late_ms=20)  # a machine that is late makes TCP send again
def test_a_ring_on_circuits_is_never_reconfigured(ocs: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    events = run(ocs, launcher, circuit_program(("ring",), 800_000), 3, name="ring", delay_s=0.02)
    assert all(e["wrong"] == 0 for e in events if e.kind == "verified")
    assert sum(e.kind == "verified" for e in events) == 3 * RANKS
    assert not reconfigured(events)
    check_no_loss(events)


@pytest.mark.timed
@pytest.mark.parametrize(("delay_s", "ahead"), [(0.0, False), (0.03, True)])
def test_stragglar_on_circuits_takes_a_matching_per_round(
    ocs: Session, launcher: AgentLauncher, tmp_path: Path, delay_s: float, ahead: bool
) -> None:
    program = circuit_program(("stragglar",), 700_000, ahead=ahead)
    events = run(ocs, launcher, program, 2, name=f"stragglar{delay_s}{ahead}", delay_s=delay_s)
    assert all(e["wrong"] == 0 for e in events if e.kind == "verified")
    check_transfers(replace(program, groups=WORLD), [e for e in events if e.get("step", 0) == 0])
    waits = [e for e in events if e.kind == "wait"]
    assert {e["group"] for e in waits} == {name for name in program.groups if name != "world"}
    dark_s = [e.seconds for e in reconfigured(events)]
    assert dark_s == pytest.approx([delay_s] * len(dark_s), abs=0.008)
    check_light(ocs.plan, program, events)
    check_no_loss(events)


@pytest.mark.timed(late_ms=20)  # a machine that is late makes TCP send again
def test_different_algorithms_take_turns_on_the_circuits(ocs: Session, launcher: AgentLauncher, tmp_path: Path) -> None:
    names = ("ring", "stragglar", "bidirectional-ring", "recursive-halving-doubling", "tree")
    events = run(ocs, launcher, circuit_program(names, 100_001), 2, name="turns", delay_s=0.005)
    verified = [e for e in events if e.kind == "verified"]
    assert len(verified) == 2 * len(names) * RANKS and all(e["wrong"] == 0 for e in verified)
    check_no_loss(events)


def check_light(plan: FabricPlan, program: Program, events: list[Event]) -> None:
    """No transfer is under way while a port of its circuit is dark."""
    number = {(p.rank, p.lane): p.number for p in plan.rail_of(0).ports}
    (schedule,) = program.schedules.values()
    ports = {t: {number[end] for end in use.ends} for use in circuit_uses(schedule) for t in use.transfers}
    dark = [(e.t, e.end or e.t, set(e["ports"])) for e in reconfigured(events)]
    moved = [e for e in events if e.kind == "transfer"]
    assert dark and moved
    for e in moved:
        for t, end, touched in dark:
            in_the_dark = ports[e["transfer"]] & touched and t < (e.end or e.t) and e.t < end
            assert not in_the_dark, f"{e} while dark from {t} to {end}"


def check_no_loss(events: list[Event]) -> None:
    """Nothing met a dark port; a busy machine may make TCP impatient now and then, but not round after round."""
    assert sum(e["packets"] for e in events if e.kind == "dropped") == 0
    transfers = sum(e.kind == "transfer" for e in events)
    assert sum(e["retransmits"] for e in events if e.kind == "sockets") <= transfers // 10
