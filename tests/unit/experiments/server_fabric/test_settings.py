"""The server-fabric experiment: the paper's numbers in it, what is measured for which study, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.failover.run import specs_of
from experiments.server_fabric.run import Epoch, iperf_paths
from experiments.server_fabric.settings import EPOCH_STEPS, PAPER_EPOCH_S, TENANTS, ServerFabricExperiment, compute_s
from experiments.settings import validated
from measure.live.iperf import iperf_verdict
from railyard.errors import ConfigError


def experiment(**values: Any) -> ServerFabricExperiment:
    return validated(ServerFabricExperiment, values)


@pytest.mark.parametrize(("batch", "seconds"), [(2, 0.550625), (4, 0.74625), (8, 1.07625)])
def test_compute_is_the_papers_electrical_step_less_its_gradients(batch: int, seconds: float) -> None:
    assert compute_s(batch) == pytest.approx(seconds, abs=1e-4)
    # and both epochs of the paper come out of it: one port of 10 Gb/s, then two
    for ports, paper_s in zip((1, 2), PAPER_EPOCH_S[batch], strict=True):
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
    assert [f"{label} {batch}" for label, _, batch in made.epochs()] == found


def test_every_batch_size_is_measured_where_the_epochs_leave_the_papers_shape_out() -> None:
    made = experiment(studies=["epoch", "batch"], shapes=["1x2x1", "1x2x1"])
    assert made.epochs() == [
        ("1x2x1", "1x2x1", 8),
        ("2x1x1, batch 2", "2x1x1", 2),
        ("2x1x1, batch 4", "2x1x1", 4),
        ("2x1x1, batch 8", "2x1x1", 8),
    ]


def test_the_papers_epochs_are_those_of_its_shape() -> None:
    assert Epoch("2x1x1", "2x1x1", 8, "electrical").paper_s == 40.25
    assert Epoch("2x1x1", "2x1x1", 8, "photonic").paper_s == 23.37
    assert Epoch("fragmented", "fragmented", 8, "photonic").paper_s is None
    assert Epoch("2x1x1, batch 2", "2x1x1", 2, "photonic").paper_ratio == pytest.approx(1.607, abs=0.001)


@pytest.mark.parametrize("shape", TENANTS)
def test_every_shape_uses_one_port_of_two_on_the_torus_and_both_on_photonics(shape: str) -> None:
    made = experiment()
    failover = made.as_failover(8)
    assert failover.neighbour is None and failover.steps == EPOCH_STEPS[8]
    scale = failover.scale.scale()
    lanes = {}
    for fabric in ("electrical", "photonic"):
        setting = made.setting(fabric, shape)
        plan = failover.plan(setting, scale)
        (spec,) = specs_of(failover, setting, plan, scale)
        assert plan.ranks == 4 and len(spec.members) == 2
        lanes[fabric] = len(iperf_paths(spec, plan))
    assert lanes == {"electrical": 1, "photonic": 2}


def test_what_is_shared_goes_on_to_the_training_job() -> None:
    failover = experiment(seed=7, verify=True, mtu=1500, ack_timeout_s=9.0, scale={"time": 0.5}).as_failover(4, steps=3)
    assert (failover.seed, failover.verify, failover.mtu, failover.ack_timeout_s) == (7, True, 1500, 9.0)
    assert failover.scale.scale().time == 0.5 and failover.scale.scale().rate == 1 / 100
    assert failover.job.compute_s == compute_s(4) and failover.steps == 3
    assert failover.experiment == "server-fabric"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"shapes": ["3x1x1"]}, "shapes: must be of 2x1x1, 1x2x1, fragmented, not 3x1x1"),
        ({"shapes": []}, "shapes"),
        ({"studies": ["iperf"]}, "studies.0: input should be 'iperf3', 'epoch', 'batch' or 'recovery'"),
        ({"studies": []}, "studies"),
        ({"batch": 3}, "batch"),
        ({"iperf_s": 0}, "iperf_s: input should be greater than or equal to 1"),
        ({"controller": "remote"}, "controller must be ryu or os-ken"),
        ({"scale": {"rate": 1e-9}}, "port_gbps x scale.rate: must be a rate from"),
        ({"scale": {"time": 0}}, "scale.time"),
        ({"ports": 2}, "ports: is not a key of an experiment"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        experiment(**values).check()
    assert "\n" not in str(caught.value)


def test_iperf_must_reach_the_line_rate() -> None:
    assert iperf_verdict(0.99).faithful
    assert not iperf_verdict(0.5).faithful and "under" in str(iperf_verdict(0.5))
