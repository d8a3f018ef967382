"""One scale for what is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.sweep import execute
from commands.sweep.execute import run_point
from commands.sweep.folder import Ended, SweepFolder
from commands.sweep.scales import SweepScales, is_automatic, scales_here, shared_scales, with_scale
from commands.sweep.spec import SweepPoint, read_spec
from commands.sweep.workers.placement import pieces
from railyard.errors import ConfigError
from railyard.scale import Scale
from railyard.yaml_file import read_mapping

TEXT = """experiment: rails
base: {workload: smoke}
grid: {modes: [[electrical], [on-demand]], scale.rate: [auto, 0.001]}
together: [modes]
repeats: 2
"""
KEPT = Scale(1 / 4000, 1.2)


def point(mode: str, repeat: int = 0, **values: object) -> SweepPoint:
    swept = {"modes": mode}
    return SweepPoint(f"{mode}-{repeat}", "rails", {"modes": [mode], **values}, repeat, f"c-{repeat}", swept)


def test_only_a_measured_point_whose_rate_is_left_open_has_an_automatic_scale() -> None:
    assert is_automatic(point("electrical"))
    assert is_automatic(point("electrical", scale={"time": 2}))
    assert not is_automatic(point("electrical", scale={"rate": 0.001}))
    assert not is_automatic(SweepPoint("x", "rails", {}, 0, "c", {}, predict=True))
    assert not is_automatic(SweepPoint("x", "mesh", {}, 0, "c", {}))


def test_a_point_with_a_scale_keeps_its_name_and_its_other_values() -> None:
    before = point("electrical", scale={"rate": "auto"}, seed=3)
    after = with_scale(before, Scale(1 / 4000, 1.2))
    assert (after.name, after.values["seed"], after.values["scale"]) == (
        before.name,
        3,
        {"rate": 1 / 4000, "time": 1.2},
    )
    assert before.values["scale"] == {"rate": "auto"}
    assert with_scale(before, None) == before


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    path = tmp_path / "sweep.yaml"
    path.write_text(TEXT)
    return SweepFolder.create(tmp_path / "folder", read_spec(path))


def scale_of(point: SweepPoint) -> dict[str, object]:
    found: dict[str, object] = point.values["scale"]
    return found


def done(sweep: SweepFolder, point: SweepPoint, *scales: Scale) -> None:
    results = sweep.place(point) / f"attempt-{sweep.begin(point)}" / "results"
    results.mkdir()
    rows = [{"rate_scale": scale.rate, "time_scale": scale.time} for scale in scales]
    (results / "summary.json").write_text(json.dumps(rows))
    sweep.end_attempt(point, Ended(1, 0, "here", 1.0))


def test_what_is_kept_holds_for_points_whose_scale_is_left_to_machines_alone(sweep: SweepFolder) -> None:
    SweepScales(sweep).keep({point.name: KEPT for point in sweep.points})
    for point in sweep.points:
        found = scale_of(SweepScales(sweep).as_run(point))
        assert found == ({"rate": 1 / 4000, "time": 1.2} if is_automatic(point) else {"rate": 0.001})


def test_without_it_a_repeat_has_the_scale_of_the_one_that_is_done(sweep: SweepFolder) -> None:
    first, *others = [point for point in sweep.points if is_automatic(point)]
    assert SweepScales(sweep).as_run(first) == first
    done(sweep, first, KEPT, KEPT)
    for point in others:
        same = point.swept == first.swept
        assert SweepScales(sweep).earlier(point) == (KEPT if same else None)
        assert SweepScales(sweep).earlier(point, compared=True) == KEPT
        assert scale_of(SweepScales(sweep).as_run(point))["rate"] == (KEPT.rate if same else "auto")


def test_a_point_that_was_done_at_several_scales_says_nothing(sweep: SweepFolder) -> None:
    first, *others = [point for point in sweep.points if is_automatic(point)]
    done(sweep, first, KEPT, Scale(0.5))
    assert [SweepScales(sweep).earlier(point, compared=True) for point in others] == [None] * 3


def test_a_point_without_workers_is_run_at_the_scale_that_is_kept(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = sweep.points[0]
    SweepScales(sweep).keep({point.name: KEPT})
    (sweep.place(point)).mkdir(parents=True)
    (sweep.place(point) / "experiment.yaml").write_text("experiment: rails\n")  # of an attempt that was cut short
    ran = []

    def run(command: list[str], log: Path) -> int:
        ran.append(read_mapping(Path(command[2]), "a file", "steps")["scale"])
        log.write_text("no\n")
        return 3

    monkeypatch.setattr(execute, "run_command", run)
    assert sweep.claim(point) and run_point(sweep, point).status == 3
    assert ran == [{"rate": KEPT.rate, "time": KEPT.time}]


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"rate": "x", "time": 1}}', '{"a": {"rate": 1}}'])
def test_scales_that_were_changed_are_one_sentence(content: str, sweep: SweepFolder) -> None:
    (sweep.path / "scales.json").write_text(content)
    with pytest.raises(ConfigError, match="holds no scales; put it back"):
        SweepScales(sweep).as_run(sweep.points[0])


# ---- the machine that carries least ----------------------------------------------------------------------------------


def test_a_comparison_and_all_its_repeats_have_the_scale_of_the_slowest_machine() -> None:
    modes = ("electrical", "on-demand")
    points = [point(mode, repeat) for repeat in range(2) for mode in modes]
    fast = {"electrical-0": Scale(1 / 1000), "on-demand-0": Scale(1 / 2000)}
    slow = {"electrical-0": Scale(1 / 4000), "on-demand-0": Scale(1 / 3000, 1.2)}
    found = shared_scales(pieces(points), [fast, slow])
    assert found == {each.name: Scale(1 / 4000, 1.2) for each in points}


def test_other_comparisons_keep_their_own() -> None:
    one, other = point("electrical"), SweepPoint("o", "rails", {}, 0, "other", {"modes": "one-shot"})
    found = shared_scales(pieces([one, other]), [{"electrical-0": Scale(1 / 4000)}])
    assert found == {"electrical-0": Scale(1 / 4000)}


def test_a_point_that_this_machine_refuses_leaves_the_scales_of_the_others() -> None:
    good = {"experiment": "rails", "workload": "smoke", "modes": ["on-demand"], "scale": {"rate": 0.004}}
    refused = {**good, "delays_ms": [-1.0]}
    assert scales_here([refused, good]) == [None, {"rate": 0.004, "time": 1.0}]
