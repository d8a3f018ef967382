from __future__ import annotations

from experiments.sweep.point import SweepPoint
from experiments.sweep.workers.common_scale import is_automatic, shared_scales, slowest, with_scale
from experiments.sweep.workers.placement import pieces
from railyard.scale import Scale


def point(mode: str, repeat: int = 0, **values: object) -> SweepPoint:
    swept = {"modes": mode}
    return SweepPoint(f"{mode}-{repeat}", "rails", {"modes": [mode], **values}, repeat, f"c-{repeat}", swept)


def test_only_a_measured_point_whose_rate_is_left_open_has_an_automatic_scale() -> None:
    assert is_automatic(point("electrical"))
    assert is_automatic(point("electrical", scale={"time": 2}))
    assert not is_automatic(point("electrical", scale={"rate": 0.001}))
    assert not is_automatic(SweepPoint("x", "rails", {}, 0, "c", {}, predict=True))
    assert not is_automatic(SweepPoint("x", "mesh", {}, 0, "c", {}))


def test_the_slowest_scale_has_the_lowest_rate_and_the_longest_time() -> None:
    assert slowest([Scale(1 / 2000, 1.0), Scale(1 / 4000, 1.2), Scale(1 / 3000, 1.3)]) == Scale(1 / 4000, 1.3)


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
