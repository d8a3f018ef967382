"""How a job says that circuits shall take turns: what is read, and a sentence for whatever is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.rotation import Cycle
from controllers.northbound import messages
from railyard.errors import ConfigError

JOB = {"job": "j", "mode": "on-demand", "groups": []}


def cycle(value: object) -> Cycle | None:
    """What a job that registers with ``value`` gets, over the wire and back."""
    return messages.job(json.loads(json.dumps({**JOB, "cycle": value}))).cycle


@pytest.mark.parametrize(
    "made",
    [
        Cycle(),
        Cycle(0.2, 0.01, simplex=True),
        Cycle(guard_s=0.0, demand=((0.0, 3.0), (1.5, 0.0)), most_slots=4),
    ],
)
def test_a_cycle_comes_out_as_it_went_in(made: Cycle) -> None:
    assert cycle(asdict(made)) == made


def test_what_is_not_said_has_its_default() -> None:
    assert messages.job(JOB).cycle is None and cycle(None) is None
    assert cycle({}) == Cycle()
    assert cycle({"slot_s": 1}) == Cycle(slot_s=1.0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("often", "cycle: must be an object, not 'often'"),
        ([], r"cycle: must be an object, not \[\]"),
        ({"speed": 3}, "cycle.speed: is not a key of a cycle; use one of slot_s, guard_s, simplex, demand, most_"),
        ({"slot_s": "1"}, "cycle.slot_s: must be a number of seconds of 0 or more, not '1'"),
        ({"slot_s": True}, "cycle.slot_s: must be a number of seconds of 0 or more, not True"),
        ({"slot_s": -1}, "cycle.slot_s: must be a number of seconds of 0 or more, not -1"),
        ({"slot_s": float("nan")}, "cycle.slot_s: must be a number of seconds of 0 or more, not nan"),
        ({"slot_s": float("inf")}, "cycle.slot_s: must be a number of seconds of 0 or more, not inf"),
        ({"slot_s": 10**400}, "cycle.slot_s: must be a number of seconds of 0 or more, not 1000"),
        ({"slot_s": 0, "guard_s": 0.002}, "a slot of 0 ms leaves no time beside a guard time of 2 ms; make it longer"),
        ({"slot_s": 0.01, "guard_s": 0.01}, "a slot of 10 ms leaves no time beside a guard time of 10 ms"),
        ({"guard_s": -0.1}, "cycle.guard_s: must be a number of seconds of 0 or more, not -0.1"),
        ({"simplex": 1}, "cycle.simplex: must be true or false, not 1"),
        ({"most_slots": -1}, "cycle.most_slots: must be an integer of 0 or more, not -1"),
        ({"most_slots": 2.0}, "cycle.most_slots: must be an integer of 0 or more, not 2.0"),
        ({"demand": 5}, "cycle.demand: must be a list of rows of numbers, one row for each sender"),
        ({"demand": [1, 2]}, "cycle.demand: must be a list of rows of numbers"),
        ({"demand": [[0, "1"], [1, 0]]}, "cycle.demand: must be a list of rows of numbers"),
        ({"demand": [[0, True], [1, 0]]}, "cycle.demand: must be a list of rows of numbers"),
        ({"demand": [[0, None], [1, 0]]}, "cycle.demand: must be a list of rows of numbers"),
        ({"demand": [[0, 10**400], [1, 0]]}, "cycle.demand: must be a list of rows of numbers"),
    ],
)
def test_a_wrong_cycle_is_a_sentence(value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        cycle(value)
    assert "\n" not in str(caught.value)


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*asdict(Cycle()), "other"]), ANYTHING) | ANYTHING)
def test_whatever_is_written_is_a_cycle_or_a_sentence(value: Any) -> None:
    try:
        found = cycle(value)
    except ConfigError as error:
        assert str(error)
    else:
        assert found is None or isinstance(found, Cycle)
