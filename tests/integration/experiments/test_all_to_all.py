"""All-to-alls over circuits in turns on real packets: every byte over a circuit of its own pair, and nowhere else."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from own_verdict import late_timers
from raw_frames import forget_caches
from tries import Try

from controllers.circuits.rotation import Cycle, Slot
from controllers.engine.jobs import Job
from experiments.collectives.all_to_all.experiment import AllToAll, AllToAllSettings, rotor_slots
from experiments.collectives.all_to_all.routes import measure_routes
from experiments.faults import NO_FAULTS, Faults
from experiments.job_point import JobPoint
from experiments.runner import Measured, Runner
from experiments.session import Session
from experiments.settings import PacketSettings, validated
from measure.live.probes import PingMatrix
from measure.results.row import Row
from railyard.errors import ControlError
from railyard.timeline import Event
from topos.rails import RailTopo
from workloads.program import Group

pytestmark = pytest.mark.root

ALL_TO_ALL_OP = 2
"""The operation of a case's step that is its collective; the barrier before it has transfers as well."""
LATE_S = 0.02
"""A receiver on a busy machine may look this late, or half the dark until its pair meets again."""
MOST_LOST = 0.02
SMALL = "100000"


@dataclass(frozen=True)
class Outcome:
    """What came of one case: its row, and what happened."""

    row: Row
    events: Sequence[Event]

    @property
    def slots(self) -> list[Event]:
        """The turns of the circuits."""
        return [e for e in self.events if e.source == "controller" and e.kind == "slot"]

    @property
    def transfers(self) -> list[Event]:
        """What ranks got of each other in the all-to-all."""
        return [e for e in self.events if e.kind == "transfer" and e["op"] == ALL_TO_ALL_OP]

    def check_sound(self, most_lost: float = 0.0) -> None:
        """The right values arrived, all that was sent came in, and nothing came out elsewhere.

        ``most_lost``: the share of bytes that may have to be sent again (slots that end whether a busy machine is done
        or not).
        """
        row = self.row
        assert row["wrong"] == 0
        assert row["misdelivered"] == 0
        assert row["payload_sent_bytes"] == row["payload_received_bytes"] > 0
        assert 0 <= row["sent_bytes"] - row["received_bytes"] <= most_lost * row["sent_bytes"]

    def check_light(self) -> None:
        """Every transfer begins and ends in a slot that joins its ranks, or in the first half of the dark after it.

        A receiver on a busy machine may look that late; what came without a circuit would come at any time.
        """
        lit: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for slot in self.slots:
            assert slot.end is not None
            for a, b in slot["pairs"]:
                lit[a, b].append((slot.t, slot.end))
                lit[b, a].append((slot.t, slot.end))
        assert self.transfers
        for e in self.transfers:
            assert e.end is not None
            for moment in (e.t, e.end):
                lights = lit[e["peer"], e["rank"]]
                again = [t for t, _ in lights[1:]] + [math.inf]
                in_time = [t <= moment <= (end + after) / 2 for (t, end), after in zip(lights, again, strict=True)]
                assert any(in_time), f"{e} in the dark, lit were {lights}"


class Bench:
    """Measures cases; those that follow each other on the same fabric share its bring-up.

    ``machine`` of the test that asks hears of late timers.
    """

    def __init__(self, out: Path) -> None:
        self.machine = Try()
        self.run = Observed(AllToAll(experiment()), out)

    def measure(self, **values: Any) -> Outcome:
        """The only case of an experiment with these keys."""
        made = AllToAll(experiment(**values))
        (piece,) = made.pieces()
        self.run.add(*made.measure(self.run, piece))
        row = self.run.rows[-1]
        for reason in late_timers([row]):
            self.machine.late(reason)
        return Outcome(row, self.run.last.events)


class Observed(Runner):
    """A runner that keeps its last point."""

    last: Measured

    def measure(self, job: JobPoint, title: str, faults: Faults = NO_FAULTS) -> Measured:
        self.last = super().measure(job, title, faults)
        return self.last


def experiment(**values: Any) -> AllToAllSettings:
    """One iteration with real values after one that warms up, on turning circuits."""
    base: dict[str, Any] = {"studies": ["grid"], "policies": ["rotor"], "verify": True, "iterations": 1}
    return validated(AllToAllSettings, {**base, **values})


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("all-to-all") / "results")
    with made.run:
        yield made


