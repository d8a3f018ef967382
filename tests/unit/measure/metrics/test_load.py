"""Who took the processors: names over the window of a point, and whether several measurements had the same load."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from measure.metrics.checks import Check, Limits, with_machine
from measure.metrics.load import interference_checks, same_load
from railyard.timeline import Event

Sample = tuple[float, float, dict[str, float]]
"""Seconds, share of all processors, and the shares of those who are named."""


def events(*samples: Sample, steal: float = 0.0) -> list[Event]:
    found, t = list[Event](), 0.0
    for seconds, share, names in samples:
        fields = {"cores": 2, "steal": steal, "other": share, "largest": list(names.items())}
        found.append(Event(t, "link", "cpu", t + seconds, fields))
        t += seconds
    return found


def checks(*samples: Sample, steal: float = 0.0) -> tuple[Check, Check]:
    return interference_checks(events(*samples, steal=steal), Limits())


def test_the_largest_are_summed_over_the_window_by_time() -> None:
    _, check = checks((1.0, 0.9, {"qemu": 0.7, "apt": 0.2}), (3.0, 0.7, {"qemu": 0.7}))
    assert check.says == "other processes kept 1.50 of 2 processors busy (qemu 1.40), more than 0.2"
    _, check = checks((1.0, 0.9, {"qemu": 0.7, "apt": 0.2}), (1.0, 0.5, {"apt": 0.1, "tar": 0.4}))
    assert check.says == "other processes kept 1.40 of 2 processors busy (qemu 0.70, tar 0.40, apt 0.30), more than 0.2"
    assert [name for name, _ in check.largest] == ["qemu", "tar", "apt"]
    assert dict(check.largest) == pytest.approx({"qemu": 0.7, "tar": 0.4, "apt": 0.3})


def test_who_took_little_is_not_named_unless_nobody_took_more() -> None:
    many = {f"p{number}": 0.02 + number / 1e4 for number in range(20)}
    _, check = checks((1.0, 0.5, many))
    assert [name for name, _ in check.largest] == ["p19"]
    _, check = checks((1.0, 0.5, dict.fromkeys("abcd", 0.125)))
    assert [name for name, _ in check.largest] == ["a", "b", "c"], "three at most"


def test_nobody_is_named_where_others_did_no_harm_and_by_samples_that_name_nobody() -> None:
    _, check = checks((1.0, 0.02, {"cron": 0.02}))
    assert (check.says, check.largest) == ("other processes kept 0.04 of 2 processors busy, at most 0.2", ())
    old = [Event(0.0, "link", "cpu", 1.0, {"cores": 2, "steal": 0.0, "other": 0.4})]
    _, check = interference_checks(old, Limits())
    assert (check.says, check.largest) == ("other processes kept 0.80 of 2 processors busy, more than 0.2", ())


def test_a_scale_that_leaves_processors_to_others_allows_them_so_much_more() -> None:
    begun = Event(0.0, "run", "begun", None, {"spared_cores": 1.0})
    _, check = interference_checks([begun, *events((1.0, 0.55, {"sh": 0.55}))], Limits())
    assert (check.ok, check.limit) == (True, 1.2)
    assert check.says.endswith("1.10 of 2 processors busy, at most 1.2 (1.00 are left to them by the scale)")
    _, check = interference_checks([begun, *events((1.0, 0.65, {"sh": 0.65}))], Limits())
    assert not check.ok and check.says.endswith("(sh 1.30), more than 1.2 (1.00 are left to them by the scale)")


def test_of_several_machines_those_of_the_worst_are_named() -> None:
    both = [*with_machine(events((1.0, 0.2, {"tar": 0.2})), "m0"), *with_machine(events((1.0, 0.5, {"dd": 0.5})), "m1")]
    _, check = interference_checks(both, Limits())
    assert check.says == "on m1 other processes kept 1.00 of 2 processors busy (dd 1.00), more than 0.2"
    assert check.largest == (("dd", 1.0),)


def test_stolen_time_is_that_of_other_guests_which_nobody_can_name() -> None:
    check, _ = checks((1.0, 0.0, {}), steal=0.09)
    assert check.says == (
        "other guests of the hardware took 9.0% of the processors (which ones cannot be seen from within this one), "
        "more than 4%"
    )
    check, _ = checks((1.0, 0.0, {}), steal=0.01)
    assert check.says == "other guests of the hardware took 1.0% of the processors, at most 4%"


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 1), st.floats(0, 1), st.dictionaries(st.sampled_from("abcdefg"), st.floats(0.001, 1))
        ),
        min_size=1,
    )
)
def test_the_sum_of_the_named_never_exceeds_the_total(samples: Sequence[Sample]) -> None:
    whole = [
        (t, share, {n: s * share / (sum(names.values())) for n, s in names.items()}) for t, share, names in samples
    ]
    _, check = checks(*whole)
    parts = [part for _, part in check.largest]
    assert check.value is not None and sum(parts) <= check.value * (1 + 1e-9) and len(parts) <= 3
    assert parts == sorted(parts, reverse=True)


TAR = checks((1.0, 0.5, {"tar": 0.4, "sh": 0.1}))
TAR_AND_DD = checks((1.0, 0.9, {"dd": 0.6, "tar": 0.3}))
A_LITTLE_TAR = checks((1.0, 0.3, {"dd": 0.25, "tar": 0.05}))
NOBODY = checks((1.0, 0.0, {}))
UNNAMED = checks((1.0, 0.5, {}))
STOLEN = checks((1.0, 0.0, {}), steal=0.1)
STOLEN_AND_TAR = checks((1.0, 0.5, {"tar": 0.4}), steal=0.1)
LATE = (Check("timer lag", 0.1, 0.002, "s", False, "timers were late"),)


@pytest.mark.parametrize(
    ("measurements", "says"),
    [
        ((TAR, TAR, TAR), "tar 0.80, sh 0.20 processors"),
        ((TAR, TAR_AND_DD), "tar 0.70 processors"),
        ((STOLEN, STOLEN_AND_TAR), "other guests of the hardware"),
        ((STOLEN_AND_TAR, TAR), "tar 0.80 processors"),
        (((*TAR, *TAR_AND_DD), (*LATE, *TAR)), "tar 0.70 processors"),
        ((TAR, A_LITTLE_TAR), None),
        ((TAR, STOLEN), None),
        ((TAR, NOBODY, TAR), None),
        ((UNNAMED, UNNAMED), None),
        ((LATE, LATE), None),
        ((), None),
    ],
)
def test_one_load_disturbed_all_measurements_if_it_was_named_each_time_and_too_much_by_itself(
    measurements: Sequence[Sequence[Check]], says: str | None
) -> None:
    assert same_load(measurements) == says
