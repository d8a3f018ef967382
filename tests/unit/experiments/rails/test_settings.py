"""What a person may write in an experiment, and what they are told when it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.run import file_values
from experiments.rails.experiment import Rails
from experiments.rails.settings import RailSettings, make_settings
from railyard.errors import ConfigError


def test_points_give_baselines_one_point_and_circuit_modes_the_sweep() -> None:
    experiment = make_settings({"modes": ["on-demand", "electrical"], "delays_ms": [200, 0, 50]})
    assert experiment.points() == (
        ("electrical", 0.0),
        ("on-demand", 0.0),
        ("on-demand", 50.0),
        ("on-demand", 200.0),
    )


def test_a_fraction_is_a_scale() -> None:
    assert make_settings({"scale": {"rate": "1/250"}}).scale.rate == pytest.approx(0.004)


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
