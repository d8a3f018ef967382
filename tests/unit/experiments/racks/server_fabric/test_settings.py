"""The server-fabric experiment: the paper's numbers in it, what is measured for which study, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from reports import printed
from synthetic_job import build_plan, counters, samples

from experiments.progress import RunProgress
from experiments.racks.row import FailoverRow
from experiments.racks.server_fabric import experiment as server_fabric
from experiments.racks.server_fabric.experiment import (
    ELECTRICAL_EPOCH_S,
    EPOCH_STEPS,
    PHOTONIC_EPOCH_S,
    ServerFabric,
    ServerFabricSettings,
    compute_s,
    iperf_paths,
)
from experiments.racks.server_fabric.figures import batches
from experiments.racks.server_fabric.report import batch_lines
from experiments.racks.server_fabric.row import SHAPES, ServerFabricRow, Shape, gain
from experiments.settings import validated
from measure.metrics.fidelity import iperf_verdict
from railyard.timeline import Event, write_events
from topos.kernel.iperf import IperfResult
from workloads.program import Compute


def experiment(**values: Any) -> ServerFabricSettings:
    return validated(ServerFabricSettings, values)


@pytest.mark.parametrize(("batch", "seconds"), [(2, 0.550625), (4, 0.74625), (8, 1.07625)])
def test_compute_is_the_papers_electrical_step_less_its_gradients(batch: int, seconds: float) -> None:
    assert compute_s(batch) == pytest.approx(seconds, abs=1e-4)
    # and both epochs of the paper come out of it: one port of 10 Gb/s, then two
    for ports, paper_s in ((1, ELECTRICAL_EPOCH_S[batch]), (2, PHOTONIC_EPOCH_S[batch])):
        step_s = compute_s(batch) + 39.55 / (10 * ports)
        assert EPOCH_STEPS[batch] * step_s == pytest.approx(paper_s, rel=0.11)


@pytest.mark.parametrize(
    ("studies", "found"),
    [
        ("iperf3,epoch,batch,recovery", ["2x1x1 8", "1x2x1 8", "fragmented 8", "2x1x1, batch 2 2", "2x1x1, batch 4 4"]),
        ("batch", ["2x1x1, batch 2 2", "2x1x1, batch 4 4", "2x1x1, batch 8 8"]),
        ("iperf3", ["2x1x1 8", "1x2x1 8", "fragmented 8"]),
        ("recovery", []),
    ],
)
def test_what_is_brought_up_for_which_study(studies: str, found: list[str]) -> None:
    made = experiment(studies=studies.split(","))
    assert [f"{epoch.name} {epoch.batch}" for epoch in made.epochs()] == found


def test_every_batch_size_is_measured_where_the_epochs_leave_the_papers_shape_out() -> None:
    made = experiment(studies=["epoch", "batch"], shapes=["1x2x1"])
    assert [(epoch.name, epoch.shape, epoch.batch) for epoch in made.epochs()] == [
        ("1x2x1", "1x2x1", 8),
        ("2x1x1, batch 2", "2x1x1", 2),
        ("2x1x1, batch 4", "2x1x1", 4),
        ("2x1x1, batch 8", "2x1x1", 8),
    ]


def test_the_papers_epochs_are_those_of_its_shape() -> None:
    shape, _, fragmented, small, *_ = experiment().epochs()
    assert (shape.paper_s("electrical"), shape.paper_s("photonic")) == (40.25, 23.37)
    assert fragmented.paper_s("photonic") is None and fragmented.published_ratio is None
    assert small.name == "2x1x1, batch 2" and small.published_ratio == 1.61


@pytest.mark.parametrize(("batch", "ours", "theirs"), [(2, 1.78, 1.63), (4, 1.72, 1.59), (8, 1.65, 1.53)])
def test_the_gain_of_an_epoch_by_what_a_second_port_is_worth(batch: int, ours: float, theirs: float) -> None:
    """MORPHLUX: 1.61, 1.62, 1.72. By arithmetic: a step is its compute and 39.55 Gbit over the ports of a host."""
    for ports, ratio in ((2.0, ours), (1.79, theirs)):
        step_s = [compute_s(batch) + 3.955 / share for share in (1, ports)]
        assert step_s[0] / step_s[1] == pytest.approx(ratio, abs=0.01)
        made = ServerFabric(experiment(studies=["epoch"], shapes=["2x1x1"], batch=batch, second_path=ports))
        rows = [row.to_json() for row in made.predict()]
        assert gain(rows, "epoch", "2x1x1", "predicted") == pytest.approx(ratio, rel=0.01)
        assert gain(rows, "all-reduce", "2x1x1", "predicted") == pytest.approx(ports, rel=0.01)


def test_iperf3_has_both_ports_of_a_host_whole_whatever_they_are_worth_to_a_job() -> None:
    made = ServerFabric(experiment(studies=["iperf3", "epoch"], shapes=["2x1x1"], second_path=1.79))
    rows = [row.to_json() for row in made.predict()]
    assert len(rows) == made.points() == 6 and len({piece.name for piece in made.pieces()}) == 4
    assert gain(rows, "iperf3", "2x1x1", "predicted") == 2


def test_without_a_spare_the_electrical_job_does_not_resume_and_a_table_has_every_batch_size() -> None:
    made = ServerFabric(experiment(studies=["batch", "recovery"]))
    rows = list(made.predict())
    assert len(rows) == made.points()
    photonic, electrical = (row for row in rows if isinstance(row, FailoverRow))
    assert photonic.state is None and photonic.predicted_outage_s
    assert (electrical.state, electrical.predicted_outage_s) == ("stranded", None)
    assert electrical.paper_outage_s is None
    before_s = [row.predicted_step_time_before_s or 0.0 for row in (electrical, photonic)]
    assert before_s[0] > 1.5 * before_s[1] > 0
    lines = batch_lines([row.to_json() for row in rows if isinstance(row, ServerFabricRow)])
    assert [(line["batch"], line["published_ratio"]) for line in lines] == [(2, 1.61), (4, 1.62), (8, 1.72)]
    said = printed(ServerFabric, [row.to_json() for row in rows])
    assert "stranded" in said and max(map(len, said.splitlines())) <= 80
    shown = [row.to_json() for row in rows if isinstance(row, ServerFabricRow)]
    assert batches(shown, batch_lines(shown)) is not None and batches(shown, lines[:1]) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_uses_one_port_of_two_on_the_torus_and_both_on_photonics(shape: Shape) -> None:
    made = experiment(shapes=[shape], studies=["epoch"])
    (epoch,) = made.epochs()
    lanes = {}
    for fabric in ("electrical", "photonic"):
        setting = made.setting(fabric, epoch.shape)
        job = made.job(setting, epoch)
        assert setting.plan.ranks == 4 and len(job.members) == 2 and job.steps == EPOCH_STEPS[8]
        lanes[fabric] = len(iperf_paths(setting, job))
    assert lanes == {"electrical": 1, "photonic": 2}


def test_what_is_measured_of_an_epoch_and_how_long_its_job_is() -> None:
    made = experiment(studies=["iperf3", "batch"], batch=4)
    first, *_, last = made.epochs()
    setting = made.setting("photonic", "2x1x1")
    assert (first.measures, made.job(setting, first).steps) == (("iperf3",), 2)
    assert (last.measures, made.job(setting, last).steps) == (("all-reduce", "epoch"), EPOCH_STEPS[8])
    assert experiment().epochs()[0].measures == ("iperf3", "all-reduce", "epoch")


def test_what_is_shared_goes_on_to_the_training_job() -> None:
    made = experiment(mtu=1500, scale={"time": 0.5}, batch=4)
    setting = made.setting("electrical", "2x1x1")
    job = made.job(setting, made.epochs()[0])
    assert setting.plan.mtu == 1500
    assert setting.scale.time == 0.5 and setting.scale.rate == 1 / 100
    assert job.training is not None and job.training.detection.heartbeat_s == 0.125
    assert {op.seconds for op in job.program.operations[0] if isinstance(op, Compute)} == {compute_s(4)}


def test_iperf_must_reach_the_line_rate_on_a_machine_with_room_and_all_must_be_sampled() -> None:
    def sampled(busy: float) -> list[Event]:
        cpu = {"busy": busy, "cores": 2, "steal": 0.0, "other": 0.0, "switch_busy": 0.2, "switch_thread": 0.2}
        return samples(plan, 0.0, 3.0, cpu) + counters(plan, 0.0, 0, "ovs") + counters(plan, 3.0, 9, "ovs")

    plan = build_plan(fabric="electrical")
    calm = sampled(0.3)
    assert iperf_verdict(0.99, calm, plan).faithful
    slow = iperf_verdict(0.5, calm, plan)
    assert [check.name for check in slow.failed] == ["link rate"] and "under" in str(slow)
    assert [check.name for check in iperf_verdict(0.99, sampled(1.0), plan).failed] == ["cores"]
    nothing = iperf_verdict(0.99, [], plan)
    assert {"cores", "samples", "counters", "sampler events"} <= {c.name for c in nothing.failed}
    assert "event numbers" not in {check.name for check in nothing.checks}  # no process of it numbers its events
    assert [check.name for check in iperf_verdict(0.99, calm[1:], plan).failed] == ["sampler events"]


def test_what_was_sampled_and_counted_beside_iperf3_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled, read = Event(1.0, "link", "sampled", None, {"events": 0}), Event(2.0, "link", "forwarding")

    @contextmanager
    def counted(session: Any, log: Path) -> Iterator[Any]:
        write_events(log, [sampled])
        yield SimpleNamespace(events=[read])

    def play_racks(runner: Any, setting: Any, jobs: Any, before: Callable[[Any], None]) -> Any:
        done = {name: lambda *given, **more: None for name in ("register", "call", "collect")}
        before(SimpleNamespace(**done, iperf=lambda *given, **more: IperfResult((1.0,), (0,), 1.0)))
        return SimpleNamespace(number=0, verdicts=lambda name: [])

    recorded: list[Event] = []
    runner = SimpleNamespace(
        record=SimpleNamespace(add_events=recorded.extend, add_attempt=lambda **attempt: None),
        number=0,
        replace=lambda rows: None,
        progress=RunProgress(),
    )
    monkeypatch.setattr(server_fabric, "counted", counted)
    monkeypatch.setattr(server_fabric, "play_racks", play_racks)
    once = {"repeats": 1, "attempts": 1}
    ServerFabric(experiment(studies=["iperf3"], shapes=["2x1x1"], **once)).run(cast(Any, runner))
    assert recorded == [sampled, read] * 2  # of both fabrics
