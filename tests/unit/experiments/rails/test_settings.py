"""Settings and modes of the rail experiment, and what a trace needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from checkout import CASES
from hypothesis import given
from hypothesis import strategies as st
from reports import forecast

from commands.main import main
from experiments.rails.experiment import Rails
from experiments.rails.job import load_job
from experiments.rails.settings import RailSettings, make_settings
from measure.results.results import Results
from railyard.errors import ConfigError
from railyard.scale import Scale
from workloads.catalog import with_all_ranks
from workloads.collectives.catalog import schedule
from workloads.formats.msccl_writer import write_msccl
from workloads.inspection import traffic_of


def test_points_give_baselines_one_point_and_circuit_modes_the_sweep() -> None:
    experiment = make_settings({"modes": ["on-demand", "electrical"], "delays_ms": [200, 0, 50]})
    assert experiment.points() == (
        ("electrical", 0.0, ""),
        ("on-demand", 0.0, ""),
        ("on-demand", 50.0, ""),
        ("on-demand", 200.0, ""),
    )


def test_every_point_is_measured_without_and_with_a_late_rank() -> None:
    experiment = make_settings({"modes": ["on-demand"], "delays_ms": [0, 50], "late": "3:0.5"})
    assert list(map(str, experiment.points())) == [
        "on-demand, 0 ms",
        "on-demand, 0 ms, late 3:0.5",
        "on-demand, 50 ms",
        "on-demand, 50 ms, late 3:0.5",
    ]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(RailSettings.model_fields)) | st.text(max_size=6), _json, max_size=4))
def test_only_config_error_escapes(values: dict[str, Any]) -> None:
    try:
        make_settings(values)
    except ConfigError as error:
        assert "\n" not in str(error)


HYBRID = """HYBRID_TRANSFORMER model_parallel_NPU_group: 2
1
layer\t-1\t1000000\tALLREDUCE\t33554432\t1000000\tALLREDUCE\t33554432\t1000000\tALLREDUCE\t33554432\t100
"""


@pytest.fixture
def direct(tmp_path: Path) -> str:
    """An all-gather in which each of 8 ranks sends to all others at once, as MSCCL XML."""
    path = tmp_path / "direct.xml"
    path.write_text(write_msccl(schedule("all_gather", 8, "direct")))
    return str(path)


@pytest.fixture
def hybrid(tmp_path: Path) -> list[str]:
    """A layer file with groups of two dimensions on one rail, and the options that it needs."""
    path = tmp_path / "hybrid.txt"
    path.write_text(HYBRID)
    return ["--workload", str(path), "--ranks", "8", "--compute-unit", "ns"]


def test_what_can_be_predicted_is_predicted_and_the_rest_is_said(
    direct: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "rails", "--workload", direct, "--json"]) == 0
    said = capsys.readouterr()
    assert [row["mode"] for row in json.loads(said.out)] == ["electrical"]
    one_shot, others = said.err.splitlines()
    assert one_shot == (
        "railyard: Left out: mode one-shot, as group all has no circuit between rank 2 and rank 0, which all_gather "
        "needs; the policy sets up none."
    )
    assert others.startswith("railyard: Left out: modes on-demand and provisioned, as program direct: all_gather: ")
    assert "more than its 2 ports can hold" in others


def test_circuits_that_do_not_fit_at_once_concern_mode_one_shot_alone(
    hybrid: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "rails", *hybrid, "--delays", "10"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Left out: mode one-shot, as the circuits of all groups do not fit at once: port 2 is in circuit 2-" in words
    assert (
        "a port can hold one circuit. " in f"{words} " and words.count("Left out") == 1 and "fabric.ports" not in words
    )


def test_a_kept_prediction_says_what_was_left_out(
    direct: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["predict", "rails", "--workload", direct, "--out", str(out), "--no-figures"]) == 0
    assert Results.open(out).manifest()["omitted"][0].startswith("Left out: mode one-shot, as group all has no circuit")
    capsys.readouterr()
    assert main(["plot", str(out)]) == 0
    assert "Left out: mode one-shot, as group all" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "mode", "reason"),
    [
        ("predict --modes one-shot,on-demand", "on-demand", "[^\n]*; packets carry it: take mode electrical\n$"),
        ("run --modes electrical,one-shot --time 1000", "one-shot", "group all has no circuit between rank 2 and"),
    ],
)
def test_the_last_mode_and_one_that_was_named_for_a_run_are_refused_with_their_file_and_option(
    line: str, mode: str, reason: str, direct: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *words = line.split()
    assert main([verb, "rails", *words, "--workload", direct]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert re.match(f"railyard: {direct}: --modes: mode {mode} cannot run direct: {reason}", said.err)


@pytest.mark.parametrize("modes", [{}, {"modes": Rails.quick["modes"]}])
def test_a_run_of_modes_that_nobody_named_leaves_out_those_that_are_impossible(
    modes: dict[str, list[str]], direct: str
) -> None:
    rails = Rails(make_settings({"workload": direct, **modes}))
    rails.check_run()
    assert [piece.name for piece in rails.pieces()] == ["electrical, 0 ms"]
    assert (rails.points(), rails.planned()) == (1, 3) and "on-demand" in rails.omitted[-1]


@pytest.mark.parametrize("workload", ["smoke", "pp-only", "moe-smoke", "moe-ep-tp"])
def test_workloads_of_the_catalog_run_in_all_default_modes(workload: str) -> None:
    rails = Rails(make_settings({"workload": workload}))
    rails.check_run()
    assert not rails.omitted


def test_a_policy_that_somebody_named_is_not_left_out(direct: str) -> None:
    rails = Rails(make_settings({"workload": direct, "policy": "follow", "modes": ["electrical", "on-demand"]}))
    with pytest.raises(ConfigError, match="more than its 2 ports can hold"):
        list(rails.predict())


def test_a_sweep_refuses_a_mode_before_it_begins(
    direct: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.yaml"
    grid = {"modes": [["electrical"], ["one-shot"]]}
    file.write_text(yaml.safe_dump({"experiment": "rails", "base": {"workload": direct}, "grid": grid}))
    assert main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 2
    assert f"{direct}: modes: mode one-shot cannot run direct: group all" in capsys.readouterr().err


RING = CASES / "astra-sim/custom_ring_allreduce_8npus_1MB"


@pytest.mark.parametrize("mode", ["native", "electrical", "on-demand", "provisioned"])
def test_both_files_send_the_same_and_take_the_same_time(mode: str) -> None:
    times = []
    for name in (RING / "custom_allreduce.xml", RING):
        experiment = make_settings(
            {"workload": str(name), "modes": [mode], "scale": {"rate": 1}, "fabric": {"rate_gbps": 0.05}}
        )
        workload = with_all_ranks(load_job(experiment))
        sent = traffic_of(workload.program)
        assert sent == {(rank, (rank + 1) % 8): 1_835_008 for rank in range(8)}
        times.append(forecast(experiment, workload, mode, 0.0, Scale(1.0)).step_time_s)  # type: ignore[arg-type]
    assert times[0] == pytest.approx(times[1], rel=0.05)
    assert times[0] == pytest.approx(14 * 131_072 * 8 / 50e6, rel=0.03)
