"""The file of a sweep: its points, their names, and one sentence for what is wrong in it."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from commands.sweep.spec import SweepPoint, SweepSpec, content_hash, in_order, read_spec

BASE = "experiment: rails\nbase: {workload: smoke, modes: [on-demand]}\n"
SMOKE = "experiment: rails\nbase: {workload: smoke}\n"


def spec_of(tmp_path: Path, text: str, **more: Any) -> SweepSpec:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_spec(path, **more)


def names(spec: SweepSpec) -> list[str]:
    return [point.name for point in spec.points]


def test_a_grid_is_the_product_of_its_values_with_repeats_beside_each_other(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BASE + "grid: {delays_ms: [[0.0], [50.0]], fabric.mtu: [4200, 9000]}\nrepeats: 3\n")
    assert spec.swept == ("delays_ms", "fabric.mtu") and len(set(names(spec))) == 12
    assert [point.values["fabric"]["mtu"] for point in spec.points] == [4200] * 3 + [9000] * 3 + [4200] * 3 + [9000] * 3
    assert [point.values.get("seed", 1) for point in spec.points[:3]] == [1, 2, 3]
    assert all(point.values["repeats"] == 1 for point in spec.points)


def test_names_depend_on_what_is_measured_and_not_on_how_it_is_written(tmp_path: Path) -> None:
    one = spec_of(tmp_path, BASE + "grid: {delays_ms: [[0.0]], fabric.mtu: [4200, 9000]}\n")
    other = spec_of(
        tmp_path,
        "grid: {fabric: [{mtu: 9000}, {mtu: 4.2e3}]}\n"
        "base: {seed: 1, delays_ms: [0], modes: [on-demand], workload: smoke}\nexperiment: rails\n",
    )
    assert set(names(one)) == set(names(other))
    changed = spec_of(tmp_path, BASE + "grid: {delays_ms: [[0.0]], fabric.mtu: [4200, 9000]}\n".replace("9000", "8999"))
    assert len(set(names(one)) & set(names(changed))) == 1


def test_a_name_is_the_hash_of_canonical_json() -> None:
    canonical = b'{"experiment":"rails","repeat":2,"settings":{"a":{"c":true,"d":null},"b":[1.0,"x"]}}'
    assert hashlib.sha256(canonical).hexdigest() == content_hash(
        "rails", {"b": [1.0, "x"], "a": {"d": None, "c": True}}, 2
    )


@pytest.mark.parametrize(
    ("scalars", "lists"),
    [
        ("grid: {delays_ms: [0, 50]}", "grid: {delays_ms: [[0], [50]]}"),
        ("list: [{delays_ms: 0}, {delays_ms: 50}]", "list: [{delays_ms: [0]}, {delays_ms: [50]}]"),
    ],
)
def test_a_single_value_of_a_list_is_a_list_of_it(scalars: str, lists: str, tmp_path: Path) -> None:
    one, other = (spec_of(tmp_path, f"{BASE}{text}\n") for text in (scalars, lists))
    assert names(one) == names(other) and len(names(one)) == 2
    assert [point.values["delays_ms"] for point in one.points] == [[0], [50]]


def test_a_list_with_a_grid_and_no_point_twice(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BASE + "list: [{steps: 1}, {steps: 2, overlap: true}, {steps: 1}]\ngrid: {seed: [4, 5]}\n")
    assert [dict(point.swept) for point in spec.points] == [
        {"steps": 1, "seed": 4},
        {"steps": 1, "seed": 5},
        {"steps": 2, "overlap": True, "seed": 4},
        {"steps": 2, "overlap": True, "seed": 5},
    ]


def test_a_point_of_a_list_may_take_the_place_of_a_value_of_base_and_a_section_of_the_grid_is_added(
    tmp_path: Path,
) -> None:
    text = "experiment: rails\nbase: {workload: smoke, steps: 3, scale: {time: 2}}\nlist: [{seed: 1}, {steps: 1}]\n"
    spec = spec_of(tmp_path, text + "grid: {scale: [{rate: 0.01}]}")
    assert [(point.values["steps"], point.values["scale"]) for point in spec.points] == [
        (3, {"time": 2, "rate": 0.01}),
        (1, {"time": 2, "rate": 0.01}),
    ]


def test_a_swept_seed_is_the_seed_of_every_repeat(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, BASE + "grid: {seed: [7]}\nrepeats: 2\n")
    assert [point.values["seed"] for point in spec.points] == [7, 7] and len(set(names(spec))) == 2


RANDOM = "random: {count: 40, seed: %d, over: {%s}}\n"
OVER = (
    "steps: {low: 2, high: 9, integer: true}",
    "scale.time: {low: 0.01, high: 100, log: true}",
    "link_recovery_ms: {low: 0, high: 5}",
    "modes: [[electrical], [on-demand]]",
)


def test_random_points_are_in_their_ranges_and_the_same_for_a_seed_in_any_order_of_keys(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, SMOKE + RANDOM % (3, ", ".join(OVER)))
    values = [point.swept for point in spec.points]
    assert len(values) == 40 and {value["steps"] for value in values} == set(range(2, 10))
    assert all(0.01 <= value["scale.time"] <= 100 and 0 <= value["link_recovery_ms"] <= 5 for value in values)
    assert 10 <= sum(value["scale.time"] < 1 for value in values) <= 30
    assert names(spec_of(tmp_path, SMOKE + RANDOM % (3, ", ".join(reversed(OVER))))) == names(spec)
    assert not set(names(spec_of(tmp_path, SMOKE + RANDOM % (4, ", ".join(OVER))))) & set(names(spec))


def test_points_that_are_compared_are_run_after_one_another_repeat_by_repeat(tmp_path: Path) -> None:
    grid = "grid: {delays_ms: [[1.0], [2.0], [3.0], [4.0]], modes: [[electrical], [on-demand], [one-shot]]}\n"
    spec = spec_of(tmp_path, SMOKE + grid + "repeats: 4\ntogether: [modes]\n")
    ordered = in_order(spec.points, 1)
    assert ordered == in_order(list(reversed(spec.points)), 1) != in_order(spec.points, 2)
    assert [point.repeat for point in ordered] == [0] * 12 + [1] * 12 + [2] * 12 + [3] * 12
    groups = [list(group) for _, group in itertools.groupby(ordered, key=lambda point: point.comparison)]
    assert len(groups) == 16 and all(len(group) == 3 for group in groups)
    assert all(len({json.dumps(point.swept["delays_ms"]) for point in group}) == 1 for group in groups)
    assert len({tuple(point.values["modes"][0] for point in group) for group in groups}) > 1


def test_the_command_of_a_point_reads_its_file_and_writes_its_attempt(tmp_path: Path) -> None:
    point = SweepPoint("0" * 12, "rails", {"steps": 2}, 0, "0" * 12, {"steps": 2})
    line = ["railyard", "run", "/s/experiment.yaml", "--out", "/s/attempt-2/results", "--no-figures"]
    assert point.command(Path("/s"), 2) == line
    assert point.file == {"experiment": "rails", "steps": 2}


def test_the_example_of_the_page_is_a_sweep_of_twelve_points_of_which_pairs_are_compared() -> None:
    spec = read_spec(ROOT / "docs" / "examples" / "delay_sweep.yaml")
    assert len(spec.points) == 12 and len({point.comparison for point in spec.points}) == 6
