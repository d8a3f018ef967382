"""Links between switches in the model: an electrical torus, whose messages meet on the links of their routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from controllers.circuits import torus_routes
from experiments.racks.forecast import predicted_jobs
from measure.model.prediction import Prediction, predict
from measure.model.wires import Wires, wire_bytes
from railyard.errors import ConfigError, ControlError
from railyard.scale import Scale
from topos.describe import plan
from topos.plan import FabricPlan, HostPort, SwitchLink, SwitchPlan
from topos.racks import RackTopo
from topos.rails import RailTopo
from workloads.program import Collective, Compute, Group, Operation, Program

MBPS = 80.0
"""Of every link: 1e7 bytes a second."""
FULL, ONE_S = 8948, 9014 / 1e7
SIZE = 4 * 2 * 100 * FULL
"""An all-reduce of four: chunks of 100 full packets in each lane."""


def line(chips: int = 4, faster: int = 2) -> FabricPlan:
    """Chips in a line, each with a switch; a host's port is ``faster`` times a link. Port 2 leads up, port 3 down."""

    def port(rank: int) -> HostPort:
        return HostPort(1, f"g{rank}", rank, 0, f"g{rank}-r0", f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}",
                        faster * MBPS)  # fmt: skip

    switches = tuple(SwitchPlan(f"n{r}", 0x40000 + r, "electrical", "rail", (port(r),)) for r in range(chips))
    links = tuple(SwitchLink(f"n{r}", 2, f"n{r + 1}", 3, MBPS) for r in range(chips - 1))
    return FabricPlan("electrical-torus", chips, 1, 1, 9000, switches, links)


def up_or_down(src: int, dst: int) -> list[tuple[str, int]]:
    """Routes of a line, the port to the host at the end included."""
    step = 1 if dst > src else -1
    return [*((f"n{at}", 2 if step > 0 else 3) for at in range(src, dst, step)), (f"n{dst}", 1)]


def play(where: FabricPlan, messages: Sequence[tuple[int, int, int]]) -> list[float]:
    """When the last byte of each (source, destination, payload) is there; all are handed over at 0."""
    timers: list[tuple[float, int, object]] = []
    wires = Wires(where, lambda time, what: timers.append((time, len(timers), what)), up_or_down)
    ends: dict[int, float] = {}
    for number, (src, dst, payload) in enumerate(messages):
        wires.send(0.0, "scale-out", (src, 0), (dst, 0), payload, lambda _, end, n=number: ends.update({n: end}))  # type: ignore[misc]
    while timers:
        timers.sort(key=lambda entry: entry[:2])
        timers.pop(0)[2]()  # type: ignore[operator]
    return [ends[number] for number in range(len(messages))]


def test_a_message_is_as_fast_as_the_slowest_link_on_its_way() -> None:
    assert play(line(), [(0, 3, FULL)]) == pytest.approx([ONE_S])
    assert play(line(faster=1), [(0, 1, FULL)]) == pytest.approx([ONE_S])


def test_messages_share_the_links_of_their_routes() -> None:
    assert play(line(), [(0, 2, FULL), (1, 3, FULL)]) == pytest.approx([2 * ONE_S] * 2), "both take n1 to n2"
    assert play(line(), [(0, 1, FULL), (2, 3, FULL)]) == pytest.approx([ONE_S] * 2), "no link in common"


def test_both_directions_of_a_link_are_independent() -> None:
    assert play(line(), [(0, 3, FULL), (3, 0, FULL)]) == pytest.approx([ONE_S] * 2)


def test_the_ports_of_a_host_count_too() -> None:
    ends = play(line(faster=1), [(1, 0, FULL), (1, 2, FULL)])
    assert ends == pytest.approx([2 * ONE_S] * 2), "two links, one port"


def test_what_a_full_link_leaves_over_goes_to_others() -> None:
    """Three through the link 1-2; one of them also through 2-3, which a fourth one has nearly for itself."""
    ends = play(line(faster=9), [(0, 2, FULL), (1, 2, FULL), (1, 3, FULL), (2, 3, 2 * FULL)])
    assert ends == pytest.approx([3 * ONE_S] * 4)


def test_without_links_routes_are_not_asked_for() -> None:
    rails = plan(RailTopo(servers=2, gpus=1, rate_mbps=MBPS))
    wires = Wires(rails, lambda time, what: None, lambda a, b: [("rail0", 1)])
    wires.send(0.0, "scale-out", (0, 0), (1, 0), FULL, lambda began, end: None)


def torus(**options: object) -> FabricPlan:
    found = {"torus": "4x4", "server": "2x2", "fabric": "electrical-torus", "port_mbps": MBPS} | options
    return plan(RackTopo(**found))


