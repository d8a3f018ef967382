"""What a person may write in an experiment, and what they are told when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.command.run import file_values
from experiments.rails.experiment import Rails
from experiments.rails.settings import RailSettings, make_settings
from experiments.settings import validated
from railyard.errors import ConfigError


def test_points_give_baselines_one_point_and_circuit_modes_the_sweep() -> None:
    experiment = make_settings({"modes": ["on-demand", "electrical"], "delays_ms": [200, 0, 50]})
    assert experiment.points() == (
        ("electrical", 0.0),
        ("on-demand", 0.0),
        ("on-demand", 50.0),
        ("on-demand", 200.0),
    )


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"stepz": 1}, "stepz"),
        ({"steps": 0}, "steps"),
        ({"modes": ["warp"]}, "modes"),
        ({"modes": []}, "modes"),
        ({"delays_ms": [-1]}, "delays_ms"),
        ({"delays_ms": [float("nan")]}, "delays_ms"),
        ({"scale": {"rate": "1/0"}}, "scale.rate"),
        ({"scale": {"rate": 2}}, "scale.rate"),
        ({"scale": {"rat": 1}}, "scale.rat"),
        ({"fabric": {"ports_per_gpu": 3}}, "fabric.ports_per_gpu"),
        ({"policy": "a:B", "modes": ["electrical"]}, "policy"),
        ({"controller": "remote"}, "controller"),
    ],
)
def test_a_wrong_key_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(RailSettings, values, "my.yaml")
    assert named in str(caught.value)
    assert str(caught.value).startswith("my.yaml")
    assert caught.value.exit_status == 2


def test_a_fraction_is_a_scale() -> None:
    assert make_settings({"scale": {"rate": "1/250"}}).scale.rate == pytest.approx(0.004)


def test_a_file_names_its_line_when_it_is_not_yaml(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("steps: 2\nmodes: [electrical\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml:\d+"):
        file_values(Rails, file)


def test_a_file_that_is_not_there_and_one_that_is_a_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        file_values(Rails, tmp_path / "none.yaml")
    file = tmp_path / "list.yaml"
    file.write_text("- a\n")
    with pytest.raises(ConfigError, match="mapping"):
        file_values(Rails, file)


def test_a_workload_file_is_found_beside_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("{}")
    file = tmp_path / "e.yaml"
    file.write_text("workload: model.yaml\nsteps: 1\n")
    assert file_values(Rails, file)["workload"] == str(tmp_path / "model.yaml")


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
