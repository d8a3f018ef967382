"""The looks of what a page shows: as in the figures, and told apart on a light and on a dark background."""

from __future__ import annotations

import json
from itertools import combinations

from matplotlib.colors import to_rgb

from commands.page.view.bars import BARS, LEAST_CONTRAST, contrast, looks, on_dark, standing_out
from measure.figures.looks import ACTIVITIES, DARK, DIMENSIONS, WHITE
from measure.sentences import MARK_KINDS


def test_every_kind_of_the_page_has_a_look() -> None:
    found = looks()
    assert json.loads(json.dumps(found)) == found
    named = {"compute", "other", "ask", "dark", "wait", "start", "failed", "checkpoint", "stage"}
    assert named | set(DIMENSIONS) | {"get", "train", "push", "trunk"} == set(BARS)
    assert set(BARS) | set(MARK_KINDS) == set(found)
    assert all(look["name"] and look["colour"].startswith("#") for look in found.values())


def test_things_look_as_in_the_figures() -> None:
    found = looks()
    for kind in ("dp", "edp", "pp", "ep", "tp", "cp", "world"):
        assert (found[kind]["name"], found[kind]["colour"]) == (DIMENSIONS[kind].name, DIMENSIONS[kind].colour)
    assert (found["ask"]["name"], found["ask"]["colour"]) == ("waits for the controller", ACTIVITIES["wait"].colour)
    assert found["wait"]["name"] == "waits for other members"


def test_bars_of_one_run_are_told_apart() -> None:
    edge = {"get", "train", "push", "trunk"}
    for kinds in (set(BARS) - edge, edge):
        for one, other in combinations(sorted(kinds), 2):
            a, b = BARS[one], BARS[other]
            assert (a.colour, a.hatch) != (b.colour, b.hatch), (one, other)
            if not a.hatch and not b.hatch:
                assert apart(a.colour, b.colour) > 0.04, (one, other)


def apart(one: str, other: str) -> float:
    """The largest difference of a part of two colours, from 0 to 1."""
    return max(abs(x - y) for x, y in zip(to_rgb(one), to_rgb(other), strict=True))


QUIET = {"compute", "train", "start", "other", "launch"}
"""Greys that stand behind the other kinds on purpose."""
PALE = {"pp", "tp", "world", "port", "refused", "left", "get"}
"""Orange, sky blue and yellow of Okabe and Ito, which are pale on white, as in the figures."""


def test_kinds_stand_out_from_a_light_and_from_a_dark_ground() -> None:
    for kind, look in looks().items():
        light, dark = contrast(look["colour"], WHITE), contrast(look["colour_dark"], DARK)
        assert (light >= LEAST_CONTRAST) == (kind not in QUIET | PALE), (kind, light)
        assert (dark >= LEAST_CONTRAST) == (kind not in QUIET), (kind, dark)
        assert dark > 1.2


def test_lines_of_every_kind_stand_out_from_both_grounds() -> None:
    for kind, look in looks().items():
        assert contrast(look["line"], WHITE) >= LEAST_CONTRAST, kind
        assert contrast(look["line_dark"], DARK) >= LEAST_CONTRAST, kind
        if kind not in QUIET | PALE:
            assert (look["line"], look["line_dark"]) == (look["colour"], look["colour_dark"])


def test_a_pale_colour_becomes_darker_on_white_and_keeps_its_hue() -> None:
    red, green, blue = (int(standing_out("#F0E442", WHITE)[i : i + 2], 16) for i in (1, 3, 5))
    assert red > green > 2 * blue and abs(red / green - 0xF0 / 0xE4) < 0.02
    assert contrast(standing_out("#F0E442", WHITE), WHITE) < 3.2
    assert standing_out("#000000", DARK) != "#FFFFFF" == standing_out("#FFFFFF", DARK)


def test_greys_change_sides_on_a_dark_ground_and_keep_their_order() -> None:
    assert [on_dark(colour) for colour in ("#000000", "#BFBFBF", "#FFFFFF")] == ["#F2F2F2", "#5C5C5C", "#2A2A2A"]
    assert on_dark("#0072B2") == "#0072B2"


def test_the_formula_of_contrast_is_that_of_wcag() -> None:
    """Golden: black on white is 21 to 1, #777777 on white 4.48 to 1."""
    assert abs(contrast("#000000", WHITE) - 21) < 0.01
    assert abs(contrast("#777777", WHITE) - 4.48) < 0.01