@pytest.fixture
def bench(shared_bench: Bench, machine: Try) -> Bench:
    """The bench of all tests here; what it measures says whether the machine kept up with this one."""
    shared_bench.machine = machine
    return shared_bench


def pairs_served(outcome: Outcome) -> Counter[tuple[int, int]]:
    """How often each (sender, receiver) had something to transfer."""
    return Counter((e["peer"], e["rank"]) for e in outcome.transfers if e["bytes"])


# ---- eight ranks with a port each: one fabric for all of these -----------------------------------------------------


@pytest.mark.timed
def test_each_pair_meets_in_one_slot_and_the_time_is_that_of_the_formula(bench: Bench) -> None:
    found = bench.measure(sizes=["625000"])
    found.check_sound()
    found.check_light()
    assert found.row["slots"] == 7
    assert found.row["payload_sent_bytes"] == 2 * 8 * 7 * 625_000
    assert 0.95 <= found.row["over_formula"] <= 1.3, "how near it is on a quiet machine is a matter of benchmarks"
    assert set(pairs_served(found).values()) == {2} and len(pairs_served(found)) == 8 * 7, "once an iteration"
    by_turn = [frozenset(map(tuple, slot["pairs"])) for slot in found.slots]
    assert len(by_turn) == 14 and by_turn[:7] == by_turn[7:] and len(set(by_turn)) == 7
    for before, after in zip(found.slots, found.slots[1:], strict=False):
        assert before.end is not None and after.t - before.end >= 0.00999, "dark between slots"


