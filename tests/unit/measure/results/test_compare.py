"""Which rows of two runs are of the same point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from experiments.allocation.row import AllocationRow
from experiments.collectives.row import TrialRow
from experiments.mesh.row import MeshRow
from experiments.racks.row import FailoverRow, State
from experiments.rails.row import RailRow
from measure.metrics.independent import difference, relative
from measure.results.compare import compared, main_numbers, match, other_numbers
from measure.results.plain import plain
from measure.results.row import MeasuredRow, ResultRow, Row


def rail(mode: str, delay_ms: float, step_s: float | None = 1.0, **more: Any) -> Row:
    fields = {"workload": "w", "fabric": "ocs", "policy": "opus" if mode == "on-demand" else "static", **more}
    row = RailRow(mode=mode, reconfiguration_delay_ms=delay_ms, link_recovery_ms=0.0, step_time_s=step_s, **fields)
    return dict(plain(row.to_json()))


def names(pairs: Any) -> list[tuple[Any, ...]]:
    return [(p.a["mode"], p.a["reconfiguration_delay_ms"], p.b["reconfiguration_delay_ms"]) for p in pairs]


def test_points_are_matched_by_what_names_them_in_any_order() -> None:
    a = [rail("electrical", 0), rail("on-demand", 0), rail("on-demand", 200), rail("provisioned", 200)]
    b = [rail("on-demand", 200), rail("on-demand", 50), rail("electrical", 0), rail("on-demand", 0)]
    found = match(a, b, [RailRow])
    assert names(found.pairs) == [("electrical", 0, 0), ("on-demand", 0, 0), ("on-demand", 200, 200)]
    assert found.alone == ([a[3]], [b[1]])
    assert set(found.names[RailRow]) == {"mode", "reconfiguration_delay_ms"}


def test_a_setting_of_the_whole_run_may_differ() -> None:
    a = [rail("electrical", 0), rail("on-demand", 0)]
    b = [rail("electrical", 0, workload="other", seed=7), rail("on-demand", 0, workload="other", policy="mine")]
    assert len(match(a, b, [RailRow]).pairs) == 2
    assert len(match(a[1:], [rail("on-demand", 100)], [RailRow]).pairs) == 1


def test_counts_of_a_measurement_name_no_point() -> None:
    a = [rail("on-demand", 0, steps=5), rail("on-demand", 100, steps=4)]
    b = [rail("on-demand", 0, steps=4), rail("on-demand", 100, steps=5)]
    assert names(match(a, b, [RailRow]).pairs) == [("on-demand", 0, 0), ("on-demand", 100, 100)]


def trial(algorithm: str, size: int, gbps: float, bound_s: float) -> Row:
    row = TrialRow(
        study="s", algorithm=algorithm, collective="all-reduce", n=8, bytes=size, fabric="ocs", port_gbps=gbps,
        mtu=1500, rounds=14, second_phase_rounds=0, bound_s=bound_s, time_s=bound_s,
    )  # fmt: skip
    return dict(plain(row.to_json()))


def test_a_given_number_that_follows_from_others_need_not_be_equal() -> None:
    a = [trial("ring", 1, 100, 0.1), trial("ring", 2, 100, 0.2), trial("tree", 1, 100, 0.3)]
    b = [trial("ring", 1, 400, 0.025), trial("ring", 2, 400, 0.05), trial("tree", 1, 400, 0.075)]
    assert [(p.a["bytes"], p.b["bytes"]) for p in match(a, b, [TrialRow]).pairs] == [(1, 1), (2, 2), (1, 1)]


def test_an_outcome_names_no_point() -> None:
    def rack(state: State, fault_t: float) -> Row:
        return dict(plain(FailoverRow(fabric="e1", tenant="A", event="kill 1", state=state, fault_t=fault_t).to_json()))

    found = match([rack("recovered", 1.0)], [rack("stranded", 2.0)], [FailoverRow])
    assert len(found.pairs) == 1


@dataclass(kw_only=True)
class Timed(MeasuredRow):
    main: ClassVar[tuple[str, ...]] = ("time_s",)
    name: str = "a"
    time_s: Annotated[float | None, "measured"] = None
    predicted_time_s: float | None = 1.0
    slower: float | None = None


@dataclass(kw_only=True)
class Counted(ResultRow):
    name: str
    chips: int | None = None
    number: int = 0
    paper_share: float | None = None


def test_rows_that_nothing_tells_apart_are_matched_in_their_order() -> None:
    a, b = ([dict(plain(Timed(time_s=t).to_json())) for t in times] for times in ((1.0, 2.0, 3.0), (4.0, 5.0)))
    found = match(a, b, [Timed])
    assert [(p.a["time_s"], p.b["time_s"]) for p in found.pairs] == [(1.0, 4.0), (2.0, 5.0)]
    assert found.alone == ([a[2]], [])


def test_rows_of_different_types_never_match() -> None:
    a, b = dict(plain(Timed(time_s=1.0).to_json())), dict(plain(Counted(name="a", chips=1).to_json()))
    found = match([a], [b], [Timed, Counted])
    assert (found.pairs, found.alone) == ([], ([a], [b]))


def test_numbers_of_measured_rows_are_measured_and_those_of_computed_rows_are_not_given() -> None:
    assert main_numbers(Timed) == ["time_s", "predicted_time_s"]
    assert "slower" in other_numbers(Timed, []) and "time_s" not in other_numbers(Timed, [])
    rows = [dict(plain(Counted(name=name, chips=4, number=9).to_json())) for name in "ab"]
    assert other_numbers(Counted, rows) == ["chips", "number"]
    assert not {"chips", "failures", "paper_index_max"} & set(other_numbers(AllocationRow, []))
    assert {"gates", "seconds"} <= set(other_numbers(MeshRow, []))


def test_intervals_come_from_the_repeats() -> None:
    a = rail("on-demand", 0, 2.0, samples={"step_time_s": [2.0, 2.1, 1.9]})
    b = rail("on-demand", 0, 3.0, samples={"step_time_s": [3.0, None, 3.1]})
    (pair,) = match([a], [b], [RailRow]).pairs
    found = compared(pair, "step_time_s")
    assert found is not None and (found.a.n, found.b.n) == (3, 2)
    assert found.difference.value == 3.05 - 2.0
    assert found.difference.low is not None and found.difference.low < 1.05 < (found.difference.high or 0)
    assert compared(pair, "hidden_s") is None


def test_an_interval_holds_zero_if_the_one_in_percent_does() -> None:
    """These are the step times of two runs of which the one interval held 0 and the other did not."""
    base, values = [1.517, 1.506, 1.501, 1.507, 1.492, 1.502], [1.590, 1.588, 1.593, 1.570, 1.562, 1.758]
    plain, share = difference(base, values), relative(base, values)
    assert plain is not None and share is not None
    assert (plain.holds_zero, share.holds_zero) == (True, False)
    a, b = rail("a", 0, 1.0, samples={"step_time_s": base}), rail("a", 0, 1.0, samples={"step_time_s": values})
    for one, other in ((a, b), (b, a)):
        (pair,) = match([one], [other], [RailRow]).pairs
        found = compared(pair, "step_time_s")
        assert found is not None and found.relative is not None
        assert found.difference.holds_zero and found.relative.holds_zero
