"""Rows of repeats as one row: what counts is a matter of verdicts, the numbers are medians, pairs stay pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, ClassVar

from hypothesis import given
from hypothesis import strategies as st

from experiments.racks.row import FailoverRow
from experiments.report import verdict_lines
from measure.metrics.checks import Check, Verdict
from measure.metrics.estimate import estimate
from measure.results.combine import combined, combined_rows, sampled
from measure.results.estimates import estimate_of, ratio_of, values_of
from measure.results.row import MeasuredRow, columns
from measure.results.summary import Summary


@dataclass(kw_only=True)
class Timed(MeasuredRow):
    main: ClassVar[tuple[str, ...]] = ("time_s",)
    given: ClassVar[frozenset[str]] = MeasuredRow.given | {"delay_s"}

    name: str = "a"
    delay_s: float | None = 0.5
    time_s: Annotated[float | None, "measured"] = None
    predicted_time_s: float | None = 1.0
    slower: float | None = None
    right: bool | None = None
    parts: Sequence[float] = ()


FAILED = Check("timer lag", 0.1, 0.002, "s", False, "timers were late")


def timed(time_s: float | None, faithful: bool = True, number: int = 0, **more: object) -> Timed:
    row = Timed(time_s=time_s, point=number, parts=[time_s or 0.0], **more)  # type: ignore[arg-type]
    row.judge(Verdict(faithful, () if faithful else (FAILED,)))
    return row


def test_measured_numbers_are_sampled_and_given_and_predicted_ones_are_not() -> None:
    own = [name for name in sampled(Timed) if name not in sampled(MeasuredRow)]
    assert own == ["time_s", "slower"]
    assert {"misdelivered", "sent_bytes", "received_bytes", "lost_packets"} <= set(sampled(MeasuredRow))
    assert not {"point", "seed", "rate_scale", "attempts"} & set(sampled(MeasuredRow))


def test_the_row_has_medians_and_all_else_of_the_repeat_with_the_lower_median() -> None:
    row = combined([timed(4.0, number=0, right=True), timed(1.0, number=1), timed(3.0, number=2, right=True)])
    assert (row.time_s, row.point, row.parts) == (3.0, 2, [3.0])
    assert (row.repeats, row.attempts, row.faithful, row.verdict, row.right) == (3, 3, True, "faithful", True)
    assert row.samples == {"time_s": [4.0, 1.0, 3.0]}
    two = combined([timed(4.0), timed(1.0, number=1, right=False)])
    assert (two.time_s, two.point, two.right) == (2.5, 1, False)


def test_one_measurement_has_no_samples_and_no_interval() -> None:
    row = combined([timed(4.0)])
    assert (row.samples, row.repeats) == ({}, 1)
    one = estimate_of(row.to_json(), "time_s")
    assert one is not None and (one.low, one.n) == (None, 1)


def test_a_repeat_that_is_not_faithful_does_not_count_and_the_row_says_so() -> None:
    again = timed(9.0, faithful=False, number=1)
    again.attempts = 3
    row = combined([timed(4.0), again, timed(3.0, number=2)])
    assert (row.time_s, row.samples["time_s"]) == (3.5, [4.0, None, 3.0])
    assert (row.faithful, row.repeats, row.attempts) == (False, 2, 5)
    assert row.verdict == "NOT FAITHFUL in 1 of 3 repeats: timers were late (repeat 2)"
    assert row.checks == [replace(FAILED, repeat=2)]


def test_the_verdict_names_the_worst_repeat_of_each_check_and_checks_have_their_repeat() -> None:
    def off(value: float) -> Check:
        return Check("model", value, 0.1, "", value <= 0.1, f"the step is {value:+.0%} off the model")

    found = [timed(1.0, number=0), timed(2.0, number=1), timed(3.0, number=2)]
    for each, checks in zip(found, ((FAILED, off(0.01)), (off(0.12),), (FAILED, off(0.14))), strict=True):
        each.judge(Verdict(all(check.ok for check in checks), checks))
    row = combined(found)
    assert row.verdict == (
        "NOT FAITHFUL in 3 of 3 repeats: timers were late (repeat 1, the worst of 2); "
        "the step is +14% off the model (repeat 3, the worst of 2)"
    )
    seen = [(check.name, check.repeat, check.ok) for check in row.checks]
    assert seen == [
        *(("timer lag", 1, False), ("timer lag", 3, False), ("model", 3, False), ("model", 2, False)),
    ]
    lines = [str(line) for line in verdict_lines([row.to_json()], lambda row: row["name"])]
    assert lines[1:] == ["  a, repeat 1: timers were late", "  a, repeat 3: the step is +14% off the model"]


def test_the_worst_of_different_limits_is_the_one_farthest_off_its_own() -> None:
    def off(value: float | None, limit: float, says: str = "") -> Check:
        return Check("model", value, limit, "", False, says or f"{value} off, limit {limit}")

    def said(*checks: Check) -> str:
        found = [timed(float(number), number=number) for number in range(len(checks))]
        for row, check in zip(found, checks, strict=True):
            row.judge(Verdict(False, (check,)))
        return combined(found).verdict.partition("repeats: ")[2]

    assert said(off(0.5, 0.4), off(0.25, 0.05)) == "0.25 off, limit 0.05 (repeat 2, the worst of 2)"
    assert said(off(1.0, 0.0), off(3.0, 0.0), off(9.0, 1.0)) == "3.0 off, limit 0.0 (repeat 2, the worst of 3)"
    nothing = off(None, 0.4, "counters: not measured")
    assert said(nothing, nothing) == "counters: not measured (repeat 1, also in 1 more)"
    assert said(nothing) == ""
    assert said(off(0.5, 0.4), nothing) == "counters: not measured (repeat 2, also in 1 more)"


def test_the_checks_in_full_are_of_a_repeat_that_counts() -> None:
    kept = Check("counters", 0.0, 0.1, "", True, "all samples are there")
    wrong = Check("step spread", 0.2, 0.05, "", False, "the measured steps differ by 20.0%")
    found = [timed(1.0, number=0), timed(2.0, number=1), timed(3.0, number=2)]
    found[0].judge(Verdict(False, (FAILED, kept)))
    for row in found[1:]:
        row.judge(Verdict(True, (kept,)))
    assert combined(found).checks == [replace(FAILED, repeat=1), replace(kept, repeat=2)]
    found[2].judge(Verdict(False, (wrong, kept)))
    seen = [(check.name, check.repeat) for check in combined(found).checks]
    assert seen == [("timer lag", 1), ("step spread", 3), ("counters", 3)]


numbers = st.floats(0.01, 100)
measured = st.lists(st.tuples(numbers, st.booleans()), min_size=2, max_size=6)


@given(measured, st.randoms(use_true_random=False))
def test_what_counts_depends_on_verdicts_alone_and_not_on_the_order(
    found: list[tuple[float, bool]], random: object
) -> None:
    row = combined([timed(*each) for each in found])
    counting = [value for value, good in found if good] or [value for value, _ in found]
    assert row.repeats == len(counting)
    assert row.time_s == median(counting)
    assert row.samples["time_s"] == [
        value if good or not any(good for _, good in found) else None for value, good in found
    ]
    assert row.faithful == all(good for _, good in found)
    assert row.parts[0] in counting
    backwards = combined([timed(*each) for each in reversed(found)])
    assert (backwards.time_s, backwards.repeats, backwards.parts) == (row.time_s, row.repeats, row.parts)
    seen = estimate_of(row.to_json(), "time_s")
    assert seen == estimate(counting)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=5))
def test_rows_of_one_repeat_stay_pairs(pairs: list[tuple[float, float]]) -> None:
    repeats = [{0: [timed(base)], 1: [timed(other, name="b", slower=other / base)]} for base, other in pairs]
    electrical, optical = (row.to_json() for row in combined_rows(repeats))
    assert values_of(optical, "slower") == [other / base for base, other in pairs]
    assert ratio_of(optical, electrical, "time_s") == estimate([other / base for base, other in pairs])


def test_rows_come_in_the_order_of_pieces_also_where_a_repeat_lacks_some() -> None:
    first, second = {1: [timed(2.0, name="b")], 0: [timed(1.0)]}, {1: [timed(4.0, name="b")]}
    found = combined_rows([first, second, {}])
    assert [(row.name, row.time_s, row.repeats) for row in found] == [("a", 1.0, 1), ("b", 3.0, 2)]  # type: ignore[attr-defined]


def test_rows_of_a_piece_whose_number_differs_are_told_apart() -> None:
    first, second = {0: [timed(1.0), timed(2.0, name="b")]}, {0: [timed(4.0, name="b")]}
    a, b = combined_rows([first, second], lambda row: row.name)
    assert (a.samples["time_s"], b.samples["time_s"]) == ([1.0, None], [2.0, 4.0])
    assert (a.repeats, a.faithful) == (1, True)


def test_the_table_has_the_ends_of_the_interval_of_main_numbers() -> None:
    rows = [combined([timed(1.0), timed(2.0)]).to_json(), timed(5.0).to_json()]
    asked = [name for name in columns(Timed) if name in ("time_s", "time_s_low", "time_s_high")]
    assert asked == ["time_s", "time_s_low", "time_s_high"]
    assert b"".join(Summary(rows).csv(asked)) == (b"time_s,time_s_low,time_s_high\n1.5,-4.853,7.853\n5.0,,\n")


def test_a_repeat_that_is_far_off_counts_and_makes_the_row_not_faithful() -> None:
    off = timed(9.0, number=1)
    off.judge(Verdict(False, (Check("step spread", 0.2, 0.05, "", False, "the measured steps differ by 20.0%"),)))
    row = combined([timed(4.0), off, timed(5.0, number=2)])
    assert (row.time_s, row.repeats, row.samples["time_s"]) == (5.0, 3, [4.0, 9.0, 5.0])
    assert (row.faithful, row.verdict) == (
        False,
        "NOT FAITHFUL in 1 of 3 repeats: the measured steps differ by 20.0% (repeat 2)",
    )


def test_no_median_hides_the_failure_of_one_repeat() -> None:
    found = [FailoverRow(state="recovered", outage_s=1.0, lost_steps=0, misdelivered=0) for _ in range(3)]
    found[1] = FailoverRow(state="stranded", lost_steps=3, misdelivered=7, checksum_ok=False)
    for row in found:
        row.judge(Verdict(True, ()))
    row = combined(found)
    assert (row.misdelivered, row.lost_steps, row.checksum_ok) == (7, 3, False)
    assert (row.state, row.reason) == ("differs", "repeats: 2 recovered, 1 stranded")
    outage = estimate_of(row.to_json(), "outage_s")
    assert outage is not None and (outage.median, outage.n) == (1.0, 2)
    found[1].judge(Verdict(False, (FAILED,)))
    disturbed = combined(found)
    assert (disturbed.misdelivered, disturbed.state, disturbed.repeats) == (7, "differs", 2)