@pytest.mark.timed
def test_full_slots_of_fixed_length_are_used_and_nothing_ends_outside_their_light(bench: Bench) -> None:
    found = bench.measure(studies=["slot"], slots_ms=[100])
    found.check_sound(MOST_LOST)
    found.check_light()
    assert found.row["slots"] >= 7
    assert found.row["ideal_duty_cycle"] >= found.row["duty_cycle"] - 0.02
    assert found.row["duty_cycle"] >= 0.7, "what it is on a quiet machine is a matter of benchmarks"
    lengths = sorted(slot.seconds for slot in found.slots)
    assert lengths[-1] <= 0.120 and lengths[len(lengths) // 2] == pytest.approx(0.100, abs=0.005)


@pytest.mark.timed
def test_what_does_not_fit_into_a_slot_goes_on_in_the_next_cycle(bench: Bench) -> None:
    found = bench.measure(sizes=["300000"], slots_ms=[40])
    found.check_sound(MOST_LOST)
    found.check_light()
    assert found.row["slots"] >= 8, "48 ms of data, 38 ms of room"
    began_and_ended = [
        [n for n, slot in enumerate(found.slots) if slot.t <= moment <= (slot.end or 0) + LATE_S]
        for e in found.transfers
        for moment in (e.t, e.end or 0)
    ]
    assert sum(a != b for a, b in zip(began_and_ended[::2], began_and_ended[1::2], strict=True)) > 50


@pytest.mark.timed
def test_two_hops_bring_every_value_to_its_rank(bench: Bench) -> None:
    found = bench.measure(sizes=[SMALL], policies=["valiant"])
    found.check_sound()
    found.check_light()
    assert found.row["slots"] >= 7


@pytest.mark.timed
def test_circuits_for_a_demand_and_none_for_those_who_want_nothing(bench: Bench, tmp_path: Path) -> None:
    matrix = [[0 if i == j else 1 + (i * j) % 5 for j in range(8)] for i in range(8)]
    matrix[0][3] = matrix[2][5] = matrix[5][2] = 0
    file = tmp_path / "demand.csv"
    file.write_text("\n".join(",".join(map(str, row)) for row in matrix), encoding="utf-8")
    found = bench.measure(sizes=[SMALL], policies=["demand"], demand=str(file))
    found.check_sound()
    found.check_light()
    wanted = {(i, j) for i in range(8) for j in range(8) if matrix[i][j]}
    assert set(pairs_served(found)) == wanted
    joined = {frozenset(pair) for slot in found.slots for pair in slot["pairs"]}
    assert frozenset((0, 3)) in joined and frozenset((2, 5)) not in joined, "3 has something for 0"


# ---- other numbers of ranks, other switches ------------------------------------------------------------------------


@pytest.mark.timed
def test_simplex_circuits_send_to_one_and_receive_from_another(bench: Bench) -> None:
    found = bench.measure(sizes=[SMALL], ranks=[4], simplex=True)
    found.check_sound()
    found.check_light()
    assert found.row["slots"] == 3
    assert [[tuple(pair) for pair in slot["pairs"]] for slot in found.slots[:3]] == [
        [(i, (i + shift) % 4) for i in range(4)] for shift in (1, 2, 3)
    ]


@pytest.mark.timed
def test_a_rotor_takes_the_matchings_of_a_cover_and_a_round_trip_the_gates_of_its_path(bench: Bench) -> None:
    mesh = "3x3@0/1/6/7/12/14/18/21"  # which cannot hold the matchings of a rotor
    found = bench.measure(sizes=["625000"], mesh=mesh, cover=True)
    found.check_sound()
    found.check_light()
    assert found.row["slots"] == 13
    assert 0.95 <= found.row["over_formula"] <= 1.3
    met = Counter(frozenset(pair) for slot in found.slots[:13] for pair in slot["pairs"])
    assert set(met.values()) == {1} and len(met) == 8 * 7 / 2
    rows = measure_routes(bench.run, next(experiment(studies=["route"], mesh="3x3", ranks=[4]).routes()), seed=1)
    assert len(rows) == 6 and len({row.gates for row in rows}) > 2
    assert [row.over_law for row in rows] == pytest.approx([1.0] * 6, rel=0.1)


@pytest.mark.beside
def test_a_rotation_that_a_mesh_cannot_hold_is_refused_at_registration() -> None:
    topo = RailTopo(servers=4, gpus=1, ports=1, rate_mbps=100, mesh="3x3@0/1/7/12")
    with Session(PacketSettings(), topo) as session:
        with pytest.raises(ControlError) as refused:
            session.register(rotating_job("all", (0, 1, 2, 3)), "rotor")
        sentence = str(refused.value)
        assert sentence.startswith("the mesh of rail0 (3x3) cannot carry ")
        assert "at once (proved: " in sentence and "\n" not in sentence
        session.register(rotating_job("two", (0, 1)), "rotor")


def rotating_job(name: str, members: tuple[int, ...]) -> Job:
    return Job(name, (Group(f"{name} experts", "ep", members),), "on-demand", 0.01)


# ---- the slots of a policy, each for itself ------------------------------------------------------------------------


@pytest.mark.beside
def test_in_every_slot_light_joins_the_ports_that_the_policy_says_and_no_others() -> None:
    ranks = 8
    topo = RailTopo(servers=ranks, gpus=1, ports=2, rate_mbps=100, fabric="ocs")
    with (
        Session(PacketSettings(), topo) as session,
        PingMatrix(session.plan, session.netns_fds(), quiet_s=0.2, longest_s=2.0) as matrix,
    ):
        for simplex, slots in ((False, ranks // 2), (True, ranks - 1)):
            met: Counter[tuple[int, int] | frozenset[int]] = Counter()
            found = rotor_slots(session.plan, Cycle(simplex=simplex))
            assert len(found) == slots, "two matchings at a time, or one port for each way"
            for slot in found:
                lay(session, slot)
                forget_caches(session.net)
                light = {((a, out), (b, into)) for a, out, b, into in slot.paths}
                assert matrix.reach_ports((0, 1)) == light | {(there, here) for here, there in light}
                met.update((a, b) if simplex else frozenset((a, b)) for a, _, b, _ in slot.paths)
            assert set(met.values()) == {1}
            assert len(met) == ranks * (ranks - 1) // (1 if simplex else 2)


def lay(session: Session, slot: Slot) -> None:
    """The circuits of a slot and no others; returns when they stand."""
    for switch, matching in slot.wiring.items():
        circuits = [list(circuit.ports) for circuit in matching]
        session.call("rewire", switch=switch, circuits=circuits, update="overwrite", delay_s=0.0)
