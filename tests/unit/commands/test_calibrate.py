"""Costs that a calibration takes from what was measured, and the lines that show it."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from commands.bench.bed import laps_s
from commands.calibrate import (
    COMPUTE_S,
    TRANSFER_S,
    Calibrate,
    calibrate_machine,
    cost_of,
    hop_cost,
    program_of,
    shortest_kept,
    transfer_rail,
    tree_program,
)
from measure.live.calibration import Datapath, default_calibration
from measure.live.processor import Load, Processor
from measure.model.prediction import Costs, predict
from railyard.errors import MachineError
from railyard.timeline import Event
from topos.describe import plan as describe
from workloads.check import check
from workloads.program import Group


@pytest.mark.parametrize(
    ("dark", "shortest_s"),
    [
        ({0.005: [0.0051, 0.0049, 0.02], 0.001: [0.0011], 0.0005: [0.0008]}, 0.001),
        ({0.005: [0.0051, 0.0049, 0.02], 0.001: [0.0011], 0.0005: [0.00049]}, 0.0005),
        ({0.005: [0.005], 0.002: [0.003], 0.001: [0.001]}, 0.005),  # a longer one is not kept
        ({0.005: [0.007], 0.002: [0.002]}, pytest.approx(0.01)),  # none is kept: the error says which would be
    ],
)
def test_the_shortest_delay_is_the_last_that_was_kept(dark: dict[float, list[float]], shortest_s: float) -> None:
    assert shortest_kept(dark) == shortest_s


def test_a_delay_without_dark_times_is_no_measurement() -> None:
    with pytest.raises(MachineError, match="dark times"):
        shortest_kept({0.005: []})


PAIR, FOUR = Group("g0", "dp", (0, 1)), Group("g1", "dp", (2, 3, 4, 5))


def gathers(group: Group, beyond_s: list[float], skew_s: float = 0.0) -> list[Event]:
    """Events of collectives whose transfers take ``beyond_s`` more than at line rate; the last rank ends last."""
    now, events = 100.0, []
    for op, more in enumerate(beyond_s):
        now += COMPUTE_S + (len(group.members) - 1) * (TRANSFER_S + more)
        for rank in group.members:
            end = now - skew_s * (rank != group.members[-1])
            events.append(
                Event(now - 0.1, "agent", "communicate", end, {"rank": rank, "group": group.name, "step": 0, "op": op})
            )
    return events


@pytest.mark.parametrize(
    ("beyond_s", "skew_s", "cost_s"),
    [
        ([0.05, 0.002, 0.002, 0.003], 0.0, pytest.approx(0.002)),
        ([0.05, 0.002, 0.002, 0.003], 0.004, pytest.approx(0.002)),
        ([0.0, -0.004, -0.004], 0.0, 0.0),  # no link is faster than line rate
    ],
)
def test_the_cost_is_what_a_transfer_takes_beyond_its_bytes(
    beyond_s: list[float], skew_s: float, cost_s: float
) -> None:
    assert cost_of(gathers(PAIR, beyond_s, skew_s), {"g0": PAIR}) == cost_s


def test_rounds_of_a_larger_group_share_its_cost() -> None:
    four = gathers(FOUR, [0.05, 0.001, 0.001, 0.001])
    assert cost_of(four, {"g1": FOUR}) == pytest.approx(0.001)
    both = [*gathers(PAIR, [0.05, 0.002, 0.002]), *four]
    assert cost_of(both, {"g0": PAIR, "g1": FOUR}) == pytest.approx(0.001)


@pytest.mark.parametrize("beyond_s", [[], [0.002]])
def test_one_collective_is_no_measurement(beyond_s: list[float]) -> None:
    with pytest.raises(MachineError, match="collectives of g0; try again"):
        cost_of(gathers(PAIR, beyond_s), {"g0": PAIR})


@pytest.mark.parametrize(("hosts", "ranks"), [(16, 2), (16, 16)])
def test_the_program_ends_and_its_transfers_have_the_length_that_is_subtracted(hosts: int, ranks: int) -> None:
    program = program_of(hosts, ranks, 50.0, 3)
    check(program)
    assert len(program.groups) == hosts // ranks and all(len(ops) == 6 for ops in program.operations)
    gather = program.operations[0][1]
    per_port = gather.bytes / ranks / 2  # type: ignore[union-attr]
    assert per_port * 8 / 50e6 == pytest.approx(TRANSFER_S, rel=0.02)


@pytest.mark.parametrize("ranks", [4, 16])
def test_a_hop_is_found_again_in_the_cycles_of_two_trees_and_is_at_least_0(ranks: int) -> None:
    plan, program = describe(transfer_rail(16, 800.0, 1)), tree_program(16, ranks, 50.0, 3)
    check(program)
    assert program.ranks_at_work == ranks and not any(program.operations[ranks:])

    def cycle_s(alpha_s: float) -> float:
        events = predict(program, plan, None, "native", steps=1, costs=Costs(alpha_s)).events
        (cycles,) = laps_s(events, program.groups).values()
        assert cycles == [pytest.approx(cycles[0])] * 2
        return cycles[0]

    found = hop_cost(cycle_s(3e-4), cycle_s(0.0), cycle_s(2e-4), 2e-4)
    assert found == pytest.approx(3e-4, rel=0.02)
    assert hop_cost(0.9 * cycle_s(0.0), cycle_s(0.0), cycle_s(2e-4), 2e-4) == 0.0


def test_a_busy_machine_is_refused_before_anything_else_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.live.machine_benchmark.timer_error", lambda seconds: None)
    monkeypatch.setattr("measure.live.machine_benchmark.busy_processors", pytest.fail)
    monkeypatch.setattr(Processor, "read", lambda self, seconds: Load(0.98, 2, 0.0, 0.0, None, None))
    with pytest.raises(MachineError, match=r"^other work keeps 98% of the processors busy; try again when it is idle$"):
        calibrate_machine(quick=True)


# ---- the report ------------------------------------------------------------------------------------------------------


SETTINGS = {"ports": 32, "gbps": 400.0}


def shown(*datapaths: Datapath) -> list[str]:
    row = {"calibration": asdict(default_calibration(datapaths))}
    return [str(line) for line in Calibrate.report().findings([row], SETTINGS)]


def test_every_datapath_is_shown_with_its_floors_and_the_one_that_auto_takes_is_named() -> None:
    lines = shown("bpf", "ovs")
    assert [line for line in lines if line.startswith("Datapath")] == [
        "Datapath bpf, which auto takes",
        "Datapath ovs",
    ]
    floors = [line.split()[-6:] for line in lines if "shortest delay" in line]
    assert floors == [["1", "/", "2", "/", "1", "ms"], ["2", "/", "2", "/", "2", "ms"]]
    assert [line.split()[-5] for line in lines if "scale for 32 ports" in line] == ["1/5,400", "1/8,000"]


def test_a_machine_without_measured_datapaths_shows_its_timers_alone() -> None:
    assert [line for line in shown() if "timer late at rest" in line]
    assert not [line for line in shown() if "Datapath" in line]
