"""The table of numbers from elsewhere: complete entries, constants of lower rooms, derivations, and its page."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from checkout import ROOT

from experiments.collectives.straggler.law import StragglerLaw
from experiments.propius.data.clients import PRIVATE_SIZE, SPEED_MS_AT
from measure.published import KINDS, all_published, calibrations, markdown, published, read_table
from workloads.catalog import job_keys

NUMBERS = {each.key: each for each in all_published()}


def constant(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("key", NUMBERS)
def test_every_number_has_a_quantity_a_place_a_unit_and_a_kind(key: str) -> None:
    each = NUMBERS[key]
    assert each.quantity and each.where and each.unit and each.values
    assert each.kind in KINDS
    assert isinstance(each.first_hand, bool)
    assert all(isinstance(value, (int, float)) for value in each.values.values())
    assert bool(each.by) == (set(each.values) not in ({""}, {"least", "most"}))


def test_a_key_that_stands_twice_is_refused() -> None:
    assert read_table("numbers: {a: {value: 1}, b: {value: 1}}")["numbers"]["b"] == {"value": 1}
    with pytest.raises(ValueError, match="line 3 has the key a again; give it once"):
        read_table("numbers:\n  a: {value: 1}\n  a: {value: 2}\n")


def test_paper_stands_only_beside_what_a_paper_gives() -> None:
    for each in all_published():
        given = each.source.given_by == "paper" and each.kind != "derived"
        assert ("paper" in each.label) == given, each.key
        assert each.kind == "derived" or each.label.endswith(each.kind)
    assert published("morphlux-circuits").label == "paper, measured"
    assert published("morphlux-steps").label == "derived by us"
    assert published("migration-rewiring").label == "ours, input"


@pytest.mark.parametrize("key", [each.key for each in all_published() if each.constant])
def test_a_constant_of_a_lower_room_is_the_number_of_the_table(key: str) -> None:
    found = constant(NUMBERS[key].constant)
    assert (dict(found) == NUMBERS[key].values) if NUMBERS[key].by else (found == NUMBERS[key].value)


@pytest.mark.parametrize("fit", calibrations(), ids=lambda fit: fit.key)
def test_a_calibration_names_numbers_of_the_table_and_the_value_of_its_constant(fit: Any) -> None:
    assert fit.to and all(key in NUMBERS for key in fit.to)
    assert not fit.constant or constant(fit.constant) == fit.value


def test_inputs_without_a_constant_of_their_own_are_those_of_the_table() -> None:
    assert published("llama-8b-shape").values.items() <= job_keys("llama3-8b-16")["model"].items()
    assert published("deepseek-shape").values.items() <= job_keys("moe-ep-tp")["model"].items()
    assert published("propius-speeds").values.items() <= dict(SPEED_MS_AT).items()
    samples = published("leaf-samples").values
    assert (samples["mean"], samples["deviation"]) == (PRIVATE_SIZE.mean, PRIVATE_SIZE.stdev)


def test_derived_numbers_follow_from_others() -> None:
    steps = published("opus-llama-on-demand").values
    assert published("opus-llama-slope").value == pytest.approx((steps[1000] - steps[250]) / 0.75, abs=0.05)
    for mode, grown in published("opus-llama-growth").values.items():
        assert grown == pytest.approx(published(f"opus-llama-{mode}").between(0, 100))
    least, most = published("after-splice").bounds
    assert least == pytest.approx(min(published("morphlux-epoch").values.values()), abs=0.05)
    assert most == published("lumion-throughput").value
    gbit, electrical = published("llama-1b-gradients").value, published("morphlux-epoch-electrical").values
    for batch, count in published("morphlux-steps").values.items():
        assert 0.5 < electrical[batch] / count - gbit / published("morphlux-port").value < 1.1
    all_reduce = published("stragglar-log-all-reduce").value
    law = StragglerLaw(4, 1, 0.0, 1.0)
    break_even = all_reduce / law.ring_s * law.critical_delay_s
    assert published("stragglar-log-break-even").value == pytest.approx(break_even, abs=0.5)


def test_values_are_shown_with_all_digits() -> None:
    assert published("propius-jct-6000").shown() == "random: 87852; fifo: 34974; irs: 34623"
    assert published("stragglar-measured").shown() == "1.22 to 1.25"
    assert published("opus-llama-native").shown() == "10.178"


def test_the_page_is_that_of_the_table() -> None:
    assert (ROOT / "docs" / "published.md").read_text() == markdown(), "run: python -m measure.published"