def jobs_on(where: FabricPlan, jobs: Mapping[str, Sequence[int]], compute_s: float = 0.0) -> Program:
    operations: list[tuple[Operation, ...]] = [()] * where.ranks
    for name, members in jobs.items():
        for rank in members:
            reduce = Collective(1, "gradients", "all_reduce", name, SIZE, (0,))
            operations[rank] = (Compute(0, "compute", compute_s), reduce)
    groups = {name: Group(name, "world", tuple(members)) for name, members in jobs.items()}
    return Program("jobs", tuple(operations), groups)


def run(
    where: FabricPlan, jobs: Mapping[str, Sequence[int]], avoid: frozenset[int] = frozenset(), compute_s: float = 0.0
) -> Prediction:
    return predict(jobs_on(where, jobs, compute_s), where, None, "native", avoid=avoid, steps=4)


RING_S = 2 * 3 * wire_bytes(SIZE // 8, 9000) / 1e7
"""Six rounds, each of a chunk through every link in both directions."""


def row() -> list[int]:
    """The chips with y = 0 of a 4 x 4 torus in servers of 2 x 2."""
    return [0, 1, 4, 5]


def test_a_ring_over_a_far_spare_crosses_its_own_links_twice() -> None:
    found = run(torus(), {"A": [0, 12, 4, 5]}, frozenset({1}))
    assert found.step_time_s > 1.4 * RING_S


def test_a_neighbour_on_the_way_of_a_splice_is_slowed() -> None:
    """E1: before the fault the slices have no link in common; the ring over the spare goes through the neighbour's."""
    where, neighbour, spliced = torus(), [8, 9, 11, 10], [0, 12, 4, 5]
    before = run(where, {"A": row(), "B": neighbour})
    after = run(where, {"A": spliced, "B": neighbour}, frozenset({1}))
    calm = predicted_jobs(before.events, {"A": row(), "B": neighbour}, Scale(1.0))
    crossed = predicted_jobs(after.events, {"A": spliced, "B": neighbour}, Scale(1.0))
    assert calm["A"].step_time_s == pytest.approx(RING_S) and calm["B"].step_time_s == pytest.approx(RING_S)
    assert crossed["B"].step_time_s > 1.4 * RING_S
    assert run(where, {"B": neighbour}, frozenset({1})).step_time_s == pytest.approx(RING_S), (
        "the fault alone is nothing"
    )


def test_jobs_that_use_the_same_links_both_pay() -> None:
    """Two rings on a line of four: 0-2 and 1-3 meet on the link between 1 and 2."""
    where = torus(torus="8x1", server="1x1", reserve="1x1@7,0")
    jobs = {"A": [0, 2], "B": [1, 3]}
    alone = predicted_jobs(run(where, {"A": [0, 2]}).events, {"A": [0, 2]}, Scale(1.0))["A"]
    both = predicted_jobs(run(where, jobs).events, jobs, Scale(1.0))
    assert both["A"].step_time_s == pytest.approx(2 * alone.step_time_s, rel=0.02)
    assert both["B"].step_time_s == pytest.approx(2 * alone.step_time_s, rel=0.02)
    assert both["A"].operations_s["A", "gradients"] == pytest.approx(both["A"].step_time_s)


def test_only_steps_of_all_jobs_together_count() -> None:
    """B is over long before A, whose later steps have the link to themselves."""
    where = torus(torus="8x1", server="1x1", reserve="1x1@7,0")
    jobs = {"A": [0, 2], "B": [1, 3]}
    program = jobs_on(where, jobs)
    slow = tuple((Compute(0, "compute", 5.0), *ops[1:]) if rank in (0, 2) else ops for rank, ops in
                 enumerate(program.operations))  # fmt: skip
    found = predict(Program("jobs", slow, program.groups), where, None, "native", steps=4)
    model = predicted_jobs(found.events, jobs, Scale(1.0))
    assert model["B"].step_time_s < 1.0 < 5.0 < model["A"].first_step_s


def test_routes_lead_round_dead_chips() -> None:
    where = torus(torus="8x1", server="1x1", reserve="1x1@7,0")
    tables = torus_routes.routes(where, frozenset({1}))
    assert len(torus_routes.path(where, tables, 0, 2)) == 6
    assert run(where, {"A": [0, 2]}, frozenset({1})).step_time_s == pytest.approx(
        run(where, {"A": [0, 2]}).step_time_s
    ), "twice the hops, the same rate"


def test_no_way_left_is_an_error_and_no_hang() -> None:
    where = torus(torus="8x1", server="1x1", reserve="1x1@7,0")
    with pytest.raises(ControlError, match="no route"):
        run(where, {"A": [0, 2]}, frozenset({1, 5}))


def test_a_job_that_is_not_in_the_prediction_is_named() -> None:
    with pytest.raises(ConfigError, match="job C does no step"):
        predicted_jobs((), {"C": [1, 2]}, Scale(1.0))
