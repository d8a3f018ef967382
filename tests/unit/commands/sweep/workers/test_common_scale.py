from __future__ import annotations

from commands.sweep.point import SweepPoint
from commands.sweep.workers.common_scale import scales_here, shared_scales, slowest
from commands.sweep.workers.placement import pieces
from railyard.scale import Scale


def point(mode: str, repeat: int = 0, **values: object) -> SweepPoint:
    swept = {"modes": mode}
    return SweepPoint(f"{mode}-{repeat}", "rails", {"modes": [mode], **values}, repeat, f"c-{repeat}", swept)


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


def test_a_point_that_this_machine_refuses_leaves_the_scales_of_the_others() -> None:
    good = {"experiment": "rails", "workload": "smoke", "modes": ["on-demand"], "scale": {"rate": 0.004}}
    refused = {**good, "delays_ms": [-1.0]}
    assert scales_here([refused, good]) == [None, {"rate": 0.004, "time": 1.0}]
