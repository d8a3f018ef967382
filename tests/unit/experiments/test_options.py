"""Options of the command line come from the fields of settings, with the same names and texts everywhere."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from commands.run import experiment_of, file_values, parser_of
from experiments.options import field_options, merged, settings_values
from experiments.parser import Parser
from experiments.registry import ENTRIES, find
from experiments.settings import Option, Settings, validated
from railyard.errors import ConfigError
from railyard.validation import Section

KINDS = [find(entry.name) for entry in ENTRIES]


class Inner(Section):
    wait_ms: float = Field(default=1.5, ge=0, description="time to wait, in ms")


class Some(Settings):
    names: Annotated[tuple[Literal["a", "b"], ...], Option("--name")] = Field(default=("a",), description="names")
    rate: float | Literal["auto"] = Field(default=1 / 250, description="rate")
    fast: bool = Field(default=False, description="fast")
    spare: Annotated[Inner | None, Option("--alone", const=None)] = Field(default=Inner(), description="no spare")
    inner: Inner = Inner(wait_ms=4)


def values_of(*arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    parser = Parser()
    for option in field_options(Some):
        option.add_to(parser)
    return settings_values(parser.read(arguments), Some)


def test_options_have_names_units_defaults_and_choices_of_their_fields() -> None:
    found = {option.names[0]: option for option in field_options(Some)}
    assert list(found) == ["--name", "--rate", "--fast", "--spare-wait", "--alone", "--inner-wait"]
    assert found["--inner-wait"].metavar == "MS"
    assert found["--inner-wait"].help == "time to wait, in ms (key inner.wait_ms, default 4)", (
        "the default of the experiment's section"
    )
    assert found["--name"].help == "names: a, b (key names, default a)"
    assert found["--rate"].help == "rate (default 1/250)"


def test_values_are_nested_as_in_a_file_and_name_their_options() -> None:
    assert values_of() == ({}, {})
    values, named = values_of("--name", "a, b", "--no-fast", "--inner-wait", "7", "--alone")
    assert values == {"names": ["a", "b"], "fast": False, "inner": {"wait_ms": "7"}, "spare": None}
    assert named["inner.wait_ms"] == "--inner-wait"
    with pytest.raises(ConfigError, match="--inner-wait: must be a number, not 'x'"):
        validated(Some, {"inner": {"wait_ms": "x"}}, options=named)


def test_merged_goes_section_by_section() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}, "b": 1}


# ---- all experiments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_option_has_a_text_and_every_default_is_valid(kind: Any) -> None:
    for option in field_options(kind.Settings):
        assert option.text, option.names
        assert not option.text.endswith("."), option.text
    kind.Settings()
    validated(kind.Settings, kind.quick)
    assert parser_of(kind).format_help()


SEVERAL_MEANINGS = {"--sizes", "--fabric", "--datapath", "--only", "--jobs", "--delay", "--spare-servers", "--late"}
"""Options whose text says what is particular about them in an experiment."""


def test_the_same_option_has_the_same_text_everywhere() -> None:
    texts: dict[str, set[str]] = defaultdict(set)
    for kind in KINDS:
        for option in field_options(kind.Settings):
            texts[option.names[0]].add(option.text.split(" (")[0].split(": ")[0].split(";")[0])
    different = {name: found for name, found in texts.items() if len(found) > 1 and name not in SEVERAL_MEANINGS}
    assert not different


def test_options_override_the_file_which_overrides_quick(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("experiment: rails\nsteps: 4\nscale: {time: 2}\ndelays_ms: [10]\n")
    kind = find("rails")
    options = parser_of(kind).read([str(file), "--quick", "--delays", "20", "--rate", "1/100"])
    settings = experiment_of(kind, options).settings
    assert (settings.steps, settings.delays_ms, settings.modes[0]) == (4, (20.0,), "electrical")
    assert (settings.scale.rate, settings.scale.time) == (0.01, 2.0)


def test_a_file_of_an_earlier_version_is_read_and_a_file_beside_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("{}")
    file = tmp_path / "my.yaml"
    file.write_text("experiment: rails\nversion: 0.4.0\nsteps: 3\nworkload: job.yaml\n")
    assert file_values(find("rails"), file) == {"steps": 3, "workload": str(tmp_path / "job.yaml")}
