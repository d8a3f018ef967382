"""One table of colours: everything has one look, and no module of a figure names a colour of its own."""

from __future__ import annotations

import ast
from itertools import combinations
from pathlib import Path

import pytest
from checkout import ROOT
from matplotlib.colors import is_color_like, to_rgb

from controllers.policies.catalog import POLICIES as CONTROLLERS
from experiments.rails.settings import MODES
from measure.figures import looks
from workloads.collectives.catalog import ALGORITHMS

TABLES = {name: table for name, table in vars(looks).items() if name.isupper() and isinstance(table, dict)}
DRAWING = [
    path
    for path in sorted(ROOT.rglob("*.py"))
    if path.relative_to(ROOT).parts[0] in ("measure", "experiments", "commands", "docs")
    and "measure.figures" in path.read_text(encoding="utf-8")
    and path.name != "looks.py"
]
SINGLE_LETTERS = 1
"""Longest text that matplotlib may take for a colour and that means something else, such as the marker ``s``."""


def test_every_mode_and_algorithm_has_a_look() -> None:
    assert set(looks.MODES) == set(MODES)
    assert set(ALGORITHMS) <= set(looks.ALGORITHMS)
    assert {"electrical", "rotor", "demand"} <= set(looks.POLICIES) & set(CONTROLLERS)


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("PARTS", "ACTIVITIES")])
def test_things_of_a_table_differ_without_colours_too(name: str) -> None:
    for one, other in combinations(TABLES[name].values(), 2):
        alike = (one.marker, one.dashes, one.hatch) == (other.marker, other.dashes, other.hatch)
        assert not alike or abs(shade(one.colour) - shade(other.colour)) > 0.2
        assert (one.colour, one.marker, one.dashes) != (other.colour, other.marker, other.dashes)


def shade(colour: str) -> float:
    """How light a colour is in grey print, from 0 to 1 (weights of ITU-R BT.709)."""
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True))


def test_a_thing_has_the_same_look_in_every_table() -> None:
    for key in ("electrical", "rotor", "demand", "photonic", "morphlux", "valiant"):
        found = {(table[key].colour, table[key].marker) for table in TABLES.values() if key in table}
        assert len(found) == 1, key


def test_colours_are_those_that_colour_blind_readers_tell_apart() -> None:
    okabe_ito = ["000000", "E69F00", "56B4E9", "009E73", "F0E442", "0072B2", "D55E00", "CC79A7"]
    known = {to_rgb(f"#{colour}") for colour in okabe_ito}
    for table in TABLES.values():
        for look in table.values():
            red, green, blue = to_rgb(look.colour)
            assert (red, green, blue) in known or red == green == blue, look


def test_no_other_module_names_a_colour() -> None:
    assert len(DRAWING) > 10
    found = [f"{path.relative_to(ROOT)}: {text}" for path in DRAWING for text in strings(path) if is_colour(text)]
    assert found == []


def is_colour(text: str) -> bool:
    return len(text) > SINGLE_LETTERS and text != "none" and not text.isdecimal() and bool(is_color_like(text))


def strings(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
