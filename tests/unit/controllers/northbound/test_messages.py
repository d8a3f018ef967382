"""How a job says that circuits shall take turns: what is read, and a sentence for whatever is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.circuits.rotation import Cycle
from controllers.engine.jobs import Job
from controllers.northbound.messages import Register, header_of, read_request
from railyard.errors import ConfigError

JOB = {"name": "j", "mode": "on-demand", "groups": []}


def registered(job: object) -> Job:
    """The job that is registered when a client sends ``job``."""
    request = read_request(json.dumps({"op": "register", "policy": "rotor", "job": job}).encode())
    assert isinstance(request, Register)
    return request.job


def cycle(value: object) -> Cycle | None:
    """What a job that registers with ``value`` gets, over the wire and back."""
    return registered({**JOB, "cycle": value}).cycle


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
    assert registered(JOB).cycle is None and cycle(None) is None
    assert cycle({}) == Cycle()
    assert cycle({"slot_s": 1}) == Cycle(slot_s=1.0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"slot_s": 10**400}, r"cycle.slot_s: must be a finite number, not one of more than 100 digits"),
        ({"demand": [[0, 10**400], [1, 0]]}, "cycle.demand.0.1: must be a finite number, not one of more"),
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


@pytest.mark.parametrize("line", [b"", b"hello", b"\xff", b'{"op":"jobs"', b"[" * 100_000])
def test_what_is_no_json_has_no_header(line: bytes) -> None:
    assert header_of(line) == (None, None)
